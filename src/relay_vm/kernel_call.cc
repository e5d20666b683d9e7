// invoke_packed: from registers to a call of the core.
#include <algorithm>

#include "relay_vm/vm.h"

namespace dtr::relay_vm {

using tvm::runtime::ADTObj;

namespace {

constexpr uint32_t kRunsToLearn = 4;  // the first finds cold caches and threads that sleep

void LearnCost(Kernel* kernel, double cost_ns) {
  kernel->least_ns = kernel->trials == 0 ? cost_ns : std::min(kernel->least_ns, cost_ns);
  if (++kernel->trials == kRunsToLearn) kernel->cost_ns = kernel->least_ns;
}

}  // namespace

// Arguments are inputs, then `output_size` outputs; a tuple stands for its fields.
void DtrVirtualMachine::InvokePacked(const Instruction& in) {
  kernel_at_hand_ = first_kernel_ + static_cast<KernelId>(in.packed_index);
  inputs_at_hand_.clear();
  outputs_at_hand_.clear();
  output_handles_.clear();
  if (invocation_.donated && calls_.size() == 1 && overwrites_[static_cast<size_t>(pc_)] >= 0 &&
      Overwrite(in)) {
    engine_->Settle();
    pc_++;
    return;
  }
  inputs_at_hand_.clear();
  try {
    if (GatherArguments(in)) CallKernel(kernel_at_hand_);
  } catch (...) {
    UndoOutputs();  // so that the same instruction can run again
    throw;
  }
  for (size_t i = 0; i < output_handles_.size(); ++i) {
    output_handles_[i]->tensor = outputs_at_hand_[i];
    output_handles_[i]->storage = nullptr;
  }
  engine_->Settle();
  pc_++;
}

// Lets the kernel write its output over one of its arguments: the output is then another name of
// that tensor. False where it has to be written elsewhere.
bool DtrVirtualMachine::Overwrite(const Instruction& in) {
  const Kernel& kernel = engine_->executor().kernels()[kernel_at_hand_];
  if (!kernel.workspace_known) return false;
  for (Index i = 0; i + 1 < in.arity; ++i) {
    AddArgument(Register(in.packed_args[i]), /*output=*/false);
  }
  const TensorId old = inputs_at_hand_[static_cast<size_t>(overwrites_[static_cast<size_t>(pc_)])];
  Runtime& runtime = engine_->runtime();
  if (!runtime.TryOverwrite(kernel_at_hand_, inputs_at_hand_, old, kernel.cost_ns,
                            kernel.workspace_bytes)) {
    return false;
  }
  torn_ = true;
  TensorHandleObj* output = AsTensor(Register(in.packed_args[in.arity - 1]));
  output->tensor = runtime.NewView(old);
  output->storage = nullptr;
  engine_->executor().Describe(output->tensor, *output, {Origin::kKernel, kernel_at_hand_});
  return true;
}

// False if there is nothing to do: the only output has no elements.
bool DtrVirtualMachine::GatherArguments(const Instruction& in) {
  const Index first_output = in.arity - in.output_size;
  if (in.output_size == 1) {
    const ObjectRef& last = Register(in.packed_args[in.arity - 1]);
    if (last.defined() && last->IsInstance<TensorHandleObj>()) {
      TensorHandleObj* output = AsTensor(last);
      if (output->empty()) {
        auto nothing = tvm::runtime::make_object<HostBytesObj>();
        output->host = nothing->bytes;
        output->source = ObjectRef(nothing);
        output->storage = nullptr;
        output->byte_offset = 0;
        return false;
      }
    }
  }
  for (Index i = 0; i < in.arity; ++i) {
    const ObjectRef& value = Register(in.packed_args[i]);
    const bool output = i >= first_output;
    if (value.defined() && value->IsInstance<ADTObj>()) {
      const auto* tuple = static_cast<const ADTObj*>(value.get());
      for (size_t f = 0; f < tuple->size; ++f) AddArgument((*tuple)[f], output);
    } else {
      AddArgument(value, output);
    }
  }
  return true;
}

void DtrVirtualMachine::AddArgument(const ObjectRef& value, bool output) {
  TensorHandleObj* handle = AsTensor(value);
  if (output) return AddOutput(handle);
  if (handle->tensor == kNone) {
    DTR_CHECK(handle->host != nullptr, "kernel " +
                                           engine_->executor().kernels()[kernel_at_hand_].name +
                                           " reads a tensor that no kernel has written");
    engine_->EnsureTensor(handle, {Origin::kHostValue, 0});
  }
  inputs_at_hand_.push_back(handle->tensor);
}

void DtrVirtualMachine::AddOutput(TensorHandleObj* handle) {
  const std::string& kernel = engine_->executor().kernels()[kernel_at_hand_].name;
  DTR_CHECK(handle->storage != nullptr,
            "kernel " + kernel + " overwrites a tensor: programs must write each tensor once");
  StorageHandleObj* storage = handle->storage.get();
  DTR_CHECK(storage->Claim({handle->byte_offset, handle->byte_offset + handle->bytes()}),
            "kernel " + kernel +
                " writes over another tensor's memory or past its storage: memory that is planned "
                "ahead cannot be rematerialized");
  Runtime& runtime = engine_->runtime();
  if (storage->storage == kNone) storage->storage = runtime.NewStorage(storage->bytes);
  TensorId tensor = runtime.NewTensor(storage->storage);
  output_handles_.push_back(handle);
  outputs_at_hand_.push_back(tensor);
  engine_->executor().Describe(tensor, *handle, {Origin::kKernel, kernel_at_hand_});
}

void DtrVirtualMachine::CallKernel(KernelId id) {
  Kernel& kernel = engine_->executor().kernels()[id];
  Runtime& runtime = engine_->runtime();
  while (true) {
    try {
      runtime.Call(id, inputs_at_hand_, outputs_at_hand_, kernel.cost_ns, kernel.workspace_bytes);
      break;
    } catch (const WorkspaceShort& error) {
      // Without a bound from the compiler the need shows when the kernel runs: it has failed
      // before it was done, its outputs are unwritten, so it can run again with more.
      const bool helps = error.needed > kernel.workspace_bytes;
      if (kernel.workspace_known || error.kernel != id || !helps) throw;
      kernel.workspace_bytes = error.needed;
    }
  }
  if (kernel.cost_ns < 0) LearnCost(&kernel, runtime.last_run_cost());
}

void DtrVirtualMachine::UndoOutputs() {
  for (size_t i = 0; i < output_handles_.size(); ++i) {
    engine_->Release(outputs_at_hand_[i]);
    output_handles_[i]->storage->Unclaim();
  }
  output_handles_.clear();
  outputs_at_hand_.clear();
}

}  // namespace dtr::relay_vm
