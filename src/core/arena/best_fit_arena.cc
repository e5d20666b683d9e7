#include "core/arena/best_fit_arena.h"

#include <algorithm>
#include <new>
#include <utility>

#include "core/errors.h"

namespace dtr {
namespace {

constexpr uint64_t kReservation = uint64_t{64} << 30;  // addresses, not memory
constexpr uint64_t kHostAlignment = 64;

std::unique_ptr<PageSource> HostSource(bool backed) {
  if (backed) return std::make_unique<HostPages>();
  return std::make_unique<NoPages>();
}

}  // namespace

BestFitArena::BestFitArena(uint64_t capacity, bool backed)
    : BestFitArena(capacity, HostSource(backed), kHostAlignment) {}

BestFitArena::BestFitArena(uint64_t capacity, std::unique_ptr<PageSource> pages, uint64_t alignment)
    : capacity_(capacity), alignment_(alignment), pages_(std::move(pages)), page_(pages_->page()) {
  FitRange();
}

uint64_t BestFitArena::RoundedSize(uint64_t bytes) const {
  if (bytes > kUnlimited - alignment_) return kUnlimited;
  return (std::max<uint64_t>(bytes, 1) + alignment_ - 1) / alignment_ * alignment_;
}

uint64_t BestFitArena::largest_free() const {
  Id largest = runs_.Largest();
  return largest == kNone ? 0 : runs_[largest].bytes;
}

Block BestFitArena::Allocate(uint64_t bytes) {
  uint64_t rounded = RoundedSize(bytes);
  Id id = runs_.BestFit(rounded);
  if (id == kNone || !Carve(id, rounded)) return {};
  NotePeak();
  uintptr_t start = runs_[id].start;
  pages_->OnAllocate(start, rounded);
  return {reinterpret_cast<void*>(start), rounded, id};
}

void BestFitArena::Free(const Block& block) {
  const AddressRuns::Run& run = runs_[block.place];
  DTR_CHECK(!run.free && run.start == reinterpret_cast<uintptr_t>(block.data),
            "a block was freed that is not live");
  pages_->OnFree(run.start, run.bytes);
  Release(block.place);
}

bool BestFitArena::Charge(uint64_t bytes) {
  if (!MakeRoom(bytes)) return false;
  external_ += bytes;
  NotePeak();
  return true;
}

void BestFitArena::ResetPeak() {
  peak_active_ = active();
  peak_mapped_ = mapped();
}

uint64_t BestFitArena::SetCapacity(uint64_t capacity, bool* fits) {
  uint64_t old = capacity_;
  *fits = active() <= capacity;
  if (*fits) {
    capacity_ = capacity;
    MakeRoom(0);
    FitRange();
  }
  return old;
}

// -- Runs -----------------------------------------------------------------------------------------

uint64_t BestFitArena::Cached(Id id) const {
  const AddressRuns::Run& run = runs_[id];
  uintptr_t low = PageUp(run.start), high = PageDown(run.end());
  return high > low ? high - low - run.vacant_bytes : 0;
}

void BestFitArena::List(Id id) {
  cached_ += Cached(id);
  runs_.List(id);
}

void BestFitArena::Unlist(Id id) {
  cached_ -= Cached(id);
  runs_.Unlist(id);
}

bool BestFitArena::Carve(Id id, uint64_t bytes) {
  Unlist(id);
  uintptr_t vacant = runs_[id].vacant_start, vacant_end = runs_[id].vacant_end();
  uintptr_t cut = PageUp(runs_[id].start + bytes);
  if (runs_[id].bytes > bytes) {
    Id rest = runs_.Split(id, bytes);
    uintptr_t left = std::min(std::max(vacant, cut), vacant_end);
    runs_[rest].vacant_start = left;
    runs_[rest].vacant_bytes = vacant_end - left;
    List(rest);
  }
  uint64_t missing = vacant < cut ? std::min(cut, vacant_end) - vacant : 0;
  runs_[id].free = false;
  runs_[id].vacant_bytes = 0;
  if (missing == 0 || Back(vacant, missing)) return true;
  runs_[id].vacant_start = vacant;
  runs_[id].vacant_bytes = missing;
  Release(id);
  return false;
}

bool BestFitArena::Back(uintptr_t start, uint64_t bytes) {
  if (!MakeRoom(bytes) || !pages_->Map(start, bytes)) return false;
  pages_mapped_ += bytes;
  return true;
}

void BestFitArena::Release(Id id) {
  runs_[id].free = true;
  Id next = runs_[id].next, previous = runs_[id].previous;
  if (next != kNone && runs_[next].free) {
    Unlist(next);
    Join(id);
  }
  if (previous != kNone && runs_[previous].free) {
    Unlist(previous);
    Join(previous);
    id = previous;
  }
  List(id);
}

// A run tells of one vacant part: what has memory between two such is given back.
void BestFitArena::Join(Id id) {
  AddressRuns::Run& run = runs_[id];
  const AddressRuns::Run& next = runs_[run.next];
  if (run.vacant_bytes > 0 && next.vacant_bytes > 0) {
    if (next.vacant_start > run.vacant_end()) {
      Unmap(run.vacant_end(), next.vacant_start - run.vacant_end());
    }
    run.vacant_bytes = next.vacant_end() - run.vacant_start;
  } else if (next.vacant_bytes > 0) {
    run.vacant_start = next.vacant_start;
    run.vacant_bytes = next.vacant_bytes;
  }
  runs_.AbsorbNext(id);
}

// -- Pages ----------------------------------------------------------------------------------------

// From the highest addresses down, for best fit leaves the lower ones fuller.
bool BestFitArena::MakeRoom(uint64_t bytes) {
  uint64_t held = active();
  if (held > capacity_ || bytes > capacity_ - held) return false;
  uint64_t allowed = capacity_ - bytes;
  for (Id id = runs_.last(); mapped() > allowed; id = runs_[id].previous) {
    if (runs_[id].free) cached_ -= Vacate(id, PageUp(mapped() - allowed));
  }
  return true;
}

uint64_t BestFitArena::Vacate(Id id, uint64_t bytes) {
  AddressRuns::Run& run = runs_[id];
  if (Cached(id) == 0) return 0;
  uintptr_t low = PageUp(run.start), high = PageDown(run.end());
  if (run.vacant_bytes == 0) run.vacant_start = high;
  uint64_t above = Unmap(run.vacant_end(), std::min(bytes, high - run.vacant_end()));
  run.vacant_bytes += above;
  uint64_t below = std::min(bytes - above, run.vacant_start - low);
  Unmap(run.vacant_start - below, below);
  run.vacant_start -= below;
  run.vacant_bytes += below;
  return above + below;
}

uint64_t BestFitArena::Unmap(uintptr_t start, uint64_t bytes) {
  if (bytes == 0) return 0;
  pages_->Unmap(start, bytes);
  pages_mapped_ -= bytes;
  return bytes;
}

void BestFitArena::FitRange() {
  if (!base_) {
    uint64_t size = std::max(kReservation, capacity_ == kUnlimited ? 0 : PageUp(capacity_));
    base_ = end_ = pages_->Reserve(page_, &size);
    if (!base_) throw std::bad_alloc();
    reserved_end_ = base_ + size;
  }
  uint64_t most = reserved_end_ - base_;
  uintptr_t end = base_ + (capacity_ < most ? PageUp(capacity_) : most);
  if (end > end_) {
    Id id = runs_.Append(end_, end - end_);
    end_ = end;
    Release(id);
    return;
  }
  Id last = runs_.last();
  if (last == kNone || !runs_[last].free) return;
  end = std::max(end, PageUp(runs_[last].start + 1));
  if (end == end_) return;
  Unlist(last);
  AddressRuns::Run& run = runs_[last];
  Vacate(last, run.bytes);
  run.bytes = end - run.start;
  run.vacant_bytes = end - run.vacant_start;
  end_ = end;
  List(last);
}

void BestFitArena::NotePeak() {
  peak_active_ = std::max(peak_active_, active());
  peak_mapped_ = std::max(peak_mapped_, mapped());
}

void BestFitArena::Validate() const {
  runs_.Validate();
  uint64_t vacant = 0, cached = 0, bytes = 0;
  for (Id id = runs_.first(); id != kNone; id = runs_[id].next) {
    const AddressRuns::Run& run = runs_[id];
    bytes += run.bytes;
    DTR_CHECK(run.free || run.vacant_bytes == 0, "a live block has no memory");
    if (!run.free) continue;
    vacant += run.vacant_bytes;
    cached += Cached(id);
    DTR_CHECK(
        run.vacant_bytes == 0 || (run.vacant_start >= run.start && run.vacant_end() <= run.end()),
        "a free run is vacant beyond its end");
  }
  DTR_CHECK(bytes == end_ - base_, "the runs do not cover the range");
  DTR_CHECK(bytes - vacant == pages_mapped_, "the mapped pages are miscounted");
  DTR_CHECK(cached == cached_, "the cached pages are miscounted");
  DTR_CHECK(mapped() <= capacity_, "more is mapped than the capacity allows");
}

}  // namespace dtr
