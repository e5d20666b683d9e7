// One step of a straight-line program on the real runtime, without its kernels: the same calls in
// the same order, costs from the program, memory that is only counted. What the patched VM will
// decide under a budget is known before the first step, and so is the smallest budget that works.
#ifndef TVM_DTR_CORE_REPLAY_H_
#define TVM_DTR_CORE_REPLAY_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/arena/recording_arena.h"
#include "core/runtime.h"
#include "core/types.h"

namespace dtr {

// The program's OpGraph with its order of execution; ids index the vectors.
struct Program {
  enum class Code : uint8_t { kOp, kView, kKill, kConstant, kRetain };
  struct Instruction {
    Code code;
    uint32_t id;  // of the op for kOp, else of the tensor
  };
  struct Kernel {
    double cost;  // nanoseconds
    uint64_t workspace_bytes;
  };
  struct TensorInfo {
    uint32_t storage;
    uint32_t base;  // kNone: a root
  };
  struct OpInfo {
    uint32_t kernel;
    std::vector<uint32_t> inputs, outputs;
    uint32_t overwrites = kNone;  // tensor among `inputs` whose place the only output may take
  };
  std::vector<Kernel> kernels;
  std::vector<uint64_t> storages;  // bytes
  std::vector<TensorInfo> tensors;
  std::vector<OpInfo> ops;
  std::vector<uint32_t> pinned;    // there from the start to the end: inputs, state, constants
  std::vector<uint32_t> results;   // tensors handed out at the end
  std::vector<uint32_t> external;  // those of `pinned` in memory of the caller's, new each step
  // (result, pinned tensor): what the result becomes in the next step.
  std::vector<std::pair<uint32_t, uint32_t>> next_state;
  std::vector<Instruction> instructions;
  double dispatch_cost = 0;  // see RuntimeOptions

  // Throws std::invalid_argument naming the first thing that is not as a program must be: ids out
  // of range, tensors used where they are not there, sizes whose sum is no size (check_program.cc).
  void Check() const;
  double TotalCost() const;
};

struct ReplayResult {
  std::string result;  // "ok", "oom" or "thrash"
  uint64_t peak_bytes = 0;
  uint64_t pinned_bytes = 0;
  uint64_t needed_bytes = 0;   // of an "oom": the smallest budget that passes that point
  uint32_t failed_op = kNone;  // of an "oom"
  Stats stats;
  double slowdown = 0;  // (own cost + recomputation) / own cost
  struct Event {
    enum class Kind : uint8_t { kCompute, kRematerialize, kEvict, kFree };
    Kind kind;
    uint32_t id;  // the program's op, or storage of kEvict and kFree
  };
  std::vector<Event> events;            // on request
  std::vector<uint64_t> memory;         // active bytes after each change, on request
  std::vector<ArenaEvent> allocations;  // of all steps, on request
};

struct ReplayOptions {
  uint64_t budget = kUnlimited;
  std::string arena = "paged";  // as --arena, or one that only counts: see MakeArena
  RuntimeOptions runtime;
  bool record_memory = false;
  bool record_events = false;
  bool record_allocations = false;
  // Steps to replay; small tensors of the state share pages with temporaries from the second on.
  // The result's figures are those of the last.
  int steps = 1;
  // Bytes of the budget that something else holds throughout.
  uint64_t reserve = 0;
  bool measure_search = false;  // Stats::search_seconds, at the cost of reading clocks
  // As the DTR authors' simulator: bytes as given, with no rounding to classes and pages (unless
  // the arena is best-fit); small storages are evicted like others; pending ops never let go of
  // their operands.
  bool exact_bytes = false;
};

ReplayResult Replay(const Program& program, const ReplayOptions& options);

// Bytes, as given in the program, of what stays in memory from the start to the end, and of the
// distinct storages of the op that touches the most: together, what no eviction can bring down.
uint64_t ConstantBytes(const Program& program);
uint64_t LargestOpBytes(const Program& program);

// A budget that no schedule can stay under: what is pinned, with the largest op's operands or
// with the results, as `arena` rounds sizes.
uint64_t LowerBound(const Program& program, const std::string& arena = "paged");

// A small budget at which Replay gives "ok", to within `tolerance` bytes. Success is not monotone
// in the budget: after a bisection between LowerBound and the unbudgeted peak, budgets below its
// result are sampled, and the lowest that works is refined again. The value returned works, with
// and without options.reserve; below it there may be others.
uint64_t SmallestBudget(const Program& program, const ReplayOptions& options, uint64_t tolerance);

}  // namespace dtr

#endif  // TVM_DTR_CORE_REPLAY_H_
