// Policies as the runtime drives them: changes on the way, and exact scores against a search that
// keeps nothing.
#include <algorithm>
#include <limits>
#include <memory>

#include "check.h"
#include "core/policies/dtr.h"
#include "core/policy.h"
#include "core/search/scan.h"
#include "lab.h"
#include "random_program.h"

using dtr_test::Lab;
using dtr_test::RandomProgram;

namespace {

// The sums walked anew each time.
template <typename Form, bool kDescendants>
class Anew {
 public:
  static constexpr dtr::Ties kTies = dtr::Ties::kFirst;
  dtr::Line Bound(const dtr::Graph::Candidate& c) const { return Form::Of(c, c.cost); }
  dtr::Line Exact(const dtr::Graph& graph, const dtr::Graph::Candidate& c) {
    dtr::Neighbourhood fresh(kDescendants);
    double all = std::numeric_limits<double>::infinity();
    return Form::Of(c, dtr::AtLeastTiny(c.cost + fresh.Cost(graph, c.storage, all).sum));
  }
  void OnCreate(const dtr::Graph&, dtr::StorageId) {}
  void OnEvict(const dtr::Graph&, dtr::StorageId) {}
  void OnRematerialize(const dtr::Graph&, dtr::StorageId) {}
  void OnCostChange(const dtr::Graph&, dtr::StorageId, double) {}
  void OnForget(const dtr::Graph&, dtr::StorageId) {}
};

// What happens to a random program, and how it ends.
std::string Decisions(Lab* lab, uint64_t seed) {
  try {
    dtr_test::RunRandomProgram(lab, seed, 80);
    return lab->Trace();
  } catch (const dtr::BudgetError&) {
    return lab->Trace() + " out of memory";
  }
}

template <typename Form, bool kDescendants>
uint64_t CompareWithSumsMadeAnew(const std::string& name) {
  uint64_t evictions = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    uint64_t units = 12 + seed % 24;
    Lab plain(units, "lru");
    plain.runtime.SetPolicy(std::make_unique<dtr::ScanPolicy<Anew<Form, kDescendants>>>());
    std::string expected = Decisions(&plain, seed);
    for (const char* search : {"heap", "scan"}) {
      Lab lab(units, "lru");
      lab.runtime.SetPolicy(dtr::MakePolicy(name, search, 0));
      if (Decisions(&lab, seed) != expected) {
        throw std::runtime_error(name + ", " + search + ", seed " + std::to_string(seed));
      }
    }
    evictions += plain.runtime.stats().evictions;
  }
  return evictions;
}

}  // namespace

TEST(ExactScoresAreThoseOfSumsMadeAnew) {
  EXPECT((CompareWithSumsMadeAnew<dtr::PerByteAndAge, true>("dtr")) > 500);
  EXPECT((CompareWithSumsMadeAnew<dtr::PerByteAndAge, false>("dtr-up")) > 500);
  EXPECT((CompareWithSumsMadeAnew<dtr::PerByte, false>("msps")) > 500);
  EXPECT((CompareWithSumsMadeAnew<dtr::CostAlone, true>("e-star")) > 500);
}

TEST(UnknownNamesAreTold) {
  for (const auto& [policy, search] : {std::pair("fifo", "heap"), std::pair("dtr", "guess")}) {
    std::string told;
    try {
      dtr::MakePolicy(policy, search, 0);
    } catch (const std::invalid_argument& error) {
      told = error.what();
    }
    EXPECT(told.find(std::string(policy) == "fifo" ? "'fifo'" : "'guess'") != std::string::npos);
    EXPECT(told.find("use one of") != std::string::npos);
  }
}

// Any policy can take over at any moment; contents and invariants do not notice.
TEST(PoliciesTakeOverOnTheWay) {
  std::vector<std::string> names = dtr::PolicyNames();
  names.erase(std::find(names.begin(), names.end(), "window"));  // needs another arena
  const std::vector<std::string> searches = dtr::SearchNames();
  uint64_t evictions = 0;
  int finished = 0;
  for (uint64_t seed = 0; seed < 120; ++seed) {
    Lab lab(14 + seed % 20, "dtr-eq");
    RandomProgram program(&lab, seed);
    size_t steps = seed;
    program.attempt = [&](const std::function<void()>& step) {
      if (++steps % 7 == 0) {
        lab.runtime.SetPolicy(dtr::MakePolicy(names[steps / 7 % names.size()],
                                              searches[steps % searches.size()], seed));
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
