#include "core/policies/neighbourhood.h"

namespace dtr {

void Neighbourhood::Grow(const Graph& graph) {
  if (entries_.size() >= graph.storage_capacity()) return;
  entries_.resize(graph.storage_capacity());
  seen_.resize(graph.storage_capacity(), 0);
}

template <typename Visit>
void Neighbourhood::Walk(const Graph& graph, StorageId start, Direction direction, Visit visit) {
  Grow(graph);
  seen_[start] = ++stamp_;
  pending_.assign(1, start);
  while (!pending_.empty()) {
    const Storage& s = graph.storage(pending_.back());
    pending_.pop_back();
    bool up = direction == Direction::kParents;
    for (EdgeId e = up ? s.first_parent : s.first_child; e != kNone;
         e = up ? graph.edge(e).next_parent : graph.edge(e).next_child) {
      StorageId next = up ? graph.edge(e).parent : graph.edge(e).child;
      if (seen_[next] == stamp_) continue;
      seen_[next] = stamp_;
      visit(next);
      if (graph.Evicted(next)) pending_.push_back(next);
    }
  }
}

double Neighbourhood::Cost(const Graph& graph, StorageId storage) {
  Grow(graph);
  double sum = 0;
  auto add = [&](StorageId id) {
    if (graph.Evicted(id)) sum += graph.storage(id).cost;
  };
  if (!entries_[storage].ancestors_known) {
    Walk(graph, storage, Direction::kParents, add);
    entries_[storage].ancestors = sum;
    entries_[storage].ancestors_known = true;
  }
  if (!descendants_) return entries_[storage].ancestors;
  if (!entries_[storage].descendants_known) {
    sum = 0;
    Walk(graph, storage, Direction::kChildren, add);
    entries_[storage].descendants = sum;
    entries_[storage].descendants_known = true;
  }
  return entries_[storage].ancestors + entries_[storage].descendants;
}

void Neighbourhood::OnChange(const Graph& graph, StorageId storage) {
  Grow(graph);
  entries_[storage] = Entry();
  affected_.clear();
  auto note = [&](StorageId id) {
    if (graph.storage(id).resident) affected_.push_back(id);
  };
  Walk(graph, storage, Direction::kChildren, [&](StorageId id) {
    entries_[id].ancestors_known = false;
    note(id);
  });
  if (!descendants_) return;
  Walk(graph, storage, Direction::kParents, [&](StorageId id) {
    entries_[id].descendants_known = false;
    note(id);
  });
}

}  // namespace dtr
