#include "core/plan/order_search.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>

namespace dtr {
namespace {

// An order with the memory in use at each place. A swap of neighbours changes two places.
class Order {
 public:
  Order(const PlanningGraph& graph, uint64_t budget)
      : graph_(graph),
        n_(graph.size()),
        budget_(static_cast<int64_t>(budget) - static_cast<int64_t>(graph.pinned_bytes)),
        order_(n_),
        last_(graph.bytes.size(), 0),
        carried_(n_ + 1, 0) {
    for (uint32_t p = 0; p < n_; ++p) order_[p] = p;
    for (uint32_t s = 0; s < graph.bytes.size(); ++s) {
      if (graph.maker[s] == kNone) continue;
      last_[s] = graph.readers[s].empty() ? graph.maker[s] : graph.readers[s].back();
      if (graph.kept[s]) last_[s] = n_;
    }
    for (uint32_t t = 0; t < n_; ++t) {
      over_ += Over(carried_[t], order_[t]);
      carried_[t + 1] = carried_[t] + Change(t);
    }
  }

  double over() const { return over_; }
  const std::vector<uint32_t>& order() const { return order_; }

  bool CanSwap(uint32_t t) const {
    const PlanningGraph::Op& later = graph_.ops[order_[t + 1]];
    const std::vector<uint32_t>& after = later.after;
    if (std::find(after.begin(), after.end(), order_[t]) != after.end()) return false;
    return std::none_of(later.inputs.begin(), later.inputs.end(),
                        [&](uint32_t s) { return graph_.maker[s] == order_[t]; });
  }

  // Swaps places t and t + 1; doing it twice changes nothing.
  void Swap(uint32_t t) {
    over_ -= Over(carried_[t], order_[t]) + Over(carried_[t + 1], order_[t + 1]);
    std::swap(order_[t], order_[t + 1]);
    for (uint32_t place : {t, t + 1}) {
      const PlanningGraph::Op& op = graph_.ops[order_[place]];
      for (uint32_t s : op.inputs) Moved(s, t, place);
      for (uint32_t s : op.outputs) Moved(s, t, place);
    }
    carried_[t + 1] = carried_[t] + Change(t);
    over_ += Over(carried_[t], order_[t]) + Over(carried_[t + 1], order_[t + 1]);
  }

 private:
  // The op at `place`, one of t and t + 1, touches s: later places keep their last touch.
  void Moved(uint32_t s, uint32_t t, uint32_t place) {
    if (last_[s] > t + 1) return;
    last_[s] = place;  // t first, then t + 1: the later of the two stays
  }

  double Over(int64_t carried, uint32_t p) const {
    int64_t bytes = carried + static_cast<int64_t>(graph_.ops[p].workspace_bytes);
    for (uint32_t s : graph_.ops[p].outputs) bytes += static_cast<int64_t>(graph_.bytes[s]);
    return bytes > budget_ ? static_cast<double>(bytes - budget_) : 0;
  }

  int64_t Change(uint32_t t) const {
    int64_t change = 0;
    const PlanningGraph::Op& op = graph_.ops[order_[t]];
    for (uint32_t s : op.outputs) {
      if (last_[s] != t) change += static_cast<int64_t>(graph_.bytes[s]);
    }
    for (uint32_t s : op.inputs) {
      if (last_[s] == t) change -= static_cast<int64_t>(graph_.bytes[s]);
    }
    return change;
  }

  const PlanningGraph& graph_;
  const uint32_t n_;
  const int64_t budget_;
  std::vector<uint32_t> order_;
  std::vector<uint32_t> last_;    // by storage: place of the last touch, n for kept ones
  std::vector<int64_t> carried_;  // into each place
  double over_ = 0;
};

}  // namespace

std::vector<uint32_t> SearchOrder(const PlanningGraph& graph, uint64_t budget, double seconds,
                                  uint64_t seed, const std::function<bool()>& stop) {
  using Clock = std::chrono::steady_clock;
  constexpr int kBatch = 4096;
  const auto start = Clock::now();
  Order order(graph, budget);
  std::vector<uint32_t> best = order.order();
  double lowest = order.over();
  if (graph.size() < 3) return best;
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform(0, 1);
  double mean = 0;
  for (uint64_t bytes : graph.bytes) mean += static_cast<double>(bytes);
  mean /= static_cast<double>(std::max<size_t>(graph.bytes.size(), 1));
  while (lowest > 0) {
    double share = std::chrono::duration<double>(Clock::now() - start).count() / seconds;
    if (share >= 1 || stop()) break;
    const double temperature = 2 * mean * std::pow(0.002, share);
    for (int i = 0; i < kBatch; ++i) {
      auto t = static_cast<uint32_t>(random() % (graph.size() - 1));
      if (!order.CanSwap(t)) continue;
      const double before = order.over();
      order.Swap(t);
      const double rise = order.over() - before;
      if (rise > 0 && uniform(random) >= std::exp(-rise / temperature)) order.Swap(t);
    }
    if (order.over() < lowest) {
      lowest = order.over();
      best = order.order();
    }
  }
  return best;
}

PlanningGraph Reordered(const PlanningGraph& graph, const std::vector<uint32_t>& order) {
  PlanningGraph result;
  result.bytes = graph.bytes;
  result.kept = graph.kept;
  result.pinned_bytes = graph.pinned_bytes;
  result.maker.assign(graph.maker.size(), kNone);
  result.readers.resize(graph.readers.size());
  std::vector<uint32_t> place(graph.size());
  for (uint32_t p = 0; p < order.size(); ++p) place[order[p]] = p;
  for (uint32_t p = 0; p < order.size(); ++p) {
    result.ops.push_back(graph.ops[order[p]]);
    PlanningGraph::Op& op = result.ops.back();
    for (uint32_t& before : op.after) before = place[before];
    // Of one that reads what was overwritten: its own place; of others it is found below.
    op.last_rerun = op.last_rerun == order[p] ? p : op.last_rerun == 0 ? 0 : kNone;
    for (uint32_t s : result.ops.back().outputs) result.maker[s] = p;
    for (uint32_t s : result.ops.back().inputs) result.readers[s].push_back(p);
  }
  for (uint32_t p = 0; p < result.size(); ++p) {
    for (uint32_t before : result.ops[p].after) {
      uint32_t& last = result.ops[before].last_rerun;
      if (result.ops[p].last_rerun == 0) last = std::min(last, p);
    }
  }
  return result;
}

}  // namespace dtr
