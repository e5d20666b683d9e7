// dtr-eq: (c0 + costs of the distinct adjacent evicted components) / (m s), DTR paper section 4.1.
#include "core/policies/components.h"
#include "core/policies/registry.h"
#include "core/policies/scan.h"

namespace dtr {
namespace {

class DtrEq : public Policy {
 public:
  StorageId SelectVictim(const Graph& graph, double clock) override {
    return ScanForLargest(graph, [&](const Graph::Candidate& c, double best) {
      double benefit = c.bytes * (clock - c.last_access);
      double bound = benefit / AtLeastTiny(c.cost);  // neighbours only make it dearer
      if (bound < best) return bound;
      double neighbours = components_.NeighbourCost(graph, c.storage);
      return neighbours > 0 ? benefit / AtLeastTiny(c.cost + neighbours) : bound;
    });
  }
  void OnEvict(const Graph& graph, StorageId s) override { components_.OnEvict(graph, s); }
  void OnRematerialize(const Graph&, StorageId s) override { components_.OnLeave(s); }
  void OnForget(const Graph&, StorageId s) override { components_.OnLeave(s); }
  void OnCostChange(const Graph&, StorageId s, double delta) override {
    components_.OnCostChange(s, delta);
  }

 private:
  Components components_;
};

}  // namespace

std::unique_ptr<Policy> MakeDtrEq(uint64_t) { return std::make_unique<DtrEq>(); }

}  // namespace dtr
