// The paged arena: whole pages, mapped on demand and given back.
//
// Large blocks are whole pages. Freed pages stay in memory as long as the budget allows, neighbours
// joined, and serve later blocks of any size. Where no run of them is long enough, blocks that
// their owner lets go elsewhere are copied out of the way (relocation.cc). Where that does not do,
// pages are moved together at other addresses, or given back for new ones there where they are few,
// so that free memory is never too fragmented to use: any set of blocks whose rounded sizes fit the
// capacity can be placed. Blocks smaller than a page share pages, and what large ones leave of
// their first and last page is shared as well (shared_pages.h): weights that fill two pages and a
// quarter of a third lend the rest to the biases.
//
// On the host pages have 4 KiB. From 1 MiB on, data starts a varying multiple of 64 bytes behind
// its page boundary: if all tensors started on page boundaries, a kernel's loads and stores would
// fall into the same cache sets and wait for each other (4 KiB aliasing). Smaller blocks do
// without: sizes that divide each other leave gaps that fit.
//
//   active = pages with a live byte + external
//   mapped = active + cached <= capacity
#ifndef TVM_DTR_CORE_ARENA_PAGE_ARENA_H_
#define TVM_DTR_CORE_ARENA_PAGE_ARENA_H_

#include <memory>
#include <utility>
#include <vector>

#include "core/arena.h"
#include "core/arena/extents.h"
#include "core/arena/live_blocks.h"
#include "core/arena/page_source.h"
#include "core/arena/shared_pages.h"

namespace dtr {

// Sizes in bytes. `page` and `unit` are powers of two.
struct PageLayout {
  uint64_t page;
  uint64_t unit;     // what sizes are rounded up to, and alignment of every block
  uint64_t shifted;  // data of blocks from it on is shifted off the page boundary
};

class PageArena : public Arena {
 public:
  // On the host. `backed` false: addresses without memory behind them, for simulations that must
  // take the same decisions as a real run.
  explicit PageArena(uint64_t capacity, bool backed = true);
  PageArena(uint64_t capacity, std::unique_ptr<PageSource> pages, const PageLayout& layout);
  PageArena(const PageArena&) = delete;
  PageArena& operator=(const PageArena&) = delete;

  Block Allocate(uint64_t bytes) override;
  void Free(const Block& block) override;
  void SetOwner(BlockOwner* owner) override { owner_ = owner; }
  void Own(const Block& block, uint32_t number) override;
  bool Charge(uint64_t bytes) override;
  void Discharge(uint64_t bytes) override;
  uint64_t RoundedSize(uint64_t bytes) const override;
  uint64_t LeastSize(uint64_t bytes) const override;
  uint64_t BytesToAllocate(uint64_t bytes) const override;
  uint64_t active() const override { return active_; }
  uint64_t mapped() const override { return active_ + cached_.bytes(); }
  uint64_t peak_active() const override { return peak_active_; }
  uint64_t peak_mapped() const override { return peak_mapped_; }
  void ResetPeak() override;
  uint64_t capacity() const override { return capacity_; }
  uint64_t SetCapacity(uint64_t capacity, bool* fits) override;

  // The largest block that could be had now without evicting anything.
  uint64_t largest_free() const override;
  const PageLayout& layout() const { return layout_; }

  static constexpr uint64_t kPage = HostPages::kPage;
  static constexpr uint64_t kUnit = 64;
  static constexpr uint64_t kShifted = uint64_t{1} << 20;
  static constexpr PageLayout kHost = {kPage, kUnit, kShifted};

 private:
  bool IsSmall(uint64_t bytes) const { return bytes <= layout_.page - layout_.unit; }
  Block AllocateSmall(uint64_t bytes);
  uint32_t NextShift(uint64_t spare);
  // The ends of a large block that share their pages with others.
  void ShareEnds(const LiveBlocks::Entry& block);
  // Gives the block's bytes in shared pages back. What of its pages is empty then, start to end.
  std::pair<uintptr_t, uintptr_t> TakeBackEnds(const LiveBlocks::Entry& block);
  bool SharesWithOthers(const LiveBlocks::Entry& block);
  // Pages of exactly `bytes` that become active, 0 if they do not fit.
  uintptr_t TakePages(uint64_t bytes);
  void GivePages(uintptr_t start, uint64_t bytes);
  // Cached pages that must go before `bytes` more fit, in whole pages.
  uint64_t Excess(uint64_t bytes) const;
  bool Fits(uint64_t bytes) const { return active_ <= capacity_ && bytes <= capacity_ - active_; }
  // Gives cached pages back until `bytes` more fit; false if live blocks leave too little room.
  bool MakeRoom(uint64_t bytes);

  // Neighbouring pages, cached or in blocks that may move, and what of them is in blocks.
  struct Window {
    uintptr_t start = 0, end = 0;
    uint64_t live = 0;
    uint64_t span() const { return end - start; }
    uint64_t free() const { return end - start - live; }
  };
  // Makes a cached run of `bytes` by copying blocks out of the way (relocation.cc); false where
  // that is not possible or does not pay.
  bool ClearRun(uint64_t bytes);
  void FindWindows(uint64_t bytes);
  bool Extend(Window* window, bool up);
  void NoteBlocks(const Window& window);
  bool FindPlaces(const Window& window);
  void Evacuate();
  void Slide(const Window& window);
  void MoveBlock(LiveBlocks::Id id, uintptr_t to);

  // Pages at vacant addresses, moved there or new; 0 if the source has none.
  uintptr_t Gather(uint64_t bytes);
  uintptr_t TakeExtensible(uint64_t bytes, uint64_t* filled);
  void Unmap(uintptr_t start, uint64_t bytes);
  // Addresses without pages, for later blocks or, where they are scarce, for others.
  void Vacate(uintptr_t start, uint64_t bytes);
  bool Reserve(uint64_t bytes);
  void Activate(uint64_t bytes);

  uint64_t capacity_;
  std::unique_ptr<PageSource> pages_;
  PageLayout layout_;
  uint64_t active_ = 0, peak_active_ = 0, most_active_ = 0, peak_mapped_ = 0;
  uint32_t next_shift_ = 0;
  Extents cached_;  // pages in memory that no block has
  Extents vacant_;  // reserved addresses without pages
  BlockOwner* owner_ = nullptr;
  LiveBlocks blocks_;  // the large ones
  std::vector<LiveBlocks::Id> in_window_;
  struct Hole {
    uintptr_t start;
    uint64_t bytes;
  };
  std::vector<Window> windows_;
  std::vector<Hole> holes_;
  std::vector<uintptr_t> places_;
  SharedPages shared_;
};

}  // namespace dtr

#endif  // TVM_DTR_CORE_ARENA_PAGE_ARENA_H_
