// The patched Relay VM: TVM's executables, module functions and bytecode, our own dispatch loop.
//
// Registers hold handles (handles.h). alloc_storage and alloc_tensor take no memory; invoke_packed
// hands a call to the core (Runtime::Call), which finds the memory, evicting if it must, and may
// run the kernel again later. Where the stock VM would read a tensor's bytes, this one asks the
// core for them, which brings them back if they were evicted.
#ifndef TVM_DTR_RELAY_VM_VM_H_
#define TVM_DTR_RELAY_VM_VM_H_

#include <tvm/runtime/container/adt.h>
#include <tvm/runtime/vm/vm.h>

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/event_trace.h"
#include "relay_vm/engine.h"
#include "relay_vm/kernel_profile.h"
#include "relay_vm/trace.h"
#include "relay_vm/workspace.h"

namespace dtr::relay_vm {

using tvm::runtime::NDArray;
using tvm::runtime::Object;
using tvm::runtime::ObjectPtr;
using tvm::runtime::ObjectRef;
using tvm::runtime::PackedFunc;
using tvm::runtime::String;
using tvm::runtime::TVMArgs;
using tvm::runtime::TVMRetValue;
using tvm::runtime::vm::Executable;
using tvm::runtime::vm::Index;
using tvm::runtime::vm::Instruction;
using tvm::runtime::vm::RegName;
using tvm::runtime::vm::VMClosureObj;
using tvm::runtime::vm::VMFunction;

class DtrVirtualMachine : public tvm::runtime::vm::VirtualMachine {
 public:
  ~DtrVirtualMachine() override;
  PackedFunc GetFunction(const String& name, const ObjectPtr<Object>& self) override;
  void LoadExecutable(const ObjectPtr<Executable>& executable) override;

  // -- module functions (module_functions.cc; what is told of runs: recording.cc) -------------
  // `arena` as in --arena. Throws std::invalid_argument for names that there are not, and for a
  // policy that the arena does not serve.
  void Configure(uint64_t budget_bytes, const std::string& arena, const RuntimeOptions& options);
  void CheckDevices() const;
  void SetCosts(const NDArray& cost_ns, const NDArray& workspace_bytes, double invocation_ns);
  uint64_t SetBudget(uint64_t bytes);
  // Takes the kernels from a shared library loaded from `path`, so that their workspace counts.
  void UseLibrary(tvm::runtime::Module library, const std::string& path);
  // A copy of an array in the arena, the caller's to keep, and to become the result `name`.
  NDArray CopyIn(const NDArray& array, const std::string& name);
  // Runs another executable of the same kernels from the next invocation on; arena, costs and what
  // callers hold stay.
  void Follow(tvm::runtime::Module executable);
  // Runs another executable, of kernels of its own, from the next invocation on. Arena, statistics
  // and what callers hold stay; costs, names and marks are the new one's to be set. Coming back to
  // one that ran before loads nothing anew: kernels stay, for what they made may have to be made
  // again.
  void ChangeExecutable(tvm::runtime::Module executable);
  // Names the fields of the tuple that main returns, for messages.
  void NameResults(TVMArgs args);
  // (n, 2) of int64: the n-th kernel call of main may write its only output over its argument with
  // the second index, a parameter of main that no later call reads.
  void SetOverwrites(const NDArray& marks, bool scheduled);
  // The state that a stopped step has left half updated has been set anew.
  void AcceptState() { torn_ = false; }
  // Forgets inputs, outputs and a stopped invocation.
  void Clear();
  std::string StatsJson() const;
  // float64 of shape (kernels, 2), as "kernel_names" has them: seconds and number of the runs since
  // "reset_stats".
  tvm::runtime::NDArray KernelTimes() const;
  ObjectRef TraceMemory(bool on);
  // Writes what happens from now on to a file that begins with `header`.
  void TraceEvents(const std::string& path, const std::string& header);
  // Empty, or why the file has ended early.
  std::string StopTracingEvents();
  // Starts or stops counting per kernel and returns what was counted so far.
  ObjectRef ProfileKernels(bool on);
  // Calls module function args[0] with the rest; what the caller is told comes as a string.
  void Attempt(TVMArgs args, TVMRetValue* rv);

  // -- invocations (invocation.cc) ----------------------------------------------------------------
  // `donated`: nobody wants the old values of the state any more, they may be overwritten.
  ObjectRef InvokeFunction(const std::string& name, bool donated);
  // Goes on where a BudgetError stopped the last invocation.
  ObjectRef Resume();

 private:
  // A function that is running. Its registers are registers_[base, base + register_file_size).
  struct CallFrame {
    const VMFunction* function;
    Index pc;  // where to go on, valid while a callee runs
    size_t base;
    RegName result;   // register of the caller that takes what it returns
    double work = 0;  // the model's own, until the call
  };
  // What is being invoked from outside; kept after a BudgetError.
  struct Invocation {
    const VMFunction* function = nullptr;
    std::string name;
    std::vector<ObjectRef>* inputs = nullptr;
    bool started = false;
    bool running = false;
    bool donated = false;
  };

  struct InputHandle {
    ObjectRef value;
    bool is_copy = false;
  };

  // module_functions.cc
  void AddKernels();
  void TakePlace(const ObjectPtr<Executable>& executable);
  size_t kernel_count() const { return packed_funcs_.size(); }
  void BeforeStockFunction(const std::string& name, TVMArgs args);
  void CheckWorkspaceCounts(uint64_t budget_bytes) const;
  void StopObserving();
  // Puts an observer of the runtime, or none, in the place of another.
  template <typename T>
  void Observe(std::unique_ptr<T>* place, std::unique_ptr<T> observer) {
    if (*place) engine_->runtime().RemoveObserver(place->get());
    *place = std::move(observer);
    if (*place) engine_->runtime().AddObserver(place->get());
  }

  // invocation.cc
  ObjectRef Continue();
  void GatherInputs();
  void AllowOverwrites(const std::vector<InputHandle>& handles);
  ObjectRef Finish();
  void TraceResults();
  StorageId StorageOf(const ObjectRef& value) const;
  void NameFields(const ObjectRef& results);
  void CopyToGivenOutputs(const std::string& name);
  void DropInvocation();
  // Throws what the caller is told.
  [[noreturn]] void RethrowBudgetError(const BudgetError& error);
  std::string KernelName() const;  // of the instruction at hand, "" if it calls none
  std::string OriginName(TensorId tensor) const;

  // conversion.cc: rebuilds tuples and closures with each leaf replaced.
  using Leaf = std::function<ObjectRef(const ObjectRef&)>;
  static ObjectRef Rebuild(const ObjectRef& root, const Leaf& leaf);
  ObjectRef FromCaller(const ObjectRef& value, Origin origin);
  ObjectRef ToCaller(const ObjectRef& value);

  // dispatch.cc: one method for each opcode. They leave pc_ at the next instruction.
  void Dispatch();
  void PushFrame(const VMFunction& function, RegName result);
  void ChargeCarried(const Instruction& in);
  void KillAfterCall(size_t caller, Index next, RegName result);
  void Move(const Instruction& in);
  bool Ret(const Instruction& in);  // true when the outermost frame is ready to return
  void Invoke(const Instruction& in);
  void InvokeClosure(const Instruction& in);
  void InvokePacked(const Instruction& in);
  void AllocTensor(const Instruction& in);
  void AllocTensorReg(const Instruction& in);
  void AllocADT(const Instruction& in);
  void AllocClosure(const Instruction& in);
  void GetField(const Instruction& in);
  void If(const Instruction& in);
  void LoadConst(const Instruction& in);
  void Goto(const Instruction& in);
  void GetTag(const Instruction& in);
  void LoadConsti(const Instruction& in);
  [[noreturn]] void Fatal(const Instruction& in);
  void AllocStorage(const Instruction& in);
  void ShapeOf(const Instruction& in);
  void ReshapeTensor(const Instruction& in);
  void DeviceCopy(const Instruction& in);
  void KillRegister(const Instruction& in);

  // operands.cc: reading and making values.
  ObjectRef& Register(RegName name) { return registers_[base_ + static_cast<size_t>(name)]; }
  TensorHandleObj* Tensor(RegName name);
  TensorHandleObj* AsTensor(const ObjectRef& value) const;
  int64_t ReadInteger(RegName name);
  tvm::runtime::ShapeTuple ReadShape(RegName name);
  TensorHandle NewHandle(DLDataType dtype) const;
  TensorHandle PlaceTensor(RegName storage, RegName offset, DLDataType dtype);
  ObjectRef HostValue(const void* bytes, int64_t elements, DLDataType dtype);
  DLDevice host_device() const { return devices_[exec_->host_device_index]; }

  // kernel_call.cc: invoke_packed.
  bool GatherArguments(const Instruction& in);
  void AddArgument(const ObjectRef& value, bool output);
  void AddOutput(TensorHandleObj* handle);
  void CallKernel(KernelId kernel);
  bool Overwrite(const Instruction& in);
  void UndoOutputs();

  std::shared_ptr<Engine> engine_;
  WorkspaceHooks hooks_;
  bool workspace_tracked_ = false;
  // Of the executable at hand: the number of its first kernel among all of the executor's.
  KernelId first_kernel_ = 0;
  std::unordered_map<const Executable*, KernelId> first_kernels_;
  std::vector<ObjectPtr<Executable>> executables_;  // those that ran, whose kernels may run again
  std::unique_ptr<MemoryTrace> trace_;
  std::unique_ptr<EventTrace> events_;
  std::unique_ptr<KernelProfile> profile_;

  std::vector<ObjectRef> registers_;
  std::vector<CallFrame> calls_;
  size_t base_ = 0;
  Invocation invocation_;
  ObjectRef result_;  // of the outermost frame, not yet the caller's
  std::vector<TensorHandle> constants_;
  std::vector<std::string> names_;  // of the results
  std::unordered_map<std::string, std::vector<InputHandle>> input_handles_;
  // Of main: by instruction, the argument that its kernel may overwrite or -1; by parameter,
  // whether one does. Empty where nothing is overwritten.
  std::vector<Index> overwrites_;
  std::vector<bool> overwritten_;
  bool torn_ = false;  // an invocation that has not ended has overwritten state
  uint64_t instructions_ = 0, invocations_ = 0;
  double invocation_cost_ns_ = 0;

  // Of the invoke_packed at hand; kept so that it allocates nothing.
  std::vector<TensorId> inputs_at_hand_, outputs_at_hand_;
  std::vector<TensorHandleObj*> output_handles_;
  KernelId kernel_at_hand_ = 0;
};

}  // namespace dtr::relay_vm

#endif  // TVM_DTR_RELAY_VM_VM_H_
