// Samples of memory in use over time, for pictures.
#ifndef TVM_DTR_RELAY_VM_TRACE_H_
#define TVM_DTR_RELAY_VM_TRACE_H_

#include <tvm/runtime/ndarray.h>

#include <chrono>
#include <vector>

#include "core/arena.h"
#include "core/runtime.h"

namespace dtr::relay_vm {

class MemoryTrace : public Observer {
 public:
  enum Kind { kMemory = 0, kRematerialization = 1, kEviction = 2 };

  explicit MemoryTrace(const Arena* arena) : arena_(arena), start_(Clock::now()) {}
  void OnRun(OpId, KernelId, bool rematerialization, double) override {
    if (rematerialization) Add(kRematerialization, arena_->active());
  }
  void OnEvict(StorageId, bool eager) override {
    if (!eager) Add(kEviction, arena_->active());
  }
  void OnMemory(uint64_t active_bytes) override { Add(kMemory, active_bytes); }

  // float64 of shape (samples, 4): seconds since the start, active bytes, budget, kind.
  tvm::runtime::NDArray Samples() const;

 private:
  using Clock = std::chrono::steady_clock;
  void Add(Kind kind, uint64_t active_bytes);

  const Arena* arena_;
  Clock::time_point start_;
  std::vector<double> samples_;
};

}  // namespace dtr::relay_vm

#endif  // TVM_DTR_RELAY_VM_TRACE_H_
