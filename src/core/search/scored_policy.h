// A policy made of a score and a search over it. A Score offers
//   static constexpr Ties kTies
//   static constexpr bool kTracked                whether ForEachAffected names all of them
//   static constexpr bool kBounded                whether it has Promise and ExactUnlessBelow,
//                                                 where Exact is dear (policies/dtr.h)
//   Line Bound(const Graph::Candidate&)           at least Exact, cheap
//   Line Exact(const Graph&, const Graph::Candidate&)
//   ForEachAffected(const Graph&, StorageId s, f)  whose Exact changed with the last event on s
//   OnCreate, OnEvict, OnRematerialize, OnCostChange, OnForget as in Policy
#ifndef TVM_DTR_CORE_SEARCH_SCORED_POLICY_H_
#define TVM_DTR_CORE_SEARCH_SCORED_POLICY_H_

#include "core/graph.h"
#include "core/policy.h"
#include "core/search/line.h"

namespace dtr {

template <typename Score>
class ScoredPolicy : public Policy {
 public:
  double ScoreOf(const Graph& graph, StorageId s, double clock) override {
    const Graph::Candidate& c = graph.evictable()[graph.storage(s).evictable_index];
    return 1 / score_.Exact(graph, c).At(clock);
  }
  void OnCreate(const Graph& graph, StorageId s) override { score_.OnCreate(graph, s); }
  void OnEvict(const Graph& graph, StorageId s) override { score_.OnEvict(graph, s); }
  void OnRematerialize(const Graph& graph, StorageId s) override {
    score_.OnRematerialize(graph, s);
  }
  void OnCostChange(const Graph& graph, StorageId s, double delta) override {
    score_.OnCostChange(graph, s, delta);
  }
  void OnForget(const Graph& graph, StorageId s) override { score_.OnForget(graph, s); }

 protected:
  Score score_;
};

}  // namespace dtr

#endif  // TVM_DTR_CORE_SEARCH_SCORED_POLICY_H_
