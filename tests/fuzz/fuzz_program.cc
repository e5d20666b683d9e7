// Programs (OpGraphs) and schedules from outside: what the check lets through can be replayed,
// checked and planned for, within the budget, whatever is in it.
#include <cmath>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "bytes.h"
#include "core/errors.h"
#include "core/plan/planning_graph.h"
#include "core/plan/schedule.h"
#include "core/policy.h"
#include "core/replay.h"

using dtr_fuzz::Bytes;

namespace {

void Demand(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "not so: %s\n", what);
  std::abort();
}

uint64_t Size(Bytes* bytes) {
  switch (bytes->Below(12)) {
    case 0:
      return bytes->Word();
    case 1:
      return 0;
    case 2:
      return bytes->Below(1 << 16);
    default:
      return uint64_t{4096} * (1 + bytes->Below(4));
  }
}

double Cost(Bytes* bytes) {
  switch (bytes->Below(16)) {
    case 0:
      return std::nan("");
    case 1:
      return HUGE_VAL;
    case 2:
      return -1;
    default:
      return bytes->Below(200);
  }
}

// Mostly a program that makes sense: what an op reads was made before it.
class Maker {
 public:
  explicit Maker(Bytes* bytes) : bytes_(bytes) {}

  dtr::Program Make() {
    for (uint32_t n = 1 + bytes_->Below(3); n > 0; --n) {
      program_.pinned.push_back(NewTensor(dtr::kNone));
      if (bytes_->OneIn(4))
        program_.external.push_back(bytes_->OneIn(20) ? 0 : program_.pinned.back());
    }
    held_ = program_.pinned;
    while (!bytes_->empty() && program_.instructions.size() < 120) Instruction();
    for (uint32_t n = bytes_->Below(4); n > 0; --n) Finish();
    return program_;
  }

 private:
  uint32_t Any() {
    if (bytes_->OneIn(40)) return bytes_->Below(300);  // whether it is there or not
    return held_.empty() ? 0 : held_[held_.size() - 1 - bytes_->Below(held_.size())];
  }

  uint32_t NewTensor(uint32_t base) {
    uint32_t storage = static_cast<uint32_t>(program_.storages.size());
    if (base != dtr::kNone && base < program_.tensors.size()) {
      storage = program_.tensors[base].storage;
    } else if (bytes_->OneIn(20)) {
      storage = bytes_->Below(static_cast<uint32_t>(program_.storages.size()) + 2);
    }
    if (storage == program_.storages.size()) program_.storages.push_back(Size(bytes_));
    program_.tensors.push_back({storage, base});
    return static_cast<uint32_t>(program_.tensors.size()) - 1;
  }

  void Instruction() {
    using Code = dtr::Program::Code;
    switch (bytes_->Below(10)) {
      case 0:
        return View();
      case 1:
        return Add(Code::kRetain, Any());
      case 2:
      case 3:
      case 4:
        return LetGo();
      case 5:
        if (!bytes_->OneIn(4)) return Op();
        held_.push_back(NewTensor(dtr::kNone));
        return Add(Code::kConstant, held_.back());
      default:
        return Op();
    }
  }

  void View() {
    uint32_t base = Any();
    held_.push_back(NewTensor(base));
    Add(dtr::Program::Code::kView, held_.back());
  }

  void LetGo() {
    uint32_t which = held_.empty() ? 0 : bytes_->Below(static_cast<uint32_t>(held_.size()));
    if (held_.size() < 4) return Op();
    Add(dtr::Program::Code::kKill, held_[which]);
    if (!bytes_->OneIn(30)) held_.erase(held_.begin() + which);
  }

  void Op() {
    dtr::Program::OpInfo op;
    op.kernel = static_cast<uint32_t>(program_.kernels.size());
    program_.kernels.push_back({Cost(bytes_), bytes_->OneIn(5) ? Size(bytes_) : 0});
    for (uint32_t n = bytes_->Below(4); n > 0; --n) op.inputs.push_back(Any());
    for (uint32_t n = 1 + bytes_->Below(8) / 6; n > 0; --n) {
      op.outputs.push_back(NewTensor(dtr::kNone));
      held_.push_back(op.outputs.back());
    }
    if (!op.inputs.empty() && bytes_->OneIn(4)) {
      op.inputs.push_back(program_.pinned[bytes_->Below(program_.pinned.size())]);
      op.overwrites = op.inputs.back();
    }
    Add(dtr::Program::Code::kOp, static_cast<uint32_t>(program_.ops.size()));
    program_.ops.push_back(op);
  }

  void Finish() {
    program_.results.push_back(Any());
    if (!bytes_->OneIn(3)) return;
    uint32_t parameter = program_.pinned[bytes_->Below(program_.pinned.size())];
    program_.next_state.emplace_back(program_.results.back(), parameter);
  }

  void Add(dtr::Program::Code code, uint32_t id) { program_.instructions.push_back({code, id}); }

  Bytes* bytes_;
  dtr::Program program_;
  std::vector<uint32_t> held_;
};

void CheckReplay(const dtr::Program& program, Bytes* bytes) {
  const std::vector<std::string> policies = dtr::PolicyNames();
  dtr::ReplayOptions options;
  options.runtime.policy = policies[bytes->Below(policies.size())];
  options.runtime.thrash_limit = 5;
  options.arena = options.runtime.policy == "window" ? "best-fit" : "paged";
  options.exact_bytes = bytes->OneIn(3) && options.arena == "paged";
  options.steps = 1 + bytes->Below(3);
  options.record_memory = options.record_events = options.record_allocations = true;
  const uint64_t peak = dtr::Replay(program, options).peak_bytes;
  options.budget = peak / 16 * (1 + bytes->Below(16));
  dtr::ReplayResult result = dtr::Replay(program, options);
  Demand(result.result != "ok" || result.peak_bytes <= options.budget, "a peak within the budget");
  if (result.result == "ok" && !options.exact_bytes) {
    Demand(dtr::LowerBound(program, options.arena) <= options.budget, "a bound from below");
  }
  dtr::ConstantBytes(program);
  dtr::LargestOpBytes(program);
  if (bytes->OneIn(4)) dtr::SmallestBudget(program, options, 65536);
}

void CheckPlanning(const dtr::Program& program, Bytes* bytes) {
  const dtr::Schedule own = dtr::ScheduleOf(program, dtr::ProgramOrder(program));
  dtr::CheckSchedule(program, own, {bytes->OneIn(2), 2});
  dtr::Schedule schedule = own;
  for (uint32_t n = bytes->Below(8); n > 0 && !schedule.steps.empty(); --n) {
    auto& step = schedule.steps[bytes->Below(schedule.steps.size())];
    step.id = bytes->OneIn(8) ? static_cast<uint32_t>(bytes->Word()) : bytes->Below(64);
    if (bytes->OneIn(3)) std::swap(step, schedule.steps.back());
  }
  dtr::CheckSchedule(program, schedule, {bytes->OneIn(2), 2});
  dtr::MakePlanningGraph(program, bytes->OneIn(2));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Bytes bytes(data, size);
  const dtr::Program program = Maker(&bytes).Make();
  try {
    program.Check();
  } catch (const std::invalid_argument&) {
    return 0;
  }
  // A second reader of the same bytes: the first has used them up.
  Bytes choices(data + size / 2, size - size / 2);
  CheckReplay(program, &choices);
  try {
    CheckPlanning(program, &choices);
  } catch (const std::invalid_argument&) {  // no graph for planners
  }
  return 0;
}
