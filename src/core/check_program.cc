// What a program from outside must be, so that replaying, checking and planning it are safe.
#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/replay.h"

namespace dtr {
namespace {

void Require(bool condition, const char* what, size_t where, const char* why) {
  if (condition) return;
  throw std::invalid_argument(std::string("op graph: ") + what + " " + std::to_string(where) + " " +
                              why);
}

constexpr const char* kMissing = "names something that does not exist";

// Ids are in range; views are of their own storage, and of no view of theirs.
class NamesCheck {
 public:
  explicit NamesCheck(const Program& program) : program_(program) {}

  void Run() const {
    for (size_t t = 0; t < program_.tensors.size(); ++t) CheckTensor(t);
    CheckBases();
    for (size_t o = 0; o < program_.ops.size(); ++o) CheckOp(o);
    CheckLists();
    CheckSizes();
  }

 private:
  bool IsTensor(uint32_t t) const { return t < program_.tensors.size(); }

  void CheckTensor(size_t t) const {
    const Program::TensorInfo& info = program_.tensors[t];
    Require(info.storage < program_.storages.size(), "tensor", t, kMissing);
    Require(info.base == kNone || IsTensor(info.base), "tensor", t, kMissing);
    if (info.base == kNone) return;
    Require(program_.tensors[info.base].storage == info.storage, "tensor", t,
            "is a view of another storage than its own");
  }

  void CheckBases() const {
    std::vector<size_t> stamp(program_.tensors.size(), 0);  // which walk came by first
    for (size_t t = 0; t < stamp.size(); ++t) {
      auto at = static_cast<uint32_t>(t);
      for (; at != kNone && stamp[at] == 0; at = program_.tensors[at].base) stamp[at] = t + 1;
      Require(at == kNone || stamp[at] != t + 1, "tensor", t, "is a view of itself");
    }
  }

  void CheckOp(size_t o) const {
    const Program::OpInfo& op = program_.ops[o];
    Require(op.kernel < program_.kernels.size(), "op", o, kMissing);
    for (uint32_t t : op.inputs) Require(IsTensor(t), "op", o, kMissing);
    for (uint32_t t : op.outputs) Require(IsTensor(t), "op", o, kMissing);
    if (op.overwrites == kNone) return;
    bool reads = std::find(op.inputs.begin(), op.inputs.end(), op.overwrites) != op.inputs.end();
    Require(reads && op.outputs.size() == 1, "overwriting op", o, kMissing);
  }

  void CheckLists() const {
    for (size_t i = 0; i < program_.instructions.size(); ++i) {
      const Program::Instruction& instruction = program_.instructions[i];
      bool op = instruction.code == Program::Code::kOp;
      size_t limit = op ? program_.ops.size() : program_.tensors.size();
      Require(instruction.id < limit, "instruction", i, kMissing);
    }
    for (uint32_t t : program_.pinned) Require(IsTensor(t), "pinned tensor", t, kMissing);
    for (uint32_t t : program_.results) Require(IsTensor(t), "result", t, kMissing);
    for (uint32_t t : program_.external) Require(IsTensor(t), "external tensor", t, kMissing);
    for (auto [result, parameter] : program_.next_state) {
      Require(IsTensor(result) && IsTensor(parameter), "state", parameter, kMissing);
    }
  }

  // No sum of sizes wraps around, rounded up or not.
  void CheckSizes() const {
    constexpr uint64_t kMost = uint64_t{1} << 60;
    uint64_t left = kMost;
    auto take = [&](uint64_t bytes, const char* what, size_t where) {
      uint64_t rounded = bytes < kMost ? bytes + (uint64_t{1} << 21) : kMost;
      Require(rounded < left, what, where, "is too large: a program has less than 2^60 bytes");
      left -= rounded;
    };
    for (size_t s = 0; s < program_.storages.size(); ++s) {
      take(program_.storages[s], "storage", s);
    }
    for (size_t k = 0; k < program_.kernels.size(); ++k) {
      take(program_.kernels[k].workspace_bytes, "workspace of kernel", k);
    }
  }

  const Program& program_;
};

// The instructions in their order: what they use is there, what they let go of is held.
class OrderCheck {
 public:
  explicit OrderCheck(const Program& program)
      : program_(program),
        held_(program.tensors.size(), 0),
        constant_(program.tensors.size(), 0),
        storage_held_(program.storages.size(), 0),
        made_(program.storages.size(), 0) {}

  void Run() {
    for (uint32_t t : program_.pinned) MakeConstant(t);
    for (size_t i = 0; i < program_.instructions.size(); ++i) Follow(i);
    for (uint32_t t : program_.results) Require(There(t), "result", t, "is not there at the end");
    CheckState();
  }

 private:
  bool There(uint32_t t) const { return held_[t] > 0 || constant_[t]; }
  bool IsPinned(uint32_t t) const { return constant_[t] == kPinned; }

  void MakeConstant(uint32_t t, uint8_t how = kPinned) {
    if (constant_[t]) return;
    Require(program_.tensors[t].base == kNone, "constant", t, "is a view");
    Require(!made_[Storage(t)], "constant", t, "shares its storage with another tensor");
    constant_[t] = how;
    made_[Storage(t)] = 1;
    storage_held_[Storage(t)]++;
  }

  void Follow(size_t i) {
    const Program::Instruction& instruction = program_.instructions[i];
    const uint32_t id = instruction.id;
    switch (instruction.code) {
      case Program::Code::kOp:
        return RunOp(id);
      case Program::Code::kView: {
        const uint32_t base = program_.tensors[id].base;
        Require(base != kNone && There(base), "view", id, "is of a tensor that is not there");
        return Hold(id);
      }
      case Program::Code::kConstant:
        Require(held_[id] == 0, "constant", id, "is there already");
        return MakeConstant(id, kLent);
      case Program::Code::kKill:
      case Program::Code::kRetain:
        Require(There(id), "instruction", i, "counts the references of a tensor that has none");
        if (constant_[id]) return;
        const int change = instruction.code == Program::Code::kRetain ? 1 : -1;
        held_[id] += change;
        storage_held_[Storage(id)] += change;
    }
  }

  void RunOp(uint32_t o) {
    const Program::OpInfo& op = program_.ops[o];
    for (uint32_t t : op.inputs) Require(There(t), "op", o, "reads a tensor that is not there");
    if (op.overwrites != kNone) {
      Require(IsPinned(op.overwrites), "op", o, "overwrites a tensor that is not pinned");
    }
    for (uint32_t t : op.outputs) {
      const uint32_t s = Storage(t);
      Require(program_.tensors[t].base == kNone, "op", o, "writes to a view");
      Require(!made_[s] || storage_held_[s] > 0, "op", o, "writes to a storage that is gone");
      Hold(t);
      made_[s] = 1;
    }
  }

  void Hold(uint32_t t) {
    Require(!There(t), "tensor", t, "is made while it is there");
    held_[t] = 1;
    storage_held_[Storage(t)]++;
  }

  // A parameter is followed by one result, which is held at the end.
  void CheckState() const {
    std::vector<uint8_t> is_result(program_.tensors.size(), 0), followed(is_result);
    for (uint32_t t : program_.results) is_result[t] = 1;
    for (uint32_t t : program_.external) {
      Require(IsPinned(t) && !followed[t], "external tensor", t, "is not one pinned tensor");
      followed[t] = 1;  // its next value is the caller's
    }
    for (auto [result, parameter] : program_.next_state) {
      Require(is_result[result], "state", parameter, "follows from no result");
      Require(IsPinned(parameter) && !followed[parameter], "state", parameter,
              "is not one pinned tensor");
      followed[parameter] = 1;
    }
  }

  uint32_t Storage(uint32_t t) const { return program_.tensors[t].storage; }

  enum : uint8_t { kPinned = 1, kLent = 2 };  // lent: in memory of the executable's
  const Program& program_;
  std::vector<int64_t> held_;
  std::vector<uint8_t> constant_;
  std::vector<int64_t> storage_held_;
  std::vector<uint8_t> made_;
};

}  // namespace

void Program::Check() const {
  NamesCheck(*this).Run();
  OrderCheck(*this).Run();
}

}  // namespace dtr
