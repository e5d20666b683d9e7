#include "core/plan/repair.h"

#include <algorithm>
#include <cmath>

namespace dtr {
namespace {

constexpr size_t kLongestChain = 256;
constexpr double kAny = 1e300;

}  // namespace

Repair::Repair(Timeline* timeline, uint64_t seed)
    : timeline_(timeline),
      graph_(timeline->graph()),
      random_(seed),
      marked_(graph_.size(), 0),
      least_cost_(1e-4 * graph_.TotalCost() / std::max<uint32_t>(graph_.size(), 1) + 1e-12) {}

bool Repair::Run(uint64_t budget, double cost_limit, const RepairTaste& taste,
                 std::vector<Key>* added) {
  while (timeline_->Peak() > budget) {
    const double left = cost_limit - timeline_->extra_cost();
    if (left < 0) return false;
    Choice choice = Best(timeline_->PeakEvent(), left, taste);
    if (choice.storage == kNone) return false;
    const uint32_t stage = timeline_->StageOf(choice.event);
    for (uint32_t position : best_chain_) {
      Key event = timeline_->KeyOf(stage, position);
      timeline_->Add(event);
      added->push_back(event);
    }
  }
  return timeline_->extra_cost() <= cost_limit;
}

Repair::Choice Repair::Best(Key peak, double most_cost, const RepairTaste& taste) {
  Choice best;
  const uint32_t stage = timeline_->StageOf(peak);
  for (uint32_t p = 0; p < stage; ++p) {
    for (uint32_t s : graph_.ops[p].outputs) {
      if (graph_.bytes[s] == 0) continue;
      if (taste.skipped_share > 0 && Uniform() < taste.skipped_share) continue;
      Choice choice = Weigh(s, peak, most_cost, taste, best);
      if (choice.storage == kNone) continue;
      best = choice;
      best_chain_.swap(chain_);
    }
  }
  if (best.storage == kNone && taste.skipped_share > 0) {
    RepairTaste all = taste;
    all.skipped_share = 0;
    return Best(peak, most_cost, all);
  }
  return best;
}

Repair::Choice Repair::Weigh(uint32_t storage, Key peak, double most_cost, const RepairTaste& taste,
                             const Choice& best) {
  Timeline::Gap gap = timeline_->GapAt(storage, peak);
  if (gap.until == 0) return {};
  const uint32_t position = graph_.maker[storage];
  const uint32_t stage = std::min(timeline_->StageOf(gap.until), graph_.size() - 1);
  const Key event = timeline_->KeyOf(stage, position);
  if (event <= peak || !timeline_->Allowed(event)) return {};
  if (std::find(forbidden_.begin(), forbidden_.end(), event) != forbidden_.end()) return {};
  double gain = 0, cost = 0;
  for (uint32_t s : graph_.ops[position].outputs) {
    if (s == storage || timeline_->GapAt(s, peak).until > event) {
      gain += static_cast<double>(graph_.bytes[s]);
    }
  }
  const double length = static_cast<double>(event - gap.from) / graph_.size();
  double weight = 1 / std::pow(std::max(length, 0.5), taste.reach);
  if (taste.noise > 0) weight *= std::exp(taste.noise * (2 * Uniform() - 1));
  const double most_ratio = best.storage == kNone ? kAny : best.score / weight;
  if (!Gather(position, stage, peak, most_cost, most_ratio, &gain, &cost)) return {};
  return {storage, event, weight * (cost + least_cost_) / gain};
}

bool Repair::Gather(uint32_t position, uint32_t stage, Key peak, double most_cost,
                    double most_ratio, double* gain, double* cost) {
  chain_.assign(1, position);
  marked_[position] = ++stamp_;
  *cost += graph_.ops[position].cost;
  auto too_dear = [&] { return *cost > most_cost || *cost + least_cost_ >= most_ratio * *gain; };
  for (size_t i = 0; i < chain_.size(); ++i) {
    if (too_dear() || chain_.size() > kLongestChain) return false;
    const Key event = timeline_->KeyOf(stage, chain_[i]);
    for (uint32_t s : graph_.ops[chain_[i]].inputs) {
      const uint32_t maker = graph_.maker[s];
      if (marked_[maker] == stamp_) continue;
      Timeline::Copy copy = timeline_->CopyAt(s, event);
      if (copy.alive || copy.last >= peak) continue;  // held longer, but not at the peak
      const auto bytes = static_cast<double>(graph_.bytes[s]);
      const double remake = graph_.ops[maker].cost;
      const bool holding_pays = bytes < *gain && *cost * bytes < remake * (*gain - bytes);
      const Key again = timeline_->KeyOf(stage, maker);
      if (holding_pays || !timeline_->Allowed(again) || timeline_->Has(again)) {
        *gain -= bytes;
        if (*gain <= 0) return false;
        continue;
      }
      marked_[maker] = stamp_;
      chain_.push_back(maker);
      *cost += remake;
    }
  }
  return *gain > 0 && !too_dear();
}

}  // namespace dtr
