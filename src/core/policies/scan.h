// Exact search: look at every evictable storage. O(n) an eviction, a few nanoseconds each.
#ifndef TVM_DTR_CORE_POLICIES_SCAN_H_
#define TVM_DTR_CORE_POLICIES_SCAN_H_

#include "core/graph.h"

namespace dtr {

// Equal values go to the storage that became evictable first, or last.
enum class Ties { kFirst, kLast };

// The candidate with the largest value(candidate, best so far). `value` may return anything less
// than `best` as soon as it knows that it cannot win.
template <Ties ties = Ties::kFirst, typename Value>
StorageId ScanForLargest(const Graph& graph, Value value) {
  StorageId victim = kNone;
  double best = -1;
  uint64_t since = 0;
  for (const Graph::Candidate& c : graph.evictable()) {
    double v = value(c, best);
    bool earlier = ties == Ties::kFirst ? c.since < since : c.since > since;
    if (v > best || (v == best && victim != kNone && earlier)) {
      best = v;
      victim = c.storage;
      since = c.since;
    }
  }
  return victim;
}

// Costs of zero would make a storage infinitely attractive whatever its size; in nanoseconds.
inline double AtLeastTiny(double cost) { return cost > 1e-3 ? cost : 1e-3; }

}  // namespace dtr

#endif  // TVM_DTR_CORE_POLICIES_SCAN_H_
