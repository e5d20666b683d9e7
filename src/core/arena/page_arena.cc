#include "core/arena/page_arena.h"

#include <algorithm>
#include <utility>

#include "core/errors.h"

namespace dtr {
namespace {

constexpr uint64_t kLeastShifts = 8;                   // places that data may start at
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
    : capacity_(capacity),
      pages_(std::move(pages)),
      layout_(layout),
      blocks_(layout.page),
      shared_(layout.page, layout.unit) {}

uint64_t PageArena::LeastSize(uint64_t bytes) const {
  if (bytes > kUnlimited - 2 * layout_.page) return kUnlimited;
  return RoundUp(std::max<uint64_t>(bytes, 1), layout_.unit);
}

uint64_t PageArena::RoundedSize(uint64_t bytes) const {
  bytes = LeastSize(bytes);
  if (IsSmall(bytes) || bytes == kUnlimited) return bytes;
  if (bytes >= layout_.shifted) bytes += kLeastShifts * layout_.unit;
  return RoundUp(bytes, layout_.page);
}

uint64_t PageArena::BytesToAllocate(uint64_t bytes) const {
  bytes = LeastSize(bytes);
  if (!IsSmall(bytes)) return RoundedSize(bytes);
  return shared_.Has(bytes) ? 0 : layout_.page;
}

uint64_t PageArena::largest_free() const {
  uint64_t room = capacity_ - std::min(active_, capacity_);
  return capacity_ == kUnlimited ? kUnlimited : room / layout_.page * layout_.page;
}

Block PageArena::Allocate(uint64_t bytes) {
  const uint64_t least = LeastSize(bytes);
  if (IsSmall(least)) return AllocateSmall(least);
  const uint64_t pages = RoundedSize(least);
  const uintptr_t start = TakePages(pages);
  if (!start) return {};
  const uint32_t shift = least >= layout_.shifted ? NextShift(pages - least) : 0;
  const LiveBlocks::Id id = blocks_.Add({start, pages, least, shift});
  ShareEnds(blocks_[id]);
  pages_->OnAllocate(start + shift, least);
  return {reinterpret_cast<void*>(start + shift), least, id};
}

void PageArena::Free(const Block& block) {
  const auto data = reinterpret_cast<uintptr_t>(block.data);
  pages_->OnFree(data, block.bytes);
  if (block.place == kNone) {
    if (shared_.Give(data, block.bytes))
      GivePages(data / layout_.page * layout_.page, layout_.page);
    return;
  }
  auto [start, end] = TakeBackEnds(blocks_[block.place]);
  blocks_.Remove(block.place);
  if (start < end) GivePages(start, end - start);
}

void PageArena::Own(const Block& block, uint32_t number) {
  if (block.place != kNone) blocks_[block.place].number = number;
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

// -- Shared pages ---------------------------------------------------------------------------------

Block PageArena::AllocateSmall(uint64_t bytes) {
  uintptr_t start = shared_.Take(bytes);
  if (!start) {
    start = TakePages(layout_.page);
    if (!start) return {};
    shared_.Open(start, bytes);
  }
  pages_->OnAllocate(start, bytes);
  return {reinterpret_cast<void*>(start), bytes};
}

// One of the places that leave data in the block's first page and in its last. `spare`: bytes of
// its pages beside data. 13 and 64 have no common divisor: where data may start anywhere in a page,
// all places come in turn.
uint32_t PageArena::NextShift(uint64_t spare) {
  const uint64_t least = spare > layout_.page ? spare - layout_.page : 0;
  const uint64_t most = std::min(spare, layout_.page - layout_.unit);
  next_shift_ += 13;
  return static_cast<uint32_t>(least + layout_.unit + next_shift_ * layout_.unit % (most - least));
}

void PageArena::ShareEnds(const LiveBlocks::Entry& block) {
  const uint64_t first = layout_.page - block.shift, last = block.data_end() % layout_.page;
  if (block.shift > 0) shared_.Open(block.start + block.shift, first);
  if (last > 0) shared_.Open(block.data_end() - last, last);
}

std::pair<uintptr_t, uintptr_t> PageArena::TakeBackEnds(const LiveBlocks::Entry& block) {
  uintptr_t start = block.start, end = block.end();
  const uint64_t first = layout_.page - block.shift, last = block.data_end() % layout_.page;
  if (block.shift > 0 && !shared_.Give(start + block.shift, first)) start += layout_.page;
  if (last > 0 && !shared_.Give(block.data_end() - last, last)) end -= layout_.page;
  return {start, end};
}

bool PageArena::SharesWithOthers(const LiveBlocks::Entry& block) {
  const uint64_t first = layout_.page - block.shift, last = block.data_end() % layout_.page;
  if (block.shift > 0 && shared_.Used(block.start) != first) return true;
  return last > 0 && shared_.Used(block.data_end() - last) != last;
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
