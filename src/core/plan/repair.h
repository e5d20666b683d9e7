// Brings a timeline under a budget by adding recomputations where memory is highest.
#ifndef TVM_DTR_CORE_PLAN_REPAIR_H_
#define TVM_DTR_CORE_PLAN_REPAIR_H_

#include <cstdint>
#include <random>
#include <vector>

#include "core/plan/timeline.h"

namespace dtr {

// How a repair weighs what it could recompute:
//   (cost of bringing it back) / (bytes it frees at the peak * (time it frees them)^reach)
// With reach 1 that is the score of Kirisame et al. (ICLR 2021) with the future in place of the
// past; with 0 it is cost a byte.
struct RepairTaste {
  double reach = 0.5;
  double noise = 0;          // spread of the scores' logarithms
  double skipped_share = 0;  // of the candidates, at random
};

class Repair {
 public:
  Repair(Timeline* timeline, uint64_t seed);

  // Adds recomputations until the peak is at most `budget`. Gives up, with what was added in
  // place, when nothing is left to free at the peak or the extra cost would exceed `cost_limit`.
  // `added` gets the events in the order they were added.
  bool Run(uint64_t budget, double cost_limit, const RepairTaste& taste,
           std::vector<Timeline::Key>* added);

  // Events that Run does not add, until the next call.
  void Forbid(const std::vector<Timeline::Key>& events) { forbidden_ = events; }

  double Uniform() { return std::uniform_real_distribution<double>(0, 1)(random_); }

 private:
  using Key = Timeline::Key;
  struct Choice {
    uint32_t storage = kNone;
    Key event = 0;
    double score = 0;
  };

  Choice Best(Key peak, double most_cost, const RepairTaste& taste);
  // The event that would free the storage at the peak, and what that is worth; kNone if there is
  // none, or none better than `best` within `most_cost`.
  Choice Weigh(uint32_t storage, Key peak, double most_cost, const RepairTaste& taste,
               const Choice& best);
  // Positions that must run in the stage to bring `position` back; false if that cannot be or
  // takes too many. Lowers *gain by what is held at the peak instead, raises *cost; gives up
  // where cost > most_cost or cost > most_ratio * gain.
  bool Gather(uint32_t position, uint32_t stage, Key peak, double most_cost, double most_ratio,
              double* gain, double* cost);

  Timeline* timeline_;
  const PlanningGraph& graph_;
  std::mt19937_64 random_;
  std::vector<uint32_t> chain_;  // of the last Gather
  std::vector<uint32_t> best_chain_;
  std::vector<Key> forbidden_;
  std::vector<uint32_t> marked_;  // by position: stamp of the Gather that has it
  uint32_t stamp_ = 0;
  double least_cost_;
};

}  // namespace dtr

#endif  // TVM_DTR_CORE_PLAN_REPAIR_H_
