// dtr-eq: (c0 + costs of the distinct adjacent evicted components) / (m s), DTR paper section 4.1
// and appendix C.
#ifndef TVM_DTR_CORE_POLICIES_DTR_EQ_H_
#define TVM_DTR_CORE_POLICIES_DTR_EQ_H_

#include "core/policies/components.h"
#include "core/search/line.h"

namespace dtr {

class DtrEq {
 public:
  static constexpr Ties kTies = Ties::kFirst;
  static constexpr bool kTracked = false;
  static constexpr bool kBounded = false;
  Line Bound(const Graph::Candidate& c) const {
    return {c.bytes / AtLeastTiny(c.cost), c.last_access, 0};
  }
  Line Exact(const Graph& graph, const Graph::Candidate& c) {
    double cost = c.cost + components_.NeighbourCost(graph, c.storage);
    return {c.bytes / AtLeastTiny(cost), c.last_access, 0};
  }
  void OnCreate(const Graph&, StorageId) {}
  void OnEvict(const Graph& graph, StorageId s) { components_.OnEvict(graph, s); }
  void OnRematerialize(const Graph&, StorageId s) { components_.OnLeave(s); }
  void OnCostChange(const Graph&, StorageId s, double delta) { components_.OnCostChange(s, delta); }
  void OnForget(const Graph&, StorageId s) { components_.OnLeave(s); }
  // Only the direct neighbours: all that touch the component would cost its size each time.
  template <typename F>
  void ForEachAffected(const Graph& graph, StorageId s, F f) {
    graph.ForEachNeighbour(s, f);
  }

 private:
  Components components_;
};

}  // namespace dtr

#endif  // TVM_DTR_CORE_POLICIES_DTR_EQ_H_
