// A schedule realises a program: which op to compute and which storage to free, in which order.
// Recomputation is an op that appears twice.
//
// A schedule is valid iff
//   1. every op of the program is computed at least once,
//   2. an op finds what it reads in memory, as the op that the program names wrote it,
//   3. a storage is freed only while it is in memory, and never a pinned one,
//   4. the results are in memory at the end.
//
// An update of a parameter runs in place wherever the order allows (in_place.h).
#ifndef TVM_DTR_CORE_PLAN_SCHEDULE_H_
#define TVM_DTR_CORE_PLAN_SCHEDULE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/replay.h"

namespace dtr {

struct Schedule {
  struct Step {
    enum class Kind : uint8_t { kCompute, kFree };
    Kind kind;
    uint32_t id;  // the program's op or storage
  };
  std::vector<Step> steps;
};

struct ScheduleReport {
  bool valid = false;
  std::string problem;  // the first, if not valid
  uint64_t peak_bytes = 0;
  uint64_t pinned_bytes = 0;
  double cost = 0;      // of all computations
  double own_cost = 0;  // of the program without recomputation
  uint64_t computed = 0, recomputed = 0;
  double slowdown() const { return own_cost > 0 ? cost / own_cost : 1; }
};

struct CheckOptions {
  bool exact_bytes = false;  // sizes as given: no rounding, no pages
  // Small tensors of the state share pages with temporaries from the second step on. The peak is
  // the highest of all steps.
  int steps = 1;
};

// The peak is to the byte what the VM measures: everything pinned, workspace, and blocks as its
// arena hands them out. O(n log n) in the schedule's steps.
ScheduleReport CheckSchedule(const Program& program, const Schedule& schedule,
                             const CheckOptions& options);

// The program's own order.
std::vector<uint32_t> ProgramOrder(const Program& program);

// Computes `ops` (of the program) in this order and frees each storage right after its last read
// before it is computed again or the program ends: no schedule with the same computations needs
// less memory. Throws std::invalid_argument if an op is unknown.
Schedule ScheduleOf(const Program& program, const std::vector<uint32_t>& ops);

}  // namespace dtr

#endif  // TVM_DTR_CORE_PLAN_SCHEDULE_H_
