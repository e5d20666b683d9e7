// A kernel to run. The core calls it for the first execution of an op and for every
// rematerialization; it knows nothing else of devices.
#ifndef TVM_DTR_CORE_EXECUTOR_H_
#define TVM_DTR_CORE_EXECUTOR_H_

#include "core/arena.h"
#include "core/types.h"

namespace dtr {

struct KernelCall {
  OpId op;
  KernelId kernel;
  Span<TensorId> inputs;    // with repetitions, in call order
  Span<TensorId> outputs;   // in call order
  Span<void*> input_data;   // storage base address of each input
  Span<void*> output_data;  // storage base address of each output
  Block workspace;          // empty if the op needs none
  bool rematerialization;   // false on the op's first execution
};

class Executor {
 public:
  virtual ~Executor() = default;
  // Runs the kernel to completion (or orders it on the stream). May throw; the runtime then
  // releases what the op had gathered and passes the exception on.
  virtual void Run(const KernelCall& call) = 0;
  // How long the run that just ended took; not told where RuntimeOptions::measure_time is off.
  virtual void Measured(const KernelCall& call, double seconds) {}
  // The tensor's record is gone; its id will be used again.
  virtual void Forget(TensorId tensor) {}
};

}  // namespace dtr

#endif  // TVM_DTR_CORE_EXECUTOR_H_
