// Scores over the exact evicted neighbourhood (DTR paper, section 4.1).
#ifndef TVM_DTR_CORE_POLICIES_DTR_H_
#define TVM_DTR_CORE_POLICIES_DTR_H_

#include <limits>

#include "core/policies/neighbourhood.h"
#include "core/search/line.h"

namespace dtr {

// `Form` makes a line of what to divide by, and tells which cost gives a value:
//   static Line Of(const Graph::Candidate&, double cost)
//   static double CostAt(const Graph::Candidate&, double clock, double value)
template <typename Form, bool kDescendants>
class NeighbourhoodScore {
 public:
  static constexpr Ties kTies = Ties::kFirst;
  static constexpr bool kTracked = true;
  static constexpr bool kBounded = true;

  Line Bound(const Graph::Candidate& c) const { return Form::Of(c, AtLeastTiny(c.cost)); }
  Line Exact(const Graph& graph, const Graph::Candidate& c) {
    double all = neighbourhood_.Cost(graph, c.storage, kUnbounded).sum;
    return Form::Of(c, AtLeastTiny(c.cost + all));
  }
  // At least Exact, without a walk.
  Line Promise(const Graph& graph, const Graph::Candidate& c) {
    return Form::Of(c, AtLeastTiny(c.cost + neighbourhood_.KnownCost(graph, c.storage)));
  }
  // Exact; or, where that is less than `rival` at `clock`, a line that is less too and at least
  // Exact. `*exact` tells which.
  Line ExactUnlessBelow(const Graph& graph, const Graph::Candidate& c, double clock, double rival,
                        bool* exact) {
    constexpr double kClearly = 1 + 1e-9;  // against rounding
    double enough = rival > 0 ? kClearly * Form::CostAt(c, clock, rival) - c.cost : kUnbounded;
    BoundedCost cost = neighbourhood_.Cost(graph, c.storage, enough);
    *exact = cost.complete;
    return Form::Of(c, AtLeastTiny(c.cost + cost.sum));
  }

  void OnCreate(const Graph& graph, StorageId s) { neighbourhood_.OnCreate(graph, s); }
  void OnEvict(const Graph& graph, StorageId s) { neighbourhood_.OnMore(graph, s); }
  void OnRematerialize(const Graph& graph, StorageId s) { neighbourhood_.OnLess(graph, s); }
  void OnCostChange(const Graph& graph, StorageId s, double) { neighbourhood_.OnLess(graph, s); }
  void OnForget(const Graph& graph, StorageId s) { neighbourhood_.OnLess(graph, s); }
  template <typename F>
  void ForEachAffected(const Graph&, StorageId, F f) {
    for (StorageId id : neighbourhood_.affected()) f(id);
  }

 private:
  static constexpr double kUnbounded = std::numeric_limits<double>::infinity();
  Neighbourhood neighbourhood_{kDescendants};
};

struct PerByteAndAge {
  static Line Of(const Graph::Candidate& c, double cost) {
    return {c.bytes / cost, c.last_access, 0};
  }
  static double CostAt(const Graph::Candidate& c, double clock, double value) {
    return c.bytes * (clock - c.last_access) / value;
  }
};

struct PerByte {
  static Line Of(const Graph::Candidate& c, double cost) { return {0, 0, c.bytes / cost}; }
  static double CostAt(const Graph::Candidate& c, double, double value) { return c.bytes / value; }
};

struct CostAlone {
  static Line Of(const Graph::Candidate&, double cost) { return {0, 0, 1 / cost}; }
  static double CostAt(const Graph::Candidate&, double, double value) { return 1 / value; }
};

// dtr: (c0 + sum of c0 over e*) / (m s)
using Dtr = NeighbourhoodScore<PerByteAndAge, /*kDescendants=*/true>;

// dtr-up: (c0 + sum of c0 over the evicted ancestors) / (m s), a score of this project's own.
// What evicting costs is what it takes to bring the storage back: its evicted ancestors. That its
// evicted descendants get dearer is true only of those that are asked for again.
using DtrUp = NeighbourhoodScore<PerByteAndAge, /*kDescendants=*/false>;

// msps: (c0 + sum of c0 over the evicted ancestors) / m (Peng et al., Capuchin, ASPLOS 2020, as
// the DTR paper reads it)
using Msps = NeighbourhoodScore<PerByte, /*kDescendants=*/false>;

// e-star: c0 + sum of c0 over e*, the score of which theorem 3.1 speaks: neither size nor age.
using EStar = NeighbourhoodScore<CostAlone, /*kDescendants=*/true>;

}  // namespace dtr

#endif  // TVM_DTR_CORE_POLICIES_DTR_H_
