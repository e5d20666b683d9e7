// Blocks of whole pages that are in use, found by their first and by their last page.
#ifndef TVM_DTR_CORE_ARENA_LIVE_BLOCKS_H_
#define TVM_DTR_CORE_ARENA_LIVE_BLOCKS_H_

#include <cstdint>
#include <vector>

#include "core/arena/page_map.h"
#include "core/types.h"

namespace dtr {

class LiveBlocks {
 public:
  using Id = uint32_t;  // kNone: no block

  struct Entry {
    uintptr_t start = 0;
    uint64_t bytes = 0;       // of its pages
    uint64_t data_bytes = 0;  // of them its own
    uint32_t shift = 0;       // where those start
    uint32_t number = kNone;  // the owner's; kNone: stays where it is
    uintptr_t end() const { return start + bytes; }
    uintptr_t data_end() const { return start + shift + data_bytes; }
  };

  explicit LiveBlocks(uint64_t page) : page_(page), ids_(page) {}

  Id Add(const Entry& entry) {
    Id id = static_cast<Id>(entries_.size());
    if (unused_.empty()) {
      entries_.emplace_back();
    } else {
      id = unused_.back();
      unused_.pop_back();
    }
    entries_[id] = entry;
    Mark(entry, id);
    return id;
  }
  void Remove(Id id) {
    Mark(entries_[id], kNone);
    unused_.push_back(id);
  }
  void Move(Id id, uintptr_t start) {
    Mark(entries_[id], kNone);
    entries_[id].start = start;
    Mark(entries_[id], id);
  }
  Entry& operator[](Id id) { return entries_[id]; }
  // The block that starts, that ends there.
  Id StartingAt(uintptr_t start) {
    Id id = ids_[start];
    return id != kNone && entries_[id].start == start ? id : kNone;
  }
  Id EndingAt(uintptr_t end) {
    Id id = ids_[end - page_];
    return id != kNone && entries_[id].end() == end ? id : kNone;
  }

 private:
  void Mark(const Entry& entry, Id id) {
    ids_[entry.start] = id;
    ids_[entry.end() - page_] = id;
  }

  uint64_t page_;
  std::vector<Entry> entries_;
  std::vector<Id> unused_;
  PageMap ids_;
};

}  // namespace dtr

#endif  // TVM_DTR_CORE_ARENA_LIVE_BLOCKS_H_
