// Updates in place: when they are allowed, what they pin, and that nothing is ever recomputed
// through a value that is gone.
#include "check.h"
#include "lab.h"
#include "random_program.h"

using dtr_test::Lab;
using dtr_test::Mix;
using dtr_test::RandomProgram;

namespace {

dtr::StorageId StorageOf(const Lab& lab, dtr::TensorId t) {
  return lab.runtime.graph().tensor(t).storage;
}

}  // namespace

TEST(AnUpdateInPlaceTakesNoMemory) {
  Lab lab(3);
  dtr::TensorId p = lab.State(7);
  dtr::TensorId g = lab.One("g", {p});
  uint64_t gradient = lab.Read(g), active = lab.arena.active();
  EXPECT(lab.Overwrite("update", {p, g}, p));
  EXPECT_EQ(lab.arena.active(), active);
  EXPECT_EQ(lab.Read(p), Mix(Mix(Mix(Mix(0, 1), 7), gradient), 0));
  EXPECT_EQ(lab.Read(g), gradient);
  EXPECT_EQ(lab.Trace(), "g update");
  EXPECT_EQ(lab.runtime.stats().overwrites, 1u);
  lab.runtime.Validate();
  lab.runtime.Release(g);
  EXPECT_EQ(lab.runtime.graph().live_ops(), 0u);
  lab.runtime.Release(p);
  EXPECT_EQ(lab.arena.active(), 0u);
}

TEST(WhatWasMadeFromTheOldValueStaysInMemory) {
  Lab lab(dtr::kUnlimited);
  dtr::TensorId p = lab.State(7);
  dtr::TensorId a = lab.One("a", {p});
  dtr::TensorId b = lab.One("b", {a});
  uint64_t value_a = lab.Read(a), value_b = lab.Read(b);
  EXPECT(lab.Overwrite("update", {p}, p));
  EXPECT_EQ(lab.runtime.graph().storage(StorageOf(lab, a)).pins, 1u);
  EXPECT_EQ(lab.runtime.graph().storage(StorageOf(lab, b)).pins, 0u);
  lab.runtime.Evict(StorageOf(lab, b));  // which can be made again from the pinned one
  EXPECT_EQ(lab.Read(b), value_b);
  EXPECT_EQ(lab.Read(a), value_a);
  lab.runtime.Validate();
}

TEST(AnEvictedDependentForcesACopy) {
  Lab lab(dtr::kUnlimited);
  dtr::TensorId p = lab.State(7);
  dtr::TensorId a = lab.One("a", {p});
  uint64_t value = lab.Read(a);
  lab.runtime.Evict(StorageOf(lab, a));
  EXPECT(!lab.Overwrite("update", {p}, p));
  EXPECT_EQ(lab.runtime.stats().copies_on_write, 1u);
  dtr::TensorId copy = lab.One("update", {p});
  EXPECT_EQ(lab.Read(p), 7u);
  EXPECT_EQ(lab.Read(a), value);  // from the old value, which is still there
  EXPECT(lab.Overwrite("again", {p}, p));
  EXPECT(lab.Read(p) != 7u);
  EXPECT_EQ(lab.Read(a), value);
  EXPECT_EQ(lab.Read(copy), Mix(Mix(Mix(0, 1), 7), 0));
  EXPECT_EQ(lab.Trace(), "a -a update ~a again");
  lab.runtime.Validate();
}

TEST(GatheringTheOperandsMayForceACopy) {
  Lab lab(3);
  dtr::TensorId c = lab.Constant(1);
  dtr::TensorId p = lab.State(7);
  dtr::TensorId g = lab.One("g", {c});
  dtr::TensorId a = lab.One("a", {p});  // takes the place of g
  uint64_t value = lab.Read(a);
  EXPECT_EQ(lab.Trace(), "g -g a");
  EXPECT(!lab.Overwrite("update", {p, g}, p));  // brings g back, and a goes
  EXPECT_EQ(lab.Trace(), "g -g a -a ~g");
  EXPECT_EQ(lab.Read(p), 7u);
  lab.runtime.Validate();
  EXPECT_EQ(lab.Read(a), value);
}

TEST(WhatMayNotBeOverwritten) {
  Lab lab(dtr::kUnlimited);
  dtr::TensorId plain = lab.Constant(1);
  EXPECT(!lab.Overwrite("u", {plain}, plain));  // nobody has allowed for it
  uint64_t memory = 5;
  dtr::TensorId external = lab.runtime.AddExternal(&memory, 8);
  lab.runtime.AllowOverwrite(external);
  EXPECT(!lab.Overwrite("u", {external}, external));
  EXPECT_EQ(memory, 5u);
  dtr::TensorId made = lab.One("m", {plain});
  lab.runtime.AllowOverwrite(made);
  EXPECT(!lab.Overwrite("u", {made}, made));  // it can be evicted and made again
}

TEST(AFailedUpdateCanBeTriedAgain) {
  Lab lab(2);
  dtr::TensorId p = lab.State(7);
  dtr::TensorId c = lab.Constant(1);
  bool failed = false;
  lab.failing_arena.fail_at = 0;
  lab.executor.fail_at = 0;
  try {
    lab.Overwrite("update", {p, c}, p);
  } catch (const dtr_test::KernelFailure&) {
    failed = true;
  }
  EXPECT(failed);
  lab.runtime.Validate();
  EXPECT(lab.Overwrite("update", {p, c}, p));
  EXPECT_EQ(lab.Read(p), Mix(Mix(Mix(Mix(0, 0), 7), 1), 0));
}

TEST(AViewOfTheStateSeesTheNewValue) {
  Lab lab(dtr::kUnlimited);
  dtr::TensorId p = lab.State(7);
  dtr::TensorId view = lab.runtime.NewView(p);
  EXPECT(lab.Overwrite("update", {view}, view));
  EXPECT_EQ(lab.Read(view), lab.Read(p));
  EXPECT(lab.Read(p) != 7u);
  lab.runtime.Validate();
}

// Each gradient that a layer passes on is pinned by the layer's update only until the next one.
TEST(AChainOfUpdatesHoldsFewGradients) {
  Lab lab(dtr::kUnlimited);
  std::vector<dtr::TensorId> p;
  for (uint64_t i = 0; i < 20; ++i) p.push_back(lab.State(i));
  dtr::TensorId g = lab.One("seed", {lab.Constant(1)});
  uint64_t base = lab.arena.active();
  for (size_t i = 0; i < p.size(); ++i) {
    dtr::TensorId dw = lab.One("dw", {g});
    dtr::TensorId dx = lab.One("dx", {g, p[i]});
    dtr::TensorId through = lab.One("through", {dx});
    lab.runtime.Release(dx);
    lab.runtime.Release(g);
    EXPECT(lab.Overwrite("update", {p[i], dw}, p[i]));
    lab.runtime.Release(dw);
    g = through;
    EXPECT(lab.arena.active() <= base + 3 * Lab::kUnit);
    lab.runtime.Validate();
  }
  EXPECT_EQ(lab.runtime.stats().rematerializations, 0u);
}

TEST(RandomProgramsWithUpdates) {
  uint64_t overwrites = 0, copies = 0, rematerializations = 0;
  int finished = 0;
  for (const std::string& dealloc : dtr::DeallocationNames()) {
    for (uint64_t seed = 0; seed < 150; ++seed) {
      Lab lab(14 + seed % 20, seed % 2 ? "dtr-eq" : "lru", /*thrash_limit=*/0, dealloc);
      RandomProgram program(&lab, seed);
      program.states = 3;
      try {
        program.Run(60);
        ++finished;
      } catch (const dtr::BudgetError&) {
        lab.runtime.Validate();
      } catch (const std::exception& e) {
        throw std::runtime_error(dealloc + ", seed " + std::to_string(seed) + ": " + e.what());
      }
      overwrites += lab.runtime.stats().overwrites;
      copies += lab.runtime.stats().copies_on_write;
      rematerializations += lab.runtime.stats().rematerializations;
    }
  }
  EXPECT(finished > 150);
  EXPECT(overwrites > 1000);
  EXPECT(copies > 500);
  EXPECT(rematerializations > 1000);
}

TEST_MAIN()
