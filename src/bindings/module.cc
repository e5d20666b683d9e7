// _core: the TVM-free core for Python. Thin: convert, call, convert back.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <tuple>

#include "bindings/arena.h"
#include "bindings/planning.h"
#include "core/arena.h"
#include "core/deallocation.h"
#include "core/policy.h"
#include "core/replay.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using Ids = std::vector<uint32_t>;

// Tensors are (storage, base or -1), ops (kernel, inputs, outputs), instructions (code, id) with
// codes 0 op, 1 view, 2 kill, 3 constant, 4 retain.
dtr::Program MakeProgram(const std::vector<std::tuple<double, uint64_t>>& kernels,
                         const std::vector<uint64_t>& storages,
                         const std::vector<std::tuple<uint32_t, int64_t>>& tensors,
                         const std::vector<std::tuple<uint32_t, Ids, Ids>>& ops, const Ids& pinned,
                         const Ids& results,
                         const std::vector<std::tuple<int, uint32_t>>& instructions,
                         const Ids& external,
                         const std::vector<std::pair<uint32_t, uint32_t>>& next_state,
                         const std::vector<std::pair<uint32_t, uint32_t>>& overwrites) {
  dtr::Program program;
  program.external = external;
  program.next_state = next_state;
  for (const auto& [cost, workspace] : kernels) program.kernels.push_back({cost, workspace});
  program.storages = storages;
  for (const auto& [storage, base] : tensors) {
    program.tensors.push_back({storage, base < 0 ? dtr::kNone : static_cast<uint32_t>(base)});
  }
  for (const auto& [kernel, inputs, outputs] : ops) {
    program.ops.push_back({kernel, inputs, outputs, dtr::kNone});
  }
  for (auto [op, input] : overwrites) {
    if (op >= program.ops.size() || input >= program.ops[op].inputs.size()) {
      throw std::invalid_argument("op graph: overwriting op " + std::to_string(op) +
                                  " names something that does not exist");
    }
    program.ops[op].overwrites = program.ops[op].inputs[input];
  }
  program.pinned = pinned;
  program.results = results;
  for (const auto& [code, id] : instructions) {
    if (code < 0 || code > 4) throw std::invalid_argument("op graph: unknown instruction code");
    program.instructions.push_back({static_cast<dtr::Program::Code>(code), id});
  }
  program.Check();
  return program;
}

template <typename T>
using Array = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <typename T>
std::vector<T> Copy(const Array<T>& array) {
  return std::vector<T>(array.data(), array.data() + array.shape(0));
}

// The ids of run `i` of a list of lists: values[starts[i]] to values[starts[i + 1]].
Ids RunOf(const Array<uint32_t>& values, const Array<uint64_t>& starts, size_t i) {
  uint64_t first = starts.data()[i], last = starts.data()[i + 1];
  if (first > last || last > values.shape(0)) {
    throw std::invalid_argument("op graph: the starts of op " + std::to_string(i) +
                                " are out of order");
  }
  return Ids(values.data() + first, values.data() + last);
}

// As MakeProgram, for programs of millions of ops: a kernel an op, a storage a tensor.
dtr::Program MakeLargeProgram(const Array<double>& costs, const Array<uint64_t>& sizes,
                              const Array<uint32_t>& inputs, const Array<uint64_t>& input_starts,
                              const Array<uint32_t>& outputs, const Array<uint64_t>& output_starts,
                              const Ids& pinned, const Ids& results, const Array<uint8_t>& codes,
                              const Array<uint32_t>& ids) {
  dtr::Program program;
  const size_t ops = costs.shape(0);
  if (input_starts.shape(0) != ops + 1 || output_starts.shape(0) != ops + 1 ||
      codes.shape(0) != ids.shape(0)) {
    throw std::invalid_argument("op graph: the arrays differ in length");
  }
  program.storages = Copy(sizes);
  for (uint32_t t = 0; t < sizes.shape(0); ++t) program.tensors.push_back({t, dtr::kNone});
  for (uint32_t o = 0; o < ops; ++o) {
    program.kernels.push_back({costs.data()[o], 0});
    program.ops.push_back(
        {o, RunOf(inputs, input_starts, o), RunOf(outputs, output_starts, o), dtr::kNone});
  }
  program.pinned = pinned;
  program.results = results;
  for (size_t i = 0; i < ids.shape(0); ++i) {
    if (codes.data()[i] > 4) throw std::invalid_argument("op graph: unknown instruction code");
    program.instructions.push_back(
        {static_cast<dtr::Program::Code>(codes.data()[i]), ids.data()[i]});
  }
  program.Check();
  return program;
}

dtr::RuntimeOptions Options(const std::string& policy, const std::string& search, uint64_t seed,
                            double thrash_limit, const std::string& dealloc) {
  dtr::RuntimeOptions options;
  options.policy = policy;
  options.search = search;
  options.seed = seed;
  options.thrash_limit = thrash_limit;
  options.dealloc = dealloc;
  return options;
}

// (kind, id) pairs: "compute" and "rematerialize" name ops, "evict" and "free" storages.
nb::list Events(const dtr::ReplayResult& result) {
  static constexpr const char* kNames[] = {"compute", "rematerialize", "evict", "free"};
  nb::list events;
  for (const auto& event : result.events) {
    events.append(nb::make_tuple(kNames[static_cast<int>(event.kind)], event.id));
  }
  return events;
}

// (kind, block, bytes): requests of the arena in their order; see core/arena/recording_arena.h.
nb::list Allocations(const dtr::ReplayResult& result) {
  static constexpr const char* kNames[] = {"allocate", "free", "refuse", "charge", "discharge"};
  nb::list events;
  for (const dtr::ArenaEvent& e : result.allocations) {
    events.append(nb::make_tuple(kNames[static_cast<int>(e.kind)], e.block, e.bytes));
  }
  return events;
}

nb::dict Run(const dtr::Program& program, std::optional<uint64_t> budget, const std::string& policy,
             const std::string& search, uint64_t seed, double thrash_limit, bool memory,
             bool events, bool exact_bytes, const std::string& dealloc, uint64_t reserve, int steps,
             bool measure_search, const std::string& arena, bool allocations) {
  dtr::ReplayOptions options;
  options.steps = steps;
  options.budget = budget.value_or(dtr::kUnlimited);
  options.runtime = Options(policy, search, seed, thrash_limit, dealloc);
  options.record_memory = memory;
  options.record_events = events;
  options.exact_bytes = exact_bytes;
  options.reserve = reserve;
  options.measure_search = measure_search;
  options.arena = arena;
  options.record_allocations = allocations;
  dtr::ReplayResult r;
  {
    nb::gil_scoped_release release;
    r = dtr::Replay(program, options);
  }
  nb::dict out;
  out["result"] = r.result;
  out["peak_bytes"] = r.peak_bytes;
  out["pinned_bytes"] = r.pinned_bytes;
  out["needed_bytes"] = r.needed_bytes;
  out["failed_op"] = r.failed_op == dtr::kNone ? -1 : static_cast<int64_t>(r.failed_op);
  out["slowdown"] = r.slowdown;
  out["calls"] = r.stats.calls;
  out["evictions"] = r.stats.evictions;
  out["eager_evictions"] = r.stats.eager_evictions;
  out["banishments"] = r.stats.banishments;
  out["overwrites"] = r.stats.overwrites;
  out["copies_on_write"] = r.stats.copies_on_write;
  out["rematerializations"] = r.stats.rematerializations;
  out["compute_cost"] = r.stats.compute_cost;
  out["remat_cost"] = r.stats.remat_cost;
  if (measure_search) out["search_seconds"] = r.stats.search_seconds;
  if (memory) out["memory"] = r.memory;
  if (events) out["events"] = Events(r);
  if (allocations) out["allocations"] = Allocations(r);
  return out;
}

}  // namespace

NB_MODULE(_core, m) {
  // Caches of the package hold objects until the process ends; that is no leak to warn a user of.
  nb::set_leak_warnings(false);
  m.doc() = "The core of tvm-dtr: replay of programs on the DTR runtime. No TVM.";
  BindArena(m);
  m.def("searches", &dtr::SearchNames, "Names that --search takes.");
  m.def("policies", &dtr::PolicyNames, "Names that --policy takes.");
  m.def("arenas", &dtr::ArenaNames, "Names that --arena takes.");
  m.def("deallocations", &dtr::DeallocationNames, "Names that --dealloc takes.");
  m.attr("DISPATCH_COST") = dtr::kDispatchCost;
  nb::class_<dtr::Program> program(m, "Replay");
  program
      .def(
          "__init__",
          [](dtr::Program* self, const std::vector<std::tuple<double, uint64_t>>& kernels,
             const std::vector<uint64_t>& storages,
             const std::vector<std::tuple<uint32_t, int64_t>>& tensors,
             const std::vector<std::tuple<uint32_t, Ids, Ids>>& ops, const Ids& pinned,
             const Ids& results, const std::vector<std::tuple<int, uint32_t>>& instructions,
             const Ids& external, const std::vector<std::pair<uint32_t, uint32_t>>& next_state,
             const std::vector<std::pair<uint32_t, uint32_t>>& overwrites, double dispatch_cost) {
            new (self) dtr::Program(MakeProgram(kernels, storages, tensors, ops, pinned, results,
                                                instructions, external, next_state, overwrites));
            self->dispatch_cost = dispatch_cost;
          },
          "kernels"_a, "storages"_a, "tensors"_a, "ops"_a, "pinned"_a, "results"_a,
          "instructions"_a, "external"_a = Ids(),
          "next_state"_a = std::vector<std::pair<uint32_t, uint32_t>>(),
          "overwrites"_a = std::vector<std::pair<uint32_t, uint32_t>>(), "dispatch_cost"_a = 0.0)
      .def_static("from_arrays", &MakeLargeProgram, "costs"_a, "sizes"_a, "inputs"_a,
                  "input_starts"_a, "outputs"_a, "output_starts"_a, "pinned"_a, "results"_a,
                  "codes"_a, "ids"_a,
                  "One cost an op, one size a tensor; ops name tensors by runs of flat arrays.")
      .def("run", &Run, "budget"_a = nb::none(), "policy"_a = "dtr-eq", "search"_a = "heap",
           "seed"_a = 0, "thrash_limit"_a = 10.0, "memory"_a = false, "events"_a = false,
           "exact_bytes"_a = false, "dealloc"_a = "eager", "reserve"_a = 0, "steps"_a = 1,
           "measure_search"_a = false, "arena"_a = "paged", "allocations"_a = false)
      .def("lower_bound", &dtr::LowerBound, "arena"_a = "paged")
      .def("constant_bytes", &dtr::ConstantBytes)
      .def("largest_op_bytes", &dtr::LargestOpBytes)
      .def(
          "smallest_budget",
          [](const dtr::Program& program, const std::string& policy, const std::string& search,
             uint64_t seed, double thrash_limit, uint64_t tolerance, const std::string& dealloc,
             uint64_t reserve, int steps, const std::string& arena) {
            nb::gil_scoped_release release;
            dtr::ReplayOptions options;
            options.runtime = Options(policy, search, seed, thrash_limit, dealloc);
            options.reserve = reserve;
            options.steps = steps;
            options.arena = arena;
            return dtr::SmallestBudget(program, options, tolerance);
          },
          "policy"_a = "dtr-eq", "search"_a = "heap", "seed"_a = 0, "thrash_limit"_a = 10.0,
          "tolerance"_a = 65536, "dealloc"_a = "eager", "reserve"_a = 0, "steps"_a = 1,
          "arena"_a = "paged");
  AddPlanning(&program);
}
