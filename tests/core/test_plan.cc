// Planning: the timeline's memory against a plain recount, moves that undo, schedules by hand.
#include <algorithm>
#include <random>

#include "check.h"
#include "core/plan/anneal.h"
#include "core/plan/in_place.h"
#include "core/plan/order_search.h"
#include "core/plan/repair.h"
#include "core/plan/schedule.h"
#include "core/plan/timeline.h"

namespace {

using Kind = dtr::Schedule::Step::Kind;

// Ops of up to two outputs that read up to three of the latest; sizes 1 to 9, unit kernels.
dtr::Program RandomProgram(uint64_t seed, uint32_t ops) {
  std::mt19937_64 random(seed);
  dtr::Program program;
  auto tensor = [&] {
    program.storages.push_back(1 + random() % 9);
    program.tensors.push_back({static_cast<uint32_t>(program.storages.size() - 1), dtr::kNone});
    return static_cast<uint32_t>(program.tensors.size() - 1);
  };
  program.kernels = {{3, 0}, {1, 2}};
  std::vector<uint32_t> made = {tensor()};
  program.pinned = made;
  for (uint32_t o = 0; o < ops; ++o) {
    dtr::Program::OpInfo op{static_cast<uint32_t>(random() % 2), {}, {}};
    for (uint64_t i = 0; i <= random() % 3; ++i) {
      op.inputs.push_back(made[made.size() - 1 - random() % std::min<size_t>(made.size(), 6)]);
    }
    for (uint64_t i = 0; i <= random() % 2; ++i) op.outputs.push_back(tensor());
    made.insert(made.end(), op.outputs.begin(), op.outputs.end());
    program.ops.push_back(op);
    program.instructions.push_back({dtr::Program::Code::kOp, o});
  }
  program.results = {made.back()};
  program.Check();
  return program;
}

uint64_t RecountedPeak(const dtr::Program& program, const dtr::Timeline& timeline) {
  dtr::CheckOptions exact;
  exact.exact_bytes = true;
  dtr::ScheduleReport report =
      dtr::CheckSchedule(program, dtr::ScheduleOf(program, timeline.Sequence()), exact);
  EXPECT_EQ(report.problem, "");
  EXPECT_EQ(report.recomputed, timeline.recomputations());
  EXPECT_EQ(report.cost, report.own_cost + timeline.extra_cost());
  return report.peak_bytes;
}

}  // namespace

TEST(MemoryIsKeptUpToDate) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    dtr::Program program = RandomProgram(seed, 25);
    dtr::PlanningGraph graph = dtr::MakePlanningGraph(program, /*exact_bytes=*/true);
    dtr::Timeline timeline(graph);
    const uint64_t plain = timeline.Peak();
    EXPECT_EQ(plain, RecountedPeak(program, timeline));
    std::mt19937_64 random(seed);
    for (int move = 0; move < 300; ++move) {
      auto stage = static_cast<uint32_t>(1 + random() % 24);
      dtr::Timeline::Key event = timeline.KeyOf(stage, static_cast<uint32_t>(random() % stage));
      if (timeline.Has(event)) {
        timeline.Remove(event);
      } else {
        timeline.Add(event);
      }
      EXPECT_EQ(timeline.Peak(), RecountedPeak(program, timeline));
    }
    for (dtr::Timeline::Key event : timeline.Recomputations()) timeline.Remove(event);
    EXPECT_EQ(timeline.Peak(), plain);
    EXPECT_EQ(timeline.extra_cost(), 0.0);
  }
}

TEST(AnnealedPlansFitAndAreWhatTheySay) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    dtr::Program program = RandomProgram(seed, 40);
    dtr::PlanningGraph graph = dtr::MakePlanningGraph(program, /*exact_bytes=*/true);
    dtr::AnnealOptions options;
    options.budget = dtr::Timeline(graph).Peak() * 8 / 10;
    options.time_limit = 0.05;
    options.free_order = seed % 2 == 1;
    dtr::AnnealResult result = dtr::Anneal(graph, options);
    dtr::CheckOptions exact;
    exact.exact_bytes = true;
    dtr::ScheduleReport report =
        dtr::CheckSchedule(program, dtr::ScheduleOf(program, result.sequence), exact);
    EXPECT_EQ(report.problem, "");
    EXPECT_EQ(report.peak_bytes, result.peak_bytes);
    EXPECT_EQ(report.cost, result.cost);
    if (result.feasible) EXPECT(result.peak_bytes <= options.budget);
  }
}

TEST(AnotherOrderIsTopological) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    dtr::Program program = RandomProgram(seed, 40);
    dtr::PlanningGraph graph = dtr::MakePlanningGraph(program, /*exact_bytes=*/true);
    std::vector<uint32_t> order =
        dtr::SearchOrder(graph, graph.pinned_bytes, 0.02, seed, [] { return false; });
    dtr::Timeline timeline(graph);
    dtr::PlanningGraph reordered = dtr::Reordered(graph, order);
    EXPECT_EQ(dtr::Timeline(reordered).Peak(), RecountedPeak(program, dtr::Timeline(reordered)));
  }
}

// An op that overwrites a parameter: what reads the old value must not run again after it.
TEST(NothingRunsAgainThroughAnOverwrittenValue) {
  dtr::Program program;
  program.kernels = {{1, 0}};
  program.storages = {4, 4, 4};
  // w; y = f(w); w' = update(w, y) in w's storage; z = g(y)
  program.tensors = {{0, dtr::kNone}, {1, dtr::kNone}, {0, dtr::kNone}, {2, dtr::kNone}};
  program.ops = {{0, {0}, {1}}, {0, {0, 1}, {2}}, {0, {1}, {3}}};
  program.pinned = {0};
  program.results = {2, 3};
  for (uint32_t o = 0; o < 3; ++o) program.instructions.push_back({dtr::Program::Code::kOp, o});
  dtr::PlanningGraph graph = dtr::MakePlanningGraph(program, true);
  dtr::Timeline timeline(graph);
  EXPECT(timeline.Allowed(timeline.KeyOf(1, 0)));
  EXPECT(!timeline.Allowed(timeline.KeyOf(2, 0)));
  EXPECT(!timeline.Allowed(timeline.KeyOf(2, 1)));
  auto report = dtr::CheckSchedule(program, dtr::ScheduleOf(program, {0, 1, 2}), {});
  EXPECT_EQ(report.problem, "");
  report = dtr::CheckSchedule(program, dtr::ScheduleOf(program, {0, 1, 0, 2}), {});
  EXPECT_EQ(report.problem, "op 0 reads storage 0, which was overwritten");
}

// As the VM's programs have it: the update has a storage of its own that may take the old one's
// place. Where something behind it reads the old value, it does not.
TEST(AnUpdateRunsInPlaceWhereTheOrderAllows) {
  dtr::Program program;
  program.kernels = {{1, 0}};
  program.storages = {4, 5, 4, 6};
  // w; y = f(w); w' = update(w, y); z = g(y)
  program.tensors = {{0, dtr::kNone}, {1, dtr::kNone}, {2, dtr::kNone}, {3, dtr::kNone}};
  program.ops = {{0, {0}, {1}}, {0, {0, 1}, {2}, 0}, {0, {1}, {3}}};
  program.pinned = {0};
  program.results = {2, 3};
  program.next_state = {{2, 0}};
  for (uint32_t o = 0; o < 3; ++o) program.instructions.push_back({dtr::Program::Code::kOp, o});
  dtr::CheckOptions exact;
  exact.exact_bytes = true;
  auto check = [&](const std::vector<uint32_t>& ops) {
    return dtr::CheckSchedule(program, dtr::ScheduleOf(program, ops), exact);
  };
  EXPECT_EQ(check({0, 1, 2}).peak_bytes, 4u + 5 + 6);
  EXPECT(dtr::OverwritesIn(program, {0, 1, 2}) == std::vector<uint32_t>{1});
  auto report = check({0, 1, 0, 2});  // y again from the old w
  EXPECT_EQ(report.problem, "");
  EXPECT_EQ(report.peak_bytes, 4u + 5 + 4 + 6);
  EXPECT(dtr::OverwritesIn(program, {0, 1, 0, 2}).empty());
  dtr::PlanningGraph graph = dtr::MakePlanningGraph(program, true);
  EXPECT_EQ(dtr::Timeline(graph).Peak(), 4u + 5 + 6);
  EXPECT(!dtr::Timeline(graph).Allowed(2 * 3 + 0));
  EXPECT_EQ(dtr::Reordered(graph, {0, 2, 1}).ops[0].last_rerun, 2u);
}

TEST_MAIN()
