// Properties of the runtime on random programs, failures, and long runs.
#include "check.h"
#include "core/arena/page_arena.h"
#include "lab.h"
#include "random_program.h"

using dtr_test::HashExecutor;
using dtr_test::Lab;
using dtr_test::RunRandomProgram;

namespace {

struct Totals {
  uint64_t evictions = 0, rematerializations = 0, banishments = 0;
  int finished = 0, short_of_memory = 0;
};

void RunRandomPrograms(const std::string& policy, const std::string& dealloc, Totals* totals) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Lab lab(12 + seed % 30, policy, /*thrash_limit=*/0, dealloc);
    try {
      RunRandomProgram(&lab, seed, 60);
      ++totals->finished;
    } catch (const dtr::BudgetError&) {
      lab.runtime.Validate();
      ++totals->short_of_memory;
    } catch (const std::exception& e) {
      throw std::runtime_error(policy + ", " + dealloc + ", seed " + std::to_string(seed) + ": " +
                               e.what());
    }
    totals->evictions += lab.runtime.stats().evictions;
    totals->rematerializations += lab.runtime.stats().rematerializations;
    totals->banishments += lab.runtime.stats().banishments;
  }
}

}  // namespace

TEST(RandomProgramsUnderEveryPolicyAndDeallocation) {
  for (const std::string& dealloc : dtr::DeallocationNames()) {
    Totals totals;
    for (const std::string& policy : dtr::PolicyNames()) {
      RunRandomPrograms(policy, dealloc, &totals);
    }
    EXPECT(totals.finished > 100);
    EXPECT(totals.short_of_memory > 0);
    EXPECT(totals.evictions > 1000);
    EXPECT(totals.rematerializations > 1000);
    EXPECT_EQ(totals.banishments > 100, dealloc == "banish");
  }
}

TEST(FailingKernelLeavesNothingBehind) {
  for (int fail_at = 0; fail_at < 3; ++fail_at) {
    Lab lab(5);
    dtr::TensorId x = lab.Constant(1);
    dtr::TensorId a = lab.One("a", {x});
    dtr::TensorId b = lab.One("b", {a});
    uint64_t right = lab.Read(b);
    lab.runtime.Evict(lab.runtime.graph().tensor(b).storage);
    lab.runtime.Evict(lab.runtime.graph().tensor(a).storage);
    lab.executor.fail_at = fail_at;
    EXPECT_THROWS(lab.One("c", {b}), std::runtime_error);
    lab.executor.fail_at = -1;
    lab.runtime.Validate();
    EXPECT_EQ(lab.Read(b), right);
    lab.One("c", {b});
    lab.runtime.Validate();
  }
}

// A kernel that fails while it recomputes one output may have spoilt its resident sibling.
TEST(FailedRecomputationEvictsTheSibling) {
  Lab lab(6);
  dtr::TensorId x = lab.Constant(1);
  auto m = lab.Op("m", {x}, 2);
  lab.runtime.Evict(lab.runtime.graph().tensor(m[0]).storage);
  lab.executor.fail_at = 0;
  EXPECT_THROWS(lab.runtime.Data(m[0]), std::runtime_error);
  EXPECT(!lab.runtime.graph().Defined(m[1]));
  lab.runtime.Validate();
}

TEST(BudgetErrorNamesWhatIsHeld) {
  Lab lab(4);
  dtr::TensorId x = lab.Constant(1);
  dtr::TensorId a = lab.One("a", {x});
  try {
    lab.Op("big", {a}, 1, 1, /*units=*/2, /*workspace=*/Lab::kUnit);
    EXPECT(false);
  } catch (const dtr::BudgetError& e) {
    EXPECT_EQ(e.budget_bytes, 4 * Lab::kUnit);
    EXPECT_EQ(e.needed_budget_bytes, 5 * Lab::kUnit);
    EXPECT_EQ(e.short_bytes, Lab::kUnit);
  }
  lab.runtime.Validate();
  EXPECT_EQ(lab.arena.active(), 2 * Lab::kUnit);
}

// The budget that the error names is enough, pages for small blocks included.
TEST(NeededBudgetIsEnoughForSmallBlocks) {
  dtr::PageArena arena(448);
  HashExecutor executor;
  dtr::Runtime runtime(&arena, &executor, dtr::RuntimeOptions());
  auto make = [&] {
    dtr::TensorId x = runtime.AddConstant(64);
    dtr::StorageId s = runtime.NewStorage(3000);
    std::vector<dtr::TensorId> in = {x}, out = {runtime.NewTensor(s)};
    runtime.ReleaseStorage(s);
    try {
      runtime.Call(0, in, out, 1, /*workspace_bytes=*/3000);
    } catch (...) {
      runtime.Release(out[0]);
      runtime.Release(x);
      throw;
    }
    runtime.Release(out[0]);
    runtime.Release(x);
  };
  int errors = 0;
  for (bool done = false; !done;) {
    try {
      make();
      done = true;
    } catch (const dtr::BudgetError& e) {
      ++errors;
      EXPECT(e.needed_budget_bytes > arena.capacity());
      EXPECT_EQ(e.short_bytes, e.needed_budget_bytes - arena.capacity());
      runtime.SetBudget(e.needed_budget_bytes);
    }
  }
  EXPECT_EQ(errors, 2);  // once for x, once for the op, which then has all it needs
  EXPECT_EQ(arena.active(), 0u);
}

// External memory needs its exact bytes, whatever room shared pages have.
TEST(NeededBudgetIsEnoughForExternalMemory) {
  dtr::PageArena arena(dtr::PageArena::kPage + 100);
  HashExecutor executor;
  dtr::Runtime runtime(&arena, &executor, dtr::RuntimeOptions());
  dtr::TensorId small = runtime.AddConstant(64);  // opens a page with room for more
  char data[64] = {};
  try {
    for (int i = 0; i < 2; ++i) runtime.AddExternal(data, 64);
    EXPECT(false);
  } catch (const dtr::BudgetError& e) {
    EXPECT_EQ(e.short_bytes, 28u);
    runtime.SetBudget(e.needed_budget_bytes);
  }
  runtime.AddExternal(data, 64);
  runtime.Validate();
  runtime.Release(small);
}

TEST(BudgetBelowWhatIsPinnedIsRefusedAndKept) {
  Lab lab(4);
  dtr::TensorId x = lab.Constant(1);
  dtr::TensorId y = lab.Constant(2);
  EXPECT_THROWS(lab.runtime.SetBudget(Lab::kUnit), dtr::BudgetError);
  EXPECT_EQ(lab.arena.capacity(), 4 * Lab::kUnit);
  lab.runtime.Release(x);
  lab.runtime.Release(y);
  EXPECT_EQ(lab.runtime.SetBudget(Lab::kUnit), 4 * Lab::kUnit);
}

TEST(ThrashGuardStops) {
  Lab lab(4, "dtr-eq", /*thrash_limit=*/1);
  lab.runtime.BeginInvocation(0);
  dtr::TensorId a = lab.One("a", {lab.Constant(1)});
  bool stopped = false;
  try {
    for (int i = 0; i < 5; ++i) {
      lab.runtime.Evict(lab.runtime.graph().tensor(a).storage);
      lab.runtime.Data(a);
    }
  } catch (const dtr::ThrashError& e) {
    stopped = true;
    EXPECT(e.remat_cost > e.compute_cost);
  }
  EXPECT(stopped);
  lab.runtime.Validate();
}

// Storages that many ops fill and read through different tensors.
TEST(TwoTensorsInOneStorage) {
  Lab lab(6);
  dtr::TensorId x = lab.Constant(7);
  dtr::StorageId s = lab.runtime.NewStorage(Lab::kUnit);
  dtr::TensorId a = lab.runtime.NewTensor(s);
  dtr::TensorId b = lab.runtime.NewTensor(s);
  lab.runtime.ReleaseStorage(s);
  lab.One("k0", {x});
  std::vector<dtr::TensorId> in = {x};
  lab.runtime.Call(0, in, std::vector<dtr::TensorId>{a}, 3, 0);
  lab.runtime.Call(0, in, std::vector<dtr::TensorId>{b}, 4, 0);
  EXPECT_EQ(lab.runtime.graph().storage(s).cost, 7.0);
  lab.runtime.Evict(s);
  lab.runtime.Data(b);
  EXPECT(lab.runtime.graph().Defined(b));
  EXPECT(!lab.runtime.graph().Defined(a));
  lab.runtime.Data(a);
  lab.runtime.Validate();
  lab.runtime.Release(a);
  EXPECT_EQ(lab.runtime.graph().storage(s).cost, 4.0);
  lab.runtime.Release(b);
  lab.runtime.Validate();
}

TEST(DeepChainNeedsNoStack) {
  constexpr int kDepth = 200000;
  Lab lab(dtr::kUnlimited);
  dtr::TensorId x = lab.Constant(1);
  dtr::TensorId t = x;
  lab.runtime.Retain(x);
  for (int i = 0; i < kDepth; ++i) {
    dtr::StorageId s = lab.runtime.NewStorage(64);
    dtr::TensorId next = lab.runtime.NewTensor(s);
    lab.runtime.ReleaseStorage(s);
    if (i == 0) lab.One("k", {x});
    std::vector<dtr::TensorId> in = {t}, out = {next};
    lab.runtime.Call(0, in, out, 1, 0);
    lab.runtime.Release(t);
    t = next;
  }
  uint64_t right = lab.Read(t);
  lab.runtime.Evict(lab.runtime.graph().tensor(t).storage);
  EXPECT_EQ(lab.Read(t), right);
  EXPECT_EQ(lab.runtime.stats().rematerializations, static_cast<uint64_t>(kDepth));
  lab.runtime.Validate();
  lab.runtime.Release(t);
  EXPECT_EQ(lab.runtime.graph().live_ops(), 1u);
}

TEST(StepsLeaveNoRecords) {
  Lab lab(8);
  dtr::TensorId w = lab.Constant(5);
  uint32_t storages = 0;
  for (int step = 0; step < 2000; ++step) {
    dtr::TensorId a = lab.One("a", {w});
    dtr::TensorId b = lab.One("b", {a});
    dtr::TensorId next = lab.One("w", {w, b});
    lab.runtime.Release(a);
    lab.runtime.Release(b);
    lab.runtime.Pin(next);
    lab.runtime.Release(w);
    w = next;
    if (step == 10) storages = lab.runtime.graph().storage_capacity();
  }
  EXPECT_EQ(lab.runtime.graph().live_storages(), 1u);
  EXPECT_EQ(lab.runtime.graph().live_ops(), 0u);
  EXPECT_EQ(lab.runtime.graph().storage_capacity(), storages);
}

TEST_MAIN()
