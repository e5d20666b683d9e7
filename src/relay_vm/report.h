// What the VM tells in JSON: errors and counters.
#ifndef TVM_DTR_RELAY_VM_REPORT_H_
#define TVM_DTR_RELAY_VM_REPORT_H_

#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/errors.h"

namespace dtr::relay_vm {

// What the caller is told: `details` is a JSON object with the kind, the message and what else
// there is. Module function `attempt` hands it over as a value: an exception of TVM's would tie
// its frames, and so the arrays in them, into a cycle.
class CallerError : public std::runtime_error {
 public:
  CallerError(const std::string& message, std::string details)
      : std::runtime_error(message), details(std::move(details)) {}
  std::string details;
};

using TensorName = std::function<std::string(TensorId)>;

// One line; `kernel` is the name of the op that ran out of memory, "" if none was running.
std::string BudgetMessage(const BudgetError& error, const std::string& kernel);

std::string DescribeError(const BudgetError& error, const TensorName& name,
                          const std::string& kernel);
std::string DescribeError(const ThrashError& error);
std::string DescribeError(const std::string& kind, const std::string& message);

[[noreturn]] void ThrowError(const std::string& kind, const std::string& message);

// {"key": value, ...}
std::string NumbersJson(const std::vector<std::pair<const char*, double>>& seconds,
                        const std::vector<std::pair<const char*, uint64_t>>& counts);

}  // namespace dtr::relay_vm

#endif  // TVM_DTR_RELAY_VM_REPORT_H_
