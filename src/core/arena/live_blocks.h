// Blocks of whole pages that are in use, found by their first and by their last page.
//
// A page number leads to a leaf of 4096 entries for as many pages, made when it is first needed and
// kept: 16 KiB for each 16 MiB of addresses of the host's pages.
#ifndef TVM_DTR_CORE_ARENA_LIVE_BLOCKS_H_
#define TVM_DTR_CORE_ARENA_LIVE_BLOCKS_H_

#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "core/types.h"

namespace dtr {

class LiveBlocks {
 public:
  using Id = uint32_t;  // kNone: no block

  struct Entry {
    uintptr_t start = 0;
    uint64_t bytes = 0;
    uint32_t shift = 0;       // where data starts in it
    uint32_t number = kNone;  // the owner's; kNone: stays where it is
    uintptr_t end() const { return start + bytes; }
  };

  explicit LiveBlocks(uint64_t page) : page_(page) {}

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
    Id id = At(start);
    return id != kNone && entries_[id].start == start ? id : kNone;
  }
  Id EndingAt(uintptr_t end) {
    Id id = At(end - page_);
    return id != kNone && entries_[id].end() == end ? id : kNone;
  }

 private:
  static constexpr uint64_t kLeaf = 4096;
  using Leaf = std::array<Id, kLeaf>;

  void Mark(const Entry& entry, Id id) {
    At(entry.start) = id;
    At(entry.end() - page_) = id;
  }
  Id& At(uintptr_t address) {
    uint64_t number = address / page_, key = number / kLeaf;
    if (key != latest_key_) {
      std::unique_ptr<Leaf>& leaf = leaves_[key];
      if (!leaf) {
        leaf = std::make_unique<Leaf>();
        leaf->fill(kNone);
      }
      latest_ = leaf.get();
      latest_key_ = key;
    }
    return (*latest_)[number % kLeaf];
  }

  uint64_t page_;
  std::vector<Entry> entries_;
  std::vector<Id> unused_;
  std::unordered_map<uint64_t, std::unique_ptr<Leaf>> leaves_;
  uint64_t latest_key_ = ~uint64_t{0};
  Leaf* latest_ = nullptr;
};

}  // namespace dtr

#endif  // TVM_DTR_CORE_ARENA_LIVE_BLOCKS_H_
