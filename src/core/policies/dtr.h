// Scores over the exact evicted neighbourhood (DTR paper, section 4.1).
#ifndef TVM_DTR_CORE_POLICIES_DTR_H_
#define TVM_DTR_CORE_POLICIES_DTR_H_

#include "core/policies/neighbourhood.h"
#include "core/search/line.h"

namespace dtr {

class NeighbourhoodScore {
 public:
  static constexpr Ties kTies = Ties::kFirst;
  explicit NeighbourhoodScore(bool descendants) : neighbourhood_(descendants) {}
  void OnCreate(const Graph& graph, StorageId s) { neighbourhood_.OnChange(graph, s); }
  void OnEvict(const Graph& graph, StorageId s) { neighbourhood_.OnChange(graph, s); }
  void OnRematerialize(const Graph& graph, StorageId s) { neighbourhood_.OnChange(graph, s); }
  void OnCostChange(const Graph& graph, StorageId s, double) { neighbourhood_.OnChange(graph, s); }
  void OnForget(const Graph& graph, StorageId s) { neighbourhood_.OnChange(graph, s); }
  template <typename F>
  void ForEachAffected(const Graph&, StorageId, F f) {
    for (StorageId id : neighbourhood_.affected()) f(id);
  }

 protected:
  double Cost(const Graph& graph, const Graph::Candidate& c) {
    return AtLeastTiny(c.cost + neighbourhood_.Cost(graph, c.storage));
  }

 private:
  Neighbourhood neighbourhood_;
};

// dtr: (c0 + sum of c0 over e*) / (m s)
class Dtr : public NeighbourhoodScore {
 public:
  Dtr() : NeighbourhoodScore(/*descendants=*/true) {}
  Line Bound(const Graph::Candidate& c) const {
    return {c.bytes / AtLeastTiny(c.cost), c.last_access, 0};
  }
  Line Exact(const Graph& graph, const Graph::Candidate& c) {
    return {c.bytes / Cost(graph, c), c.last_access, 0};
  }
};

// dtr-up: (c0 + sum of c0 over the evicted ancestors) / (m s), a score of this project's own.
// What evicting costs is what it takes to bring the storage back: its evicted ancestors. That its
// evicted descendants get dearer is true only of those that are asked for again.
class DtrUp : public NeighbourhoodScore {
 public:
  DtrUp() : NeighbourhoodScore(/*descendants=*/false) {}
  Line Bound(const Graph::Candidate& c) const {
    return {c.bytes / AtLeastTiny(c.cost), c.last_access, 0};
  }
  Line Exact(const Graph& graph, const Graph::Candidate& c) {
    return {c.bytes / Cost(graph, c), c.last_access, 0};
  }
};

// msps: (c0 + sum of c0 over the evicted ancestors) / m (Peng et al., Capuchin, ASPLOS 2020, as
// the DTR paper reads it)
class Msps : public NeighbourhoodScore {
 public:
  Msps() : NeighbourhoodScore(/*descendants=*/false) {}
  Line Bound(const Graph::Candidate& c) const { return {0, 0, c.bytes / AtLeastTiny(c.cost)}; }
  Line Exact(const Graph& graph, const Graph::Candidate& c) {
    return {0, 0, c.bytes / Cost(graph, c)};
  }
};

}  // namespace dtr

#endif  // TVM_DTR_CORE_POLICIES_DTR_H_
