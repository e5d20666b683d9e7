// The host arena: whole pages from the operating system, mapped on demand and given back.
//
// Large blocks (over 2 KiB) are whole 4 KiB pages. Freed pages stay in memory as long as the budget
// allows, neighbours joined, and serve later blocks of any size. Where no run of them is long
// enough, some are given back to the system and new pages are mapped elsewhere in the reserved
// addresses, so that free memory is never too fragmented to use: any set of blocks whose rounded
// sizes fit the capacity can be placed. Small blocks share 16 KiB slabs, one size class each.
//
// From 128 KiB on, data starts a varying multiple of 64 bytes behind its page boundary, in a page
// of its own: if all tensors started on page boundaries, a kernel's loads and stores would fall
// into the same cache sets and wait for each other (4 KiB aliasing, 12 % on a ResNet step).
//
//   active = large + slabs_in_use * 16 KiB + external
//   mapped = active + cached <= capacity
#ifndef TVM_DTR_CORE_PAGE_ARENA_H_
#define TVM_DTR_CORE_PAGE_ARENA_H_

#include <utility>
#include <vector>

#include "core/arena.h"
#include "core/extents.h"

namespace dtr {

class PageArena : public Arena {
 public:
  // `backed` false: addresses without memory behind them, for simulations that must take the
  // same decisions as a real run.
  explicit PageArena(uint64_t capacity, bool backed = true);
  ~PageArena() override;
  PageArena(const PageArena&) = delete;
  PageArena& operator=(const PageArena&) = delete;

  Block Allocate(uint64_t bytes) override;
  void Free(const Block& block) override;
  bool Charge(uint64_t bytes) override;
  void Discharge(uint64_t bytes) override;
  uint64_t RoundedSize(uint64_t bytes) const override;
  uint64_t BytesToAllocate(uint64_t bytes) const override;
  uint64_t active() const override { return active_; }
  uint64_t mapped() const override { return active_ + cached_.bytes(); }
  uint64_t peak_active() const override { return peak_active_; }
  uint64_t peak_mapped() const override { return peak_mapped_; }
  void ResetPeak() override;
  uint64_t capacity() const override { return capacity_; }
  uint64_t SetCapacity(uint64_t capacity, bool* fits) override;

  static constexpr uint64_t kPage = 4096;
  static constexpr uint64_t kSlab = 16384;
  static constexpr uint64_t kSmallest = 64;
  static constexpr uint64_t kLargestSmall = 2048;
  static constexpr uint64_t kShifted = uint64_t{128} << 10;

 private:
  static constexpr int kClasses = 6;  // 64, 128, ..., 2048

  struct Slab {
    char* data = nullptr;
    int size_class = 0;
    std::vector<uint16_t> free;           // slot indices
    uint32_t partial_index = kNotListed;  // in partial_[size_class]
  };
  static constexpr uint32_t kNotListed = ~uint32_t{0};

  Block AllocateSmall(int size_class);
  void FreeSmall(const Block& block);
  void ListSlab(uint32_t slab);
  void UnlistSlab(uint32_t slab);
  // Pages of exactly `bytes` that become active, 0 if they do not fit.
  uintptr_t TakePages(uint64_t bytes);
  void GivePages(uintptr_t start, uint64_t bytes);
  // Gives cached pages back until `bytes` more fit; false if live blocks leave too little room.
  bool MakeRoom(uint64_t bytes);
  // New pages at vacant addresses, 0 if the system has none.
  uintptr_t Map(uint64_t bytes);
  void Unmap(uintptr_t start, uint64_t bytes);
  bool Reserve(uint64_t bytes);
  void Activate(uint64_t bytes);

  uint64_t capacity_;
  bool backed_;
  uint64_t active_ = 0, peak_active_ = 0, most_active_ = 0, peak_mapped_ = 0;
  uint32_t next_shift_ = 0;
  Extents cached_;  // pages in memory that no block has
  Extents vacant_;  // reserved addresses without pages
  std::vector<std::pair<uintptr_t, uint64_t>> reservations_;
  std::vector<Slab> slabs_;
  std::vector<uint32_t> free_slabs_;
  std::vector<uint32_t> partial_[kClasses];
};

}  // namespace dtr

#endif  // TVM_DTR_CORE_PAGE_ARENA_H_
