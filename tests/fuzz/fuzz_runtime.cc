// The runtime under any sequence of calls, with allocations and kernels that fail: every tensor has
// its value, the budget holds, all invariants hold after each call.
#include <stdexcept>
#include <string>
#include <vector>

#include "bytes.h"
#include "core/deallocation.h"
#include "core/policy.h"
#include "lab.h"
#include "random_program.h"

using dtr_fuzz::Bytes;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Bytes bytes(data, size);
  const std::vector<std::string> policies = dtr::PolicyNames();
  const std::vector<std::string> deallocations = dtr::DeallocationNames();
  const std::string policy = policies[bytes.Below(policies.size())];
  const std::string dealloc = deallocations[bytes.Below(deallocations.size())];
  const uint64_t units = 8 + bytes.Below(40);
  dtr_test::Lab lab(units, policy, /*thrash_limit=*/0, dealloc);
  lab.failing_arena.fail_at = static_cast<int>(bytes.Below(64)) - 16;
  lab.executor.fail_at = static_cast<int>(bytes.Below(64)) - 16;
  dtr_test::RandomProgram program(&lab, [&bytes] { return bytes.Word() >> 32 ^ bytes.Next(); });
  program.states = bytes.Below(3);
  // Whatever is refused is tried again with more.
  program.attempt = [&lab](const std::function<void()>& step) {
    for (;;) {
      try {
        return step();
      } catch (const dtr_test::KernelFailure&) {
      } catch (const dtr::BudgetError& error) {
        lab.runtime.SetBudget(std::max(error.needed_budget_bytes, lab.arena.capacity() + 4096));
      }
      lab.runtime.Validate();
    }
  };
  program.Run(static_cast<int>(size / 24));
  return 0;
}
