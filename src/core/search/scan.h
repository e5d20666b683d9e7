// Exact search: look at every evictable storage. O(n) an eviction, a few nanoseconds each.
#ifndef TVM_DTR_CORE_SEARCH_SCAN_H_
#define TVM_DTR_CORE_SEARCH_SCAN_H_

#include "core/search/scored_policy.h"

namespace dtr {

template <typename Score>
class ScanPolicy : public ScoredPolicy<Score> {
 public:
  StorageId SelectVictim(const Graph& graph, double clock, uint64_t smallest) override {
    StorageId victim = Largest(graph, clock, static_cast<double>(smallest));
    return victim == kNone && smallest > 0 ? Largest(graph, clock, 0) : victim;
  }

 private:
  StorageId Largest(const Graph& graph, double clock, double smallest) {
    StorageId victim = kNone;
    double best = -1;
    uint64_t since = 0;
    for (const Graph::Candidate& c : graph.evictable()) {
      if (c.bytes < smallest || this->score_.Bound(c).At(clock) < best) continue;
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
