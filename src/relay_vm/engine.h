// One VM's memory and history: arena, runtime, executor and the outputs that callers still hold.
// Shared by the VM and those outputs, whichever lives longest.
//
// Locking: everything but ReleaseOutput runs under an Engine::Use. The owner of an output may drop
// it on any thread, at any moment, even from inside a kernel; such releases wait in a list until
// no call is at work, so dropping an output never blocks and never re-enters the runtime.
#ifndef TVM_DTR_RELAY_VM_ENGINE_H_
#define TVM_DTR_RELAY_VM_ENGINE_H_

#include <atomic>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/arena.h"
#include "core/runtime.h"
#include "relay_vm/handles.h"
#include "relay_vm/kernel_executor.h"

namespace dtr::relay_vm {

class Engine : public std::enable_shared_from_this<Engine> {
 public:
  // Of all `arena` gives out the engine keeps account; it lives as long as the last output.
  Engine(std::unique_ptr<Arena> arena, const RuntimeOptions& options)
      : arena_(std::move(arena)), runtime_(arena_.get(), &executor_, options) {}

  // Exclusive use by one thread; may nest on it.
  class Use {
   public:
    explicit Use(Engine* engine);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    std::shared_ptr<Engine> engine_;
  };

  Runtime& runtime() { return runtime_; }
  Arena& arena() { return *arena_; }
  KernelExecutor& executor() { return executor_; }

  void Release(TensorId tensor) { runtime_.Release(tensor); }
  void ReleaseStorage(StorageId storage) { runtime_.ReleaseStorage(storage); }
  // Does what has been put off while the runtime was at work. Cheap when there is nothing.
  void Settle() {
    if (waiting_.load(std::memory_order_relaxed) || !executor_.forgotten().empty()) DoSettle();
  }

  // Gives a host value or an external array its core tensor, without a copy.
  void EnsureTensor(TensorHandleObj* handle, Origin origin);
  // The tensor's first byte, in memory until the runtime's next call.
  void* Data(const TensorHandleObj& handle);

  // Makes the tensor the caller's: an array on the arena's own memory.
  tvm::runtime::NDArray MakeOutput(const TensorHandleObj& handle);
  // A handle on an array of the caller's: without a copy if it lies in one of our outputs or is
  // aligned, else on a copy in the arena.
  TensorHandle FromCaller(const tvm::runtime::NDArray& array, Origin origin);

  // Arrays copied in so far: a copy does not follow what the caller writes into the original.
  uint64_t copies() const { return copies_; }
  // A copy of the array in the arena, the caller's to keep.
  tvm::runtime::NDArray CopyToArena(const tvm::runtime::NDArray& array);

  // Names an output for messages, as long as it lives; false if the array is none.
  bool NameOutput(const DLTensor& array, uint32_t name);

  size_t live_outputs() const { return outputs_.size(); }

 private:
  struct OutputContainer;
  // A storage that the caller holds: its arrays, and a reference that lets them come back.
  struct LiveOutput {
    TensorId tensor;
    uint64_t bytes;
    uint32_t arrays;
  };
  struct Released {
    TensorId tensor;
    void* base;
  };

  static void DeleteOutput(tvm::runtime::Object* object);
  void ReleaseOutput(const Released& released);
  void DoSettle();
  // Where nothing may be thrown, as in destructors: what has failed, the next Use throws.
  void SettleQuietly() noexcept;
  void Drop(const Released& released);
  bool FindOutput(const void* data, uint64_t bytes, TensorHandleObj* handle, Origin origin);
  void CopyIn(const tvm::runtime::NDArray& array, TensorHandleObj* handle, Origin origin);

  uint64_t copies_ = 0;
  std::recursive_mutex mutex_;
  int uses_ = 0;
  std::mutex waiting_mutex_;
  std::atomic<bool> waiting_{false};
  std::vector<Released> released_;
  std::exception_ptr failure_;  // of SettleQuietly

  std::unique_ptr<Arena> arena_;
  KernelExecutor executor_;
  Runtime runtime_;
  std::map<const char*, LiveOutput> outputs_;  // by the storage's first byte
};

}  // namespace dtr::relay_vm

#endif  // TVM_DTR_RELAY_VM_ENGINE_H_
