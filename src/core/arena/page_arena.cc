#include "core/arena/page_arena.h"

#include <algorithm>
#include <utility>

#include "core/errors.h"

namespace dtr {
namespace {

constexpr int kExtensible = 16;                        // runs that are looked at
constexpr uint64_t kReservation = uint64_t{64} << 30;  // addresses, not memory
constexpr uint64_t kFreeCache = uint64_t{64} << 20;    // always allowed under the budget

uint64_t RoundUp(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

std::unique_ptr<PageSource> HostSource(bool backed) {
  if (backed) return std::make_unique<HostPages>();
  return std::make_unique<NoPages>();
}

}  // namespace

PageArena::PageArena(uint64_t capacity, bool backed)
    : PageArena(capacity, HostSource(backed), kHost) {}

PageArena::PageArena(uint64_t capacity, std::unique_ptr<PageSource> pages, const PageLayout& layout)
    : capacity_(capacity), pages_(std::move(pages)), layout_(layout), blocks_(layout.page) {
  partial_.resize(static_cast<size_t>(SizeClass(layout_.largest_small)) + 1);
}

int PageArena::SizeClass(uint64_t bytes) const {
  int size_class = 0;
  for (uint64_t size = layout_.smallest; size < bytes; size *= 2) ++size_class;
  return size_class;
}

uint64_t PageArena::RoundedSize(uint64_t bytes) const {
  if (bytes <= layout_.largest_small) return layout_.smallest << SizeClass(bytes);
  if (bytes > kUnlimited - 2 * layout_.page) return kUnlimited;
  if (bytes >= layout_.shifted) bytes += layout_.page - layout_.smallest;
  return RoundUp(bytes, layout_.page);
}

uint64_t PageArena::BytesToAllocate(uint64_t bytes) const {
  if (bytes > layout_.largest_small) return RoundedSize(bytes);
  return partial_[static_cast<size_t>(SizeClass(bytes))].empty() ? layout_.slab : 0;
}

uint64_t PageArena::largest_free() const {
  uint64_t room = capacity_ - std::min(active_, capacity_);
  return capacity_ == kUnlimited ? kUnlimited : room / layout_.page * layout_.page;
}

Block PageArena::Allocate(uint64_t bytes) {
  if (bytes <= layout_.largest_small) return AllocateSmall(SizeClass(bytes));
  uint64_t rounded = RoundedSize(bytes);
  uintptr_t start = TakePages(rounded);
  if (!start) return {};
  pages_->OnAllocate(start, rounded);
  uint32_t shift = 0;
  if (bytes >= layout_.shifted) {
    // 13 and 64 have no common divisor: all 64 places of a page come in turn.
    next_shift_ = static_cast<uint32_t>((next_shift_ + 13 * layout_.smallest) % layout_.page);
    shift = next_shift_;
  }
  LiveBlocks::Id id = blocks_.Add({start, rounded, shift});
  return {reinterpret_cast<void*>(start + shift), rounded, id, shift};
}

void PageArena::Free(const Block& block) {
  uintptr_t start = reinterpret_cast<uintptr_t>(block.data) - block.shift;
  pages_->OnFree(start, block.bytes);
  if (IsSmall(block)) return FreeSmall(block);
  blocks_.Remove(block.place);
  GivePages(start, block.bytes);
}

void PageArena::Own(const Block& block, uint32_t number) {
  if (!IsSmall(block)) blocks_[block.place].number = number;
}

bool PageArena::Charge(uint64_t bytes) {
  if (!MakeRoom(bytes)) return false;
  Activate(bytes);
  return true;
}

void PageArena::Discharge(uint64_t bytes) { active_ -= bytes; }

void PageArena::ResetPeak() {
  peak_active_ = active_;
  peak_mapped_ = mapped();
}

uint64_t PageArena::SetCapacity(uint64_t capacity, bool* fits) {
  uint64_t old = capacity_;
  *fits = active_ <= capacity;
  if (*fits) {
    capacity_ = capacity;
    MakeRoom(0);
  }
  return old;
}

// -- Small blocks ---------------------------------------------------------------------------------

Block PageArena::AllocateSmall(int size_class) {
  std::vector<uint32_t>& partial = partial_[static_cast<size_t>(size_class)];
  if (partial.empty() && !OpenSlab(size_class)) return {};
  uint32_t id = partial.back();
  Slab& slab = slabs_[id];
  uint64_t bytes = layout_.smallest << size_class;
  uintptr_t start = slab.data + slab.free.back() * bytes;
  slab.free.pop_back();
  if (slab.free.empty()) UnlistSlab(id);
  pages_->OnAllocate(start, bytes);
  return {reinterpret_cast<void*>(start), bytes, id};
}

bool PageArena::OpenSlab(int size_class) {
  uintptr_t data = TakePages(layout_.slab);
  if (!data) return false;
  uint32_t id = static_cast<uint32_t>(slabs_.size());
  if (free_slabs_.empty()) {
    slabs_.emplace_back();
  } else {
    id = free_slabs_.back();
    free_slabs_.pop_back();
  }
  Slab& slab = slabs_[id];
  slab.data = data;
  slab.size_class = size_class;
  slab.free.clear();
  auto slots = static_cast<uint16_t>(layout_.slab / (layout_.smallest << size_class));
  for (uint16_t i = slots; i > 0; --i) slab.free.push_back(static_cast<uint16_t>(i - 1));
  ListSlab(id);
  return true;
}

void PageArena::FreeSmall(const Block& block) {
  Slab& slab = slabs_[block.place];
  uint64_t offset = reinterpret_cast<uintptr_t>(block.data) - slab.data;
  slab.free.push_back(static_cast<uint16_t>(offset / block.bytes));
  if (slab.partial_index == kNotListed) ListSlab(block.place);
  if (slab.free.size() < layout_.slab / block.bytes) return;
  UnlistSlab(block.place);
  GivePages(slab.data, layout_.slab);
  slab.data = 0;
  free_slabs_.push_back(block.place);
}

void PageArena::ListSlab(uint32_t id) {
  Slab& slab = slabs_[id];
  std::vector<uint32_t>& list = partial_[static_cast<size_t>(slab.size_class)];
  slab.partial_index = static_cast<uint32_t>(list.size());
  list.push_back(id);
}

void PageArena::UnlistSlab(uint32_t id) {
  Slab& slab = slabs_[id];
  std::vector<uint32_t>& list = partial_[static_cast<size_t>(slab.size_class)];
  list[slab.partial_index] = list.back();
  slabs_[list.back()].partial_index = slab.partial_index;
  list.pop_back();
  slab.partial_index = kNotListed;
}

// -- Pages ----------------------------------------------------------------------------------------

uintptr_t PageArena::TakePages(uint64_t bytes) {
  uintptr_t start = 0;
  if (!cached_.Take(bytes, &start)) {
    if (!Fits(bytes)) return 0;
    if (!ClearRun(bytes) || !cached_.Take(bytes, &start)) start = Gather(bytes);
    if (!start) return 0;
  }
  Activate(bytes);
  return start;
}

void PageArena::GivePages(uintptr_t start, uint64_t bytes) {
  active_ -= bytes;
  cached_.Add(start, bytes);
}

uint64_t PageArena::Excess(uint64_t bytes) const {
  // Without a budget the cache is bounded all the same, for programs of ever changing sizes.
  uint64_t limit = std::min(capacity_, most_active_ + most_active_ / 4 + kFreeCache);
  uint64_t spare = limit > active_ + bytes ? limit - active_ - bytes : 0;
  // Whole pages, for what external memory leaves is any number of bytes.
  return cached_.bytes() > spare ? RoundUp(cached_.bytes() - spare, layout_.page) : 0;
}

bool PageArena::MakeRoom(uint64_t bytes) {
  if (!Fits(bytes)) return false;
  while (uint64_t excess = Excess(bytes)) {
    auto [start, taken] = cached_.TakeUpTo(excess);
    Unmap(start, taken);
  }
  return true;
}

void PageArena::Activate(uint64_t bytes) {
  active_ += bytes;
  peak_active_ = std::max(peak_active_, active_);
  most_active_ = std::max(most_active_, active_);
  peak_mapped_ = std::max(peak_mapped_, mapped());
}

// The longest cached run behind which there are enough vacant addresses for `bytes`; 0 if none.
uintptr_t PageArena::TakeExtensible(uint64_t bytes, uint64_t* filled) {
  uintptr_t found = 0;
  if (pages_->scarce()) return found;
  cached_.ForEachLongest(kExtensible, [&](uintptr_t start, uint64_t length) {
    if (length + vacant_.StartingAt(start + length) < bytes) return true;
    found = start;
    *filled = length;
    return false;
  });
  if (!found) return 0;
  cached_.TakeRun(found);
  vacant_.TakeAt(found + *filled, bytes - *filled);
  return found;
}

// Cached pages that the budget has no room for beside `bytes` new ones are moved instead of being
// unmapped and mapped anew, which would zero and fault each of them in again.
uintptr_t PageArena::Gather(uint64_t bytes) {
  uint64_t filled = 0;
  uintptr_t start = TakeExtensible(bytes, &filled);
  if (!start) {
    if (!vacant_.Take(bytes, &start) && (!Reserve(bytes) || !vacant_.Take(bytes, &start))) return 0;
  }
  // What is filled is neither cached nor active yet, so Excess counts it among `bytes`.
  while (uint64_t excess = Excess(bytes)) {
    auto [piece, taken] =
        cached_.TakeUpTo(std::min(excess, std::max(bytes - filled, layout_.page)));
    if (filled + taken <= bytes && pages_->Move(piece, start + filled, taken)) {
      Vacate(piece, taken);
      filled += taken;
    } else {
      Unmap(piece, taken);
    }
  }
  if (filled == bytes || pages_->Map(start + filled, bytes - filled)) return start;
  if (filled > 0) pages_->Unmap(start, filled);
  Vacate(start, bytes);
  return 0;
}

void PageArena::Unmap(uintptr_t start, uint64_t bytes) {
  pages_->Unmap(start, bytes);
  Vacate(start, bytes);
}

void PageArena::Vacate(uintptr_t start, uint64_t bytes) {
  if (pages_->scarce()) return pages_->Release(start, bytes);
  vacant_.Add(start, bytes);
}

bool PageArena::Reserve(uint64_t bytes) {
  if (pages_->scarce()) {  // taken at once and whole, so runs of vacant addresses never join
    uint64_t exactly = bytes;
    uintptr_t start = pages_->Reserve(bytes, &exactly);
    if (start) vacant_.Add(start, bytes);
    return start != 0;
  }
  uint64_t least = bytes + 2 * layout_.page;
  uint64_t size = std::max(RoundUp(kReservation, layout_.page), least);
  uintptr_t start = pages_->Reserve(least, &size);
  if (!start) return false;
  // A page between reservations keeps their runs apart.
  vacant_.Add(start + layout_.page, size - layout_.page);
  return true;
}

}  // namespace dtr
