#include "core/plan/schedule.h"

#include <algorithm>
#include <memory>
#include <stdexcept>

#include "core/arena/counting_arena.h"
#include "core/arena/page_arena.h"
#include "core/plan/in_place.h"

namespace dtr {
namespace {

using Kind = Schedule::Step::Kind;

class Problem : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Runs a schedule on an arena, step after step as the VM does.
class Checker {
 public:
  Checker(const Program& program, Arena* arena)
      : program_(program),
        arena_(arena),
        blocks_(program.storages.size()),
        charged_(program.storages.size(), 0),
        pinned_(program.storages.size(), 0),
        constant_(program.storages.size(), 0),
        holds_(program.storages.size(), kNone) {}

  void Run(const Schedule& schedule, ScheduleReport* report) {
    std::vector<uint32_t> times(program_.ops.size(), 0);
    PinInputs();
    report->pinned_bytes = arena_->active();
    report->cost = 0;
    report->computed = report->recomputed = 0;
    for (const Schedule::Step& step : schedule.steps) {
      if (step.kind == Kind::kFree) {
        Free(step.id);
        continue;
      }
      Compute(step.id);
      report->cost += program_.kernels[program_.ops[step.id].kernel].cost;
      report->computed++;
      if (times[step.id]++) report->recomputed++;
    }
    CheckEnd(times);
  }

  // As the VM between two steps: new state takes the place of the old, everything else goes.
  void FinishStep() {
    std::vector<uint8_t> kept(program_.storages.size(), 0);
    for (auto [result, parameter] : program_.next_state) {
      uint32_t from = StorageOf(result), to = StorageOf(parameter);
      if (from == to) continue;
      Discard(to);
      moved_.push_back({to, blocks_[from]});
      kept[from] = 1;
      blocks_[from] = Block();
    }
    for (uint32_t s = 0; s < blocks_.size(); ++s) {
      if (!pinned_[s]) Discard(s);
    }
    for (uint32_t t : program_.external) Discard(StorageOf(t));
    for (const auto& [s, block] : moved_) blocks_[s] = block;
    moved_.clear();
    std::fill(holds_.begin(), holds_.end(), kNone);
  }

 private:
  uint32_t StorageOf(uint32_t tensor) const { return program_.tensors[tensor].storage; }
  uint32_t Root(uint32_t tensor) const {
    while (program_.tensors[tensor].base != kNone) tensor = program_.tensors[tensor].base;
    return tensor;
  }
  bool Resident(uint32_t s) const { return blocks_[s] || charged_[s]; }

  void PinInputs() {
    std::vector<uint8_t> external(program_.storages.size(), 0);
    for (uint32_t t : program_.external) external[StorageOf(t)] = 1;
    for (uint32_t t : program_.pinned) PinTensor(t, external[StorageOf(t)]);
    for (const Program::Instruction& instruction : program_.instructions) {
      if (instruction.code != Program::Code::kConstant) continue;
      // In memory of the executable's, charged when first read and from then on.
      uint32_t s = StorageOf(instruction.id);
      constant_[s] = pinned_[s] = 1;
      holds_[s] = Root(instruction.id);
    }
  }

  void PinTensor(uint32_t tensor, bool external) {
    uint32_t s = StorageOf(tensor);
    pinned_[s] = 1;
    holds_[s] = Root(tensor);
    if (Resident(s)) return;
    if (external) {
      arena_->Charge(program_.storages[s]);
      charged_[s] = 1;
    } else {
      blocks_[s] = arena_->Allocate(program_.storages[s]);
    }
  }

  void Compute(uint32_t id) {
    if (id >= program_.ops.size()) Fail("op", id, "does not exist");
    const Program::OpInfo& op = program_.ops[id];
    for (uint32_t t : op.inputs) {
      uint32_t s = StorageOf(t);
      if (constant_[s] && !Resident(s)) PinTensor(t, /*external=*/true);
      if (!Resident(s)) Fail("op", id, "reads storage " + std::to_string(s) + ", not in memory");
      if (holds_[s] != Root(t)) {
        Fail("op", id, "reads storage " + std::to_string(s) + ", which was overwritten");
      }
    }
    for (uint32_t t : op.outputs) {
      uint32_t s = StorageOf(t);
      if (!Resident(s)) blocks_[s] = arena_->Allocate(program_.storages[s]);
      holds_[s] = t;
    }
    const uint64_t workspace = program_.kernels[op.kernel].workspace_bytes;
    if (workspace > 0) arena_->Free(arena_->Allocate(workspace));
  }

  void Free(uint32_t s) {
    if (s >= program_.storages.size()) Fail("storage", s, "does not exist");
    if (pinned_[s]) Fail("storage", s, "is pinned and cannot be freed");
    if (!Resident(s)) Fail("storage", s, "is freed but not in memory");
    Discard(s);
  }

  void Discard(uint32_t s) {
    if (charged_[s]) arena_->Discharge(program_.storages[s]);
    if (blocks_[s]) arena_->Free(blocks_[s]);
    charged_[s] = 0;
    blocks_[s] = Block();
  }

  void CheckEnd(const std::vector<uint32_t>& times) const {
    for (const Program::Instruction& instruction : program_.instructions) {
      if (instruction.code == Program::Code::kOp && times[instruction.id] == 0) {
        Fail("op", instruction.id, "is never computed");
      }
    }
    for (uint32_t t : program_.results) {
      uint32_t s = StorageOf(t);
      if (constant_[s]) continue;
      if (!Resident(s) || holds_[s] != Root(t)) Fail("result", t, "is not there at the end");
    }
  }

  [[noreturn]] static void Fail(const char* what, uint32_t id, const std::string& why) {
    throw Problem(std::string(what) + " " + std::to_string(id) + " " + why);
  }

  const Program& program_;
  Arena* arena_;
  std::vector<Block> blocks_;
  std::vector<uint8_t> charged_, pinned_, constant_;
  std::vector<uint32_t> holds_;  // the root tensor whose value a storage has
  std::vector<std::pair<uint32_t, Block>> moved_;
};

}  // namespace

ScheduleReport CheckSchedule(const Program& given, const Schedule& schedule,
                             const CheckOptions& options) {
  std::vector<uint32_t> ops;
  for (const Schedule::Step& step : schedule.steps) {
    if (step.kind == Kind::kCompute) ops.push_back(step.id);
  }
  const Program program = InPlace(given, OverwritesIn(given, ops));
  std::unique_ptr<Arena> arena;
  if (options.exact_bytes) {
    arena = std::make_unique<CountingArena>(kUnlimited);
  } else {
    arena = std::make_unique<PageArena>(kUnlimited, /*backed=*/false);
  }
  ScheduleReport report;
  report.own_cost = program.TotalCost();
  Checker checker(program, arena.get());
  try {
    for (int step = 0; step < options.steps; ++step) {
      if (step > 0) checker.FinishStep();
      checker.Run(schedule, &report);
    }
    report.valid = true;
  } catch (const Problem& problem) {
    report.problem = problem.what();
  }
  report.peak_bytes = arena->peak_active();
  return report;
}

std::vector<uint32_t> ProgramOrder(const Program& program) {
  std::vector<uint32_t> order;
  for (const Program::Instruction& instruction : program.instructions) {
    if (instruction.code == Program::Code::kOp) order.push_back(instruction.id);
  }
  return order;
}

Schedule ScheduleOf(const Program& given, const std::vector<uint32_t>& ops) {
  const Program program = InPlace(given, OverwritesIn(given, ops));
  enum : uint8_t { kFreeable, kWanted, kPinned };
  std::vector<uint8_t> state(program.storages.size(), kFreeable);
  auto storage = [&](uint32_t tensor) { return program.tensors[tensor].storage; };
  for (uint32_t t : program.results) state[storage(t)] = kWanted;
  for (uint32_t t : program.pinned) state[storage(t)] = kPinned;
  for (const Program::Instruction& instruction : program.instructions) {
    if (instruction.code == Program::Code::kConstant) state[storage(instruction.id)] = kPinned;
  }
  // Backwards, a storage that nobody wants yet is free to go once the op has run.
  Schedule schedule;
  for (auto op = ops.rbegin(); op != ops.rend(); ++op) {
    if (*op >= program.ops.size()) {
      throw std::invalid_argument("op " + std::to_string(*op) + " does not exist");
    }
    const Program::OpInfo& info = program.ops[*op];
    auto free_if_last = [&](uint32_t tensor) {
      uint32_t s = storage(tensor);
      if (state[s] != kFreeable) return;
      schedule.steps.push_back({Kind::kFree, s});
      state[s] = kWanted;
    };
    for (uint32_t t : info.inputs) free_if_last(t);
    for (uint32_t t : info.outputs) free_if_last(t);
    schedule.steps.push_back({Kind::kCompute, *op});
    for (uint32_t t : info.outputs) {
      uint32_t s = storage(t);
      bool overwrites = std::any_of(info.inputs.begin(), info.inputs.end(),
                                    [&](uint32_t in) { return storage(in) == s; });
      if (state[s] == kWanted && !overwrites) state[s] = kFreeable;
    }
  }
  std::reverse(schedule.steps.begin(), schedule.steps.end());
  return schedule;
}

}  // namespace dtr
