// Exact search: look at every evictable storage. O(n) an eviction, a few nanoseconds each.
#ifndef TVM_DTR_CORE_SEARCH_SCAN_H_
#define TVM_DTR_CORE_SEARCH_SCAN_H_

#include "core/search/scored_policy.h"

namespace dtr {

template <typename Score>
class ScanPolicy : public ScoredPolicy<Score> {
 public:
  StorageId SelectVictim(const Graph& graph, double clock) override {
    StorageId victim = kNone;
    double best = -1;
    uint64_t since = 0;
    for (const Graph::Candidate& c : graph.evictable()) {
      if (this->score_.Bound(c).At(clock) < best) continue;
      double value = this->score_.Exact(graph, c).At(clock);
      bool preferred = Score::kTies == Ties::kFirst ? c.since < since : c.since > since;
      if (value > best || (value == best && victim != kNone && preferred)) {
        best = value;
        victim = c.storage;
        since = c.since;
      }
    }
    return victim;
  }
};

}  // namespace dtr

#endif  // TVM_DTR_CORE_SEARCH_SCAN_H_
