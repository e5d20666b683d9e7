// Scratch memory of kernels, taken from the block that the runtime reserved for the op.
//
// Compiled kernels call TVMBackendAllocWorkspace and TVMBackendParallelLaunch through variables of
// their own library. The hooks point those variables here. Inside one of our ops the workspace
// comes from the op's block; anywhere else the calls go on to TVM's own functions, so a stock VM
// on the same library is undisturbed.
//
// Layout of a block: what the launching thread has allocated, then the rest in equal slices, one
// for each task of a parallel launch. A kernel that allocates S bytes serially and T bytes in each
// of n tasks needs S + n * T.
#ifndef TVM_DTR_RELAY_VM_WORKSPACE_H_
#define TVM_DTR_RELAY_VM_WORKSPACE_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "core/arena.h"

namespace dtr::relay_vm {

// A thread's stack of workspace allocations: storage scopes nest.
class WorkspaceStack {
 public:
  // Of an op: the block reserved for it.
  explicit WorkspaceStack(const Block& block);
  // Of one task of a parallel launch: its slice of what the launching stack has left.
  WorkspaceStack(WorkspaceStack* launcher, int task, int tasks);

  // For measuring: memory comes from TVM and only sizes are kept.
  static WorkspaceStack* NewMeasuring();

  void* Allocate(int device_type, int device_id, uint64_t bytes, int code, int bits);
  int Free(int device_type, int device_id, void* data);

  // Bytes that the op's block would have needed at the first refused request; 0 if none was.
  uint64_t needed() const { return needed_.load(std::memory_order_relaxed); }
  uint64_t peak() const { return peak_.load(std::memory_order_relaxed); }

  static thread_local WorkspaceStack* current;

 private:
  struct Entry {
    void* data;  // null: freed
    uint64_t bytes;
  };
  static constexpr size_t kInline = 64;

  Entry& entry(size_t i) { return i < kInline ? entries_[i] : deep_[i - kInline]; }
  void Push(Entry pushed);
  void RaiseTo(std::atomic<uint64_t>* value, uint64_t bytes);
  uint64_t OpBytes(uint64_t top) const {
    return launcher_ ? launcher_->OpBytes(launcher_->top_ + tasks_ * top) : top;
  }

  WorkspaceStack* launcher_ = nullptr;
  WorkspaceStack* root_ = this;
  bool measuring_ = false;
  char* base_ = nullptr;
  uint64_t size_ = 0;
  uint64_t top_ = 0;
  uint64_t tasks_ = 1;
  size_t depth_ = 0;
  std::atomic<uint64_t> needed_{0}, peak_{0};  // of the root
  Entry entries_[kInline];
  std::vector<Entry> deep_;  // those from kInline on: unrolled kernels have hundreds
};

// The hooked variables of the loaded kernel libraries.
class WorkspaceHooks {
 public:
  // Finds and hooks every loaded library of kernels. True if all of `kernels` are in such
  // libraries; kernels compiled in memory (JIT) are not, and keep TVM's workspace, uncounted.
  bool Install(const std::vector<std::string>& kernels);
  // Hooks one loaded library; false if `path` is not loaded or one of `kernels` is not in it.
  bool InstallPath(const std::string& path, const std::vector<std::string>& kernels = {});
  // Loading a library again makes TVM write its own functions back: hook again, cheaply.
  void Refresh();

 private:
  struct Library {
    void** allocate;
    void** free;
    void** launch;
  };
  void HookLibrary(void* handle);
  std::vector<Library> libraries_;
};

}  // namespace dtr::relay_vm

#endif  // TVM_DTR_RELAY_VM_WORKSPACE_H_
