#include "core/policies/window.h"

#include <algorithm>
#include <limits>

#include "core/arena/address_runs.h"
#include "core/search/line.h"

namespace dtr {

void Window::OnRequest(const Arena& arena, uint64_t bytes) {
  arena_ = &arena;
  bytes_ = bytes == 0 ? 0 : arena.RoundedSize(bytes);
  plan_.clear();
}

// The plan stands until the block fits: evicting its storages one after the other changes nothing
// else. Where it has been carried out and memory is still short (pages, not addresses), the
// cheapest storage goes.
StorageId Window::SelectVictim(const Graph& graph, double clock, uint64_t) {
  auto evictable = [&](StorageId s) { return graph.storage(s).evictable_index != kNone; };
  while (!plan_.empty() && !evictable(plan_.back())) plan_.pop_back();
  if (plan_.empty() && bytes_ > 0) Plan(graph, clock);
  if (plan_.empty()) return Cheapest(graph, clock);
  StorageId victim = plan_.back();
  plan_.pop_back();
  return victim;
}

void Window::FindOwners(const Graph& graph) {
  owners_.clear();
  for (const Graph::Candidate& c : graph.evictable()) {
    uint32_t run = graph.storage(c.storage).block.place;
    if (run == kNone) continue;  // in memory that the arena has no addresses of
    if (run >= owners_.size()) owners_.resize(run + 1, kNone);
    owners_[run] = c.storage;
  }
}

void Window::Plan(const Graph& graph, double clock) {
  FindOwners(graph);
  const AddressRuns& runs = *arena_->runs();
  parts_.clear();
  size_t first = 0, best_first = 0, best_end = 0;
  uint64_t bytes = 0;
  double cost = 0, best = std::numeric_limits<double>::infinity();
  for (uint32_t id = runs.first(); id != kNone; id = runs[id].next) {
    StorageId owner = !runs[id].free && id < owners_.size() ? owners_[id] : kNone;
    if (!runs[id].free && owner == kNone) {  // a barrier
      first = parts_.size();
      bytes = 0;
      cost = 0;
      continue;
    }
    parts_.push_back({runs[id].bytes, owner == kNone ? 0 : Cost(graph, owner, clock), owner});
    bytes += parts_.back().bytes;
    cost += parts_.back().cost;
    while (bytes - parts_[first].bytes >= bytes_) {
      bytes -= parts_[first].bytes;
      cost = std::max(0.0, cost - parts_[first].cost);
      ++first;
    }
    if (bytes < bytes_ || cost >= best) continue;
    best = cost;
    best_first = first;
    best_end = parts_.size();
  }
  for (size_t i = best_first; i < best_end; ++i) {
    if (parts_[i].storage != kNone) plan_.push_back(parts_[i].storage);
  }
}

double Window::Cost(const Graph& graph, StorageId storage, double clock) {
  const Graph::Candidate& c = graph.evictable()[graph.storage(storage).evictable_index];
  double age = std::max(clock - c.last_access, 1.0);
  return AtLeastTiny(c.cost + components_.NeighbourCost(graph, storage)) / age;
}

StorageId Window::Cheapest(const Graph& graph, double clock) {
  StorageId victim = kNone;
  double best = std::numeric_limits<double>::infinity();
  for (const Graph::Candidate& c : graph.evictable()) {
    double score = Cost(graph, c.storage, clock) / std::max(c.bytes, 1.0);
    if (score >= best) continue;
    best = score;
    victim = c.storage;
  }
  return victim;
}

}  // namespace dtr
