#include "core/page_arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

#include "core/errors.h"

namespace dtr {
namespace {

constexpr uint64_t kHugePage = uint64_t{2} << 20;
constexpr uint64_t kFreeCache = uint64_t{64} << 20;  // always allowed under the budget

int SizeClass(uint64_t bytes) {
  int size_class = 0;
  for (uint64_t size = PageArena::kSmallest; size < bytes; size *= 2) ++size_class;
  return size_class;
}

}  // namespace

PageArena::PageArena(uint64_t capacity, bool backed) : capacity_(capacity), backed_(backed) {}

PageArena::~PageArena() {
  for (const auto& [bytes, blocks] : cache_) {
    for (void* data : blocks) Unmap(data, bytes);
  }
  for (const Slab& slab : slabs_) {
    if (slab.data) Unmap(slab.data, kSlab);
  }
}

uint64_t PageArena::RoundedSize(uint64_t bytes) const {
  if (bytes <= kLargestSmall) return kSmallest << SizeClass(bytes);
  if (bytes > kUnlimited - kPage) return kUnlimited;
  return (bytes + kPage - 1) / kPage * kPage;
}

uint64_t PageArena::BytesToAllocate(uint64_t bytes) const {
  if (bytes > kLargestSmall) return RoundedSize(bytes);
  return partial_[SizeClass(bytes)].empty() ? kSlab : 0;
}

Block PageArena::Allocate(uint64_t bytes) {
  if (bytes <= kLargestSmall) return AllocateSmall(SizeClass(bytes));
  uint64_t rounded = RoundedSize(bytes);
  void* data = TakePages(rounded);
  return data ? Block{data, rounded} : Block{};
}

void PageArena::Free(const Block& block) {
  if (block.slab != kNotListed) return FreeSmall(block);
  GivePages(block.data, block.bytes);
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
    auto* data = static_cast<char*>(TakePages(kSlab));
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
  GivePages(slab.data, kSlab);
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

void* PageArena::TakePages(uint64_t bytes) {
  void* data = nullptr;
  if (auto exact = cache_.find(bytes); exact != cache_.end()) {
    data = TakeCached(exact);
  } else {
    if (!MakeRoom(bytes)) return nullptr;
    data = Map(bytes);
    if (!data) return nullptr;
  }
  Activate(bytes);
  return data;
}

void PageArena::GivePages(void* data, uint64_t bytes) {
  active_ -= bytes;
  cached_ += bytes;
  cache_[bytes].push_back(data);
}

void* PageArena::TakeCached(std::map<uint64_t, std::vector<void*>>::iterator entry) {
  void* data = entry->second.back();
  entry->second.pop_back();
  cached_ -= entry->first;
  if (entry->second.empty()) cache_.erase(entry);
  return data;
}

bool PageArena::MakeRoom(uint64_t bytes) {
  if (active_ > capacity_ || bytes > capacity_ - active_) return false;
  // Without a budget the cache is bounded all the same, for programs of ever changing sizes.
  uint64_t limit = std::min(capacity_, peak_active_ + peak_active_ / 4 + kFreeCache);
  uint64_t spare = limit > active_ + bytes ? limit - active_ - bytes : 0;
  while (cached_ > spare) {
    // The smallest block that is enough, else the largest: few calls, little given up.
    uint64_t excess = cached_ - spare;
    auto victim = cache_.lower_bound(excess);
    if (victim == cache_.end()) --victim;
    uint64_t size = victim->first;
    Unmap(TakeCached(victim), size);
  }
  return true;
}

void PageArena::Activate(uint64_t bytes) {
  active_ += bytes;
  peak_active_ = std::max(peak_active_, active_);
  peak_mapped_ = std::max(peak_mapped_, mapped());
}

void* PageArena::Map(uint64_t bytes) {
  if (!backed_) {
    next_address_ += bytes;
    return reinterpret_cast<void*>(next_address_ - bytes);
  }
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return nullptr;
  if (bytes >= kHugePage) madvise(data, bytes, MADV_HUGEPAGE);  // advice: failure is harmless
  return data;
}

void PageArena::Unmap(void* data, uint64_t bytes) {
  if (backed_) munmap(data, bytes);
}

}  // namespace dtr
