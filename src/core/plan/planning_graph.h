// What a planner sees of a program: ops in the order they run, the storages they read and fill,
// costs and bytes. Pinned storages are one number.
#ifndef TVM_DTR_CORE_PLAN_PLANNING_GRAPH_H_
#define TVM_DTR_CORE_PLAN_PLANNING_GRAPH_H_

#include <cstdint>
#include <vector>

#include "core/replay.h"
#include "core/types.h"

namespace dtr {

// A position is an op's place in the program's order: ops[p] reads only what earlier ops filled.
struct PlanningGraph {
  struct Op {
    uint32_t id;  // of the program
    double cost;  // nanoseconds, or the graph's own unit of time
    uint64_t workspace_bytes;
    // Storages, each once; pinned ones are left out.
    std::vector<uint32_t> inputs, outputs;
    // It may run again before the op at this position and not later: that one overwrites a value
    // that it reads. 0: it overwrites one itself and may never run again.
    uint32_t last_rerun;
    // Positions that must come before it besides those whose results it reads: what reads a value
    // that it overwrites; or the op that overwrote what it reads.
    std::vector<uint32_t> after;
  };
  std::vector<Op> ops;
  std::vector<uint64_t> bytes;                 // of each storage, as the arena rounds them
  std::vector<uint32_t> maker;                 // position of the op that fills it; kNone: pinned
  std::vector<std::vector<uint32_t>> readers;  // positions, ascending
  std::vector<uint8_t> kept;                   // handed out at the end
  uint64_t pinned_bytes = 0;

  uint32_t size() const { return static_cast<uint32_t>(ops.size()); }
  double TotalCost() const;
};

// `exact_bytes`: sizes as given, not rounded as the arena does. That blocks share pages only the
// checker knows (schedule.h).
// Throws std::invalid_argument where the program is none that a plan can be made for: an op that
// runs twice, or two ops that fill parts of one storage.
PlanningGraph MakePlanningGraph(const Program& program, bool exact_bytes);

}  // namespace dtr

#endif  // TVM_DTR_CORE_PLAN_PLANNING_GRAPH_H_
