// Arenas under any sequence of requests: blocks do not overlap, the sums hold, the capacity too.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bytes.h"
#include "core/arena.h"

using dtr_fuzz::Bytes;

namespace {

void Demand(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "not so: %s\n", what);
  std::abort();
}

class Requests {
 public:
  Requests(dtr::Arena* arena, Bytes* bytes) : arena_(arena), bytes_(bytes) {}

  void Run() {
    while (!bytes_->empty()) {
      One();
      Demand(arena_->active() <= arena_->mapped(), "active <= mapped");
      Demand(arena_->mapped() <= arena_->capacity(), "mapped <= capacity");
      Demand(arena_->active() >= charged_ + handed_out_, "active holds what was handed out");
      Demand(arena_->peak_active() >= arena_->active(), "peak >= active");
    }
    for (auto& [start, block] : live_) arena_->Free(block);
    arena_->Discharge(charged_);
    Demand(arena_->active() == 0, "nothing is left");
  }

 private:
  uint64_t Size() {
    switch (bytes_->Below(8)) {
      case 0:
        return bytes_->Word();
      case 1:
        return bytes_->Below(1 << 16) * uint64_t{64};
      case 2:
        return 0;
      default:
        return bytes_->Below(5000);
    }
  }

  void One() {
    switch (bytes_->Below(8)) {
      case 0:
        return Charge();
      case 1: {
        uint64_t back = charged_ == 0 ? 0 : bytes_->Word() % (charged_ + 1);
        arena_->Discharge(back);
        charged_ -= back;
        return;
      }
      case 2:
        return Resize();
      case 3:
      case 4:
        return FreeOne();
      default:
        return Allocate(Size());
    }
  }

  void Charge() {
    uint64_t bytes = Size();
    if (arena_->Charge(bytes)) charged_ += bytes;
  }

  void Resize() {
    bool fits = false;
    uint64_t before = arena_->capacity(), wanted = bytes_->Below(1 << 16) * uint64_t{256};
    arena_->SetCapacity(wanted, &fits);
    Demand(arena_->capacity() == (fits ? wanted : before), "the capacity asked for, or as it was");
  }

  void FreeOne() {
    if (live_.empty()) return;
    auto block = live_.begin();
    std::advance(block, bytes_->Below(static_cast<uint32_t>(live_.size())));
    handed_out_ -= block->second.bytes;
    arena_->Free(block->second);
    live_.erase(block);
  }

  void Allocate(uint64_t bytes) {
    dtr::Block block = arena_->Allocate(bytes);
    if (!block) return;
    auto start = reinterpret_cast<uintptr_t>(block.data);
    Demand(block.bytes >= bytes, "as much as was asked for");
    Demand(start % 64 == 0, "aligned");
    auto next = live_.lower_bound(start);
    Demand(next == live_.end() || next->first >= End(start, block), "no overlap with the next");
    if (next != live_.begin()) {
      auto before = std::prev(next);
      Demand(End(before->first, before->second) <= start, "no overlap with the one before");
    }
    live_[start] = block;
    handed_out_ += block.bytes;
  }

  static uintptr_t End(uintptr_t start, const dtr::Block& block) { return start + block.bytes; }

  dtr::Arena* arena_;
  Bytes* bytes_;
  std::map<uintptr_t, dtr::Block> live_;
  uint64_t charged_ = 0, handed_out_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Bytes bytes(data, size);
  const std::string name = bytes.OneIn(2) ? "best-fit" : "paged";
  auto arena = dtr::MakeArena(name, uint64_t{1} << 24, /*backed=*/false);
  Requests(arena.get(), &bytes).Run();
  return 0;
}
