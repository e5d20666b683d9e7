#include "core/plan/planning_graph.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "core/arena/page_arena.h"
#include "core/plan/in_place.h"
#include "core/plan/schedule.h"

namespace dtr {
namespace {

class Builder {
 public:
  Builder(const Program& program, bool exact_bytes)
      : program_(program),
        exact_bytes_(exact_bytes),
        arena_(kUnlimited, /*backed=*/false),
        pinned_(program.storages.size(), 0),
        ran_(program.ops.size(), 0) {}

  PlanningGraph Build() {
    for (uint64_t bytes : program_.storages) graph_.bytes.push_back(Rounded(bytes));
    graph_.maker.assign(program_.storages.size(), kNone);
    graph_.readers.resize(program_.storages.size());
    graph_.kept.assign(program_.storages.size(), 0);
    FindPinned();
    for (const Program::Instruction& instruction : program_.instructions) {
      if (instruction.code == Program::Code::kOp) AddOp(instruction.id);
    }
    for (uint32_t t : program_.results) {
      if (!pinned_[StorageOf(t)]) graph_.kept[StorageOf(t)] = 1;
    }
    LimitReruns();
    return std::move(graph_);
  }

 private:
  uint32_t StorageOf(uint32_t tensor) const { return program_.tensors[tensor].storage; }
  uint64_t Rounded(uint64_t bytes) const {
    return exact_bytes_ ? bytes : arena_.RoundedSize(bytes);
  }

  void FindPinned() {
    std::vector<uint8_t> external(program_.storages.size(), 0);
    for (uint32_t t : program_.external) external[StorageOf(t)] = 1;
    for (uint32_t t : program_.pinned) Pin(t, external[StorageOf(t)]);
    for (const Program::Instruction& instruction : program_.instructions) {
      if (instruction.code == Program::Code::kConstant) Pin(instruction.id, true);
    }
  }

  void Pin(uint32_t tensor, bool external) {
    uint32_t s = StorageOf(tensor);
    if (!pinned_[s]) graph_.pinned_bytes += external ? program_.storages[s] : graph_.bytes[s];
    pinned_[s] = 1;
  }

  void AddOp(uint32_t id) {
    if (ran_[id]++) throw std::invalid_argument("op " + std::to_string(id) + " runs twice already");
    const Program::OpInfo& op = program_.ops[id];
    const Program::Kernel& kernel = program_.kernels[op.kernel];
    uint64_t workspace = kernel.workspace_bytes ? Rounded(kernel.workspace_bytes) : 0;
    graph_.ops.push_back({id, kernel.cost, workspace, {}, {}, kNone, {}});
    const uint32_t position = graph_.size() - 1;
    for (uint32_t t : op.inputs) AddInput(StorageOf(t), position);
    for (uint32_t t : op.outputs) AddOutput(StorageOf(t), position);
  }

  void AddInput(uint32_t s, uint32_t position) {
    std::vector<uint32_t>& inputs = graph_.ops[position].inputs;
    if (pinned_[s] || std::find(inputs.begin(), inputs.end(), s) != inputs.end()) return;
    inputs.push_back(s);
    graph_.readers[s].push_back(position);
  }

  void AddOutput(uint32_t s, uint32_t position) {
    const std::vector<uint32_t>& inputs = graph_.ops[position].inputs;
    if (pinned_[s] || std::find(inputs.begin(), inputs.end(), s) != inputs.end()) {
      overwriters_.emplace_back(s, position);
      return;
    }
    if (graph_.maker[s] != kNone) {
      throw std::invalid_argument("two ops fill storage " + std::to_string(s) +
                                  ": planners need one op a storage");
    }
    graph_.maker[s] = position;
    graph_.ops[position].outputs.push_back(s);
  }

  // What reads a value that is overwritten later cannot run again after that; nor can, for
  // evicted tensors, what made the value: its readers would see the old one.
  void LimitReruns() {
    for (const auto& [s, at] : overwriters_) {
      graph_.ops[at].last_rerun = 0;
      for (uint32_t p = 0; p < graph_.size(); ++p) {
        const Program::OpInfo& op = program_.ops[graph_.ops[p].id];
        bool touches = graph_.maker[s] == p;
        for (uint32_t t : op.inputs) touches |= StorageOf(t) == s;
        if (p < at && touches) {
          graph_.ops[p].last_rerun = std::min(graph_.ops[p].last_rerun, at);
          graph_.ops[at].after.push_back(p);
        }
        if (p > at && touches) {
          graph_.ops[p].last_rerun = p;
          graph_.ops[p].after.push_back(at);
        }
      }
    }
  }

  const Program& program_;
  bool exact_bytes_;
  PageArena arena_;  // for its rounding
  PlanningGraph graph_;
  std::vector<uint8_t> pinned_, ran_;
  std::vector<std::pair<uint32_t, uint32_t>> overwriters_;  // storage, position
};

}  // namespace

double PlanningGraph::TotalCost() const {
  double total = 0;
  for (const Op& op : ops) total += op.cost;
  return total;
}

PlanningGraph MakePlanningGraph(const Program& program, bool exact_bytes) {
  const std::vector<uint32_t> overwrites = OverwritesIn(program, ProgramOrder(program));
  return Builder(InPlace(program, overwrites), exact_bytes).Build();
}

}  // namespace dtr
