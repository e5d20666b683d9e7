#include "bindings/planning.h"

#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <tuple>
#include <utility>

#include "core/plan/anneal.h"
#include "core/plan/in_place.h"
#include "core/plan/planning_graph.h"
#include "core/plan/schedule.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using Ids = std::vector<uint32_t>;
using Steps = std::vector<std::tuple<std::string, uint32_t>>;
using Progress = std::function<bool(double, std::optional<double>)>;

dtr::Schedule FromSteps(const Steps& steps) {
  dtr::Schedule schedule;
  for (const auto& [kind, id] : steps) {
    if (kind != "compute" && kind != "free") {
      throw std::invalid_argument("schedule: unknown step '" + kind + "': use compute or free");
    }
    auto code =
        kind == "compute" ? dtr::Schedule::Step::Kind::kCompute : dtr::Schedule::Step::Kind::kFree;
    schedule.steps.push_back({code, id});
  }
  return schedule;
}

Steps ToSteps(const dtr::Schedule& schedule) {
  Steps steps;
  for (const auto& step : schedule.steps) {
    bool compute = step.kind == dtr::Schedule::Step::Kind::kCompute;
    steps.emplace_back(compute ? "compute" : "free", step.id);
  }
  return steps;
}

nb::dict Check(const dtr::Program& program, const Steps& steps, bool exact_bytes, int repeat) {
  dtr::ScheduleReport r = dtr::CheckSchedule(program, FromSteps(steps), {exact_bytes, repeat});
  nb::dict out;
  out["valid"] = r.valid;
  out["problem"] = r.problem;
  out["peak_bytes"] = r.peak_bytes;
  out["pinned_bytes"] = r.pinned_bytes;
  out["cost"] = r.cost;
  out["own_cost"] = r.own_cost;
  out["slowdown"] = r.slowdown();
  out["computed"] = r.computed;
  out["recomputed"] = r.recomputed;
  return out;
}

nb::dict PlanningGraphDict(const dtr::Program& program, bool exact_bytes) {
  dtr::PlanningGraph graph = dtr::MakePlanningGraph(program, exact_bytes);
  nb::list ops;
  for (const auto& op : graph.ops) {
    uint32_t last = std::min(op.last_rerun, graph.size());
    ops.append(nb::make_tuple(op.id, op.cost, op.workspace_bytes, op.inputs, op.outputs, last));
  }
  nb::dict out;
  out["ops"] = ops;
  out["bytes"] = graph.bytes;
  nb::list kept;
  for (uint32_t s = 0; s < graph.kept.size(); ++s) {
    if (graph.kept[s]) kept.append(s);
  }
  out["kept"] = kept;
  out["pinned_bytes"] = graph.pinned_bytes;
  return out;
}

nb::dict RunAnneal(const dtr::Program& program, uint64_t budget, double time_limit, uint64_t seed,
                   bool exact_bytes, const std::vector<Ids>& starts, bool free_order,
                   const std::optional<Progress>& progress) {
  dtr::AnnealOptions options;
  options.budget = budget;
  options.time_limit = time_limit;
  options.seed = seed;
  options.starts = starts;
  options.free_order = free_order;
  if (progress) {
    options.progress = [&](const dtr::AnnealProgress& p) {
      nb::gil_scoped_acquire acquire;
      return (*progress)(p.seconds, p.feasible ? std::optional<double>(p.cost) : std::nullopt);
    };
  }
  dtr::AnnealResult r;
  {
    nb::gil_scoped_release release;
    r = dtr::Anneal(dtr::MakePlanningGraph(program, exact_bytes), options);
  }
  nb::dict out;
  out["feasible"] = r.feasible;
  out["sequence"] = r.sequence;
  out["peak_bytes"] = r.peak_bytes;
  out["cost"] = r.cost;
  out["moves"] = r.moves;
  out["accepted"] = r.accepted;
  out["seconds"] = r.seconds;
  return out;
}

}  // namespace

void AddPlanning(nb::class_<dtr::Program>* program) {
  (*program)
      .def("order", &dtr::ProgramOrder, "Op ids in the order they run.")
      .def(
          "schedule_of",
          [](const dtr::Program& p, const Ids& ops) { return ToSteps(dtr::ScheduleOf(p, ops)); },
          "ops"_a, "Steps that compute `ops` in order and free storages as early as can be.")
      .def(
          "overwrites_in",
          [](const dtr::Program& p, const Ids& ops) { return dtr::OverwritesIn(p, ops); }, "ops"_a,
          "Those of `ops` that write over the parameter that they update, in this order.")
      .def("check_schedule", &Check, "steps"_a, "exact_bytes"_a = false, "steps_run"_a = 1,
           "Peak, cost and validity of a schedule.")
      .def("planning_graph", &PlanningGraphDict, "exact_bytes"_a = false)
      .def("anneal", &RunAnneal, "budget"_a, "time_limit"_a = 10.0, "seed"_a = 0,
           "exact_bytes"_a = false, "starts"_a = std::vector<Ids>(), "free_order"_a = false,
           "progress"_a = nb::none());
}
