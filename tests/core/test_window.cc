// The window policy: which blocks go, derived by hand.
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "check.h"
#include "core/arena/best_fit_arena.h"
#include "core/arena/page_arena.h"
#include "core/runtime.h"

namespace {

constexpr uint64_t kPage = 4096;

class Nothing : public dtr::Executor {
 public:
  void Run(const dtr::KernelCall&) override {}
};

// Storages in address order, each a page unless told otherwise, all made from one constant.
class Bench : public dtr::Observer {
 public:
  explicit Bench(uint64_t pages, const std::string& policy = "window")
      : arena(pages * kPage, /*backed=*/false), runtime(&arena, &nothing_, Options(policy)) {
    runtime.AddObserver(this);
    constant = runtime.AddConstant(kPage);
  }
  dtr::TensorId Make(double cost, uint64_t pages = 1) {
    dtr::StorageId s = runtime.NewStorage(pages * kPage);
    dtr::TensorId t = runtime.NewTensor(s);
    runtime.ReleaseStorage(s);
    std::vector<dtr::TensorId> inputs{constant}, outputs{t};
    try {
      runtime.Call(0, inputs, outputs, cost, 0);
    } catch (...) {
      runtime.Release(t);
      throw;
    }
    return t;
  }
  void OnEvict(dtr::StorageId s, bool) override { evicted.push_back(s); }
  dtr::StorageId Storage(dtr::TensorId t) const { return runtime.graph().tensor(t).storage; }

 private:
  static dtr::RuntimeOptions Options(const std::string& policy) {
    dtr::RuntimeOptions options;
    options.policy = policy;
    options.thrash_limit = 0;
    options.small_share = 0;
    return options;
  }
  Nothing nothing_;

 public:
  dtr::BestFitArena arena;
  dtr::Runtime runtime;
  dtr::TensorId constant;
  std::vector<dtr::StorageId> evicted;
};

}  // namespace

// Costs by address: 1 9 1 9 9 1 1 9. By score alone the scattered cheap ones would go; three pages
// side by side are cheapest as 9 1 1 or 1 1 9, and the cheaper is the one touched longer ago.
TEST(TakesTheCheapestRunOfAddresses) {
  Bench bench(9);
  std::vector<dtr::TensorId> made;
  for (double cost : {100, 900, 100, 900, 900, 100, 100, 900}) made.push_back(bench.Make(cost));
  bench.Make(1, 2);
  std::vector<dtr::StorageId> expected{bench.Storage(made[6]), bench.Storage(made[5])};
  EXPECT(bench.evicted == expected);
  bench.runtime.Validate();
  bench.arena.Validate();
}

// What is pinned cuts the range: the two cheap ones on its sides do not make a window.
TEST(PinnedBlocksAreBarriers) {
  Bench bench(6);
  std::vector<dtr::TensorId> made;
  for (double cost : {100, 900, 100, 100, 900}) made.push_back(bench.Make(cost));
  bench.runtime.Pin(made[1]);
  bench.runtime.Pin(made[2]);
  bench.Make(1, 2);
  std::vector<dtr::StorageId> expected{bench.Storage(made[4]), bench.Storage(made[3])};
  EXPECT(bench.evicted == expected);
  bench.runtime.Validate();
}

// A free page between two storages costs nothing and is used.
TEST(FreeMemoryIsPartOfAWindow) {
  Bench bench(6);
  std::vector<dtr::TensorId> made;
  for (double cost : {100, 500, 100, 500, 100}) made.push_back(bench.Make(cost));
  bench.runtime.Evict(bench.Storage(made[3]));
  bench.evicted.clear();
  bench.Make(1, 2);
  EXPECT_EQ(bench.evicted.size(), 1u);  // made[2] or made[4]
  EXPECT(bench.evicted[0] == bench.Storage(made[2]) || bench.evicted[0] == bench.Storage(made[4]));
}

TEST(NoWindowIsAnErrorThatTellsOfScatteredMemory) {
  Bench bench(6);
  std::vector<dtr::TensorId> made;
  for (double cost : {1, 1, 1, 1, 1}) made.push_back(bench.Make(cost));
  bench.runtime.Pin(made[1]);
  bench.runtime.Pin(made[3]);
  bool thrown = false;
  try {
    bench.Make(1, 2);
  } catch (const dtr::BudgetError& error) {
    thrown = true;
    EXPECT_EQ(error.short_bytes, 0u);
    EXPECT_EQ(error.largest_free_bytes, kPage);
  }
  EXPECT(thrown);
  bench.runtime.Validate();
}

TEST(NeedsAnArenaWithAddresses) {
  dtr::PageArena paged(1 << 20, /*backed=*/false);
  Nothing nothing;
  dtr::RuntimeOptions options;
  options.policy = "window";
  EXPECT_THROWS(dtr::Runtime(&paged, &nothing, options), std::invalid_argument);
}

TEST_MAIN()
