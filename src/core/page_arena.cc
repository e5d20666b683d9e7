#include "core/page_arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

#include "core/errors.h"

namespace dtr {
namespace {

constexpr uint64_t kHugePage = uint64_t{2} << 20;
constexpr uint64_t kReservation = uint64_t{64} << 30;  // addresses, not memory
constexpr uint64_t kFreeCache = uint64_t{64} << 20;    // always allowed under the budget

int SizeClass(uint64_t bytes) {
  int size_class = 0;
  for (uint64_t size = PageArena::kSmallest; size < bytes; size *= 2) ++size_class;
  return size_class;
}

}  // namespace

PageArena::PageArena(uint64_t capacity, bool backed) : capacity_(capacity), backed_(backed) {}

PageArena::~PageArena() {
  if (!backed_) return;
  for (const auto& [start, bytes] : reservations_) munmap(reinterpret_cast<void*>(start), bytes);
}

uint64_t PageArena::RoundedSize(uint64_t bytes) const {
  if (bytes <= kLargestSmall) return kSmallest << SizeClass(bytes);
  if (bytes > kUnlimited - 2 * kPage) return kUnlimited;
  if (bytes >= kShifted) bytes += kPage - kSmallest;
  return (bytes + kPage - 1) / kPage * kPage;
}

uint64_t PageArena::BytesToAllocate(uint64_t bytes) const {
  if (bytes > kLargestSmall) return RoundedSize(bytes);
  return partial_[SizeClass(bytes)].empty() ? kSlab : 0;
}

Block PageArena::Allocate(uint64_t bytes) {
  if (bytes <= kLargestSmall) return AllocateSmall(SizeClass(bytes));
  uint64_t rounded = RoundedSize(bytes);
  uintptr_t start = TakePages(rounded);
  if (!start) return {};
  uint32_t shift = 0;
  if (bytes >= kShifted) {
    // 13 and 64 have no common divisor: all 64 places of a page come in turn.
    next_shift_ = (next_shift_ + 13 * kSmallest) % kPage;
    shift = next_shift_;
  }
  return {reinterpret_cast<void*>(start + shift), rounded, kNotListed, shift};
}

void PageArena::Free(const Block& block) {
  if (block.slab != kNotListed) return FreeSmall(block);
  GivePages(reinterpret_cast<uintptr_t>(block.data) - block.shift, block.bytes);
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
  if (partial_[size_class].empty()) {
    auto* data = reinterpret_cast<char*>(TakePages(kSlab));
    if (!data) return {};
    uint32_t id = free_slabs_.empty() ? static_cast<uint32_t>(slabs_.size()) : free_slabs_.back();
    if (free_slabs_.empty()) {
      slabs_.emplace_back();
    } else {
      free_slabs_.pop_back();
    }
    Slab& slab = slabs_[id];
    slab.data = data;
    slab.size_class = size_class;
    slab.free.clear();
    auto slots = static_cast<uint16_t>(kSlab / (kSmallest << size_class));
    for (uint16_t i = slots; i > 0; --i) slab.free.push_back(static_cast<uint16_t>(i - 1));
    ListSlab(id);
  }
  uint32_t id = partial_[size_class].back();
  Slab& slab = slabs_[id];
  uint64_t bytes = kSmallest << size_class;
  Block block{slab.data + slab.free.back() * bytes, bytes, id};
  slab.free.pop_back();
  if (slab.free.empty()) UnlistSlab(id);
  return block;
}

void PageArena::FreeSmall(const Block& block) {
  Slab& slab = slabs_[block.slab];
  auto offset = static_cast<uint64_t>(static_cast<char*>(block.data) - slab.data);
  slab.free.push_back(static_cast<uint16_t>(offset / block.bytes));
  if (slab.partial_index == kNotListed) ListSlab(block.slab);
  if (slab.free.size() < kSlab / block.bytes) return;
  UnlistSlab(block.slab);
  GivePages(reinterpret_cast<uintptr_t>(slab.data), kSlab);
  slab.data = nullptr;
  free_slabs_.push_back(block.slab);
}

void PageArena::ListSlab(uint32_t id) {
  Slab& slab = slabs_[id];
  slab.partial_index = static_cast<uint32_t>(partial_[slab.size_class].size());
  partial_[slab.size_class].push_back(id);
}

void PageArena::UnlistSlab(uint32_t id) {
  Slab& slab = slabs_[id];
  std::vector<uint32_t>& list = partial_[slab.size_class];
  list[slab.partial_index] = list.back();
  slabs_[list.back()].partial_index = slab.partial_index;
  list.pop_back();
  slab.partial_index = kNotListed;
}

// -- Pages ----------------------------------------------------------------------------------------

uintptr_t PageArena::TakePages(uint64_t bytes) {
  uintptr_t start = 0;
  if (!cached_.Take(bytes, &start)) {
    if (!MakeRoom(bytes)) return 0;
    start = Map(bytes);
    if (!start) return 0;
  }
  Activate(bytes);
  return start;
}

void PageArena::GivePages(uintptr_t start, uint64_t bytes) {
  active_ -= bytes;
  cached_.Add(start, bytes);
}

bool PageArena::MakeRoom(uint64_t bytes) {
  if (active_ > capacity_ || bytes > capacity_ - active_) return false;
  // Without a budget the cache is bounded all the same, for programs of ever changing sizes.
  uint64_t limit = std::min(capacity_, most_active_ + most_active_ / 4 + kFreeCache);
  uint64_t spare = limit > active_ + bytes ? limit - active_ - bytes : 0;
  while (cached_.bytes() > spare) {
    // Whole pages, for what external memory leaves is any number of bytes.
    uint64_t excess = (cached_.bytes() - spare + kPage - 1) / kPage * kPage;
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

uintptr_t PageArena::Map(uint64_t bytes) {
  uintptr_t start = 0;
  if (!vacant_.Take(bytes, &start)) {
    if (!Reserve(bytes) || !vacant_.Take(bytes, &start)) return 0;
  }
  if (!backed_) return start;
  void* data = mmap(reinterpret_cast<void*>(start), bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  if (data == MAP_FAILED) {
    vacant_.Add(start, bytes);
    return 0;
  }
  if (bytes >= kHugePage) madvise(data, bytes, MADV_HUGEPAGE);  // advice: failure is harmless
  return start;
}

// The addresses stay reserved, without memory.
void PageArena::Unmap(uintptr_t start, uint64_t bytes) {
  vacant_.Add(start, bytes);
  if (!backed_) return;
  mmap(reinterpret_cast<void*>(start), bytes, PROT_NONE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
}

bool PageArena::Reserve(uint64_t bytes) {
  uint64_t size = std::max(kReservation, bytes + 2 * kPage);
  uintptr_t start = (reservations_.size() + 1) << 44;
  if (backed_) {
    void* data = MAP_FAILED;
    // Less where the process may not have as many addresses.
    for (;; size = std::max(size / 2, bytes + 2 * kPage)) {
      data = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (data != MAP_FAILED || size == bytes + 2 * kPage) break;
    }
    if (data == MAP_FAILED) return false;
    start = reinterpret_cast<uintptr_t>(data);
  }
  reservations_.emplace_back(start, size);
  // A page between reservations keeps their runs apart.
  vacant_.Add(start + kPage, size - kPage);
  return true;
}

}  // namespace dtr
