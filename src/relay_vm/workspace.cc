#include "relay_vm/workspace.h"

#include <dlfcn.h>
#include <link.h>
#include <tvm/runtime/c_backend_api.h>
#include <tvm/runtime/c_runtime_api.h>
#include <tvm/runtime/registry.h>

#include <algorithm>
#include <memory>

namespace dtr::relay_vm {
namespace {

constexpr uint64_t kAlignment = 64;

uint64_t Align(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

void* HookedAllocate(int device_type, int device_id, uint64_t bytes, int code, int bits) {
  if (WorkspaceStack* stack = WorkspaceStack::current) {
    return stack->Allocate(device_type, device_id, bytes, code, bits);
  }
  return TVMBackendAllocWorkspace(device_type, device_id, bytes, code, bits);
}

int HookedFree(int device_type, int device_id, void* data) {
  if (WorkspaceStack* stack = WorkspaceStack::current) {
    return stack->Free(device_type, device_id, data);
  }
  return TVMBackendFreeWorkspace(device_type, device_id, data);
}

struct Launch {
  FTVMParallelLambda lambda;
  void* data;
  WorkspaceStack* launcher;
};

int RunTask(int task, TVMParallelGroupEnv* env, void* data) {
  auto* launch = static_cast<Launch*>(data);
  WorkspaceStack stack(launch->launcher, task, env->num_task);
  WorkspaceStack* before = WorkspaceStack::current;
  WorkspaceStack::current = &stack;
  int status = launch->lambda(task, env, launch->data);
  WorkspaceStack::current = before;
  // TVM reads this thread's last error of a task that failed, and takes it that there is one.
  if (status != 0 && launch->launcher->needed() > 0) {
    TVMAPISetLastError("the kernel's workspace is too small");
  }
  return status;
}

int HookedLaunch(FTVMParallelLambda lambda, void* data, int tasks) {
  WorkspaceStack* stack = WorkspaceStack::current;
  if (!stack) return TVMBackendParallelLaunch(lambda, data, tasks);
  Launch launch{lambda, data, stack};
  return TVMBackendParallelLaunch(RunTask, &launch, tasks);
}

}  // namespace

thread_local WorkspaceStack* WorkspaceStack::current = nullptr;

WorkspaceStack::WorkspaceStack(const Block& block)
    : base_(static_cast<char*>(block.data)), size_(block.bytes) {}

WorkspaceStack::WorkspaceStack(WorkspaceStack* launcher, int task, int tasks)
    : launcher_(launcher),
      root_(launcher->root_),
      measuring_(launcher->measuring_),
      tasks_(static_cast<uint64_t>(tasks)) {
  uint64_t slice = (launcher->size_ - launcher->top_) / tasks_ / kAlignment * kAlignment;
  size_ = slice;
  base_ = launcher->base_ + launcher->top_ + slice * static_cast<uint64_t>(task);
}

WorkspaceStack* WorkspaceStack::NewMeasuring() {
  auto* stack = new WorkspaceStack(Block());
  stack->measuring_ = true;
  return stack;
}

void* WorkspaceStack::Allocate(int device_type, int device_id, uint64_t bytes, int code, int bits) {
  uint64_t rounded = Align(std::max<uint64_t>(bytes, 1));
  bool fits = measuring_ || top_ + rounded <= size_;
  if (!fits) {
    RaiseTo(&root_->needed_, OpBytes(top_ + rounded));
    return nullptr;  // the kernel gives up; the op reports how much was missing
  }
  void* data = measuring_ ? TVMBackendAllocWorkspace(device_type, device_id, bytes, code, bits)
                          : base_ + top_;
  Push({data, rounded});
  top_ += rounded;
  if (measuring_) RaiseTo(&root_->peak_, OpBytes(top_));
  return data;
}

void WorkspaceStack::Push(Entry pushed) {
  if (depth_ >= kInline && deep_.size() <= depth_ - kInline) deep_.resize(2 * depth_);
  entry(depth_++) = pushed;
}

// Two allocations of one scope may be freed in either order: what lies under another waits for it.
int WorkspaceStack::Free(int device_type, int device_id, void* data) {
  for (size_t i = depth_; i-- > 0;) {
    if (entry(i).data != data) continue;
    entry(i).data = nullptr;
    break;
  }
  while (depth_ > 0 && entry(depth_ - 1).data == nullptr) top_ -= entry(--depth_).bytes;
  return measuring_ ? TVMBackendFreeWorkspace(device_type, device_id, data) : 0;
}

void WorkspaceStack::RaiseTo(std::atomic<uint64_t>* value, uint64_t bytes) {
  uint64_t seen = value->load(std::memory_order_relaxed);
  while (seen < bytes && !value->compare_exchange_weak(seen, bytes, std::memory_order_relaxed)) {
  }
}

void WorkspaceHooks::HookLibrary(void* handle) {
  auto variable = [&](const char* name) { return static_cast<void**>(dlsym(handle, name)); };
  Library library{variable("__TVMBackendAllocWorkspace"), variable("__TVMBackendFreeWorkspace"),
                  variable("__TVMBackendParallelLaunch")};
  if (library.allocate || library.launch) libraries_.push_back(library);
}

bool WorkspaceHooks::Install(const std::vector<std::string>& kernels) {
  std::vector<std::string> paths;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        if (info->dlpi_name && *info->dlpi_name) {
          static_cast<std::vector<std::string>*>(data)->push_back(info->dlpi_name);
        }
        return 0;
      },
      &paths);
  std::vector<bool> found(kernels.size(), false);
  for (const std::string& path : paths) {
    void* handle = dlopen(path.c_str(), RTLD_NOLOAD | RTLD_LAZY);
    if (!handle) continue;
    bool ours = false;
    for (size_t i = 0; i < kernels.size(); ++i) {
      if (!dlsym(handle, kernels[i].c_str())) continue;
      found[i] = ours = true;
    }
    // A library of ours keeps its extra reference: the variables must stay where they are.
    if (ours) {
      HookLibrary(handle);
    } else {
      dlclose(handle);
    }
  }
  Refresh();
  return std::all_of(found.begin(), found.end(), [](bool f) { return f; });
}

// The variables belong to the library, which other virtual machines may be running in other
// threads: what is there already is left alone, and what is not is written whole.
void WorkspaceHooks::Refresh() {
  auto point = [](void** variable, void* to) {
    if (!variable || __atomic_load_n(variable, __ATOMIC_RELAXED) == to) return;
    __atomic_store_n(variable, to, __ATOMIC_RELAXED);
  };
  for (const Library& library : libraries_) {
    point(library.allocate, reinterpret_cast<void*>(&HookedAllocate));
    point(library.free, reinterpret_cast<void*>(&HookedFree));
    point(library.launch, reinterpret_cast<void*>(&HookedLaunch));
  }
}

bool WorkspaceHooks::InstallPath(const std::string& path, const std::vector<std::string>& kernels) {
  void* handle = dlopen(path.c_str(), RTLD_NOLOAD | RTLD_LAZY);
  if (!handle) return false;
  for (const std::string& kernel : kernels) {
    if (!dlsym(handle, kernel.c_str())) return false;
  }
  HookLibrary(handle);
  Refresh();
  return true;
}

// measure_workspace(library path, "begin"), calls of that library's kernels on this thread, then
// measure_workspace(library path, "end") -> the bytes that a block for these calls needs.
TVM_REGISTER_GLOBAL("tvm_dtr.measure_workspace")
    .set_body_typed([](std::string path, std::string phase) -> int64_t {
      static thread_local std::unique_ptr<WorkspaceStack> measuring;
      if (phase == "begin") {
        WorkspaceHooks hooks;
        ICHECK(hooks.InstallPath(path))
            << path << " is not loaded: export the module and load it from its .so file";
        measuring.reset(WorkspaceStack::NewMeasuring());
        WorkspaceStack::current = measuring.get();
        return 0;
      }
      ICHECK(phase == "end" && measuring) << "measure_workspace: expected begin, then end";
      WorkspaceStack::current = nullptr;
      int64_t peak = static_cast<int64_t>(measuring->peak());
      measuring.reset();
      return peak;
    });

}  // namespace dtr::relay_vm
