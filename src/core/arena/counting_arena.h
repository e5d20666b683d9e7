// An arena that only counts: no memory, and no fragmentation. Sizes count as they are, for traces
// whose sizes are exact, or as another arena rounds them: blocks of a page and more by themselves,
// smaller ones together, for they share pages.
#ifndef TVM_DTR_CORE_ARENA_COUNTING_ARENA_H_
#define TVM_DTR_CORE_ARENA_COUNTING_ARENA_H_

#include <algorithm>
#include <memory>
#include <utility>

#include "core/arena.h"

namespace dtr {

class CountingArena : public Arena {
 public:
  explicit CountingArena(uint64_t capacity) : capacity_(capacity) {}
  // `page`: of `rounding`, in bytes.
  CountingArena(uint64_t capacity, std::unique_ptr<Arena> rounding, uint64_t page)
      : capacity_(capacity), rounding_(std::move(rounding)), page_(page) {}

  Block Allocate(uint64_t bytes) override {
    const uint64_t rounded = RoundedSize(bytes), small = rounded < page_ ? rounded : 0;
    if (!Charge(small ? Pages(small_ + small) - Pages(small_) : rounded)) return {};
    small_ += small;
    next_address_ += std::max<uint64_t>(bytes, 1);
    return {reinterpret_cast<void*>(next_address_), LeastSize(bytes)};
  }
  void Free(const Block& block) override {
    const uint64_t rounded = RoundedSize(block.bytes), small = rounded < page_ ? rounded : 0;
    active_ -= small ? Pages(small_) - Pages(small_ - small) : rounded;
    small_ -= small;
  }
  bool Charge(uint64_t bytes) override {
    if (active_ > capacity_ || bytes > capacity_ - active_) return false;
    active_ += bytes;
    peak_ = std::max(peak_, active_);
    return true;
  }
  void Discharge(uint64_t bytes) override { active_ -= bytes; }
  uint64_t RoundedSize(uint64_t bytes) const override {
    return rounding_ ? rounding_->RoundedSize(bytes) : bytes;
  }
  uint64_t LeastSize(uint64_t bytes) const override {
    return rounding_ ? rounding_->LeastSize(bytes) : bytes;
  }
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
  // Of blocks that share them, in bytes.
  uint64_t Pages(uint64_t bytes) const { return (bytes + page_ - 1) / page_ * page_; }

  uint64_t capacity_;
  std::unique_ptr<Arena> rounding_;
  uint64_t page_ = 0, small_ = 0;
  uint64_t active_ = 0, peak_ = 0;
  uintptr_t next_address_ = 1;
};

}  // namespace dtr

#endif  // TVM_DTR_CORE_ARENA_COUNTING_ARENA_H_
