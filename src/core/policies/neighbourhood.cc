#include "core/policies/neighbourhood.h"

namespace dtr {
namespace {

// Calls f(StorageId) for the storages next to `id` that it was made from, or that were made of it.
template <typename F>
void ForEachNext(const Graph& graph, StorageId id, bool up, F f) {
  const Storage& s = graph.storage(id);
  for (EdgeId e = up ? s.first_parent : s.first_child; e != kNone;
       e = up ? graph.edge(e).next_parent : graph.edge(e).next_child) {
    f(up ? graph.edge(e).parent : graph.edge(e).child);
  }
}

}  // namespace

void Neighbourhood::Grow(const Graph& graph) {
  if (entries_.size() >= graph.storage_capacity()) return;
  entries_.resize(graph.storage_capacity());
  seen_.resize(graph.storage_capacity(), 0);
}

BoundedCost Neighbourhood::Cost(const Graph& graph, StorageId storage, double enough) {
  Grow(graph);
  const Sum* sums = entries_[storage].sums;
  double known = KnownCost(graph, storage);
  for (Direction direction : {kParents, kChildren}) {
    if (direction == kChildren && !descendants_) break;
    const Sum& sum = sums[direction];
    if (sum.known && sum.complete) continue;
    if (known > enough) return {known, false};
    double others = known - (sum.known ? sum.value : 0);
    Extend(graph, storage, direction, enough - others);
    known = others + sum.value;
    if (!sum.complete) return {known, false};
  }
  // Always added in this order, whatever was known before.
  return {sums[kParents].value + (descendants_ ? sums[kChildren].value : 0), true};
}

double Neighbourhood::KnownCost(const Graph& graph, StorageId storage) {
  Grow(graph);
  const Sum* sums = entries_[storage].sums;
  return (sums[kParents].known ? sums[kParents].value : 0) +
         (sums[kChildren].known ? sums[kChildren].value : 0);
}

// Walks anew and at least twice as far as the last time, so that a bound that has to grow again
// and again costs no more than one walk to the end.
void Neighbourhood::Extend(const Graph& graph, StorageId storage, Direction direction,
                           double enough) {
  Sum& result = entries_[storage].sums[direction];
  if (result.known && enough < 2 * result.value) enough = 2 * result.value;
  double sum = 0;
  seen_[storage] = ++stamp_;
  pending_.assign(1, storage);
  while (!pending_.empty() && sum <= enough) {
    StorageId at = pending_.back();
    pending_.pop_back();
    ForEachNext(graph, at, direction == kParents, [&](StorageId next) {
      if (seen_[next] == stamp_ || !graph.Evicted(next)) return;
      seen_[next] = stamp_;
      Sum& mark = entries_[next].sums[direction];
      mark.counted = mark.current = true;
      sum += graph.storage(next).cost;
      pending_.push_back(next);
    });
  }
  result.value = sum;
  result.known = true;
  result.complete = pending_.empty();
}

void Neighbourhood::OnCreate(const Graph& graph, StorageId storage) {
  Grow(graph);
  entries_[storage] = Entry();
}

void Neighbourhood::OnMore(const Graph& graph, StorageId storage) {
  OnCreate(graph, storage);
  MakeIncomplete(graph, storage, kParents);
  if (descendants_) MakeIncomplete(graph, storage, kChildren);
}

void Neighbourhood::OnLess(const Graph& graph, StorageId storage) {
  OnCreate(graph, storage);
  affected_.clear();
  MakeUnknown(graph, storage, kParents);
  if (descendants_) MakeUnknown(graph, storage, kChildren);
}

// The sums of those for whom `start` lies in `direction`.
void Neighbourhood::MakeIncomplete(const Graph& graph, StorageId start, Direction direction) {
  pending_.assign(1, start);
  while (!pending_.empty()) {
    StorageId at = pending_.back();
    pending_.pop_back();
    ForEachNext(graph, at, direction != kParents, [&](StorageId next) {
      Sum& sum = entries_[next].sums[direction];
      if (!graph.Evicted(next)) {
        sum.complete = false;
      } else if (sum.current) {
        sum.current = false;
        pending_.push_back(next);
      }
    });
  }
}

void Neighbourhood::MakeUnknown(const Graph& graph, StorageId start, Direction direction) {
  pending_.assign(1, start);
  while (!pending_.empty()) {
    StorageId at = pending_.back();
    pending_.pop_back();
    ForEachNext(graph, at, direction != kParents, [&](StorageId next) {
      Sum& sum = entries_[next].sums[direction];
      if (graph.Evicted(next)) {
        if (sum.counted) pending_.push_back(next);
        sum.counted = sum.current = false;
      } else if (sum.known) {
        sum.known = sum.complete = false;
        affected_.push_back(next);
      }
    });
  }
}

}  // namespace dtr
