// The exact evicted neighbourhood e* (DTR paper, section 4.1): the evicted ancestors and the
// evicted descendants of a storage that are reached through evicted storages only.
//
// Kept incrementally. A storage that is evicted makes sums larger: what they were is a lower bound
// from then on. One that comes back makes sums smaller: those that count it are unknown from then
// on. To find whom a change concerns, evicted storages that a sum counts are marked: the search
// goes over marked ones only and takes the marks away, so that it costs no more than the walks that
// made the sums. A walk can stop early, when the sum is already too large to matter; what it has is
// a lower bound too.
//
// Marks: if a sum is known, every storage in it is `counted`; if it is complete, also `current`.
#ifndef TVM_DTR_CORE_POLICIES_NEIGHBOURHOOD_H_
#define TVM_DTR_CORE_POLICIES_NEIGHBOURHOOD_H_

#include <vector>

#include "core/graph.h"

namespace dtr {

// A sum of costs, or at least that much.
struct BoundedCost {
  double sum = 0;
  bool complete = true;
};

class Neighbourhood {
 public:
  // `descendants` false: ancestors only.
  explicit Neighbourhood(bool descendants) : descendants_(descendants) {}

  // The costs in e*; or less, but not below `enough`, where all of them exceed it.
  BoundedCost Cost(const Graph& graph, StorageId storage, double enough);
  // What is known without a walk: at most the costs in e*.
  double KnownCost(const Graph& graph, StorageId storage);
  // The storage is new, or the ops that fill it are others.
  void OnCreate(const Graph& graph, StorageId storage);
  // The storage was evicted.
  void OnMore(const Graph& graph, StorageId storage);
  // The storage came back, goes for good, or was evicted and is cheaper now.
  void OnLess(const Graph& graph, StorageId storage);
  // Storages in memory whose sums the last OnLess made unknown.
  const std::vector<StorageId>& affected() const { return affected_; }

 private:
  enum Direction { kParents, kChildren };
  struct Sum {
    double value = 0;
    bool known = false, complete = false;
    // Of an evicted storage: a known sum may count it, a complete one may.
    bool counted = false, current = false;
  };
  struct Entry {
    Sum sums[2];  // by Direction
  };

  void Grow(const Graph& graph);
  void Extend(const Graph& graph, StorageId storage, Direction direction, double enough);
  void MakeIncomplete(const Graph& graph, StorageId start, Direction direction);
  void MakeUnknown(const Graph& graph, StorageId start, Direction direction);

  bool descendants_;
  std::vector<Entry> entries_;
  std::vector<uint64_t> seen_;
  uint64_t stamp_ = 0;
  std::vector<StorageId> pending_, affected_;
};

}  // namespace dtr

#endif  // TVM_DTR_CORE_POLICIES_NEIGHBOURHOOD_H_
