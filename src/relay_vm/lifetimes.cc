// Liveness of registers, backwards over basic blocks until nothing changes (the textbook's
// data-flow equations), with kills taken for nothing.
#include "relay_vm/lifetimes.h"

#include <tvm/runtime/registry.h>
#include <tvm/runtime/vm/vm.h>

#include <algorithm>
#include <vector>

#include "core/errors.h"

namespace dtr::relay_vm {
namespace {

using tvm::runtime::vm::Executable;
using tvm::runtime::vm::Index;
using tvm::runtime::vm::Instruction;
using tvm::runtime::vm::Opcode;
using tvm::runtime::vm::RegName;
using tvm::runtime::vm::VMFunction;

template <typename F>
void ForEach(const RegName* registers, Index count, const F& f) {
  std::for_each(registers, registers + count, f);
}

template <typename F>
void ForEachRead(const Instruction& in, const F& f) {
  switch (in.op) {
    case Opcode::Move:
      return f(in.from);
    case Opcode::Ret:
      return f(in.result);
    case Opcode::Invoke:
      return ForEach(in.invoke_args_registers, in.num_args, f);
    case Opcode::InvokeClosure:
      f(in.closure);
      return ForEach(in.closure_args, in.num_closure_args, f);
    case Opcode::InvokePacked:
      return ForEach(in.packed_args, in.arity, f);
    case Opcode::AllocTensor:
      f(in.alloc_tensor.storage);
      return f(in.alloc_tensor.offset);
    case Opcode::AllocTensorReg:
      f(in.alloc_tensor_reg.storage);
      f(in.alloc_tensor_reg.offset);
      return f(in.alloc_tensor_reg.shape_register);
    case Opcode::AllocADT:
      return ForEach(in.datatype_fields, in.num_fields, f);
    case Opcode::AllocClosure:
      return ForEach(in.free_vars, in.num_freevar, f);
    case Opcode::GetField:
      return f(in.object);
    case Opcode::If:
      f(in.if_op.test);
      return f(in.if_op.target);
    case Opcode::GetTag:
      return f(in.get_tag.object);
    case Opcode::AllocStorage:
      if (in.alloc_storage.ndim == 0) f(in.alloc_storage.allocation_size);
      return;
    case Opcode::ShapeOf:
      return f(in.shape_of.tensor);
    case Opcode::ReshapeTensor:
      f(in.reshape_tensor.tensor);
      return f(in.reshape_tensor.newshape);
    case Opcode::DeviceCopy:
      return f(in.device_copy.src);
    case Opcode::LoadConst:
    case Opcode::LoadConsti:
    case Opcode::Goto:
    case Opcode::Fatal:
    case Opcode::KillRegister:
      return;
  }
}

bool Writes(const Instruction& in) {
  switch (in.op) {
    case Opcode::Ret:
    case Opcode::InvokePacked:
    case Opcode::If:
    case Opcode::Goto:
    case Opcode::Fatal:
    case Opcode::KillRegister:
      return false;
    default:
      return true;
  }
}

using Registers = std::vector<bool>;

struct BasicBlock {
  size_t begin, end;               // instructions
  std::vector<size_t> successors;  // blocks
  Registers live_in;
};

class Liveness {
 public:
  explicit Liveness(VMFunction* function) : code_(function->instructions) {
    FindBlocks();
    const auto registers = static_cast<size_t>(function->register_file_size);
    for (BasicBlock& block : blocks_) block.live_in.resize(registers);
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t b = blocks_.size(); b-- > 0;) {
        Registers live = Walk(blocks_[b], [](Instruction*) {});
        changed = changed || live != blocks_[b].live_in;
        blocks_[b].live_in = std::move(live);
      }
    }
  }

  size_t Repair() {
    size_t repaired = 0;
    for (const BasicBlock& block : blocks_) {
      Walk(block, [&repaired](Instruction* kill) {
        *kill = Instruction::Goto(1);
        repaired++;
      });
    }
    return repaired;
  }

 private:
  std::vector<size_t> Targets(size_t pc) const {
    const Instruction& in = code_[pc];
    switch (in.op) {
      case Opcode::Ret:
      case Opcode::Fatal:
        return {};
      case Opcode::Goto:
        return {pc + static_cast<size_t>(in.pc_offset)};
      case Opcode::If:
        return {pc + static_cast<size_t>(in.if_op.true_offset),
                pc + static_cast<size_t>(in.if_op.false_offset)};
      default:
        return {pc + 1};
    }
  }

  void FindBlocks() {
    std::vector<bool> starts(code_.size() + 1);
    starts[0] = true;
    for (size_t pc = 0; pc < code_.size(); ++pc) {
      const std::vector<size_t> targets = Targets(pc);
      const bool jumps = targets.size() != 1 || targets[0] != pc + 1;
      if (!jumps) continue;
      starts[pc + 1] = true;
      for (size_t target : targets) {
        DTR_CHECK(target < code_.size(), "a jump of the executable leaves its function");
        starts[target] = true;
      }
    }
    std::vector<size_t> block_of(code_.size());
    for (size_t pc = 0; pc < code_.size(); ++pc) {
      if (starts[pc]) blocks_.push_back({pc, pc, {}, {}});
      block_of[pc] = blocks_.size() - 1;
      blocks_.back().end = pc + 1;
    }
    for (BasicBlock& block : blocks_) {
      for (size_t target : Targets(block.end - 1)) {
        if (target < code_.size()) block.successors.push_back(block_of[target]);
      }
    }
  }

  // Backwards from what the successors read; `early` is told of kills of registers that are live.
  template <typename F>
  Registers Walk(const BasicBlock& block, const F& early) {
    Registers live(block.live_in.size());
    for (size_t successor : block.successors) {
      const Registers& in = blocks_[successor].live_in;
      for (size_t r = 0; r < live.size(); ++r) live[r] = live[r] || in[r];
    }
    for (size_t pc = block.end; pc-- > block.begin;) {
      Instruction& in = code_[pc];
      if (in.op == Opcode::KillRegister && live[static_cast<size_t>(in.dst)]) early(&in);
      if (Writes(in)) live[static_cast<size_t>(in.dst)] = false;
      ForEachRead(in, [&live](RegName r) { live[static_cast<size_t>(r)] = true; });
    }
    return live;
  }

  std::vector<Instruction>& code_;
  std::vector<BasicBlock> blocks_;
};

}  // namespace

size_t RepairLifetimes(Executable* executable) {
  size_t repaired = 0;
  for (VMFunction& function : executable->functions) {
    const bool branches = std::any_of(function.instructions.begin(), function.instructions.end(),
                                      [](const Instruction& in) { return in.op == Opcode::If; });
    if (branches) repaired += Liveness(&function).Repair();
  }
  return repaired;
}

TVM_REGISTER_GLOBAL("tvm_dtr.repair_lifetimes")
    .set_body_typed([](tvm::runtime::Module module) -> int64_t {
      auto* executable = const_cast<Executable*>(module.as<Executable>());
      ICHECK(executable) << "tvm_dtr.repair_lifetimes takes an executable of the Relay VM";
      return static_cast<int64_t>(RepairLifetimes(executable));
    });

}  // namespace dtr::relay_vm
