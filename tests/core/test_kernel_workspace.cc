// Workspace that stays from op to op while memory is short.
#include <string>
#include <vector>

#include "check.h"
#include "lab.h"

using dtr_test::Lab;

namespace {

constexpr uint64_t kUnits = 32;  // the budget; workspace of up to a 16th of it may stay

class Workspaces : public dtr::Observer {
 public:
  void OnAllocate(dtr::StorageId storage, uint64_t) override { taken += storage == dtr::kNone; }
  void OnFree(dtr::StorageId storage, uint64_t, dtr::FreeReason) override {
    given += storage == dtr::kNone;
  }
  int taken = 0, given = 0;
};

// A step of `ops` ops, of one unit each and with workspace of `workspace` bytes.
std::vector<dtr::TensorId> RunChain(Lab* lab, int ops, uint64_t workspace) {
  std::vector<dtr::TensorId> made{lab->Constant(3)};
  for (int i = 0; i < ops; ++i) {
    made.push_back(lab->Op("f" + std::to_string(i), {made.back()}, 1, 1, 1, workspace)[0]);
  }
  return made;
}

}  // namespace

TEST(WhileMemoryLastsEachOpTakesItsOwn) {
  Workspaces seen;
  Lab lab(kUnits);
  lab.runtime.AddObserver(&seen);
  lab.runtime.BeginInvocation(0);
  RunChain(&lab, 20, Lab::kUnit);
  EXPECT_EQ(seen.taken, 20);
  EXPECT_EQ(seen.given, 20);
}

TEST(WhenMemoryIsShortItStaysUntilTheStepEnds) {
  Workspaces seen;
  Lab lab(kUnits), alone(dtr::kUnlimited);
  lab.runtime.AddObserver(&seen);
  lab.runtime.BeginInvocation(0);
  std::vector<dtr::TensorId> made = RunChain(&lab, 100, Lab::kUnit);
  EXPECT(lab.runtime.stats().evictions > 50);
  EXPECT(seen.taken < 40);
  EXPECT_EQ(seen.taken, seen.given + 1);
  EXPECT(lab.arena.peak_mapped() <= lab.arena.capacity());
  lab.runtime.Validate();
  lab.runtime.EndInvocation();
  EXPECT_EQ(seen.taken, seen.given);
  std::vector<dtr::TensorId> expected = RunChain(&alone, 100, Lab::kUnit);
  for (size_t i = 0; i < made.size(); ++i) EXPECT_EQ(lab.Read(made[i]), alone.Read(expected[i]));
}

TEST(LargeWorkspaceDoesNotStay) {
  Workspaces seen;
  Lab lab(kUnits);
  lab.runtime.AddObserver(&seen);
  lab.runtime.BeginInvocation(0);
  RunChain(&lab, 100, 3 * Lab::kUnit);
  EXPECT(lab.runtime.stats().evictions > 50);
  EXPECT_EQ(seen.taken, 100);
  EXPECT_EQ(seen.given, 100);
}

TEST(ItGoesWhenNothingElseCan) {
  Workspaces seen;
  Lab lab(kUnits);
  lab.runtime.AddObserver(&seen);
  lab.runtime.BeginInvocation(0);
  std::vector<dtr::TensorId> made = RunChain(&lab, 60, Lab::kUnit);
  EXPECT_EQ(seen.taken, seen.given + 1);
  // All but the constant and the op's operand.
  lab.Op("large", {made.back()}, 1, 1, kUnits - 2);
  EXPECT_EQ(seen.taken, seen.given);
  lab.runtime.Validate();
}

TEST(AnUnusedOneGoesBeforeTensorsDo) {
  Workspaces seen;
  Lab lab(kUnits);
  lab.runtime.AddObserver(&seen);
  lab.runtime.BeginInvocation(0);
  RunChain(&lab, 60, Lab::kUnit);
  EXPECT_EQ(seen.taken, seen.given + 1);
  RunChain(&lab, 60, 0);
  EXPECT_EQ(seen.taken, seen.given);
}

// What follows a schedule was planned without it.
TEST(ASchedulesWorkspaceDoesNotStay) {
  Workspaces seen;
  Lab lab(kUnits);
  lab.runtime.AddObserver(&seen);
  lab.runtime.FollowSchedule(true);
  lab.runtime.BeginInvocation(0);
  RunChain(&lab, 100, Lab::kUnit);
  EXPECT_EQ(seen.taken, 100);
  EXPECT_EQ(seen.given, 100);
}

TEST_MAIN()
