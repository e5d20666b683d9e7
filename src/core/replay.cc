#include "core/replay.h"

#include <algorithm>
#include <memory>
#include <stdexcept>

#include "core/arena/counting_arena.h"
#include "core/arena/page_arena.h"

namespace dtr {
namespace {

class NoExecutor : public Executor {
 public:
  void Run(const KernelCall&) override {}
};

class Recorder : public Observer {
 public:
  Recorder(const ReplayOptions& options, ReplayResult* result)
      : options_(options), result_(result) {}
  void OnRun(OpId, KernelId op, bool rematerialization, double) override {
    using Kind = ReplayResult::Event::Kind;
    Note(rematerialization ? Kind::kRematerialize : Kind::kCompute, op);
  }
  void OnEvict(StorageId storage, bool eager) override {
    using Kind = ReplayResult::Event::Kind;
    Note(eager ? Kind::kFree : Kind::kEvict, program_storage[storage]);
  }
  void OnMemory(uint64_t active_bytes) override {
    if (options_.record_memory) result_->memory.push_back(active_bytes);
  }
  std::vector<uint32_t> program_storage;  // by StorageId

 private:
  void Note(ReplayResult::Event::Kind kind, uint32_t id) {
    if (options_.record_events) result_->events.push_back({kind, id});
  }
  const ReplayOptions& options_;
  ReplayResult* result_;
};

// Follows the instructions as the VM does: one reference per program tensor.
class Player {
 public:
  Player(const Program& program, Runtime* runtime, Recorder* recorder)
      : program_(program),
        runtime_(runtime),
        recorder_(recorder),
        ids_(program.tensors.size(), kNone),
        storage_ids_(program.storages.size(), kNone),
        constant_(program.tensors.size(), false),
        external_(program.tensors.size(), false) {
    for (uint32_t t : program.external) external_[t] = true;
    overwritten_.assign(program.tensors.size(), false);
    for (const Program::OpInfo& op : program.ops) {
      if (op.overwrites != kNone) overwritten_[op.overwrites] = true;
    }
  }

  void Run(uint32_t* current_op) {
    for (uint32_t t : program_.pinned) AddConstant(t, external_[t]);
    runtime_->BeginInvocation(program_.TotalCost());
    for (const Program::Instruction& instruction : program_.instructions) {
      switch (instruction.code) {
        case Program::Code::kOp:
          *current_op = instruction.id;
          RunOp(instruction.id);
          break;
        case Program::Code::kView:
          ids_[instruction.id] = runtime_->NewView(ids_[program_.tensors[instruction.id].base]);
          break;
        case Program::Code::kKill:
          if (!IsConstant(instruction.id)) runtime_->Release(ids_[instruction.id]);
          break;
        case Program::Code::kRetain:
          if (!IsConstant(instruction.id)) runtime_->Retain(ids_[instruction.id]);
          break;
        case Program::Code::kConstant:
          AddConstant(instruction.id, true);  // memory of the executable's
          break;
      }
    }
    runtime_->EndInvocation();
    for (uint32_t t : program_.results) runtime_->Pin(ids_[t]);
  }

  // As the VM between two steps: new state takes the place of the old, everything else goes.
  void FinishStep() {
    std::vector<bool> kept(program_.tensors.size(), false);
    for (auto [result, parameter] : program_.next_state) {
      if (result == parameter) continue;
      if (kept[result] || constant_[result]) runtime_->Retain(ids_[result]);
      kept[result] = true;
      runtime_->Release(ids_[parameter]);
      ids_[parameter] = ids_[result];
      if (overwritten_[parameter]) runtime_->AllowOverwrite(ids_[parameter]);
    }
    for (uint32_t t : program_.results) {
      if (kept[t] || constant_[t]) continue;
      kept[t] = true;
      runtime_->Release(ids_[t]);
    }
    for (uint32_t t : program_.external) {
      runtime_->Release(ids_[t]);
      ids_[t] = kNone;
    }
    for (uint32_t t = 0; t < ids_.size(); ++t) {
      if (constant_[t]) continue;
      ids_[t] = kNone;
      storage_ids_[program_.tensors[t].storage] = kNone;
    }
  }

 private:
  uint64_t Bytes(uint32_t tensor) const {
    return program_.storages[program_.tensors[tensor].storage];
  }

  void AddConstant(uint32_t tensor, bool external) {
    if (ids_[tensor] != kNone) return;
    ids_[tensor] = external ? runtime_->AddExternal(this, Bytes(tensor))
                            : runtime_->AddConstant(Bytes(tensor));
    uint32_t storage = program_.tensors[tensor].storage;
    storage_ids_[storage] = runtime_->graph().tensor(ids_[tensor]).storage;
    // Evicted it can be too: by what an op has written to it, once the constant is let go of.
    Name(storage_ids_[storage], storage);
    constant_[tensor] = true;
    if (overwritten_[tensor]) runtime_->AllowOverwrite(ids_[tensor]);
  }
  // Inputs, state and constants are held by the caller as well: their names come and go freely.
  bool IsConstant(uint32_t tensor) const { return constant_[tensor]; }

  void RunOp(uint32_t id) {
    const Program::OpInfo& op = program_.ops[id];
    inputs_.clear();
    outputs_.clear();
    fresh_.clear();
    for (uint32_t t : op.inputs) inputs_.push_back(ids_[t]);
    if (op.overwrites != kNone && Overwrite(id)) return;
    for (uint32_t t : op.outputs) {
      // An output in a storage that an earlier op made is a view with an op of its own.
      StorageId& s = storage_ids_[program_.tensors[t].storage];
      if (s == kNone) {
        fresh_.push_back(s = runtime_->NewStorage(Bytes(t)));
        Name(s, program_.tensors[t].storage);
      }
      ids_[t] = runtime_->NewTensor(s);
      outputs_.push_back(ids_[t]);
    }
    for (StorageId s : fresh_) runtime_->ReleaseStorage(s);
    const Program::Kernel& kernel = program_.kernels[op.kernel];
    runtime_->Call(/*kernel=*/id, inputs_, outputs_, kernel.cost, kernel.workspace_bytes);
  }

  // The output is then another name of the operand's tensor.
  bool Overwrite(uint32_t id) {
    const Program::OpInfo& op = program_.ops[id];
    const Program::Kernel& kernel = program_.kernels[op.kernel];
    const TensorId old = ids_[op.overwrites];
    if (!runtime_->TryOverwrite(id, inputs_, old, kernel.cost, kernel.workspace_bytes)) {
      return false;
    }
    runtime_->Retain(old);
    ids_[op.outputs[0]] = old;
    return true;
  }

  void Name(StorageId id, uint32_t program_storage) {
    auto& names = recorder_->program_storage;
    if (names.size() <= id) names.resize(id + 1, kNone);
    names[id] = program_storage;
  }

  const Program& program_;
  Runtime* runtime_;
  Recorder* recorder_;
  std::vector<TensorId> ids_;
  std::vector<StorageId> storage_ids_;
  std::vector<bool> constant_, external_, overwritten_;
  std::vector<TensorId> inputs_, outputs_;
  std::vector<StorageId> fresh_;
};

}  // namespace

double Program::TotalCost() const {
  double total = 0;
  for (const OpInfo& op : ops) total += kernels[op.kernel].cost;
  return total;
}

ReplayResult Replay(const Program& program, const ReplayOptions& options) {
  ReplayResult result;
  std::unique_ptr<Arena> arena;
  if (options.exact_bytes && options.arena == "paged") {
    arena = std::make_unique<CountingArena>(options.budget);
  } else {
    arena = MakeArena(options.arena, options.budget, /*backed=*/false);
  }
  RecordingArena* recording = nullptr;
  if (options.record_allocations) {
    auto decorated = std::make_unique<RecordingArena>(std::move(arena));
    recording = decorated.get();
    arena = std::move(decorated);
  }
  bool fits = arena->Charge(options.reserve);
  NoExecutor executor;
  RuntimeOptions runtime_options = options.runtime;
  runtime_options.measure_time = options.measure_search;
  runtime_options.dispatch_cost = program.dispatch_cost;
  if (options.exact_bytes) {
    runtime_options.small_share = 0;
    runtime_options.relax_pending = false;
  }
  Recorder recorder(options, &result);
  Runtime runtime(arena.get(), &executor, runtime_options);
  constexpr size_t kMost = size_t{1} << 16;  // records of longer programs come and go
  runtime.Reserve(std::min(program.storages.size(), kMost), std::min(program.tensors.size(), kMost),
                  std::min(program.ops.size(), kMost));
  if (options.record_memory || options.record_events) runtime.AddObserver(&recorder);
  uint32_t current_op = kNone;
  try {
    if (!fits) throw BudgetError("", kNone, kNone, options.budget, 0, 0, options.reserve, {});
    Player player(program, &runtime, &recorder);
    for (int step = 0; step < options.steps; ++step) {
      if (step > 0) {
        player.FinishStep();
        runtime.ResetStats();
        arena->ResetPeak();
        result.memory.clear();
        result.events.clear();
      }
      player.Run(&current_op);
    }
    result.result = "ok";
  } catch (const BudgetError& e) {
    result.result = "oom";
    result.needed_bytes = e.needed_budget_bytes;
    result.failed_op = current_op;
  } catch (const ThrashError&) {
    result.result = "thrash";
  }
  runtime.RemoveObserver(&recorder);  // what its destructor frees is no part of the run
  if (recording) result.allocations = recording->events();
  result.peak_bytes = arena->peak_active() - (fits ? options.reserve : 0);
  result.pinned_bytes = runtime.pinned_bytes();
  result.stats = runtime.stats();
  if (result.stats.compute_cost > 0) {
    result.slowdown = 1 + result.stats.remat_cost / result.stats.compute_cost;
  }
  return result;
}

uint64_t ConstantBytes(const Program& program) {
  std::vector<uint8_t> counted(program.storages.size(), 0);
  uint64_t total = 0;
  auto add = [&](uint32_t tensor) {
    uint32_t s = program.tensors[tensor].storage;
    if (!counted[s]) total += program.storages[s];
    counted[s] = 1;
  };
  for (uint32_t t : program.pinned) add(t);
  for (const Program::Instruction& instruction : program.instructions) {
    if (instruction.code == Program::Code::kConstant) add(instruction.id);
  }
  return total;
}

uint64_t LargestOpBytes(const Program& program) {
  std::vector<uint32_t> counted(program.storages.size(), kNone);
  uint64_t most = 0;
  for (uint32_t o = 0; o < program.ops.size(); ++o) {
    uint64_t bytes = program.kernels[program.ops[o].kernel].workspace_bytes;
    auto add = [&](uint32_t tensor) {
      uint32_t s = program.tensors[tensor].storage;
      if (counted[s] != o) bytes += program.storages[s];
      counted[s] = o;
    };
    for (uint32_t t : program.ops[o].inputs) add(t);
    if (program.ops[o].overwrites == kNone) {
      for (uint32_t t : program.ops[o].outputs) add(t);
    }
    most = std::max(most, bytes);
  }
  return most;
}

uint64_t LowerBound(const Program& program, const std::string& arena_name) {
  std::unique_ptr<Arena> rounding = MakeArena(arena_name, 0, /*backed=*/false);
  const Arena& arena = *rounding;
  std::vector<uint8_t> pinned(program.storages.size(), 0), lent(program.storages.size(), 0);
  for (uint32_t t : program.external) lent[program.tensors[t].storage] = 1;
  for (const Program::Instruction& instruction : program.instructions) {
    if (instruction.code != Program::Code::kConstant) continue;
    lent[program.tensors[instruction.id].storage] = 1;
  }
  auto bytes = [&](uint32_t storage) {  // somebody else's memory counts as it is
    const uint64_t size = program.storages[storage];
    return lent[storage] ? size : arena.LeastSize(size);
  };
  uint64_t base = 0;
  for (uint32_t t : program.pinned) {
    uint32_t s = program.tensors[t].storage;
    if (!pinned[s]) base += bytes(s);
    pinned[s] = 1;
  }
  for (const Program::OpInfo& op : program.ops) {  // in the place of what is pinned, at best
    if (op.overwrites != kNone) pinned[program.tensors[op.outputs[0]].storage] = 1;
  }
  std::vector<uint32_t> counted(program.storages.size(), kNone);
  uint64_t most = 0;
  auto add = [&](uint32_t tensor, uint32_t stamp) -> uint64_t {
    uint32_t s = program.tensors[tensor].storage;
    if (pinned[s] || counted[s] == stamp) return 0;
    counted[s] = stamp;
    return bytes(s);
  };
  for (uint32_t o = 0; o < program.ops.size(); ++o) {
    const Program::OpInfo& op = program.ops[o];
    uint64_t workspace = program.kernels[op.kernel].workspace_bytes;
    uint64_t need = workspace ? arena.LeastSize(workspace) : 0;
    for (uint32_t t : op.inputs) need += add(t, o);
    if (op.overwrites == kNone) {
      for (uint32_t t : op.outputs) need += add(t, o);
    }
    most = std::max(most, need);
  }
  uint64_t results = 0;
  auto last = static_cast<uint32_t>(program.ops.size());
  for (uint32_t t : program.results) results += add(t, last);
  return base + std::max(most, results);
}

namespace {

// With the reserve and without: more memory is not always better.
bool Works(const Program& program, ReplayOptions options, uint64_t budget) {
  options.budget = budget;
  if (Replay(program, options).result != "ok") return false;
  if (options.reserve == 0) return true;
  options.reserve = 0;
  return Replay(program, options).result == "ok";
}

// The end of a bisection between a budget that fails and one that works.
uint64_t Bisect(const Program& program, const ReplayOptions& options, uint64_t fails,
                uint64_t works, uint64_t tolerance) {
  while (works - fails > tolerance) {
    uint64_t middle = fails + (works - fails) / 2;
    (Works(program, options, middle) ? works : fails) = middle;
  }
  return works;
}

}  // namespace

uint64_t SmallestBudget(const Program& program, const ReplayOptions& options, uint64_t tolerance) {
  constexpr uint64_t kSamples = 12;
  tolerance = std::max<uint64_t>(tolerance, PageArena::kPage);
  ReplayOptions unlimited = options;
  unlimited.budget = kUnlimited;
  uint64_t peak = Replay(program, unlimited).peak_bytes + options.reserve;
  uint64_t lowest = std::min(LowerBound(program, options.arena) + options.reserve, peak);
  if (Works(program, options, lowest)) return lowest;
  uint64_t works = Bisect(program, options, lowest, peak, tolerance);
  uint64_t below = lowest;
  for (uint64_t i = 1; i < kSamples; ++i) {
    uint64_t sample = lowest + (works - lowest) / kSamples * i;
    if (sample + tolerance >= works) break;
    if (Works(program, options, sample)) return Bisect(program, options, below, sample, tolerance);
    below = sample;
  }
  return works;
}

}  // namespace dtr
