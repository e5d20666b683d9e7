// Runs the packed functions of an executable for the core, which asks for them by number, and
// keeps what a call needs of each tensor: shape, dtype, place in its storage.
#ifndef TVM_DTR_RELAY_VM_KERNEL_EXECUTOR_H_
#define TVM_DTR_RELAY_VM_KERNEL_EXECUTOR_H_

#include <tvm/runtime/packed_func.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "core/executor.h"
#include "relay_vm/handles.h"

namespace dtr::relay_vm {

// Where a tensor came from, for messages.
struct Origin {
  enum Kind : uint32_t { kKernel, kInput, kConstant, kHostValue, kNamed };
  Kind kind = kKernel;
  uint32_t index = 0;  // of the packed function, the parameter, the constant, the name
};

struct Kernel {
  std::string name;
  tvm::runtime::PackedFunc function;
  double cost_ns = -1;           // negative: not known yet
  double least_ns = 0;           // of the runs so far, while the cost is not known
  uint32_t trials = 0;           // runs while the cost is not known
  uint64_t workspace_bytes = 0;  // reserved for each run
  bool workspace_known = false;  // else learned: a run that lacks some is made again
  double seconds = 0;            // of its runs since ResetTimes
  uint64_t runs = 0;
};

// A kernel asked for more workspace than its op had reserved.
class WorkspaceShort : public std::runtime_error {
 public:
  WorkspaceShort(const std::string& message, KernelId kernel, uint64_t needed)
      : std::runtime_error(message), kernel(kernel), needed(needed) {}
  KernelId kernel;
  uint64_t needed;
};

class KernelExecutor : public Executor {
 public:
  void AddKernel(std::string name, tvm::runtime::PackedFunc function);

  void Run(const KernelCall& call) override;
  void Measured(const KernelCall& call, double seconds) override {
    kernels_[call.kernel].seconds += seconds;
    kernels_[call.kernel].runs++;
  }
  void Forget(TensorId tensor) override;

  // Records how kernels see the tensor behind `handle`.
  void Describe(TensorId tensor, const TensorHandleObj& handle, Origin origin);

  const DLTensor& array(TensorId tensor) const { return tensors_[tensor].array; }
  uint64_t byte_offset(TensorId tensor) const { return tensors_[tensor].byte_offset; }
  Origin origin(TensorId tensor) const { return tensors_[tensor].origin; }
  void set_origin(TensorId tensor, Origin origin) { tensors_[tensor].origin = origin; }
  const tvm::runtime::ObjectRef& source(TensorId tensor) const { return tensors_[tensor].source; }

  std::vector<Kernel>& kernels() { return kernels_; }
  uint64_t peak_workspace() const { return peak_workspace_; }
  void ResetPeak() { peak_workspace_ = 0; }
  void ResetTimes() {
    for (Kernel& kernel : kernels_) {
      kernel.seconds = 0;
      kernel.runs = 0;
    }
  }

  // Owners of forgotten tensors, to be dropped when the core is not at work: dropping one may
  // release tensors of its own.
  std::vector<tvm::runtime::ObjectRef>& forgotten() { return forgotten_; }

 private:
  struct TensorInfo {
    DLTensor array{};  // data is set for each call
    uint64_t byte_offset = 0;
    tvm::runtime::ObjectRef shape_owner, source;
    Origin origin;
  };

  void SetArguments(const KernelCall& call);
  void CallKernel(const Kernel& kernel, size_t arguments);

  std::vector<Kernel> kernels_;
  std::vector<TensorInfo> tensors_;  // by TensorId
  std::vector<TVMValue> values_;
  std::vector<int> codes_;
  std::vector<tvm::runtime::ObjectRef> forgotten_;
  uint64_t peak_workspace_ = 0;
};

}  // namespace dtr::relay_vm

#endif  // TVM_DTR_RELAY_VM_KERNEL_EXECUTOR_H_
