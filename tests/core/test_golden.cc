// Decisions derived by hand: unit sizes and unit costs, dtr-eq, x pinned. "a" computed, "~a"
// recomputed, "-a" evicted. Each derivation is beside its test.
#include "check.h"
#include "lab.h"

using dtr_test::Lab;

// x -> f1 ... f8, then b8 = B(f8), b7 = B(b8, f7) ... b1 = B(b2, f1); x and four units.
//
// Forward. value = age / (1 + costs of adjacent evicted components), the largest goes:
//   f5: f1 3, f2 2, f3 1                                   -> f1
//   f6: f2 3/2 (next to f1), f3 2, f4 1                    -> f3
//   f7: f2 4/3 (f1, f3), f4 2/2 (f3), f5 1                 -> f2, component {f1 f2 f3}
//   f8: f4 3/4, f5 2, f6 1                                 -> f5
// Backward, operands released after use (their eager eviction joins components):
//   b8: f4 4/5 (3 + 1), f6 2/2 (f5), f7 1; f6 became evictable before f7 -> f6
//   b7: f7 is there, f8 left its unit free
//   b6: f6 needs f5 from f4; f4 2/4, f5 1                  -> f5
//   b5: f5 again from f4; it fits. b4: f4 is there
//   b3: f1 f2 f3 from x; f1 2, f2 1                        -> f1
//   b2: f2 is there. b1: f1 again
TEST(Chain) {
  Lab lab(5);
  std::vector<dtr::TensorId> f = {lab.Constant(1)};
  for (int i = 1; i <= 8; ++i) f.push_back(lab.One("f" + std::to_string(i), {f.back()}));
  dtr::TensorId b = dtr::kNone;
  for (int i = 8; i >= 1; --i) {
    std::vector<dtr::TensorId> inputs = {f[i]};
    if (b != dtr::kNone) inputs.insert(inputs.begin(), b);
    dtr::TensorId next = lab.One("b" + std::to_string(i), inputs);
    if (b != dtr::kNone) lab.runtime.Release(b);
    lab.runtime.Release(f[i]);
    b = next;
    lab.runtime.Validate();
  }
  EXPECT_EQ(lab.Trace(),
            "f1 f2 f3 f4 -f1 f5 -f3 f6 -f2 f7 -f5 f8 -f6 b8 b7 ~f5 ~f6 -f5 b6 ~f5 b5 b4 "
            "~f1 ~f2 ~f3 -f1 b3 b2 ~f1 b1");
  EXPECT_EQ(lab.runtime.stats().calls, 16u);
  EXPECT_EQ(lab.runtime.stats().rematerializations, 7u);
  EXPECT_EQ(lab.runtime.stats().evictions, 7u);
  EXPECT_EQ(lab.arena.peak_active(), 5 * Lab::kUnit);
  lab.runtime.Pin(b);
  lab.runtime.Release(f[0]);
  lab.runtime.Release(b);
  EXPECT_EQ(lab.runtime.graph().live_storages(), 0u);
  EXPECT_EQ(lab.arena.active(), 0u);
}

// x -> a -> b, c -> d; e = (d, a). Three units and x: d takes a's place, since b and c are its
// operands; b and c go with their last references, a is recomputed for e.
TEST(Diamond) {
  Lab lab(4);
  dtr::TensorId x = lab.Constant(1);
  dtr::TensorId a = lab.One("a", {x});
  dtr::TensorId b = lab.One("b", {a});
  dtr::TensorId c = lab.One("c", {a});
  dtr::TensorId d = lab.One("d", {b, c});
  lab.runtime.Release(b);
  lab.runtime.Release(c);
  lab.One("e", {d, a});
  lab.runtime.Validate();
  EXPECT_EQ(lab.Trace(), "a b c -a d ~a e");
  EXPECT_EQ(lab.runtime.stats().eager_evictions, 2u);
}

// v is a view of a, only v is held. c takes a's place; d = (c, v) brings a back once for both
// names, then finds no room: it needs x, c, a and d. With one unit more it goes on at d itself.
TEST(ViewChainAndRetry) {
  Lab lab(3);
  dtr::TensorId x = lab.Constant(1);
  dtr::TensorId a = lab.One("a", {x});
  dtr::TensorId v = lab.runtime.NewView(a);
  dtr::TensorId w = lab.runtime.NewView(v);
  lab.runtime.Release(a);
  dtr::TensorId b = lab.One("b", {w});
  dtr::TensorId c = lab.One("c", {b});
  lab.runtime.Release(b);
  try {
    lab.One("d", {c, v});
    EXPECT(false);
  } catch (const dtr::BudgetError& e) {
    EXPECT_EQ(e.needed_budget_bytes, 4 * Lab::kUnit);
    EXPECT_EQ(e.short_bytes, Lab::kUnit);
    EXPECT_EQ(e.holders.size(), 3u);
  }
  lab.runtime.Validate();
  EXPECT_EQ(lab.runtime.SetBudget(4 * Lab::kUnit), 3 * Lab::kUnit);
  lab.One("d", {c, v});
  lab.runtime.Validate();
  EXPECT_EQ(lab.Trace(), "a b -a c ~a d");
}

// m makes p and q at cost 2. t needs a unit: p and q tie at age 1 / cost 2, q became evictable
// first (p was locked for r since). p goes with its reference. s = (r, q) runs m again, both
// outputs get memory, p's is given back at once.
TEST(MultiOutput) {
  Lab lab(4);
  dtr::TensorId x = lab.Constant(1);
  std::vector<dtr::TensorId> m = lab.Op("m", {x}, 2, /*cost=*/2);
  dtr::TensorId r = lab.One("r", {m[0]});
  dtr::TensorId t = lab.One("t", {r});
  lab.runtime.Release(m[0]);
  lab.runtime.Release(t);
  uint64_t q = lab.Read(r);
  lab.One("s", {r, m[1]});
  EXPECT_EQ(lab.Read(r), q);
  lab.runtime.Validate();
  EXPECT_EQ(lab.Trace(), "m r -m1 t ~m s");
  EXPECT_EQ(lab.arena.active(), 4 * Lab::kUnit);
}

// A pinned output belongs to the caller: when its op runs again for a sibling, the kernel writes
// elsewhere.
TEST(PinnedOutputIsNotWrittenAgain) {
  Lab lab(5);
  dtr::TensorId x = lab.Constant(1);
  std::vector<dtr::TensorId> m = lab.Op("m", {x}, 2);
  void* p = lab.runtime.Pin(m[0]);
  dtr_test::HashExecutor::Write(p, 42);  // the caller's business
  lab.runtime.Evict(lab.runtime.graph().tensor(m[1]).storage);
  lab.runtime.Data(m[1]);
  EXPECT_EQ(lab.Read(m[0]), 42u);
  EXPECT_EQ(lab.Trace(), "m -m1 ~m");
  EXPECT_EQ(lab.arena.active(), 3 * Lab::kUnit);
  lab.runtime.Validate();
}

TEST_MAIN()
