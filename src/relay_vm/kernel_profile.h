// Calls and time of each kernel, for tables of where a step's time goes.
#ifndef TVM_DTR_RELAY_VM_KERNEL_PROFILE_H_
#define TVM_DTR_RELAY_VM_KERNEL_PROFILE_H_

#include <tvm/runtime/ndarray.h>

#include <cstdint>
#include <vector>

#include "core/runtime.h"

namespace dtr::relay_vm {

class KernelProfile : public Observer {
 public:
  explicit KernelProfile(size_t kernels) : totals_(kernels) {}

  void OnRun(OpId, KernelId kernel, bool rematerialization, double seconds) override {
    if (kernel >= totals_.size()) totals_.resize(kernel + 1);  // of an executable come since
    Totals& totals = totals_[kernel];
    totals.runs[rematerialization]++;
    totals.seconds[rematerialization] += seconds;
  }

  // float64 of shape (kernels, 4): runs of the model's own, their seconds, runs again, theirs.
  tvm::runtime::NDArray Rows() const {
    std::vector<double> rows;
    for (const Totals& totals : totals_) {
      for (int again : {0, 1}) {
        rows.push_back(static_cast<double>(totals.runs[again]));
        rows.push_back(totals.seconds[again]);
      }
    }
    auto array = tvm::runtime::NDArray::Empty({static_cast<int64_t>(totals_.size()), 4},
                                              {kDLFloat, 64, 1}, {kDLCPU, 0});
    if (!rows.empty()) array.CopyFromBytes(rows.data(), rows.size() * sizeof(double));
    return array;
  }

 private:
  struct Totals {
    uint64_t runs[2] = {0, 0};  // first runs, rematerializations
    double seconds[2] = {0, 0};
  };
  std::vector<Totals> totals_;
};

}  // namespace dtr::relay_vm

#endif  // TVM_DTR_RELAY_VM_KERNEL_PROFILE_H_
