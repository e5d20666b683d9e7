// Another order of a program's ops that needs less memory, without recomputation.
#ifndef TVM_DTR_CORE_PLAN_ORDER_SEARCH_H_
#define TVM_DTR_CORE_PLAN_ORDER_SEARCH_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "core/plan/planning_graph.h"

namespace dtr {

// Simulated annealing over swaps of neighbours, on the sum of what is over the budget. Returns
// positions of `graph` in the best order found. `stop` is asked now and then.
std::vector<uint32_t> SearchOrder(const PlanningGraph& graph, uint64_t budget, double seconds,
                                  uint64_t seed, const std::function<bool()>& stop);

// The same ops in another order, a topological one.
PlanningGraph Reordered(const PlanningGraph& graph, const std::vector<uint32_t>& order);

}  // namespace dtr

#endif  // TVM_DTR_CORE_PLAN_ORDER_SEARCH_H_
