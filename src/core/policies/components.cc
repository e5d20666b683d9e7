#include "core/policies/components.h"

#include <algorithm>
#include <utility>

namespace dtr {

void Components::OnEvict(const Graph& graph, StorageId storage) {
  if (storage >= node_of_.size()) {
    node_of_.resize(storage + 1, kNone);
    own_cost_.resize(storage + 1, 0);
  }
  uint32_t id = static_cast<uint32_t>(nodes_.size());
  if (free_.empty()) {
    nodes_.emplace_back();
  } else {
    id = free_.back();
    free_.pop_back();
  }
  double cost = graph.storage(storage).cost;
  nodes_[id] = Node();
  nodes_[id].references = 1;
  nodes_[id].cost = cost;
  node_of_[storage] = id;
  own_cost_[storage] = cost;
  graph.ForEachEvictedNeighbour(storage, [&](StorageId neighbour) {
    if (neighbour != storage && NodeOf(neighbour) != kNone) Unite(id, NodeOf(neighbour));
  });
}

void Components::OnLeave(StorageId storage) {
  uint32_t node = NodeOf(storage);
  if (node == kNone) return;
  Node& root = nodes_[Find(node)];
  root.cost = std::max(0.0, root.cost - own_cost_[storage]);
  node_of_[storage] = kNone;
  Drop(node);
}

void Components::OnCostChange(StorageId storage, double delta) {
  uint32_t node = NodeOf(storage);
  if (node == kNone) return;
  own_cost_[storage] += delta;
  Node& root = nodes_[Find(node)];
  root.cost = std::max(0.0, root.cost + delta);
}

double Components::NeighbourCost(const Graph& graph, StorageId storage) {
  ++stamp_;
  double sum = 0;
  graph.ForEachEvictedNeighbour(storage, [&](StorageId neighbour) {
    uint32_t node = NodeOf(neighbour);
    if (node == kNone) return;
    Node& root = nodes_[Find(node)];
    if (root.seen == stamp_) return;
    root.seen = stamp_;
    sum += root.cost;
  });
  return sum;
}

uint32_t Components::Find(uint32_t node) {
  while (nodes_[node].parent != kNone) {
    uint32_t parent = nodes_[node].parent;
    uint32_t grandparent = nodes_[parent].parent;
    if (grandparent == kNone) return parent;
    nodes_[node].parent = grandparent;  // path halving
    nodes_[grandparent].references++;
    Drop(parent);
    node = grandparent;
  }
  return node;
}

void Components::Unite(uint32_t a, uint32_t b) {
  a = Find(a);
  b = Find(b);
  if (a == b) return;
  if (nodes_[a].rank < nodes_[b].rank) std::swap(a, b);
  if (nodes_[a].rank == nodes_[b].rank) nodes_[a].rank++;
  nodes_[b].parent = a;
  nodes_[a].references++;
  nodes_[a].cost += nodes_[b].cost;
}

void Components::Drop(uint32_t node) {
  while (node != kNone && --nodes_[node].references == 0) {
    free_.push_back(node);
    node = nodes_[node].parent;
  }
}

}  // namespace dtr
