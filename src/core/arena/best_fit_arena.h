// The best-fit arena: one range of addresses, as long as the capacity; a block takes the start of
// the smallest free run that is long enough, neighbours are joined as they come free. O(log n).
//
// Memory that is free but scattered cannot be used: that is what the `window` policy is for, and
// what the paged arena avoids. Pages are mapped when a block first reaches them and stay, unless
// external memory or a smaller capacity needs the room.
//
//   active = pages that live blocks reach + external
//   mapped = active + whole pages in free runs that have memory <= capacity
#ifndef TVM_DTR_CORE_ARENA_BEST_FIT_ARENA_H_
#define TVM_DTR_CORE_ARENA_BEST_FIT_ARENA_H_

#include <memory>

#include "core/arena.h"
#include "core/arena/address_runs.h"
#include "core/arena/page_source.h"

namespace dtr {

class BestFitArena : public Arena {
 public:
  // On the host. `backed` false: addresses without memory behind them.
  explicit BestFitArena(uint64_t capacity, bool backed = true);
  BestFitArena(uint64_t capacity, std::unique_ptr<PageSource> pages, uint64_t alignment);

  Block Allocate(uint64_t bytes) override;
  void Free(const Block& block) override;
  bool Charge(uint64_t bytes) override;
  void Discharge(uint64_t bytes) override { external_ -= bytes; }
  uint64_t RoundedSize(uint64_t bytes) const override;
  uint64_t active() const override { return mapped() - cached_; }
  uint64_t mapped() const override { return pages_mapped_ + external_; }
  uint64_t peak_active() const override { return peak_active_; }
  uint64_t peak_mapped() const override { return peak_mapped_; }
  void ResetPeak() override;
  uint64_t capacity() const override { return capacity_; }
  uint64_t largest_free() const override;
  uint64_t SetCapacity(uint64_t capacity, bool* fits) override;
  const AddressRuns* runs() const override { return &runs_; }

  // Throws InternalError naming the first equation that does not hold. O(n).
  void Validate() const;

 private:
  using Id = AddressRuns::Id;

  uintptr_t PageUp(uintptr_t a) const { return (a + page_ - 1) / page_ * page_; }
  uintptr_t PageDown(uintptr_t a) const { return a / page_ * page_; }
  // Whole pages of a free run that have memory.
  uint64_t Cached(Id id) const;
  void List(Id id);
  void Unlist(Id id);
  // Turns the first `bytes` of a free run into a live one with memory; false if that does not fit.
  bool Carve(Id id, uint64_t bytes);
  bool Back(uintptr_t start, uint64_t bytes);
  // Makes an unlisted run a listed free one, joined with its neighbours.
  void Release(Id id);
  // Joins a run with the next, neither of them listed, and what they have vacant.
  void Join(Id id);
  // Gives whole pages of free runs back until `bytes` more fit; false if they cannot.
  bool MakeRoom(uint64_t bytes);
  uint64_t Vacate(Id id, uint64_t bytes);
  uint64_t Unmap(uintptr_t start, uint64_t bytes);
  // Makes the range as long as the capacity, or as far as the last live block.
  void FitRange();
  void NotePeak();

  uint64_t capacity_, alignment_;
  std::unique_ptr<PageSource> pages_;
  AddressRuns runs_;
  uint64_t pages_mapped_ = 0, cached_ = 0, external_ = 0;
  uint64_t peak_active_ = 0, peak_mapped_ = 0;
  uint64_t page_;
  uintptr_t base_ = 0, end_ = 0, reserved_end_ = 0;  // the range is [base_, end_)
};

}  // namespace dtr

#endif  // TVM_DTR_CORE_ARENA_BEST_FIT_ARENA_H_
