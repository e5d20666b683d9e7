// Evicted components by union-find, the sum of their costs at the root (DTR paper, appendix C:
// the equivalence-class approximation of the evicted neighbourhood e*).
//
// Union-find cannot split: a storage that comes back takes its own cost off its component's sum
// and leaves; the rest stays joined. Nodes are counted, so that they go with their last member
// and a run of any length needs memory for the evicted storages only.
#ifndef TVM_DTR_CORE_POLICIES_COMPONENTS_H_
#define TVM_DTR_CORE_POLICIES_COMPONENTS_H_

#include <vector>

#include "core/graph.h"

namespace dtr {

class Components {
 public:
  void OnEvict(const Graph& graph, StorageId storage);
  void OnLeave(StorageId storage);  // rematerialized or forgotten
  void OnCostChange(StorageId storage, double delta);

  // Sum of the distinct components' costs next to `storage`.
  double NeighbourCost(const Graph& graph, StorageId storage);
  size_t live_nodes() const { return nodes_.size() - free_.size(); }

 private:
  struct Node {
    uint32_t parent = kNone;
    uint32_t references = 0;  // member storages and child nodes
    uint32_t rank = 0;
    uint64_t seen = 0;  // stamp of the last NeighbourCost that counted it
    double cost = 0;    // of the root: its component's sum
  };
  uint32_t Find(uint32_t node);
  void Unite(uint32_t a, uint32_t b);
  void Drop(uint32_t node);
  uint32_t NodeOf(StorageId storage) const {
    return storage < node_of_.size() ? node_of_[storage] : kNone;
  }

  std::vector<Node> nodes_;
  std::vector<uint32_t> free_;
  std::vector<uint32_t> node_of_;  // by storage, kNone: not evicted
  std::vector<double> own_cost_;   // by storage, as added to its component
  uint64_t stamp_ = 0;
};

}  // namespace dtr

#endif  // TVM_DTR_CORE_POLICIES_COMPONENTS_H_
