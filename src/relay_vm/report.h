// What the VM tells in JSON: errors and counters.
#ifndef TVM_DTR_RELAY_VM_REPORT_H_
#define TVM_DTR_RELAY_VM_REPORT_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/errors.h"

namespace dtr::relay_vm {

using TensorName = std::function<std::string(TensorId)>;

// One line; `kernel` is the name of the op that ran out of memory, "" if none was running.
std::string BudgetMessage(const BudgetError& error, const std::string& kernel);

std::string DescribeError(const BudgetError& error, const TensorName& name,
                          const std::string& kernel);
std::string DescribeError(const ThrashError& error);
std::string DescribeError(const std::string& kind, const std::string& message);

// {"key": value, ...}
std::string NumbersJson(const std::vector<std::pair<const char*, double>>& seconds,
                        const std::vector<std::pair<const char*, uint64_t>>& counts);

}  // namespace dtr::relay_vm

#endif  // TVM_DTR_RELAY_VM_REPORT_H_
