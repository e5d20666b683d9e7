// The host arena: whole pages from the operating system, mapped on demand and given back.
//
// Large blocks (over 2 KiB) are mappings of their own, rounded to 4 KiB pages; a freed one is
// cached for its exact size and unmapped when the room is needed, so that free memory is never
// too fragmented to use: any set of blocks whose rounded sizes fit the capacity can be placed.
// Small blocks share 16 KiB slabs, one size class each.
//
//   active = large + slabs_in_use * 16 KiB + external
//   mapped = active + cached <= capacity
#ifndef TVM_DTR_CORE_PAGE_ARENA_H_
#define TVM_DTR_CORE_PAGE_ARENA_H_

#include <map>
#include <vector>

#include "core/arena.h"

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
  uint64_t mapped() const override { return active_ + cached_; }
  uint64_t peak_active() const override { return peak_active_; }
  uint64_t peak_mapped() const override { return peak_mapped_; }
  void ResetPeak() override;
  uint64_t capacity() const override { return capacity_; }
  uint64_t SetCapacity(uint64_t capacity, bool* fits) override;

  static constexpr uint64_t kPage = 4096;
  static constexpr uint64_t kSlab = 16384;
  static constexpr uint64_t kSmallest = 64;
  static constexpr uint64_t kLargestSmall = 2048;

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
  // Pages of exactly `bytes` that become active, null if they do not fit.
  void* TakePages(uint64_t bytes);
  void GivePages(void* data, uint64_t bytes);
  void* TakeCached(std::map<uint64_t, std::vector<void*>>::iterator entry);
  // Unmaps cached pages until `bytes` more fit; false if live blocks leave too little room.
  bool MakeRoom(uint64_t bytes);
  void* Map(uint64_t bytes);
  void Unmap(void* data, uint64_t bytes);
  void Activate(uint64_t bytes);

  uint64_t capacity_;
  bool backed_;
  uint64_t active_ = 0, cached_ = 0, peak_active_ = 0, peak_mapped_ = 0;
  uintptr_t next_address_ = uintptr_t{1} << 40;   // of an unbacked arena
  std::map<uint64_t, std::vector<void*>> cache_;  // by exact size
  std::vector<Slab> slabs_;
  std::vector<uint32_t> free_slabs_;
  std::vector<uint32_t> partial_[kClasses];
};

}  // namespace dtr

#endif  // TVM_DTR_CORE_PAGE_ARENA_H_
