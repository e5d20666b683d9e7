// Rematerialization planning by simulated annealing over sets of recomputations (timeline.h).
//
// A state is always within the budget. A move takes some recomputations away or shifts one, then
// repairs what no longer fits (repair.h); it is kept by the Metropolis rule on the extra cost.
#ifndef TVM_DTR_CORE_PLAN_ANNEAL_H_
#define TVM_DTR_CORE_PLAN_ANNEAL_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "core/plan/timeline.h"

namespace dtr {

struct AnnealProgress {
  double seconds = 0;
  bool feasible = false;
  double cost = 0;  // of the best plan so far, recomputation included
};

struct AnnealOptions {
  uint64_t budget = 0;
  double time_limit = 10;  // seconds
  uint64_t seed = 0;
  // Whether first computations may come in another order than the program's.
  bool free_order = false;
  // Sequences of the program's op ids to start from; those in another order of first computations
  // are left out.
  std::vector<std::vector<uint32_t>> starts;
  // Called a few times a second; false stops.
  std::function<bool(const AnnealProgress&)> progress;
};

struct AnnealResult {
  bool feasible = false;
  std::vector<uint32_t> sequence;  // op ids; of the lowest peak found where infeasible
  uint64_t peak_bytes = 0;         // by the planning graph's own sizes
  double cost = 0;
  uint64_t moves = 0, accepted = 0;
  double seconds = 0;
};

AnnealResult Anneal(const PlanningGraph& graph, const AnnealOptions& options);

}  // namespace dtr

#endif  // TVM_DTR_CORE_PLAN_ANNEAL_H_
