// An arena that only counts: no memory, no rounding. For traces whose sizes are exact.
#ifndef TVM_DTR_CORE_ARENA_COUNTING_ARENA_H_
#define TVM_DTR_CORE_ARENA_COUNTING_ARENA_H_

#include <algorithm>

#include "core/arena.h"

namespace dtr {

class CountingArena : public Arena {
 public:
  explicit CountingArena(uint64_t capacity) : capacity_(capacity) {}

  Block Allocate(uint64_t bytes) override {
    if (!Charge(bytes)) return {};
    next_address_ += std::max<uint64_t>(bytes, 1);
    return {reinterpret_cast<void*>(next_address_), bytes};
  }
  void Free(const Block& block) override { active_ -= block.bytes; }
  bool Charge(uint64_t bytes) override {
    if (active_ > capacity_ || bytes > capacity_ - active_) return false;
    active_ += bytes;
    peak_ = std::max(peak_, active_);
    return true;
  }
  void Discharge(uint64_t bytes) override { active_ -= bytes; }
  uint64_t RoundedSize(uint64_t bytes) const override { return bytes; }
  uint64_t active() const override { return active_; }
  uint64_t mapped() const override { return active_; }
  uint64_t peak_active() const override { return peak_; }
  uint64_t peak_mapped() const override { return peak_; }
  void ResetPeak() override { peak_ = active_; }
  uint64_t capacity() const override { return capacity_; }
  uint64_t largest_free() const override { return capacity_ - std::min(active_, capacity_); }
  uint64_t SetCapacity(uint64_t capacity, bool* fits) override {
    uint64_t old = capacity_;
    *fits = active_ <= capacity;
    if (*fits) capacity_ = capacity;
    return old;
  }

 private:
  uint64_t capacity_;
  uint64_t active_ = 0, peak_ = 0;
  uintptr_t next_address_ = 1;
};

}  // namespace dtr

#endif  // TVM_DTR_CORE_ARENA_COUNTING_ARENA_H_
