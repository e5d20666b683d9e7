// The exact evicted neighbourhood e* (DTR paper, section 4.1): the evicted ancestors and the
// evicted descendants of a storage that are reached through evicted storages only.
//
// Kept incrementally: a sum is recomputed only if a storage in reach was evicted, came back or
// changed its cost since. Finding whom a change concerns is a walk over the same evicted region.
#ifndef TVM_DTR_CORE_POLICIES_NEIGHBOURHOOD_H_
#define TVM_DTR_CORE_POLICIES_NEIGHBOURHOOD_H_

#include <vector>

#include "core/graph.h"

namespace dtr {

class Neighbourhood {
 public:
  // `descendants` false: ancestors only (msps).
  explicit Neighbourhood(bool descendants) : descendants_(descendants) {}

  double Cost(const Graph& graph, StorageId storage);
  // The storage was evicted, rematerialized, created or forgotten, or its cost changed.
  void OnChange(const Graph& graph, StorageId storage);
  // Storages in memory whose Cost the last OnChange made unknown.
  const std::vector<StorageId>& affected() const { return affected_; }

 private:
  struct Entry {
    double ancestors = 0, descendants = 0;
    bool ancestors_known = false, descendants_known = false;
  };
  enum class Direction { kParents, kChildren };

  void Grow(const Graph& graph);
  // Calls visit(id) for each storage next to the evicted region around `start` in the direction,
  // evicted members of the region included, `start` not.
  template <typename Visit>
  void Walk(const Graph& graph, StorageId start, Direction direction, Visit visit);

  bool descendants_;
  std::vector<Entry> entries_;
  std::vector<uint64_t> seen_;
  uint64_t stamp_ = 0;
  std::vector<StorageId> pending_, affected_;
};

}  // namespace dtr

#endif  // TVM_DTR_CORE_POLICIES_NEIGHBOURHOOD_H_
