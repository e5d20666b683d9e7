// The functions of the VM's module: TVM's own names, then ours.
//
// set_input, set_one_input, set_outputs, get_output, get_num_outputs, get_input_index, init,
// invoke_stateful, invoke_return_to_device and load_late_bound_consts are the stock VM's, which
// call `invoke` through the module and so end up here.
#include <tvm/runtime/registry.h>

#include <algorithm>
#include <memory>

#include "relay_vm/lifetimes.h"
#include "relay_vm/report.h"
#include "relay_vm/vm.h"

namespace dtr::relay_vm {

using tvm::runtime::vm::VirtualMachine;

DtrVirtualMachine::~DtrVirtualMachine() {
  if (!engine_) return;
  try {
    Engine::Use use(engine_.get());
    Clear();
    constants_.clear();
    StopObserving();
  } catch (const std::exception&) {
    // Nobody is left to be told.
  }
}

void DtrVirtualMachine::LoadExecutable(const ObjectPtr<Executable>& executable) {
  RepairLifetimes(executable.get());
  VirtualMachine::LoadExecutable(executable);
  Configure(kUnlimited, "paged", RuntimeOptions());
  workspace_tracked_ = true;
  AddKernels();
}

void DtrVirtualMachine::AddKernels() {
  first_kernel_ = static_cast<KernelId>(engine_->executor().kernels().size());
  first_kernels_[exec_.get()] = first_kernel_;
  executables_.push_back(exec_);
  std::vector<std::string> names(packed_funcs_.size());
  for (const auto& [name, index] : exec_->primitive_map) names[static_cast<size_t>(index)] = name;
  for (size_t i = 0; i < names.size(); ++i) {
    engine_->executor().AddKernel(names[i], packed_funcs_[i]);
  }
  // Kernels compiled in memory keep the workspace of TVM, which nobody counts.
  const tvm::runtime::Module library = exec_->GetLib();
  const bool is_file = library.operator->() && std::string(library->type_key()) == "library";
  const bool tracked = names.empty() || (is_file && hooks_.Install(names));
  workspace_tracked_ = workspace_tracked_ && tracked;
}

void DtrVirtualMachine::UseLibrary(tvm::runtime::Module library, const std::string& path) {
  Engine::Use use(engine_.get());
  ICHECK(!invocation_.running) << "a kernel may not replace the kernels of its virtual machine";
  std::vector<Kernel>& kernels = engine_->executor().kernels();
  std::vector<std::string> names;
  std::vector<PackedFunc> functions;
  for (const Kernel& kernel : kernels) {
    names.push_back(kernel.name);
    functions.push_back(library.GetFunction(kernel.name, true));
  }
  auto missing = std::find(functions.begin(), functions.end(), nullptr);
  if (missing != functions.end() || !hooks_.InstallPath(path, names)) {
    ThrowError(
        "UsageError",
        "a memory budget needs all kernels in a shared library, so that their "
        "workspace counts, but some of this executable's are of another kind: give no budget");
  }
  for (size_t i = 0; i < kernels.size(); ++i) kernels[i].function = functions[i];
  packed_funcs_ = std::move(functions);
  workspace_tracked_ = true;
}

void DtrVirtualMachine::Follow(tvm::runtime::Module module) {
  Engine::Use use(engine_.get());
  ICHECK(!invocation_.running) << "a kernel may not change the virtual machine that runs it";
  auto* executable = dynamic_cast<Executable*>(module.operator->());
  ICHECK(executable != nullptr) << "expected a Relay VM executable";
  ICHECK(executable->primitive_map == exec_->primitive_map)
      << "an executable can take another's place only if it calls the same kernels";
  std::vector<PackedFunc> functions = packed_funcs_;
  TakePlace(tvm::runtime::GetObjectPtr<Executable>(executable));
  packed_funcs_ = std::move(functions);
}

void DtrVirtualMachine::TakePlace(const ObjectPtr<Executable>& executable) {
  Clear();
  constants_.clear();
  engine_->Settle();
  VirtualMachine::LoadExecutable(executable);
  overwrites_.clear();  // they were marks in the other one
  overwritten_.clear();
  engine_->runtime().FollowSchedule(false);
}

void DtrVirtualMachine::ChangeExecutable(tvm::runtime::Module module) {
  Engine::Use use(engine_.get());
  ICHECK(!invocation_.running) << "a kernel may not change the virtual machine that runs it";
  auto* raw = dynamic_cast<Executable*>(module.operator->());
  ICHECK(raw != nullptr) << "expected a Relay VM executable";
  auto executable = tvm::runtime::GetObjectPtr<Executable>(raw);
  const auto known = first_kernels_.find(raw);
  const bool is_new = known == first_kernels_.end();
  if (is_new) RepairLifetimes(raw);
  packed_funcs_.clear();
  TakePlace(executable);
  if (is_new) {
    AddKernels();
    CheckWorkspaceCounts(engine_->arena().capacity());
  } else {
    first_kernel_ = known->second;
  }
}

// Better no budget than one that does not hold.
void DtrVirtualMachine::CheckWorkspaceCounts(uint64_t budget_bytes) const {
  if (budget_bytes == kUnlimited || workspace_tracked_) return;
  ThrowError("UsageError",
             "a memory budget needs the kernels in a shared library, so that their workspace "
             "counts: export the executable's library and load it from its file");
}

void DtrVirtualMachine::Configure(uint64_t budget_bytes, const std::string& arena,
                                  const RuntimeOptions& options) {
  CheckWorkspaceCounts(budget_bytes);
  std::vector<Kernel> kernels;
  if (engine_) {
    Engine::Use use(engine_.get());
    ICHECK(!invocation_.running) << "a kernel may not configure the virtual machine that runs it";
    Clear();
    constants_.clear();
    StopObserving();
    kernels = engine_->executor().kernels();
  }
  engine_ = std::make_shared<Engine>(MakeArena(arena, budget_bytes, /*backed=*/true), options);
  engine_->executor().kernels() = std::move(kernels);
}

void DtrVirtualMachine::CheckDevices() const {
  ICHECK(!devices_.empty()) << "Did you forget to init the VirtualMachine with devices?";
  for (const DLDevice& device : devices_) {
    ICHECK(device.device_type == kDLCPU)
        << "the virtual machine runs on the CPU so far; device type " << device.device_type
        << " is not supported: compile for llvm";
  }
}

void DtrVirtualMachine::SetCosts(const NDArray& cost_ns, const NDArray& workspace_bytes,
                                 double invocation_ns) {
  Engine::Use use(engine_.get());
  Kernel* kernels = engine_->executor().kernels().data() + first_kernel_;
  std::vector<double> costs(kernel_count());
  std::vector<int64_t> workspaces(kernel_count());
  cost_ns.CopyToBytes(costs.data(), costs.size() * sizeof(double));
  workspace_bytes.CopyToBytes(workspaces.data(), workspaces.size() * sizeof(int64_t));
  for (size_t i = 0; i < kernel_count(); ++i) {
    kernels[i].cost_ns = costs[i];
    kernels[i].workspace_known = workspaces[i] >= 0;
    if (workspaces[i] >= 0) kernels[i].workspace_bytes = static_cast<uint64_t>(workspaces[i]);
  }
  invocation_cost_ns_ = invocation_ns;
}

uint64_t DtrVirtualMachine::SetBudget(uint64_t bytes) {
  Engine::Use use(engine_.get());
  CheckWorkspaceCounts(bytes);
  try {
    return engine_->runtime().SetBudget(bytes);
  } catch (const BudgetError& error) {
    RethrowBudgetError(error);
  }
}

NDArray DtrVirtualMachine::CopyIn(const NDArray& array, const std::string& name) {
  Engine::Use use(engine_.get());
  CheckDevices();
  try {
    NDArray copy = engine_->CopyToArena(array);
    auto found = std::find(names_.begin(), names_.end(), name);
    if (found != names_.end()) {
      engine_->NameOutput(*copy.operator->(), static_cast<uint32_t>(found - names_.begin()));
    }
    return copy;
  } catch (const BudgetError& error) {
    RethrowBudgetError(error);
  }
}

void DtrVirtualMachine::NameResults(TVMArgs args) {
  Engine::Use use(engine_.get());
  names_.clear();
  for (int i = 0; i < args.num_args; ++i) names_.push_back(args[i]);
}

void DtrVirtualMachine::SetOverwrites(const NDArray& marks, bool scheduled) {
  Engine::Use use(engine_.get());
  engine_->runtime().FollowSchedule(scheduled);
  const VMFunction& main = exec_->GetVMFunctionWithName("main");
  std::vector<int64_t> values(static_cast<size_t>(marks->shape[0]) * 2);
  marks.CopyToBytes(values.data(), values.size() * sizeof(int64_t));
  std::vector<size_t> calls;
  for (size_t pc = 0; pc < main.instructions.size(); ++pc) {
    if (main.instructions[pc].op == tvm::runtime::vm::Opcode::InvokePacked) calls.push_back(pc);
  }
  overwrites_.assign(main.instructions.size(), -1);
  overwritten_.assign(main.params.size(), false);
  for (size_t i = 0; i < values.size(); i += 2) {
    const size_t pc = calls.at(static_cast<size_t>(values[i]));
    const Instruction& in = main.instructions[pc];
    ICHECK(in.output_size == 1 && values[i + 1] >= 0 && values[i + 1] + 1 < in.arity);
    overwrites_[pc] = values[i + 1];
    const RegName parameter = in.packed_args[values[i + 1]];
    overwritten_.at(static_cast<size_t>(parameter)) = true;
  }
}

void DtrVirtualMachine::Clear() {
  Engine::Use use(engine_.get());
  ICHECK(!invocation_.running) << "a kernel may not clear the virtual machine that runs it";
  DropInvocation();
  return_register_ = ObjectRef();
  input_handles_.clear();
  inputs_.clear();
  outputs_.clear();
  set_outputs_enabled_.clear();
  engine_->Settle();
}

void DtrVirtualMachine::Attempt(TVMArgs args, TVMRetValue* rv) {
  PackedFunc function = GetFunction(args[0], tvm::runtime::GetObjectPtr<Object>(this));
  try {
    function.CallPacked(TVMArgs(args.values + 1, args.type_codes + 1, args.num_args - 1), rv);
  } catch (const CallerError& error) {
    *rv = String(error.details);
  }
}

PackedFunc DtrVirtualMachine::GetFunction(const String& name, const ObjectPtr<Object>& self) {
  using Body = void (*)(DtrVirtualMachine*, TVMArgs, TVMRetValue*);
  static const std::unordered_map<std::string, Body> kOwn = {
      {"invoke", [](DtrVirtualMachine* vm, TVMArgs args,
                    TVMRetValue* rv) { *rv = vm->InvokeFunction(args[0], false); }},
      {"invoke_donated", [](DtrVirtualMachine* vm, TVMArgs args,
                            TVMRetValue* rv) { *rv = vm->InvokeFunction(args[0], true); }},
      {"set_overwrites", [](DtrVirtualMachine* vm, TVMArgs args,
                            TVMRetValue*) { vm->SetOverwrites(args[0], args[1]); }},
      {"accept_state", [](DtrVirtualMachine* vm, TVMArgs, TVMRetValue*) { vm->AcceptState(); }},
      {"resume", [](DtrVirtualMachine* vm, TVMArgs, TVMRetValue* rv) { *rv = vm->Resume(); }},
      {"configure",
       [](DtrVirtualMachine* vm, TVMArgs args, TVMRetValue*) {
         RuntimeOptions options;
         options.policy = args[1].operator std::string();
         options.seed = static_cast<uint64_t>(args[2].operator int64_t());
         options.thrash_limit = args[3];
         options.dispatch_cost = kDispatchCost;
         int64_t budget = args[0];
         std::string arena = args.num_args > 4 ? args[4].operator std::string() : "paged";
         vm->Configure(budget < 0 ? kUnlimited : static_cast<uint64_t>(budget), arena, options);
       }},
      {"set_budget",
       [](DtrVirtualMachine* vm, TVMArgs args, TVMRetValue* rv) {
         int64_t bytes = args[0];
         uint64_t old = vm->SetBudget(bytes < 0 ? kUnlimited : static_cast<uint64_t>(bytes));
         *rv = old > INT64_MAX ? int64_t{-1} : static_cast<int64_t>(old);
       }},
      {"use_library",
       [](DtrVirtualMachine* vm, TVMArgs args, TVMRetValue*) { vm->UseLibrary(args[0], args[1]); }},
      {"workspace_tracked",
       [](DtrVirtualMachine* vm, TVMArgs, TVMRetValue* rv) { *rv = vm->workspace_tracked_; }},
      {"set_costs", [](DtrVirtualMachine* vm, TVMArgs args,
                       TVMRetValue*) { vm->SetCosts(args[0], args[1], args[2]); }},
      {"kernel_times",
       [](DtrVirtualMachine* vm, TVMArgs, TVMRetValue* rv) { *rv = vm->KernelTimes(); }},
      {"set_policy",
       [](DtrVirtualMachine* vm, TVMArgs args, TVMRetValue*) {
         Engine::Use use(vm->engine_.get());
         ICHECK(!vm->invocation_.running) << "a kernel may not change the policy";
         vm->engine_->runtime().SetPolicy(
             MakePolicy(args[0], "heap", static_cast<uint64_t>(args[1].operator int64_t())));
       }},
      {"stats", [](DtrVirtualMachine* vm, TVMArgs, TVMRetValue* rv) { *rv = vm->StatsJson(); }},
      {"attempt",
       [](DtrVirtualMachine* vm, TVMArgs args, TVMRetValue* rv) { vm->Attempt(args, rv); }},
      {"copy_in", [](DtrVirtualMachine* vm, TVMArgs args,
                     TVMRetValue* rv) { *rv = vm->CopyIn(args[0], args[1]); }},
      {"change_executable",
       [](DtrVirtualMachine* vm, TVMArgs args, TVMRetValue*) { vm->ChangeExecutable(args[0]); }},
      {"follow", [](DtrVirtualMachine* vm, TVMArgs args, TVMRetValue*) { vm->Follow(args[0]); }},
      {"name_results",
       [](DtrVirtualMachine* vm, TVMArgs args, TVMRetValue*) { vm->NameResults(args); }},
      {"clear", [](DtrVirtualMachine* vm, TVMArgs, TVMRetValue*) { vm->Clear(); }},
      {"trace_memory", [](DtrVirtualMachine* vm, TVMArgs args,
                          TVMRetValue* rv) { *rv = vm->TraceMemory(args[0].operator bool()); }},
      {"trace_events", [](DtrVirtualMachine* vm, TVMArgs args,
                          TVMRetValue*) { vm->TraceEvents(args[0], args[1]); }},
      {"stop_tracing_events",
       [](DtrVirtualMachine* vm, TVMArgs, TVMRetValue* rv) { *rv = vm->StopTracingEvents(); }},
      {"trace_step",
       [](DtrVirtualMachine* vm, TVMArgs args, TVMRetValue*) {
         Engine::Use use(vm->engine_.get());
         if (vm->events_) vm->events_->Step(static_cast<uint32_t>(args[0].operator int64_t()));
       }},
      {"trace_step_end",
       [](DtrVirtualMachine* vm, TVMArgs args, TVMRetValue*) {
         Engine::Use use(vm->engine_.get());
         if (!vm->events_) return;
         vm->events_->StepEnd(static_cast<uint32_t>(args[0].operator int64_t()), args[1]);
       }},
      {"trace_note",
       [](DtrVirtualMachine* vm, TVMArgs args, TVMRetValue*) {
         Engine::Use use(vm->engine_.get());
         if (vm->events_) vm->events_->Note(args[0]);
       }},
      {"profile_kernels",
       [](DtrVirtualMachine* vm, TVMArgs args, TVMRetValue* rv) {
         *rv = vm->ProfileKernels(args[0].operator bool());
       }},
      {"kernel_names",
       [](DtrVirtualMachine* vm, TVMArgs, TVMRetValue* rv) {
         std::string names;
         const Kernel* kernels = vm->engine_->executor().kernels().data() + vm->first_kernel_;
         for (size_t i = 0; i < vm->kernel_count(); ++i) names += kernels[i].name + "\n";
         *rv = names;
       }},
      {"reset_peak",
       [](DtrVirtualMachine* vm, TVMArgs, TVMRetValue*) {
         Engine::Use use(vm->engine_.get());
         vm->engine_->arena().ResetPeak();
         vm->engine_->executor().ResetPeak();
       }},
      {"reset_stats",
       [](DtrVirtualMachine* vm, TVMArgs, TVMRetValue*) {
         Engine::Use use(vm->engine_.get());
         vm->engine_->runtime().ResetStats();
         vm->engine_->executor().ResetTimes();
         vm->instructions_ = vm->invocations_ = 0;
       }},
      {"validate",
       [](DtrVirtualMachine* vm, TVMArgs, TVMRetValue*) {
         Engine::Use use(vm->engine_.get());
         vm->engine_->runtime().Validate();
       }},
  };
  auto own = kOwn.find(name);
  if (own != kOwn.end()) {
    return PackedFunc(
        [self, this, body = own->second](TVMArgs args, TVMRetValue* rv) { body(this, args, rv); });
  }
  PackedFunc stock = VirtualMachine::GetFunction(name, self);
  return PackedFunc([self, this, stock, key = std::string(name)](TVMArgs args, TVMRetValue* rv) {
    Engine::Use use(engine_.get());
    BeforeStockFunction(key, args);
    stock.CallPacked(args, rv);
  });
}

// Keeps what the stock function is about to change in step with ours.
void DtrVirtualMachine::BeforeStockFunction(const std::string& name, TVMArgs args) {
  const bool sets_all = name == "set_input" || name == "invoke_return_to_device";
  if (!sets_all && name != "set_one_input" && name != "init") return;
  ICHECK(!invocation_.running) << "a kernel may not change the virtual machine that runs it";
  DropInvocation();
  if (name == "init") {
    devices_.clear();
    allocators_.clear();
    return;
  }
  auto handles = input_handles_.find(args[0].operator std::string());
  if (handles == input_handles_.end()) return;
  if (sets_all) {
    input_handles_.erase(handles);
    return;
  }
  int64_t index = args[1].type_code() == kDLInt
                      ? args[1].operator int64_t()
                      : GetFunction("get_input_index", nullptr)(args[1], args[0]);
  if (index >= 0 && static_cast<size_t>(index) < handles->second.size()) {
    handles->second[static_cast<size_t>(index)] = InputHandle();
  }
}

TVM_REGISTER_GLOBAL("tvm_dtr.vm").set_body([](TVMArgs args, TVMRetValue* rv) {
  tvm::runtime::Module module = args[0];
  auto* executable = dynamic_cast<Executable*>(module.operator->());
  ICHECK(executable) << "expected a Relay VM executable";
  auto vm = tvm::runtime::make_object<DtrVirtualMachine>();
  vm->LoadExecutable(tvm::runtime::GetObjectPtr<Executable>(executable));
  *rv = tvm::runtime::Module(vm);
});

}  // namespace dtr::relay_vm
