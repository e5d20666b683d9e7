// Pages that several blocks share: small ones, and the ends of large ones.
//
// Each page has a bit for each unit of bytes that is free. A block goes to a page whose longest
// free run is the shortest that is long enough, and there into the shortest run: what is free stays
// in long runs, and pages become empty. Pages are listed by their longest run, so taking and giving
// is O(units of a page / 64).
#ifndef TVM_DTR_CORE_ARENA_SHARED_PAGES_H_
#define TVM_DTR_CORE_ARENA_SHARED_PAGES_H_

#include <array>
#include <cstdint>
#include <vector>

#include "core/arena/page_map.h"

namespace dtr {

// Sizes and addresses in bytes, multiples of `unit`, but where it says otherwise.
class SharedPages {
 public:
  // Powers of two; a page is at least 64 units.
  SharedPages(uint64_t page, uint64_t unit);

  // Makes a page shared, all of it free but `bytes` from `start` on, which lie in it.
  void Open(uintptr_t start, uint64_t bytes);
  // Free bytes of a shared page that are now in use; 0 if no page has as many in a row.
  uintptr_t Take(uint64_t bytes);
  bool Has(uint64_t bytes) const { return Find(bytes) != kNone; }
  // They are free again. True if nothing of the page is in use: then it is shared no more.
  bool Give(uintptr_t start, uint64_t bytes);
  // Whether the page of that address (any number of bytes) is shared; bytes of it in use.
  bool Shared(uintptr_t address) { return ids_[address] != kNone; }
  uint64_t Used(uintptr_t address) { return pages_[ids_[address]].used * unit_; }

 private:
  struct Page {
    uintptr_t start = 0;
    uint32_t used = 0, longest = 0;  // units
    uint32_t index = 0;              // in its list
  };
  static constexpr uint32_t kLists = 64;
  static constexpr uint32_t kLooks = 8;  // pages looked at in a list where not all may do

  static uint32_t ListOf(uint32_t units);
  uint32_t Find(uint64_t bytes) const;
  uint64_t* Bits(uint32_t id) { return bits_.data() + uint64_t{id} * words_; }
  void Mark(uint32_t id, uint32_t first, uint32_t units, bool free);
  void List(uint32_t id);
  void Unlist(uint32_t id);
  template <typename F>
  void ForEachRun(uint32_t id, F f);

  uint64_t page_, unit_;
  uint32_t words_;  // of bits, a page
  PageMap ids_;
  std::vector<Page> pages_;
  std::vector<uint32_t> unused_;
  std::vector<uint64_t> bits_;  // by page: what is free
  std::array<std::vector<uint32_t>, kLists> lists_;
  uint64_t filled_ = 0;  // lists with a page in them
};

}  // namespace dtr

#endif  // TVM_DTR_CORE_ARENA_SHARED_PAGES_H_
