// Running ops: materialization on an explicit stack, the thrash guard. Memory: eviction.cc.
#include <algorithm>

#include "core/runtime.h"
#include "core/timer.h"

namespace dtr {
void Runtime::Call(KernelId kernel, Span<TensorId> inputs, Span<TensorId> outputs, double cost,
                   uint64_t workspace_bytes) {
  for (TensorId out : outputs) {
    const Tensor& t = graph_.tensors_[out];
    DTR_CHECK(t.live && t.base == kNone && t.producer == kNone && !t.defined,
              "an op may only fill a fresh tensor");
  }
  for (TensorId in : inputs) {
    const Tensor& t = graph_.tensors_[graph_.Root(in)];
    DTR_CHECK(t.live && (t.defined || t.producer != kNone), "an op reads an unwritten tensor");
  }
  OpId id = graph_.ops_.Add();
  RecordOp(id, kernel, inputs, outputs, cost, workspace_bytes);
  try {
    Execute(id, /*first_run=*/true, kNone);
  } catch (...) {
    UnrecordOp(id);
    throw;
  }
}

void* Runtime::Data(TensorId id) {
  TensorId root = graph_.Root(id);
  if (!graph_.tensors_[root].defined) {
    OpId producer = graph_.tensors_[root].producer;
    DTR_CHECK(producer != kNone, "the tensor was never written");
    Execute(producer, /*first_run=*/false, root);
  }
  StorageId storage = graph_.tensors_[root].storage;
  graph_.Touch(storage, clock_);
  return graph_.storages_[storage].block.data;
}

void* Runtime::Pin(TensorId id) {
  void* data = Data(id);
  TensorId root = graph_.Root(id);
  Tensor& t = graph_.tensors_[root];
  if (t.detached) return data;
  PinTensor(root);
  if (--graph_.ops_[t.producer].live_outputs == 0) dead_ops_.push_back(t.producer);
  DropDeadOps();
  BanishWhatCan();
  return data;
}

// Runs `target`, first bringing back whatever it needs. An explicit stack, because chains of
// evicted tensors are as long as programs. Each pending op keeps locked what it has gathered.
void Runtime::Execute(OpId target, bool first_run, TensorId wanted) {
  stack_.clear();
  PushFrame({target, 0, first_run, wanted});
  try {
    while (!stack_.empty()) {
      if (!stack_.back().locked) LockOperands();
      if (OpId missing = NextMissing(); missing != kNone) {
        PushFrame({missing, 0, false, kNone});
        continue;
      }
      Perform(stack_.back());
      PopFrame();
    }
  } catch (...) {
    while (!stack_.empty()) PopFrame();
    if (kept_workspace_) DropWorkspace();
    EvictTainted();
    BanishWhatCan();
    throw;
  }
  BanishWhatCan();
}

void Runtime::PushFrame(const Frame& frame) {
  stack_.push_back(frame);
  for (TensorId in : graph_.ops_[frame.op].inputs) {
    graph_.Touch(graph_.tensors_[in].storage, clock_);
  }
  LockOperands();
}

// Locks all operands at once, those in memory so that gathering one does not evict another, the
// others so that they are locked as soon as they are back.
void Runtime::LockOperands() {
  Frame& frame = stack_.back();
  for (TensorId in : graph_.ops_[frame.op].inputs) Lock(graph_.tensors_[in].storage);
  frame.locked = true;
  frame.next_input = 0;
}

void Runtime::UnlockOperands(Frame* frame) {
  if (!frame->locked) return;
  for (TensorId in : graph_.ops_[frame->op].inputs) Unlock(graph_.tensors_[in].storage);
  frame->locked = false;
}

void Runtime::PopFrame() {
  UnlockOperands(&stack_.back());
  stack_.pop_back();
}

// With nothing left to evict, the op that has waited longest lets go of what it has gathered: it
// gathers again when its turn comes. Bounded, so that two operands that do not fit together with
// what it takes to make the other end in an error and not in a loop.
bool Runtime::RelaxPending() {
  constexpr int kMostRelaxations = 2;
  if (!options_.relax_pending) return false;
  for (size_t i = 0; i + 1 < stack_.size(); ++i) {
    Frame& frame = stack_[i];
    if (!frame.locked || frame.relaxations == kMostRelaxations) continue;
    frame.relaxations++;
    UnlockOperands(&frame);
    return true;
  }
  return false;
}

// The producer of the first operand of the op on top of the stack that is not in memory; kNone
// when all are.
OpId Runtime::NextMissing() {
  Frame& frame = stack_.back();
  const Op& op = graph_.ops_[frame.op];
  for (; frame.next_input < op.inputs.size(); ++frame.next_input) {
    const Tensor& t = graph_.tensors_[graph_.Root(op.inputs[frame.next_input])];
    if (t.defined) continue;
    DTR_CHECK(t.producer != kNone, "an evicted tensor has lost its history");
    return t.producer;
  }
  return kNone;
}

void Runtime::Lock(StorageId id) {
  graph_.storages_[id].locks++;
  graph_.UpdateEvictable(id);
}

void Runtime::Unlock(StorageId id) {
  graph_.storages_[id].locks--;
  graph_.UpdateEvictable(id);
}

void Runtime::Perform(const Frame& frame) {
  if (!frame.first_run) CheckThrash();
  bool started = false;
  try {
    AllocateOutputs(frame);
    if (frame.op == overwrite_.op && !BeginOverwrite()) return ReleaseOutputs();
    started = true;
    RunKernel(frame);
  } catch (...) {
    if (started) tainted_ = locked_outputs_;
    for (StorageId s : fresh_) {
      graph_.storages_[s].resident = true;
      FreeStorageBlock(s);
    }
    ReleaseOutputs();
    throw;
  }
  Finish(frame);
}

// A kernel that failed may have left anything in the outputs that were in memory already: they
// are computed again when next needed.
void Runtime::EvictTainted() {
  for (StorageId s : tainted_) {
    if (graph_.storages_[s].evictable_index != kNone) Evict(s, /*eager=*/true);
  }
  tainted_.clear();
}

// Every output gets memory and a lock. A pinned output belongs to the caller now: a scratch block
// takes what the kernel writes again. A resident sibling is overwritten with the same bits.
void Runtime::AllocateOutputs(const Frame& frame) {
  const Op& op = graph_.ops_[frame.op];
  output_data_.clear();
  for (TensorId out : op.outputs) {
    const Tensor& t = graph_.tensors_[out];
    Storage& s = graph_.storages_[t.storage];
    if (t.detached) {
      scratch_.push_back(AllocateWorkspace(s.bytes, frame.op));
      output_data_.push_back(scratch_.back().data);
      continue;
    }
    if (!s.block) {
      s.block = AllocateOrEvict(s.bytes, frame.op);
      arena_->Own(s.block, t.storage);
      fresh_.push_back(t.storage);
      Tell([&](Observer& o) { o.OnAllocate(t.storage, s.block.bytes); });
    }
    Lock(t.storage);
    locked_outputs_.push_back(t.storage);
    output_data_.push_back(s.block.data);
  }
  if (op.workspace_bytes > 0) {
    workspace_ = TakeWorkspace(op.workspace_bytes, frame.op);
  }
  // Only now: to a policy that is asked for victims on the way they are evicted still.
  for (StorageId s : fresh_) graph_.storages_[s].resident = true;
  MemoryChanged();
}

void Runtime::RunKernel(const Frame& frame) {
  Op& op = graph_.ops_[frame.op];
  input_data_.clear();
  for (TensorId in : op.inputs) {
    input_data_.push_back(graph_.storages_[graph_.tensors_[in].storage].block.data);
  }
  Span<TensorId> outputs = op.outputs;
  if (frame.op == overwrite_.op) outputs = Span<TensorId>(&overwrite_.old, 1);
  KernelCall call{frame.op,    op.kernel,    op.inputs,       outputs,
                  input_data_, output_data_, WorkspaceOf(op), !frame.first_run};
  ++runs_;
  Timer timer(options_.measure_time);
  executor_->Run(call);
  double seconds = timer.Seconds();
  if (options_.measure_time) executor_->Measured(call, seconds);
  if (frame.first_run && op.cost < 0) op.cost = std::max(1.0, seconds * 1e9);
  Account(frame, op, seconds);
}

void Runtime::Account(const Frame& frame, const Op& op, double seconds) {
  clock_ += op.cost;
  if (frame.first_run) {
    last_run_cost_ = op.cost;
    stats_.calls++;
    stats_.compute_seconds += seconds;
    stats_.compute_cost += op.cost;
    invocation_compute_ += op.cost;
  } else {
    stats_.rematerializations++;
    stats_.remat_seconds += seconds;
    stats_.remat_cost += op.cost;
    invocation_remat_ += op.cost;
  }
  Tell([&](Observer& o) { o.OnRun(frame.op, op.kernel, !frame.first_run, seconds); });
}

void Runtime::ReleaseOutputs() {
  if (workspace_) GiveWorkspace();
  for (const Block& block : scratch_) FreeWorkspace(block);
  for (StorageId s : locked_outputs_) Unlock(s);
  scratch_.clear();
  locked_outputs_.clear();
  fresh_.clear();
  MemoryChanged();
}

void Runtime::Finish(const Frame& frame) {
  const Op& op = graph_.ops_[frame.op];
  StorageId charged = kNone;
  for (TensorId out : op.outputs) {
    Tensor& t = graph_.tensors_[out];
    if (t.detached) continue;
    t.defined = true;
    if (!frame.first_run) continue;  // its age counts from when it was asked for
    graph_.Touch(t.storage, clock_);
    if (t.storage != charged) ChangeCost(charged = t.storage, op.cost + options_.dispatch_cost);
  }
  unwanted_.clear();
  for (StorageId s : fresh_) {
    Storage& storage = graph_.storages_[s];
    if (!storage.computed) {
      storage.computed = true;
      policy_->OnCreate(graph_, s);
    } else if (storage.refs == 0 && !WantedNow(frame, s)) {
      unwanted_.push_back(s);
    } else {
      policy_->OnRematerialize(graph_, s);
    }
  }
  ReleaseOutputs();
  for (StorageId s : unwanted_) FreeStorageBlock(s);
  NoteBanishable(op);
}

// Whether a sibling that nobody holds is about to be read: by the op that waits for this one, or
// by the caller of Data().
bool Runtime::WantedNow(const Frame& frame, StorageId storage) const {
  if (frame.wanted != kNone) return graph_.tensors_[frame.wanted].storage == storage;
  if (stack_.size() < 2) return false;
  const Op& consumer = graph_.ops_[stack_[stack_.size() - 2].op];
  return std::any_of(consumer.inputs.begin(), consumer.inputs.end(),
                     [&](TensorId in) { return graph_.tensors_[in].storage == storage; });
}

void Runtime::CheckThrash() const {
  if (options_.thrash_limit <= 0) return;
  double own = std::max(invocation_compute_, expected_cost_);
  if (invocation_remat_ <= options_.thrash_limit * own) return;
  throw ThrashError("recomputation has cost more than the thrash limit allows", own,
                    invocation_remat_, options_.thrash_limit);
}

}  // namespace dtr
