// Policies as the runtime drives them: changes on the way.
#include "core/policy.h"

#include "check.h"
#include "lab.h"
#include "random_program.h"

using dtr_test::Lab;
using dtr_test::RandomProgram;

// Any policy can take over at any moment; contents and invariants do not notice.
TEST(PoliciesTakeOverOnTheWay) {
  const std::vector<std::string> names = dtr::PolicyNames();
  uint64_t evictions = 0;
  int finished = 0;
  for (uint64_t seed = 0; seed < 120; ++seed) {
    Lab lab(14 + seed % 20, "dtr-eq");
    RandomProgram program(&lab, seed);
    size_t steps = seed;
    program.attempt = [&](const std::function<void()>& step) {
      if (++steps % 7 == 0) {
        lab.runtime.SetPolicy(
            dtr::MakePolicy(names[steps / 7 % names.size()], steps % 2 ? "heap" : "scan", seed));
      }
      step();
    };
    try {
      program.Run(60);
      ++finished;
    } catch (const dtr::BudgetError&) {
      lab.runtime.Validate();
    }
    evictions += lab.runtime.stats().evictions;
  }
  EXPECT(finished > 60);
  EXPECT(evictions > 1000);
}

int main() { return dtr_test::RunAll(); }
