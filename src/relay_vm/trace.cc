#include "relay_vm/trace.h"

namespace dtr::relay_vm {

void MemoryTrace::Add(Kind kind, uint64_t active_bytes) {
  double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  for (double value : {seconds, static_cast<double>(active_bytes),
                       static_cast<double>(arena_->capacity()), static_cast<double>(kind)}) {
    samples_.push_back(value);
  }
}

tvm::runtime::NDArray MemoryTrace::Samples() const {
  auto rows = static_cast<int64_t>(samples_.size() / 4);
  auto array = tvm::runtime::NDArray::Empty({rows, 4}, {kDLFloat, 64, 1}, {kDLCPU, 0});
  if (rows > 0) array.CopyFromBytes(samples_.data(), samples_.size() * sizeof(double));
  return array;
}

}  // namespace dtr::relay_vm
