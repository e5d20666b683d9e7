// Typed errors of the core and the three tiers of checks.
//
//   user error       an exception below, with what the user can do about it
//   DTR_CHECK        an internal invariant, always on, cheap
//   DTR_DCHECK       an expensive internal check, on when built with TVM_DTR_CHECKS
#ifndef TVM_DTR_CORE_ERRORS_H_
#define TVM_DTR_CORE_ERRORS_H_

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/types.h"

namespace dtr {

// One storage that could not be evicted when a budget ran out.
struct Holder {
  StorageId storage;
  uint64_t bytes;
  bool pinned;      // parameter, input, constant or output
  uint32_t locks;   // pending ops that have gathered it
  TensorId tensor;  // first tensor that views it, kNone if none
};

// The budget is too small at this op and nothing is left to evict. The runtime stays consistent:
// the caller may raise the budget and run the same op again.
class BudgetError : public std::runtime_error {
 public:
  BudgetError(const std::string& message, OpId op, KernelId kernel, uint64_t budget_bytes,
              uint64_t requested_bytes, uint64_t short_bytes, uint64_t needed_budget_bytes,
              std::vector<Holder> holders)
      : std::runtime_error(message),
        op(op),
        kernel(kernel),
        budget_bytes(budget_bytes),
        requested_bytes(requested_bytes),
        short_bytes(short_bytes),
        needed_budget_bytes(needed_budget_bytes),
        holders(std::move(holders)) {}

  OpId op;
  KernelId kernel;  // kNone when no op was running (an input was being added)
  uint64_t budget_bytes;
  uint64_t requested_bytes;      // the allocation that failed
  uint64_t short_bytes;          // missing bytes
  uint64_t needed_budget_bytes;  // smallest budget that surely passes this point
  std::vector<Holder> holders;   // pinned and locked storages, largest first
  // Where enough is free and nothing is short, but scattered: the largest block that fits.
  uint64_t largest_free_bytes = 0;
};

// Recomputation has cost more than `limit` times the program's own work.
class ThrashError : public std::runtime_error {
 public:
  ThrashError(const std::string& message, double compute_cost, double remat_cost, double limit)
      : std::runtime_error(message),
        compute_cost(compute_cost),
        remat_cost(remat_cost),
        limit(limit) {}
  double compute_cost;
  double remat_cost;
  double limit;
};

class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

[[noreturn]] void CheckFailed(const char* file, int line, const char* condition,
                              const std::string& detail);

}  // namespace dtr

#define DTR_CHECK(condition, detail)                                \
  do {                                                              \
    if (!(condition)) {                                             \
      ::dtr::CheckFailed(__FILE__, __LINE__, #condition, (detail)); \
    }                                                               \
  } while (false)

#ifdef DTR_ENABLE_DCHECK
#define DTR_DCHECK(condition, detail) DTR_CHECK(condition, detail)
#else
#define DTR_DCHECK(condition, detail) \
  do {                                \
  } while (false)
#endif

#endif  // TVM_DTR_CORE_ERRORS_H_
