// The dispatch loop: one method for each opcode.
#include "relay_vm/values.h"
#include "relay_vm/vm.h"

namespace dtr::relay_vm {

using tvm::runtime::ADTObj;
using tvm::runtime::make_object;
using tvm::runtime::vm::Opcode;

// Runs until the outermost frame returns; its value is then in result_ and its frame still there,
// so that handing the value over can fail and be tried again.
void DtrVirtualMachine::Dispatch() {
  while (true) {
    const Instruction& in = code_[pc_];
    ++instructions_;
    switch (in.op) {
        // clang-format off
      case Opcode::Move:           Move(in); break;
      case Opcode::Ret:            if (Ret(in)) return; break;
      case Opcode::Invoke:         Invoke(in); break;
      case Opcode::InvokeClosure:  InvokeClosure(in); break;
      case Opcode::InvokePacked:   InvokePacked(in); break;
      case Opcode::AllocTensor:    AllocTensor(in); break;
      case Opcode::AllocTensorReg: AllocTensorReg(in); break;
      case Opcode::AllocADT:       AllocADT(in); break;
      case Opcode::AllocClosure:   AllocClosure(in); break;
      case Opcode::GetField:       GetField(in); break;
      case Opcode::If:             If(in); break;
      case Opcode::LoadConst:      LoadConst(in); break;
      case Opcode::Goto:           Goto(in); break;
      case Opcode::GetTag:         GetTag(in); break;
      case Opcode::LoadConsti:     LoadConsti(in); break;
      case Opcode::Fatal:          Fatal(in);
      case Opcode::AllocStorage:   AllocStorage(in); break;
      case Opcode::ShapeOf:        ShapeOf(in); break;
      case Opcode::ReshapeTensor:  ReshapeTensor(in); break;
      case Opcode::DeviceCopy:     DeviceCopy(in); break;
      case Opcode::KillRegister:   KillRegister(in); break;
      // clang-format on
      default:
        DTR_CHECK(false, "unknown opcode " + std::to_string(static_cast<int>(in.op)));
    }
  }
}

// -- Calls and jumps ------------------------------------------------------------------------------

// The caller's pc_ must stand where it goes on; its registers move with the vector.
void DtrVirtualMachine::PushFrame(const VMFunction& function, RegName result) {
  if (!calls_.empty()) calls_.back().pc = pc_;
  base_ = registers_.size();
  registers_.resize(base_ + static_cast<size_t>(function.register_file_size));
  calls_.push_back({&function, 0, base_, result, engine_->runtime().stats().compute_cost});
  code_ = function.instructions.data();
  pc_ = 0;
}

void DtrVirtualMachine::Move(const Instruction& in) {
  Register(in.dst) = Register(in.from);
  pc_++;
}

bool DtrVirtualMachine::Ret(const Instruction& in) {
  if (calls_.size() == 1) {
    result_ = Register(in.result);
    return true;
  }
  ObjectRef value = std::move(Register(in.result));
  RegName destination = calls_.back().result;
  registers_.resize(base_);
  calls_.pop_back();
  const CallFrame& caller = calls_.back();
  base_ = caller.base;
  code_ = caller.function->instructions.data();
  pc_ = caller.pc;
  Register(destination) = std::move(value);
  return false;
}

// What the caller kills right after a call is read by nobody once the arguments are taken, so it
// goes before the callee runs: else a recursion would hold the arguments of all its calls until it
// returns, and a loop's pullback all activations until its last one.
void DtrVirtualMachine::KillAfterCall(size_t caller, Index next, RegName result) {
  const Instruction* code = calls_[calls_.size() - 2].function->instructions.data();
  for (const Instruction* in = code + next; in->op == Opcode::KillRegister; ++in) {
    if (in->dst != result) registers_[caller + static_cast<size_t>(in->dst)] = ObjectRef();
  }
}

// A function that calls itself is a loop, and what an iteration made for the next one is what all
// later iterations are made from. The op that made it last is often cheap; bringing it back takes
// the iteration. Scored by the op alone, such tensors are evicted first and from then on every
// recomputation starts at the loop's beginning: so they are charged the iteration's work.
void DtrVirtualMachine::ChargeCarried(const Instruction& in) {
  const double work = engine_->runtime().stats().compute_cost - calls_.back().work;
  for (Index i = 0; i < in.num_args; ++i) {
    const ObjectRef& value = Register(in.invoke_args_registers[i]);
    const bool passed_on = in.invoke_args_registers[i] < in.num_args;  // was a parameter
    if (passed_on || !value.defined() || !value->IsInstance<TensorHandleObj>()) continue;
    const auto* handle = static_cast<const TensorHandleObj*>(value.get());
    if (handle->tensor != kNone) engine_->runtime().RaiseCost(handle->tensor, work);
  }
}

void DtrVirtualMachine::Invoke(const Instruction& in) {
  if (&exec_->functions[in.func_index] == calls_.back().function) ChargeCarried(in);
  const size_t caller = base_;
  const Index next = ++pc_;
  PushFrame(exec_->functions[in.func_index], in.dst);
  for (Index i = 0; i < in.num_args; ++i) {
    Register(i) = registers_[caller + static_cast<size_t>(in.invoke_args_registers[i])];
  }
  KillAfterCall(caller, next, in.dst);
}

void DtrVirtualMachine::InvokeClosure(const Instruction& in) {
  ObjectRef value = Register(in.closure);
  DTR_CHECK(value.as<VMClosureObj>(), "invoke_closure reads what is no closure");
  auto* closure = static_cast<VMClosureObj*>(const_cast<Object*>(value.get()));
  const size_t caller = base_;
  const Index next = ++pc_;
  PushFrame(exec_->functions[closure->func_index], in.dst);
  Index argument = static_cast<Index>(closure->free_vars.size());
  for (Index i = 0; i < in.num_closure_args; ++i) {
    Register(argument++) = registers_[caller + static_cast<size_t>(in.closure_args[i])];
  }
  KillAfterCall(caller, next, in.dst);
  argument = 0;
  const bool last_call = value.unique();
  for (ObjectRef& variable : closure->free_vars) {
    Register(argument++) = last_call ? std::move(variable) : variable;
  }
}

void DtrVirtualMachine::If(const Instruction& in) {
  const bool equal = ReadInteger(in.if_op.test) == ReadInteger(in.if_op.target);
  pc_ += equal ? in.if_op.true_offset : in.if_op.false_offset;
}

void DtrVirtualMachine::Goto(const Instruction& in) { pc_ += in.pc_offset; }

void DtrVirtualMachine::Fatal(const Instruction& in) {
  throw std::runtime_error("the program stopped itself in function " +
                           calls_.back().function->name + ": no clause of a match fits the value");
}

// -- Data structures ------------------------------------------------------------------------------

void DtrVirtualMachine::AllocADT(const Instruction& in) {
  std::vector<ObjectRef> fields;
  fields.reserve(static_cast<size_t>(in.num_fields));
  for (Index i = 0; i < in.num_fields; ++i) fields.push_back(Register(in.datatype_fields[i]));
  Register(in.dst) =
      MakeData(static_cast<int32_t>(in.constructor_tag), fields.begin(), fields.end());
  pc_++;
}

void DtrVirtualMachine::AllocClosure(const Instruction& in) {
  std::vector<ObjectRef> variables;
  variables.reserve(static_cast<size_t>(in.num_freevar));
  for (Index i = 0; i < in.num_freevar; ++i) variables.push_back(Register(in.free_vars[i]));
  Register(in.dst) = MakeClosure(static_cast<size_t>(in.clo_index), std::move(variables));
  pc_++;
}

void DtrVirtualMachine::GetField(const Instruction& in) {
  const auto* tuple = Register(in.object).as<ADTObj>();
  DTR_CHECK(tuple && static_cast<uint64_t>(in.field_index) < tuple->size,
            "get_field reads what is no tuple, or past its end");
  ObjectRef field = (*tuple)[static_cast<size_t>(in.field_index)];
  Register(in.dst) = std::move(field);
  pc_++;
}

void DtrVirtualMachine::GetTag(const Instruction& in) {
  const auto* data = Register(in.get_tag.object).as<ADTObj>();
  DTR_CHECK(data, "get_tag reads what is no algebraic data type");
  int32_t tag = data->tag;
  Register(in.dst) = HostValue(&tag, 1, {kDLInt, 32, 1});
  pc_++;
}

// -- Tensors --------------------------------------------------------------------------------------

void DtrVirtualMachine::LoadConsti(const Instruction& in) {
  int64_t value = in.load_consti.val;
  Register(in.dst) = HostValue(&value, 1, {kDLInt, 64, 1});
  pc_++;
}

// Constants are shared by all invocations. Small ones are charged when a kernel first reads them.
void DtrVirtualMachine::LoadConst(const Instruction& in) {
  const auto index = static_cast<size_t>(in.const_index);
  if (constants_.size() <= index) constants_.resize(exec_->constants.size());
  TensorHandle& constant = constants_[index];
  if (constant == nullptr) {
    auto array = tvm::runtime::Downcast<NDArray>(exec_->constants[index]);
    TensorHandle handle = NewHandle(array->dtype);
    handle->device = array->device;
    handle->ndim = array->ndim;
    handle->shape = array->shape;
    handle->host = static_cast<char*>(array->data) + array->byte_offset;
    handle->source = array;
    if (handle->bytes() > kHostValueBytes) {
      engine_->EnsureTensor(handle.get(), {Origin::kConstant, static_cast<uint32_t>(index)});
    }
    constant = std::move(handle);
  }
  Register(in.dst) = ObjectRef(constant);
  pc_++;
}

void DtrVirtualMachine::AllocStorage(const Instruction& in) {
  const auto& operands = in.alloc_storage;
  uint64_t bytes =
      operands.ndim > 0
          ? DenseBytes(operands.shape, static_cast<int32_t>(operands.ndim), operands.dtype_hint)
          : static_cast<uint64_t>(ReadInteger(operands.allocation_size));
  Register(in.dst) = ObjectRef(make_object<StorageHandleObj>(engine_.get(), bytes));
  pc_++;
}

void DtrVirtualMachine::AllocTensor(const Instruction& in) {
  const auto& operands = in.alloc_tensor;
  TensorHandle handle = PlaceTensor(operands.storage, operands.offset, operands.dtype);
  handle->ndim = static_cast<int32_t>(operands.ndim);
  handle->shape = operands.shape;  // lives as long as the executable
  Register(in.dst) = ObjectRef(std::move(handle));
  pc_++;
}

void DtrVirtualMachine::AllocTensorReg(const Instruction& in) {
  const auto& operands = in.alloc_tensor_reg;
  TensorHandle handle = PlaceTensor(operands.storage, operands.offset, operands.dtype);
  handle->OwnShape(ReadShape(operands.shape_register));
  Register(in.dst) = ObjectRef(std::move(handle));
  pc_++;
}

void DtrVirtualMachine::ShapeOf(const Instruction& in) {
  const TensorHandleObj* tensor = Tensor(in.shape_of.tensor);
  Register(in.dst) = HostValue(tensor->shape, tensor->ndim, {kDLInt, 64, 1});
  pc_++;
}

// A view: the same bytes under another shape.
void DtrVirtualMachine::ReshapeTensor(const Instruction& in) {
  TensorHandleObj* base = Tensor(in.reshape_tensor.tensor);
  TensorHandle view = NewHandle(base->dtype);
  view->OwnShape(ReadShape(in.reshape_tensor.newshape));
  DTR_CHECK(view->bytes() <= base->bytes(), "reshape_tensor makes a tensor larger");
  view->device = base->device;
  view->byte_offset = base->byte_offset;
  view->host = base->host;
  view->source = base->source;
  if (base->tensor != kNone) {
    view->tensor = engine_->runtime().NewView(base->tensor);
    KernelExecutor& executor = engine_->executor();
    executor.Describe(view->tensor, *view, executor.origin(base->tensor));
  } else {
    DTR_CHECK(base->host, "reshape_tensor reads a tensor that no kernel has written");
  }
  Register(in.dst) = ObjectRef(std::move(view));
  pc_++;
}

// Between two names of one device there is nothing to copy: tensors are written once.
void DtrVirtualMachine::DeviceCopy(const Instruction& in) {
  const DLDevice& from = devices_[static_cast<size_t>(in.device_copy.src_device_index)];
  const DLDevice& to = devices_[static_cast<size_t>(in.device_copy.dst_device_index)];
  DTR_CHECK(from.device_type == to.device_type && from.device_id == to.device_id,
            "copies between devices are not supported");
  Register(in.dst) = Register(in.device_copy.src);
  pc_++;
}

void DtrVirtualMachine::KillRegister(const Instruction& in) {
  Register(in.dst) = ObjectRef();
  pc_++;
}

}  // namespace dtr::relay_vm
