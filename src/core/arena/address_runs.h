// A range of addresses cut into runs, live or free: a list in address order, and the free ones by
// size.
//
//   runs follow each other without gaps from the first to the last
//   no two neighbours are free
//   each free run is listed: up to 4 KiB in a bin of its size, else in a tree by (bytes, start)
//
// A bin is a list: small blocks are many, and finding one is O(1). The tree is a treap (Aragon and
// Seidel, FOCS 1989): O(log n) expected. Both are inside the runs' own records, so nothing is
// allocated but these, and they are used again.
#ifndef TVM_DTR_CORE_ARENA_ADDRESS_RUNS_H_
#define TVM_DTR_CORE_ARENA_ADDRESS_RUNS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/types.h"

namespace dtr {

class AddressRuns {
 public:
  using Id = uint32_t;  // of a run; kNone: no run

  struct Run {
    uintptr_t start = 0;
    uint64_t bytes = 0;
    Id previous = kNone, next = kNone;  // by address
    Id left = kNone, right = kNone;     // free runs: children in the tree, neighbours in the bin
    uint32_t priority = 0;
    bool free = false;
    // Free runs: the part without memory behind it, whole pages.
    uintptr_t vacant_start = 0;
    uint64_t vacant_bytes = 0;

    uintptr_t end() const { return start + bytes; }
    uintptr_t vacant_end() const { return vacant_start + vacant_bytes; }
  };

  AddressRuns() { std::fill(bins_, bins_ + kBins, kNone); }
  const Run& operator[](Id id) const { return runs_[id]; }
  Run& operator[](Id id) { return runs_[id]; }
  Id first() const { return first_; }
  Id last() const { return last_; }
  size_t live_records() const { return runs_.size() - unused_.size(); }

  // A free run behind the last one, without memory, joined to nothing.
  Id Append(uintptr_t start, uint64_t bytes);
  // A smallest free run of at least `bytes`, of those over 4 KiB the one at the lowest address;
  // kNone if there is none.
  Id BestFit(uint64_t bytes) const;
  Id Largest() const;

  // Takes the run out of the tree, puts it in: whoever changes its bounds does both.
  void Unlist(Id id);
  void List(Id id);
  // Cuts an unlisted run after `bytes` bytes; the rest is a run of its own, unlisted, free.
  Id Split(Id id, uint64_t bytes);
  // Joins two neighbours, neither of them listed, into `id`.
  void AbsorbNext(Id id);

  // Throws InternalError naming the first equation above that does not hold. O(n).
  void Validate() const;

 private:
  static constexpr uint64_t kUnit = 64;  // sizes in a bin differ by less
  static constexpr uint64_t kBins = 64;

  // Sizes that are no multiple of the unit, at the range's ends, are in the tree.
  static bool Binned(uint64_t bytes) { return bytes <= kUnit * kBins && bytes % kUnit == 0; }
  void ListInBin(Id id);
  void UnlistFromBin(Id id);
  bool Before(Id a, Id b) const {
    const Run &x = runs_[a], &y = runs_[b];
    return x.bytes != y.bytes ? x.bytes < y.bytes : x.start < y.start;
  }
  Id Add();

  std::vector<Run> runs_;
  std::vector<Id> unused_;
  Id first_ = kNone, last_ = kNone, root_ = kNone;
  Id bins_[kBins];         // bin i: runs of (i + 1) * kUnit bytes
  uint64_t occupied_ = 0;  // bit i: bin i has a run
  uint32_t random_ = 0x9e3779b9u;
};

}  // namespace dtr

#endif  // TVM_DTR_CORE_ARENA_ADDRESS_RUNS_H_
