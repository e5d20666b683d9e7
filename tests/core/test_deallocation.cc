// Eager eviction, banishing and ignoring on tiny programs, decisions derived by hand.
#include "check.h"
#include "core/deallocation.h"
#include "lab.h"

using dtr_test::Lab;

namespace {

bool Live(const Lab& lab, dtr::StorageId s) { return lab.runtime.graph().storage(s).live; }
const dtr::Storage& Of(const Lab& lab, dtr::TensorId t) {
  return lab.runtime.graph().storage(lab.runtime.graph().tensor(t).storage);
}

}  // namespace

TEST(NamesAreKnown) {
  EXPECT(dtr::DeallocationNamed("banish") == dtr::Deallocation::kBanish);
  EXPECT_EQ(dtr::DeallocationNames().size(), 3u);
  EXPECT_THROWS(dtr::DeallocationNamed("keep"), std::invalid_argument);
}

// x -> a -> b. Nothing evicted depends on a: it goes, and b, which only a could make, is pinned.
TEST(BanishedAtOncePinsItsChild) {
  Lab lab(8, "lru", 0, "banish");
  dtr::TensorId x = lab.Constant(1);
  dtr::TensorId a = lab.One("a", {x});
  dtr::TensorId b = lab.One("b", {a});
  dtr::StorageId a_storage = lab.runtime.graph().tensor(a).storage;
  uint64_t right = lab.Read(b);
  lab.runtime.Release(a);
  lab.runtime.Validate();
  EXPECT(!Live(lab, a_storage));
  EXPECT_EQ(lab.runtime.graph().live_ops(), 0u);
  EXPECT_EQ(lab.arena.active(), 2 * Lab::kUnit);
  EXPECT_EQ(Of(lab, b).pins, 1u);
  EXPECT_EQ(lab.runtime.stats().banishments, 1u);
  EXPECT_EQ(lab.Read(b), right);
  lab.runtime.Release(b);
  EXPECT_EQ(lab.arena.active(), Lab::kUnit);
  lab.runtime.Validate();
}

// b is evicted when a loses its last reference: a stays until b is back.
TEST(BanishingWaitsForEvictedDependents) {
  Lab lab(8, "lru", 0, "banish");
  dtr::TensorId x = lab.Constant(1);
  dtr::TensorId a = lab.One("a", {x});
  dtr::TensorId b = lab.One("b", {a});
  uint64_t right = lab.Read(b);
  dtr::StorageId a_storage = lab.runtime.graph().tensor(a).storage;
  lab.runtime.Evict(lab.runtime.graph().tensor(b).storage);
  lab.runtime.Release(a);
  lab.runtime.Validate();
  EXPECT(Live(lab, a_storage));
  EXPECT(lab.runtime.graph().storage(a_storage).resident);
  EXPECT_EQ(lab.Read(b), right);
  lab.runtime.Validate();
  EXPECT(!Live(lab, a_storage));
  EXPECT_EQ(lab.runtime.stats().rematerializations, 1u);
}

// x -> a -> {b, c}. Without b, which is evicted, nothing keeps a: b's last reference frees it.
TEST(LosingTheLastEvictedDependentBanishes) {
  Lab lab(8, "lru", 0, "banish");
  dtr::TensorId x = lab.Constant(1);
  dtr::TensorId a = lab.One("a", {x});
  dtr::TensorId b = lab.One("b", {a});
  dtr::TensorId c = lab.One("c", {a});
  dtr::StorageId a_storage = lab.runtime.graph().tensor(a).storage;
  lab.runtime.Evict(lab.runtime.graph().tensor(b).storage);
  lab.runtime.Release(a);
  EXPECT(Live(lab, a_storage));
  lab.runtime.Release(b);
  EXPECT(!Live(lab, a_storage));
  EXPECT_EQ(Of(lab, c).pins, 1u);
  lab.runtime.Validate();
}

// Only banishing frees a constant that others were made from.
TEST(ConstantsCanBeBanished) {
  for (const char* dealloc : {"eager", "banish"}) {
    Lab lab(8, "lru", 0, dealloc);
    dtr::TensorId x = lab.Constant(1);
    dtr::TensorId a = lab.One("a", {x});
    uint64_t right = lab.Read(a);
    lab.runtime.Release(x);
    lab.runtime.Validate();
    EXPECT_EQ(lab.arena.active(), (dealloc[0] == 'e' ? 2 : 1) * Lab::kUnit);
    EXPECT_EQ(lab.Read(a), right);
  }
}

// One op makes m0 and m1; both lose what made them, and stay until their own end.
TEST(AllOutputsOfAReaderArePinned) {
  Lab lab(8, "lru", 0, "banish");
  dtr::TensorId a = lab.One("a", {lab.Constant(1)});
  auto m = lab.Op("m", {a}, 2);
  uint64_t right = lab.Read(m[1]);
  lab.runtime.Release(a);
  EXPECT_EQ(Of(lab, m[0]).pins + Of(lab, m[1]).pins, 2u);
  lab.runtime.Release(m[0]);
  lab.runtime.Validate();
  EXPECT_EQ(lab.Read(m[1]), right);
  EXPECT_EQ(lab.arena.active(), 2 * Lab::kUnit);  // the constant and m1
}

// Three units hold x and two of a, b, c. Ignored releases leave all to eviction, until the end.
TEST(IgnoredReleasesTakeEffectAtTheEnd) {
  Lab lab(3, "lru", 0, "ignore");
  lab.runtime.BeginInvocation(0);
  dtr::TensorId x = lab.Constant(1);
  dtr::TensorId a = lab.One("a", {x});
  dtr::TensorId b = lab.One("b", {a});
  lab.runtime.Release(a);
  EXPECT(Of(lab, a).resident);
  dtr::TensorId c = lab.One("c", {b});
  lab.runtime.Release(b);
  lab.runtime.Validate();
  EXPECT_EQ(lab.Trace(), "a b -a c");
  EXPECT_EQ(lab.runtime.stats().eager_evictions, 0u);
  EXPECT_EQ(lab.arena.active(), 3 * Lab::kUnit);
  lab.runtime.EndInvocation();
  lab.runtime.Validate();
  EXPECT_EQ(lab.arena.active(), 2 * Lab::kUnit);  // x and c
  lab.runtime.Release(c);
  EXPECT_EQ(lab.arena.active(), Lab::kUnit);
}

TEST_MAIN()
