#include "core/arena/shared_pages.h"

#include <algorithm>

namespace dtr {
namespace {

constexpr uint64_t kAll = ~uint64_t{0};

uint32_t LowestBit(uint64_t word) { return static_cast<uint32_t>(__builtin_ctzll(word)); }

}  // namespace

SharedPages::SharedPages(uint64_t page, uint64_t unit)
    : page_(page), unit_(unit), words_(static_cast<uint32_t>(page / unit / 64)), ids_(page) {}

// Runs of up to 32 units have a list for each length, longer ones four for each doubling.
uint32_t SharedPages::ListOf(uint32_t units) {
  if (units <= 32) return units;
  uint32_t top = 31 - static_cast<uint32_t>(__builtin_clz(units - 1));  // 2^top < units
  return std::min(33 + (top - 5) * 4 + (((units - 1) >> (top - 2)) & 3), kLists - 1);
}

uint32_t SharedPages::Find(uint64_t bytes) const {
  const auto units = static_cast<uint32_t>(bytes / unit_);
  const uint32_t list = ListOf(units);
  for (uint64_t lists = filled_ & (kAll << list); lists; lists &= lists - 1) {
    const std::vector<uint32_t>& pages = lists_[LowestBit(lists)];
    const size_t looks = std::min<size_t>(pages.size(), kLooks);
    for (size_t i = 0; i < looks; ++i) {
      uint32_t id = pages[pages.size() - 1 - i];
      if (pages_[id].longest >= units) return id;
    }
  }
  return kNone;
}

// f(first, units) for each run of free units, in their order.
template <typename F>
void SharedPages::ForEachRun(uint32_t id, F f) {
  const uint64_t* bits = Bits(id);
  const uint32_t end = words_ * 64;
  // The first unit from `unit` on that is free, or is not; `end` if none.
  auto next = [&](uint32_t unit, bool free) {
    while (unit < end) {
      uint64_t word = (free ? bits[unit / 64] : ~bits[unit / 64]) & (kAll << (unit % 64));
      if (word) return unit / 64 * 64 + LowestBit(word);
      unit = (unit / 64 + 1) * 64;
    }
    return end;
  };
  for (uint32_t first = next(0, true); first < end;) {
    uint32_t last = next(first, false);
    f(first, last - first);
    first = next(last, true);
  }
}

void SharedPages::Mark(uint32_t id, uint32_t first, uint32_t units, bool free) {
  uint64_t* bits = Bits(id);
  for (uint32_t unit = first, end = first + units; unit < end;) {
    uint32_t shift = unit % 64, count = std::min(64 - shift, end - unit);
    uint64_t mask = (count == 64 ? kAll : (uint64_t{1} << count) - 1) << shift;
    if (free) {
      bits[unit / 64] |= mask;
    } else {
      bits[unit / 64] &= ~mask;
    }
    unit += count;
  }
}

void SharedPages::List(uint32_t id) {
  Page& page = pages_[id];
  page.longest = 0;
  ForEachRun(id, [&](uint32_t, uint32_t units) { page.longest = std::max(page.longest, units); });
  const uint32_t list = ListOf(page.longest);
  page.index = static_cast<uint32_t>(lists_[list].size());
  lists_[list].push_back(id);
  filled_ |= uint64_t{1} << list;
}

void SharedPages::Unlist(uint32_t id) {
  const uint32_t list = ListOf(pages_[id].longest);
  std::vector<uint32_t>& pages = lists_[list];
  pages_[pages.back()].index = pages_[id].index;
  pages[pages_[id].index] = pages.back();
  pages.pop_back();
  if (pages.empty()) filled_ &= ~(uint64_t{1} << list);
}

void SharedPages::Open(uintptr_t start, uint64_t bytes) {
  auto id = static_cast<uint32_t>(pages_.size());
  if (unused_.empty()) {
    pages_.emplace_back();
    bits_.resize(bits_.size() + words_);
  } else {
    id = unused_.back();
    unused_.pop_back();
  }
  std::fill_n(Bits(id), words_, kAll);
  pages_[id].start = start / page_ * page_;
  pages_[id].used = static_cast<uint32_t>(bytes / unit_);
  Mark(id, static_cast<uint32_t>(start % page_ / unit_), pages_[id].used, false);
  ids_[start] = id;
  List(id);
}

uintptr_t SharedPages::Take(uint64_t bytes) {
  const uint32_t id = Find(bytes);
  if (id == kNone) return 0;
  const auto units = static_cast<uint32_t>(bytes / unit_);
  uint32_t found = 0, least = ~uint32_t{0};
  ForEachRun(id, [&](uint32_t first, uint32_t length) {
    if (length < units || length >= least) return;
    found = first;
    least = length;
  });
  Unlist(id);
  Mark(id, found, units, false);
  pages_[id].used += units;
  List(id);
  return pages_[id].start + found * unit_;
}

bool SharedPages::Give(uintptr_t start, uint64_t bytes) {
  uint32_t& entry = ids_[start];
  const uint32_t id = entry;
  const auto units = static_cast<uint32_t>(bytes / unit_);
  Unlist(id);
  pages_[id].used -= units;
  if (pages_[id].used == 0) {
    entry = kNone;
    unused_.push_back(id);
    return true;
  }
  Mark(id, static_cast<uint32_t>(start % page_ / unit_), units, true);
  List(id);
  return false;
}

}  // namespace dtr
