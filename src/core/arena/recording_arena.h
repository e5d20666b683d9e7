// An arena that writes down what is asked of another: real sequences of requests, to be tried on
// arenas of other kinds and sizes.
#ifndef TVM_DTR_CORE_ARENA_RECORDING_ARENA_H_
#define TVM_DTR_CORE_ARENA_RECORDING_ARENA_H_

#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/arena.h"

namespace dtr {

// Sizes as asked for. Blocks are numbered in the order of their requests; a refused request has a
// number, too.
struct ArenaEvent {
  enum class Kind : uint8_t { kAllocate, kFree, kRefuse, kCharge, kDischarge };
  Kind kind;
  uint32_t block;  // of kAllocate, kFree and kRefuse
  uint64_t bytes;
};

class RecordingArena : public Arena {
 public:
  explicit RecordingArena(std::unique_ptr<Arena> arena) : arena_(std::move(arena)) {}

  const std::vector<ArenaEvent>& events() const { return events_; }

  Block Allocate(uint64_t bytes) override {
    Block block = arena_->Allocate(bytes);
    events_.push_back(
        {block ? ArenaEvent::Kind::kAllocate : ArenaEvent::Kind::kRefuse, next_, bytes});
    if (block) live_[block.data] = {next_, bytes};
    ++next_;
    return block;
  }
  void Free(const Block& block) override {
    auto found = live_.find(block.data);
    events_.push_back({ArenaEvent::Kind::kFree, found->second.first, found->second.second});
    live_.erase(found);
    arena_->Free(block);
  }
  bool Charge(uint64_t bytes) override {
    if (!arena_->Charge(bytes)) return false;
    events_.push_back({ArenaEvent::Kind::kCharge, 0, bytes});
    return true;
  }
  void Discharge(uint64_t bytes) override {
    events_.push_back({ArenaEvent::Kind::kDischarge, 0, bytes});
    arena_->Discharge(bytes);
  }

  uint64_t RoundedSize(uint64_t bytes) const override { return arena_->RoundedSize(bytes); }
  uint64_t LeastSize(uint64_t bytes) const override { return arena_->LeastSize(bytes); }
  uint64_t BytesToAllocate(uint64_t bytes) const override { return arena_->BytesToAllocate(bytes); }
  uint64_t active() const override { return arena_->active(); }
  uint64_t mapped() const override { return arena_->mapped(); }
  uint64_t peak_active() const override { return arena_->peak_active(); }
  uint64_t peak_mapped() const override { return arena_->peak_mapped(); }
  void ResetPeak() override { arena_->ResetPeak(); }
  uint64_t capacity() const override { return arena_->capacity(); }
  uint64_t largest_free() const override { return arena_->largest_free(); }
  const AddressRuns* runs() const override { return arena_->runs(); }
  uint64_t SetCapacity(uint64_t capacity, bool* fits) override {
    return arena_->SetCapacity(capacity, fits);
  }

 private:
  std::unique_ptr<Arena> arena_;
  std::vector<ArenaEvent> events_;
  std::unordered_map<void*, std::pair<uint32_t, uint64_t>> live_;
  uint32_t next_ = 0;
};

}  // namespace dtr

#endif  // TVM_DTR_CORE_ARENA_RECORDING_ARENA_H_
