// One invocation from outside: inputs in, dispatch, outputs out; and what is left when it fails.
#include <sstream>

#include "relay_vm/report.h"
#include "relay_vm/vm.h"

namespace dtr::relay_vm {

using tvm::runtime::ADT;
using tvm::runtime::ADTObj;

ObjectRef DtrVirtualMachine::InvokeFunction(const std::string& name, bool donated) {
  Engine::Use use(engine_.get());
  if (torn_ && donated) {
    ThrowError("UsageError",
               "the last step stopped when some of its parameters were updated: raise the budget "
               "and resume(), or set all parameters, from a checkpoint for example");
  }
  ICHECK(!invocation_.running) << "a kernel may not invoke the virtual machine that runs it";
  CheckDevices();
  const VMFunction& function = exec_->GetVMFunctionWithName(name);
  auto given = inputs_.find(name);
  if (!function.params.empty() && given == inputs_.end()) {
    ThrowError("UsageError", "the inputs of function '" + name +
                                 "' are not set: give them to invoke, or call set_input first");
  }
  DropInvocation();
  return_register_ = ObjectRef();
  for (InputHandle& input : input_handles_[name]) {
    if (input.is_copy) input = InputHandle();
  }
  engine_->Settle();
  hooks_.Refresh();
  engine_->runtime().BeginInvocation(invocation_cost_ns_);
  if (events_) events_->Invoke();
  invocation_.function = &function;
  invocation_.name = name;
  invocation_.donated = donated && name == "main" && !overwrites_.empty();
  if (!function.params.empty()) invocation_.inputs = &given->second;
  invocations_++;
  return Continue();
}

ObjectRef DtrVirtualMachine::Resume() {
  Engine::Use use(engine_.get());
  ICHECK(!invocation_.running) << "a kernel may not resume the virtual machine that runs it";
  if (!invocation_.function) {
    ThrowError(
        "UsageError",
        "there is nothing to resume: only a step or invocation that a BudgetError has stopped goes "
        "on, until the next one starts");
  }
  hooks_.Refresh();
  return Continue();
}

// Every stage can be tried again after a BudgetError: inputs taken so far stay, the instruction
// that failed has changed nothing, and outputs are pinned without harm a second time.
ObjectRef DtrVirtualMachine::Continue() {
  invocation_.running = true;
  try {
    GatherInputs();
    Dispatch();
    ObjectRef value = Finish();
    if (invocation_.donated) torn_ = false;
    if (events_) TraceResults();
    DropInvocation();
    return value;
  } catch (const BudgetError& error) {
    invocation_.running = false;
    if (events_) events_->InvokeEnd(InvokeResult::kBudgetError);
    RethrowBudgetError(error);
  } catch (const ThrashError& error) {
    if (events_) events_->InvokeEnd(InvokeResult::kThrashError);
    DropInvocation();
    throw CallerError(std::string("ThrashError: ") + error.what(), DescribeError(error));
  } catch (...) {
    if (events_) events_->InvokeEnd(InvokeResult::kFailed);
    DropInvocation();
    throw;
  }
}

// The inputs' handles are kept as long as the arrays are set: they stay charged, and the next
// invocation finds them. Those that had to be copied are copied anew each time.
void DtrVirtualMachine::GatherInputs() {
  if (invocation_.started) return;
  const VMFunction& function = *invocation_.function;
  std::vector<InputHandle>& handles = input_handles_[invocation_.name];
  handles.resize(function.params.size());
  for (size_t i = 0; i < handles.size(); ++i) {
    if (handles[i].value.defined()) continue;
    const ObjectRef& given = (*invocation_.inputs)[i];
    if (!given.defined()) {
      ThrowError("UsageError", "input '" + function.params[i] + "' of function '" +
                                   invocation_.name +
                                   "' is not set: call set_input or set_one_input first");
    }
    const uint64_t copies = engine_->copies();
    handles[i].value = FromCaller(given, {Origin::kInput, static_cast<uint32_t>(i)});
    handles[i].is_copy = engine_->copies() != copies;
  }
  AllowOverwrites(handles);
  if (events_) {
    for (size_t i = 0; i < handles.size(); ++i) {
      StorageId storage = StorageOf(handles[i].value);
      if (storage != kNone) events_->Input(storage, static_cast<uint32_t>(i));
    }
  }
  PushFrame(function, 0);
  for (size_t i = 0; i < handles.size(); ++i) Register(static_cast<RegName>(i)) = handles[i].value;
  invocation_.started = true;
}

void DtrVirtualMachine::AllowOverwrites(const std::vector<InputHandle>& handles) {
  if (!invocation_.donated) return;
  for (size_t i = 0; i < handles.size(); ++i) {
    const auto* handle = handles[i].value.as<TensorHandleObj>();
    if (overwritten_[i] && handle && handle->tensor != kNone) {
      engine_->runtime().AllowOverwrite(handle->tensor);
    }
  }
}

ObjectRef DtrVirtualMachine::Finish() {
  auto enabled = set_outputs_enabled_.find(invocation_.name);
  if (enabled != set_outputs_enabled_.end() && enabled->second) {
    CopyToGivenOutputs(invocation_.name);
    enabled->second = false;
  } else {
    return_register_ = ToCaller(result_);
    if (invocation_.name == "main") NameFields(return_register_);
  }
  return return_register_;
}

// kNone for what is no tensor or has no memory of its own.
StorageId DtrVirtualMachine::StorageOf(const ObjectRef& value) const {
  if (!value.defined() || !value->IsInstance<TensorHandleObj>()) return kNone;
  const TensorId tensor = static_cast<const TensorHandleObj*>(value.get())->tensor;
  return tensor == kNone ? kNone : engine_->runtime().graph().tensor(tensor).storage;
}

void DtrVirtualMachine::TraceResults() {
  const auto* tuple = result_.as<ADTObj>();
  const size_t count = tuple ? tuple->size : 1;
  for (size_t i = 0; i < count; ++i) {
    StorageId storage = StorageOf(tuple ? (*tuple)[i] : result_);
    if (storage != kNone) events_->Output(storage, static_cast<uint32_t>(i));
  }
  events_->InvokeEnd(InvokeResult::kOk);
}

// The caller keeps some as the next invocation's inputs, and knows them by these names.
void DtrVirtualMachine::NameFields(const ObjectRef& results) {
  const auto* tuple = results.as<ADTObj>();
  if (!tuple || tuple->size != names_.size()) return;
  for (size_t i = 0; i < tuple->size; ++i) {
    const auto* array = (*tuple)[i].as<NDArray::ContainerType>();
    if (array) engine_->NameOutput(array->dl_tensor, static_cast<uint32_t>(i));
  }
}

void DtrVirtualMachine::CopyToGivenOutputs(const std::string& name) {
  std::vector<ObjectRef>& given = outputs_[name];
  std::vector<ObjectRef> values;
  const auto* tuple = result_.as<ADTObj>();
  if (tuple) {
    for (size_t i = 0; i < tuple->size; ++i) values.push_back((*tuple)[i]);
  } else {
    values.push_back(result_);
  }
  ICHECK_EQ(values.size(), given.size())
      << "Number of outside output tensors should be equal to model outputs number";
  for (size_t i = 0; i < values.size(); ++i) {
    const TensorHandleObj* handle = AsTensor(values[i]);
    auto array = tvm::runtime::Downcast<NDArray>(given[i]);
    ICHECK(tvm::runtime::TypeEqual(array->dtype, handle->dtype) &&
           tvm::runtime::GetDataSize(*array.operator->()) == handle->bytes())
        << "output tensor " << i << " that was set has another type or size than the result";
    array.CopyFromBytes(engine_->Data(*handle), handle->bytes());
  }
  return_register_ = tuple ? ADT(tuple->tag, given.begin(), given.end()) : given[0];
  given.clear();
}

void DtrVirtualMachine::DropInvocation() {
  result_ = ObjectRef();
  registers_.clear();
  calls_.clear();
  base_ = 0;
  invocation_ = Invocation();
}

void DtrVirtualMachine::RethrowBudgetError(const BudgetError& error) {
  std::string kernel = error.kernel == kNone && invocation_.function ? KernelName() : "";
  if (error.kernel != kNone) kernel = engine_->executor().kernels()[error.kernel].name;
  auto name = [this](TensorId t) { return OriginName(t); };
  throw CallerError(BudgetMessage(error, kernel), DescribeError(error, name, kernel));
}

std::string DtrVirtualMachine::KernelName() const {
  if (!invocation_.started || code_[pc_].op != tvm::runtime::vm::Opcode::InvokePacked) return "";
  const size_t kernel = first_kernel_ + static_cast<size_t>(code_[pc_].packed_index);
  return engine_->executor().kernels()[kernel].name;
}

std::string DtrVirtualMachine::OriginName(TensorId tensor) const {
  const KernelExecutor& executor = engine_->executor();
  Origin origin = executor.origin(tensor);
  switch (origin.kind) {
    case Origin::kKernel:
      return "output of " + engine_->executor().kernels()[origin.index].name;
    case Origin::kInput:
      return invocation_.function && origin.index < invocation_.function->params.size()
                 ? invocation_.function->params[origin.index]
                 : "input " + std::to_string(origin.index);
    case Origin::kConstant:
      return "constant " + std::to_string(origin.index);
    case Origin::kNamed:
      return names_[origin.index];
    default:
      return "host value";
  }
}

}  // namespace dtr::relay_vm
