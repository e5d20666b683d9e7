#include "relay_vm/kernel_executor.h"

#include <algorithm>
#include <utility>

#include "relay_vm/workspace.h"

namespace dtr::relay_vm {
namespace {

// While it lives, kernels on this thread (and the tasks they launch) use `stack`.
class WorkspaceScope {
 public:
  explicit WorkspaceScope(WorkspaceStack* stack) : before_(WorkspaceStack::current) {
    WorkspaceStack::current = stack;
  }
  ~WorkspaceScope() { WorkspaceStack::current = before_; }

 private:
  WorkspaceStack* before_;
};

}  // namespace

void KernelExecutor::AddKernel(std::string name, tvm::runtime::PackedFunc function) {
  Kernel kernel;
  kernel.name = std::move(name);
  kernel.function = std::move(function);
  kernels_.push_back(std::move(kernel));
}

void KernelExecutor::Describe(TensorId tensor, const TensorHandleObj& handle, Origin origin) {
  if (tensor >= tensors_.size()) tensors_.resize(std::max<size_t>(2 * tensors_.size(), tensor + 1));
  TensorInfo& info = tensors_[tensor];
  info.array = {nullptr,
                handle.device,
                handle.ndim,
                handle.dtype,
                const_cast<int64_t*>(handle.shape),
                nullptr,
                0};
  info.byte_offset = handle.byte_offset;
  info.shape_owner = handle.shape_owner;
  info.source = handle.source;
  info.origin = origin;
}

void KernelExecutor::Forget(TensorId tensor) {
  if (tensor >= tensors_.size()) return;
  TensorInfo& info = tensors_[tensor];
  info.shape_owner = tvm::runtime::ObjectRef();
  if (info.source.defined()) forgotten_.push_back(std::move(info.source));
}

void KernelExecutor::Run(const KernelCall& call) {
  const Kernel& kernel = kernels_[call.kernel];
  SetArguments(call);
  peak_workspace_ = std::max(peak_workspace_, call.workspace.bytes);
  WorkspaceStack workspace(call.workspace);
  WorkspaceScope scope(&workspace);
  try {
    CallKernel(kernel, call.inputs.size() + call.outputs.size());
  } catch (...) {
    if (workspace.needed() == 0) throw;
  }
  if (workspace.needed() == 0) return;
  throw WorkspaceShort("WorkspaceError: kernel " + kernel.name + " needs " +
                           std::to_string(workspace.needed()) + " bytes of workspace, but " +
                           std::to_string(kernel.workspace_bytes) +
                           " were reserved for it: build the program again",
                       call.kernel, workspace.needed());
}

void KernelExecutor::SetArguments(const KernelCall& call) {
  size_t count = call.inputs.size() + call.outputs.size();
  if (values_.size() < count) {
    values_.resize(count);
    codes_.resize(count, kTVMDLTensorHandle);
  }
  size_t slot = 0;
  auto set = [&](TensorId tensor, void* base) {
    TensorInfo& info = tensors_[tensor];
    info.array.data = static_cast<char*>(base) + info.byte_offset;
    values_[slot++].v_handle = &info.array;
  };
  for (size_t i = 0; i < call.inputs.size(); ++i) set(call.inputs[i], call.input_data[i]);
  for (size_t i = 0; i < call.outputs.size(); ++i) set(call.outputs[i], call.output_data[i]);
}

void KernelExecutor::CallKernel(const Kernel& kernel, size_t arguments) {
  tvm::runtime::TVMRetValue result;
  kernel.function.CallPacked(
      tvm::runtime::TVMArgs(values_.data(), codes_.data(), static_cast<int>(arguments)), &result);
}

}  // namespace dtr::relay_vm
