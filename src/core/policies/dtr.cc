// Policies over the exact evicted neighbourhood (DTR paper, section 4.1).
#include "core/policies/neighbourhood.h"
#include "core/policies/registry.h"
#include "core/policies/scan.h"

namespace dtr {
namespace {

class NeighbourhoodPolicy : public Policy {
 public:
  explicit NeighbourhoodPolicy(bool descendants) : neighbourhood_(descendants) {}
  void OnCreate(const Graph& graph, StorageId s) override { neighbourhood_.OnChange(graph, s); }
  void OnEvict(const Graph& graph, StorageId s) override { neighbourhood_.OnChange(graph, s); }
  void OnRematerialize(const Graph& graph, StorageId s) override {
    neighbourhood_.OnChange(graph, s);
  }
  void OnForget(const Graph& graph, StorageId s) override { neighbourhood_.OnChange(graph, s); }
  void OnCostChange(const Graph& graph, StorageId s, double) override {
    neighbourhood_.OnChange(graph, s);
  }

 protected:
  Neighbourhood neighbourhood_;
};

// dtr: (c0 + sum of c0 over e*) / (m s)
class Dtr : public NeighbourhoodPolicy {
 public:
  Dtr() : NeighbourhoodPolicy(/*descendants=*/true) {}
  StorageId SelectVictim(const Graph& graph, double clock) override {
    return ScanForLargest(graph, [&](const Graph::Candidate& c, double best) {
      double benefit = c.bytes * (clock - c.last_access);
      double bound = benefit / AtLeastTiny(c.cost);  // neighbours only make it dearer
      if (bound < best) return bound;
      return benefit / AtLeastTiny(c.cost + neighbourhood_.Cost(graph, c.storage));
    });
  }
};

// msps: (c0 + sum of c0 over the evicted ancestors) / m (Peng et al., Capuchin, ASPLOS 2020, as
// the DTR paper reads it)
class Msps : public NeighbourhoodPolicy {
 public:
  Msps() : NeighbourhoodPolicy(/*descendants=*/false) {}
  StorageId SelectVictim(const Graph& graph, double) override {
    return ScanForLargest(graph, [&](const Graph::Candidate& c, double best) {
      double bound = c.bytes / AtLeastTiny(c.cost);
      if (bound < best) return bound;
      return c.bytes / AtLeastTiny(c.cost + neighbourhood_.Cost(graph, c.storage));
    });
  }
};

}  // namespace

std::unique_ptr<Policy> MakeDtr(uint64_t) { return std::make_unique<Dtr>(); }
std::unique_ptr<Policy> MakeMsps(uint64_t) { return std::make_unique<Msps>(); }

}  // namespace dtr
