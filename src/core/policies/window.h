// window: evicts what lies in the cheapest contiguous run of addresses that makes the block fit
// (Coop: Zhang et al., "Coop: Memory is not a Commodity", NeurIPS 2023, section 4.1: the sliding
// window over the address-ordered list of storages). Evicting by score alone frees memory that is
// scattered; here what is freed is usable.
//
// The cost of a window is the sum of its storages' (c0 + costs of the distinct adjacent evicted
// components) / s, which is dtr-eq without the size: bytes that are free cost nothing, and blocks
// that cannot be evicted are barriers. O(n) for n blocks, once for each block that does not fit.
#ifndef TVM_DTR_CORE_POLICIES_WINDOW_H_
#define TVM_DTR_CORE_POLICIES_WINDOW_H_

#include <vector>

#include "core/arena.h"
#include "core/policies/components.h"
#include "core/policy.h"

namespace dtr {

class Window : public Policy {
 public:
  StorageId SelectVictim(const Graph& graph, double clock, uint64_t smallest) override;
  void OnRequest(const Arena& arena, uint64_t bytes) override;
  bool needs_addresses() const override { return true; }

  void OnEvict(const Graph& graph, StorageId s) override { components_.OnEvict(graph, s); }
  void OnRematerialize(const Graph&, StorageId s) override { components_.OnLeave(s); }
  void OnCostChange(const Graph&, StorageId s, double delta) override {
    components_.OnCostChange(s, delta);
  }
  void OnForget(const Graph&, StorageId s) override { components_.OnLeave(s); }

 private:
  // A run of addresses in a window: free, or one storage.
  struct Part {
    uint64_t bytes;
    double cost;
    StorageId storage;  // kNone: free
  };

  void FindOwners(const Graph& graph);
  // Puts the storages of the cheapest window into plan_; none if no window is long enough.
  void Plan(const Graph& graph, double clock);
  double Cost(const Graph& graph, StorageId storage, double clock);
  // Least dtr-eq score, for memory that is short and not scattered.
  StorageId Cheapest(const Graph& graph, double clock);

  Components components_;
  const Arena* arena_ = nullptr;
  uint64_t bytes_ = 0;
  std::vector<StorageId> plan_;    // still to be evicted, the last first
  std::vector<StorageId> owners_;  // by run: the evictable storage in it
  std::vector<Part> parts_;
};

}  // namespace dtr

#endif  // TVM_DTR_CORE_POLICIES_WINDOW_H_
