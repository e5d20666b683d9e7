// What fails on the way leaves the runtime as it was: the same call works when tried again.
#include <cmath>
#include <limits>

#include "check.h"
#include "lab.h"
#include "random_program.h"

using dtr_test::KernelFailure;
using dtr_test::Lab;
using dtr_test::RandomProgram;

namespace {

constexpr int kOps = 40;
constexpr uint64_t kUnits = 30;

// Tries again after the failure that was ordered; any other one ends the test.
RandomProgram::Attempt TryAgain(Lab* lab, int* failures) {
  return [lab, failures](const std::function<void()>& step) {
    for (int tries = 0;; ++tries) {
      try {
        return step();
      } catch (const KernelFailure&) {
      } catch (const dtr::BudgetError&) {
        if (tries > 0) throw;
      }
      ++*failures;
      lab->runtime.Validate();
    }
  };
}

}  // namespace

TEST(KernelFailsAtEveryCall) {
  int failures = 0;
  for (int k = 0; k < 400; ++k) {
    Lab lab(kUnits);
    RandomProgram program(&lab, /*seed=*/7 + k / 100);
    program.attempt = TryAgain(&lab, &failures);
    lab.executor.fail_at = k % 100;
    program.Run(kOps);
  }
  EXPECT(failures > kOps);  // recomputations are among those that failed
}

// A refused allocation is met by an eviction, or by a BudgetError after which all goes on.
TEST(AllocationFailsAtEveryCall) {
  int refused = 0;
  uint64_t evictions = 0;
  for (int k = 0; k < 120; ++k) {
    Lab lab(/*units=*/200);
    RandomProgram program(&lab, /*seed=*/11);
    program.attempt = TryAgain(&lab, &refused);
    lab.failing_arena.fail_at = k;
    program.Run(kOps);
    evictions += lab.runtime.stats().evictions;
  }
  EXPECT(refused > 0);
  EXPECT(evictions > kOps);  // there is room for all: each is due to a refusal
}

// Scores are zero, infinite or no number at all: decisions may be poor, never wrong.
TEST(CostsThatAreNoCosts) {
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<double> costs = {0.0,   -0.0,   infinity, std::nan(""),
                                     1e308, 5e-324, -1.0,     -infinity};
  for (const std::string& policy : dtr::PolicyNames()) {
    for (size_t which = 0; which <= costs.size(); ++which) {
      Lab lab(kUnits, policy);
      RandomProgram program(&lab, /*seed=*/13);
      size_t calls = 0;
      program.cost = [&] { return costs[which < costs.size() ? which : calls++ % costs.size()]; };
      try {
        program.Run(kOps);
      } catch (const std::exception& e) {
        throw std::runtime_error(policy + ", cost " + std::to_string(which) + ": " + e.what());
      }
      EXPECT(lab.runtime.stats().evictions > 0);
    }
  }
}

TEST_MAIN()
