#include "core/plan/anneal.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>

#include "core/plan/order_search.h"
#include "core/plan/repair.h"

namespace dtr {
namespace {

using Key = Timeline::Key;
using Clock = std::chrono::steady_clock;

constexpr double kReaches[] = {0, 0.25, 0.5, 0.75, 1};
constexpr double kMostExtra = 12;  // times the own cost: more is no plan

class Annealer {
 public:
  Annealer(const PlanningGraph& graph, const AnnealOptions& options)
      : graph_(graph),
        options_(options),
        own_cost_(graph.TotalCost()),
        start_(Clock::now()),
        random_(options.seed) {}

  AnnealResult Run() {
    lowest_peak_ = Timeline(graph_).Peak();
    if (graph_.size() > 1) {
      for (const auto& sequence : options_.starts) TryStart(sequence);
      Construct();
    }
    if (best_cost_ < kNothing && graph_.size() > 1) Improve();
    return Result();
  }

 private:
  static constexpr double kNothing = 1e300;

  double Seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  double Uniform() { return std::uniform_real_distribution<double>(0, 1)(random_); }
  size_t Below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random_); }

  // -- Starting ---------------------------------------------------------------------------------

  void TryStart(const std::vector<uint32_t>& sequence) {
    std::vector<uint32_t> position(graph_.size() ? graph_.size() : 1, kNone);
    uint32_t largest = 0;
    for (const auto& op : graph_.ops) largest = std::max(largest, op.id);
    position.assign(largest + 1, kNone);
    for (uint32_t p = 0; p < graph_.size(); ++p) position[graph_.ops[p].id] = p;
    Timeline timeline(graph_);
    std::vector<Key> waiting;
    uint32_t stage = 0;
    for (uint32_t id : sequence) {
      uint32_t p = id <= largest ? position[id] : kNone;
      if (p == kNone || p > stage) return;
      Key event = timeline.KeyOf(stage, p);
      if (p == stage) {
        if (++stage == graph_.size()) break;
      } else if (timeline.Allowed(event) && !timeline.Has(event)) {
        timeline.Add(event);
      }
    }
    if (stage == graph_.size()) Offer(timeline);
  }

  // Greedy from nothing, several times with different tastes.
  void Construct() {
    double limit = std::min(0.25 * options_.time_limit, 20.0);
    for (int attempt = 0; attempt < 15; ++attempt) {
      if (attempt > 0 && Seconds() > limit) break;
      if (attempt >= 5 && best_cost_ < kNothing && attempt % 5 == 0 && graph_.size() > 2000) break;
      Timeline timeline(graph_);
      Repair repair(&timeline, options_.seed * 977 + static_cast<uint64_t>(attempt));
      RepairTaste taste;
      taste.reach = kReaches[(2 + attempt) % 5];
      taste.noise = attempt < 5 ? 0 : 0.5;
      std::vector<Key> added;
      repair.Run(options_.budget, kMostExtra * own_cost_, taste, &added);
      Offer(timeline);
      if (!Report()) return;
    }
  }

  void Offer(const Timeline& timeline) {
    if (timeline.Peak() > options_.budget) {
      if (best_cost_ == kNothing && timeline.Peak() < lowest_peak_) {
        lowest_peak_ = timeline.Peak();
        lowest_ = timeline.Recomputations();
      }
      return;
    }
    if (timeline.extra_cost() >= best_cost_) return;
    best_cost_ = timeline.extra_cost();
    best_ = timeline.Recomputations();
  }

  // -- Improving --------------------------------------------------------------------------------

  void Improve() {
    timeline_ = std::make_unique<Timeline>(graph_);
    for (Key event : best_) timeline_->Add(event);
    repair_ = std::make_unique<Repair>(timeline_.get(), options_.seed + 1);
    present_ = best_;
    Prune();
    const double scale = best_cost_ / std::max<double>(static_cast<double>(best_.size()), 1);
    const double started = Seconds();
    while (!present_.empty() && !stopped_) {
      double share = (Seconds() - started) / std::max(options_.time_limit - started, 1e-3);
      if (share >= 1) break;
      // Rounds of cooling, each from the best so far.
      const double round = std::fmod(share * kRounds, 1.0);
      if (static_cast<int>(share * kRounds) != round_) Restart(static_cast<int>(share * kRounds));
      temperature_ = scale * 2.0 * std::pow(0.005, round);
      for (int i = 0; i < kMovesBetweenClocks && !present_.empty(); ++i) Move();
      stopped_ = !Report();
    }
    Prune();
  }

  void Restart(int round) {
    round_ = round;
    std::vector<Key> now = timeline_->Recomputations();
    std::vector<Key> best = best_;
    std::sort(best.begin(), best.end());
    std::vector<Key> leaving, coming;
    std::set_difference(now.begin(), now.end(), best.begin(), best.end(),
                        std::back_inserter(leaving));
    std::set_difference(best.begin(), best.end(), now.begin(), now.end(),
                        std::back_inserter(coming));
    for (Key event : leaving) timeline_->Remove(event);
    for (Key event : coming) timeline_->Add(event);
    present_ = best_;
  }

  // Takes away what is not needed, dearest first.
  void Prune() {
    std::vector<Key> events = present_;
    std::stable_sort(events.begin(), events.end(), [&](Key a, Key b) {
      return graph_.ops[timeline_->PositionOf(a)].cost > graph_.ops[timeline_->PositionOf(b)].cost;
    });
    for (Key event : events) {
      timeline_->Remove(event);
      if (timeline_->Peak() > options_.budget) timeline_->Add(event);
    }
    present_ = timeline_->Recomputations();
    Offer(*timeline_);
  }

  void Move() {
    ++moves_;
    removed_.clear();
    added_.clear();
    const double before = timeline_->extra_cost();
    const double limit = before - temperature_ * std::log(std::max(Uniform(), 1e-12));
    Perturb();
    RepairTaste taste;
    taste.reach = kReaches[Below(5)];
    taste.noise = Uniform() < 0.3 ? 0 : 0.8 * Uniform();
    repair_->Forbid(Uniform() < 0.7 ? removed_ : std::vector<Key>());
    bool fits = repair_->Run(options_.budget, limit, taste, &added_);
    if (!fits || timeline_->extra_cost() > limit) return Undo();
    ++accepted_;
    Settle();
    if (timeline_->extra_cost() < best_cost_ * (1 - 1e-12)) Offer(*timeline_);
  }

  void Perturb() {
    const double kind = Uniform();
    const size_t at = Below(present_.size());
    const Key event = present_[at];
    if (kind < 0.2) return Shift(event);
    Take(event);
    if (kind < 0.6) return;
    const size_t more = 1 + Below(3);
    for (size_t i = 0; i < more; ++i) TakeNear(at);
  }

  void Take(Key event) {
    if (!timeline_->Has(event)) return;
    timeline_->Remove(event);
    removed_.push_back(event);
  }

  // `present_` is in the order of stages, as long as few moves were made since it was sorted.
  void TakeNear(size_t at) {
    size_t reach = std::min<size_t>(present_.size(), 16);
    size_t offset = Below(reach);
    size_t other = at + offset < reach / 2 ? offset : at + offset - reach / 2;
    if (other < present_.size()) Take(present_[other]);
  }

  // To another stage, between the copy before it and its first reader.
  void Shift(Key event) {
    const uint32_t p = timeline_->PositionOf(event), j = timeline_->StageOf(event);
    Take(event);
    const int64_t reach = 1 + static_cast<int64_t>(Below(Uniform() < 0.5 ? 4 : 40));
    const int64_t to = static_cast<int64_t>(j) + (Uniform() < 0.5 ? -reach : reach);
    if (to <= p || to >= graph_.size()) return;
    Key moved = timeline_->KeyOf(static_cast<uint32_t>(to), p);
    if (!timeline_->Allowed(moved) || timeline_->Has(moved)) return;
    timeline_->Add(moved);
    added_.push_back(moved);
  }

  void Undo() {
    for (auto event = added_.rbegin(); event != added_.rend(); ++event) timeline_->Remove(*event);
    for (auto event = removed_.rbegin(); event != removed_.rend(); ++event) timeline_->Add(*event);
  }

  void Settle() {
    if (removed_.empty() && added_.empty()) return;
    std::sort(removed_.begin(), removed_.end());
    std::sort(added_.begin(), added_.end());
    std::vector<Key> kept;
    kept.reserve(present_.size() + added_.size());
    std::set_difference(present_.begin(), present_.end(), removed_.begin(), removed_.end(),
                        std::back_inserter(kept));
    present_.clear();
    std::merge(kept.begin(), kept.end(), added_.begin(), added_.end(),
               std::back_inserter(present_));
  }

  // -- Ending -----------------------------------------------------------------------------------

  bool Report() {
    if (!options_.progress) return true;
    const double now = Seconds();
    if (now - reported_ < 0.1) return true;
    reported_ = now;
    const bool feasible = best_cost_ < kNothing;
    return options_.progress({now, feasible, own_cost_ + (feasible ? best_cost_ : 0)});
  }

  AnnealResult Result() {
    AnnealResult result;
    result.feasible = best_cost_ < kNothing || lowest_peak_ <= options_.budget;
    Timeline timeline(graph_);
    for (Key event : result.feasible ? best_ : lowest_) timeline.Add(event);
    result.sequence = timeline.Sequence();
    result.peak_bytes = timeline.Peak();
    result.cost = own_cost_ + timeline.extra_cost();
    result.moves = moves_;
    result.accepted = accepted_;
    result.seconds = Seconds();
    return result;
  }

  static constexpr double kRounds = 4;
  static constexpr int kMovesBetweenClocks = 16;

  const PlanningGraph& graph_;
  const AnnealOptions& options_;
  const double own_cost_;
  const Clock::time_point start_;
  std::mt19937_64 random_;
  std::unique_ptr<Timeline> timeline_;
  std::unique_ptr<Repair> repair_;
  std::vector<Key> present_, removed_, added_;  // sorted; of the move at hand
  std::vector<Key> best_, lowest_;
  double best_cost_ = kNothing;
  uint64_t lowest_peak_ = 0;
  double temperature_ = 0, reported_ = 0;
  uint64_t moves_ = 0, accepted_ = 0;
  int round_ = 0;
  bool stopped_ = false;
};

}  // namespace

AnnealResult Anneal(const PlanningGraph& graph, const AnnealOptions& options) {
  if (!options.free_order) return Annealer(graph, options).Run();
  // The given order first; another one where recomputation in the given one costs something.
  AnnealOptions part = options;
  part.time_limit = 0.4 * options.time_limit;
  AnnealResult given = Annealer(graph, part).Run();
  const double own_cost = graph.TotalCost();
  if (given.feasible && given.cost <= own_cost * (1 + 1e-9)) return given;
  bool stopped = false;
  auto stop = [&] {
    AnnealProgress now{given.seconds, given.feasible, given.cost};
    return stopped = options.progress && !options.progress(now);
  };
  const double search = 0.2 * options.time_limit;
  std::vector<uint32_t> order = SearchOrder(graph, options.budget, search, options.seed, stop);
  if (stopped) return given;
  PlanningGraph reordered = Reordered(graph, order);
  part.time_limit = options.time_limit - given.seconds - search;
  part.starts.clear();
  if (options.progress) {
    part.progress = [&](const AnnealProgress& p) {
      bool better = p.feasible && (!given.feasible || p.cost < given.cost);
      return options.progress({given.seconds + search + p.seconds, given.feasible || p.feasible,
                               better ? p.cost : given.cost});
    };
  }
  AnnealResult other = Annealer(reordered, part).Run();
  const double seconds = given.seconds + search + other.seconds;
  const bool better =
      other.feasible == given.feasible
          ? (given.feasible ? other.cost < given.cost : other.peak_bytes < given.peak_bytes)
          : other.feasible;
  AnnealResult result = better ? other : given;
  result.seconds = seconds;
  result.moves = given.moves + other.moves;
  result.accepted = given.accepted + other.accepted;
  return result;
}

}  // namespace dtr
