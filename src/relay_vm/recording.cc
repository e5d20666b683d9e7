// What the VM tells of itself: statistics, memory over time, event traces, the kernels' times.
#include <tvm/runtime/registry.h>

#include <memory>

#include "relay_vm/report.h"
#include "relay_vm/vm.h"

namespace dtr::relay_vm {

NDArray DtrVirtualMachine::KernelTimes() const {
  Engine::Use use(engine_.get());
  std::vector<double> times;
  const Kernel* kernels = engine_->executor().kernels().data() + first_kernel_;
  for (size_t i = 0; i < kernel_count(); ++i) {
    times.push_back(kernels[i].seconds);
    times.push_back(static_cast<double>(kernels[i].runs));
  }
  auto rows = static_cast<int64_t>(times.size() / 2);
  NDArray array = NDArray::Empty({rows, 2}, {kDLFloat, 64, 1}, {kDLCPU, 0});
  if (rows > 0) array.CopyFromBytes(times.data(), times.size() * sizeof(double));
  return array;
}

std::string DtrVirtualMachine::StatsJson() const {
  Engine::Use use(engine_.get());
  const Runtime& runtime = engine_->runtime();
  const Stats& s = runtime.stats();
  const Arena& arena = engine_->arena();
  return NumbersJson({{"compute_cost", s.compute_cost},
                      {"remat_cost", s.remat_cost},
                      {"compute_seconds", s.compute_seconds},
                      {"remat_seconds", s.remat_seconds},
                      {"search_seconds", s.search_seconds},
                      {"placing_seconds", s.placing_seconds}},
                     {{"calls", s.calls},
                      {"rematerializations", s.rematerializations},
                      {"evictions", s.evictions},
                      {"eager_evictions", s.eager_evictions},
                      {"overwrites", s.overwrites},
                      {"copies_on_write", s.copies_on_write},
                      {"instructions", instructions_},
                      {"invocations", invocations_},
                      {"budget_bytes", arena.capacity()},
                      {"active_bytes", arena.active()},
                      {"mapped_bytes", arena.mapped()},
                      {"peak_active_bytes", arena.peak_active()},
                      {"peak_mapped_bytes", arena.peak_mapped()},
                      {"pinned_bytes", runtime.pinned_bytes()},
                      {"largest_free_bytes", arena.largest_free()},
                      {"workspace_bytes", engine_->executor().peak_workspace()},
                      {"workspace_tracked", workspace_tracked_},
                      {"live_storages", runtime.graph().live_storages()},
                      {"live_tensors", runtime.graph().live_tensors()},
                      {"live_ops", runtime.graph().live_ops()},
                      {"live_outputs", engine_->live_outputs()}});
}

ObjectRef DtrVirtualMachine::TraceMemory(bool on) {
  Engine::Use use(engine_.get());
  ObjectRef samples;
  if (trace_) samples = trace_->Samples();
  Observe(&trace_, on ? std::make_unique<MemoryTrace>(&engine_->arena()) : nullptr);
  return samples;
}

void DtrVirtualMachine::TraceEvents(const std::string& path, const std::string& header) {
  Engine::Use use(engine_.get());
  ICHECK(!invocation_.running) << "a kernel may not trace the virtual machine that runs it";
  StopTracingEvents();
  try {
    events_ = std::make_unique<EventTrace>(path, header, &engine_->runtime());
  } catch (const std::runtime_error& error) {
    ThrowError("UsageError", error.what());
  }
  engine_->runtime().AddObserver(events_.get());
}

std::string DtrVirtualMachine::StopTracingEvents() {
  Engine::Use use(engine_.get());
  if (!events_) return "";
  engine_->runtime().RemoveObserver(events_.get());
  std::string failure = events_->Flush();
  events_.reset();
  return failure;
}

void DtrVirtualMachine::StopObserving() {
  Observe<MemoryTrace>(&trace_, nullptr);
  Observe<KernelProfile>(&profile_, nullptr);
  StopTracingEvents();
}

ObjectRef DtrVirtualMachine::ProfileKernels(bool on) {
  Engine::Use use(engine_.get());
  ObjectRef rows;
  if (profile_) rows = profile_->Rows();
  const size_t kernels = engine_->executor().kernels().size();
  Observe(&profile_, on ? std::make_unique<KernelProfile>(kernels) : nullptr);
  return rows;
}

}  // namespace dtr::relay_vm
