// In-place updates: an op writes its result over a pinned operand (a parameter, optimizer state)
// that the program reads no more. What was computed from the old value must then never be computed
// again. Its dependents are the tensors in memory that were made from it, perhaps through evicted
// ones that nobody holds: they are pinned until they die, which makes those ancestors, and the ops
// that read the old value, unneeded. Where somebody holds an evicted one, the op must run out of
// place (copy on write).
#include "core/runtime.h"

namespace dtr {

void Runtime::AllowOverwrite(TensorId id) {
  graph_.storages_[graph_.tensors_[id].storage].keeps_readers = true;
}

bool Runtime::TryOverwrite(KernelId kernel, Span<TensorId> inputs, TensorId old, double cost,
                           uint64_t workspace_bytes) {
  if (!MayOverwrite(graph_.Root(old))) {
    stats_.copies_on_write++;
    return false;
  }
  OpId id = graph_.ops_.Add();
  RecordOp(id, kernel, inputs, {}, cost, workspace_bytes);
  overwrite_ = {id, old, false};
  try {
    Execute(id, /*first_run=*/true, kNone);
  } catch (...) {
    overwrite_ = Overwrite();
    UnrecordOp(id);
    throw;
  }
  const bool done = overwrite_.done;
  overwrite_ = Overwrite();
  UnrecordOp(id);
  (done ? stats_.overwrites : stats_.copies_on_write)++;
  if (done) Tell([&](Observer& o) { o.OnOverwrite(graph_.tensors_[graph_.Root(old)].storage); });
  return done;
}

// Whether the value may go: it is pinned for good, alone in arena memory, and nothing evicted that
// may be needed was computed from it.
bool Runtime::MayOverwrite(TensorId root) {
  const Tensor& t = graph_.tensors_[root];
  const Storage& s = graph_.storages_[t.storage];
  const bool alone = s.first_tensor == root && t.next == kNone;
  const bool constant = t.detached && t.producer == kNone && !s.external;
  return s.keeps_readers && alone && constant && FindDependents(t.storage);
}

// Fills dependents_; false if an evicted storage that somebody holds was made from this one.
bool Runtime::FindDependents(StorageId of) {
  dependents_.clear();
  to_visit_.assign(1, of);
  ++visit_;
  while (!to_visit_.empty()) {
    const StorageId id = to_visit_.back();
    to_visit_.pop_back();
    EdgeId e = graph_.storages_[id].first_child;
    for (; e != kNone; e = graph_.edges_[e].next_child) {
      for (TensorId out : graph_.ops_[graph_.edges_[e].op].outputs) {
        if (Depends(out, id) && !NoteDependent(out)) return false;
      }
    }
  }
  return true;
}

bool Runtime::NoteDependent(TensorId id) {
  const Tensor& t = graph_.tensors_[id];
  if (t.defined) {
    dependents_.push_back(id);
    return true;
  }
  Storage& s = graph_.storages_[t.storage];
  if (s.refs > 0) return false;
  if (s.visit != visit_) to_visit_.push_back(t.storage);
  s.visit = visit_;
  return true;
}

// Pins what FindDependents has found; what was made from the storage otherwise dies with that.
void Runtime::PinDependents() {
  for (TensorId id : dependents_) {
    const Tensor& t = graph_.tensors_[id];
    if (t.detached) continue;
    PinTensor(id);
    graph_.storages_[t.storage].keeps_readers = true;
    if (--graph_.ops_[t.producer].live_outputs == 0) dead_ops_.push_back(t.producer);
  }
  DropDeadOps();
}

// The op is ready to run: its operands are in memory and locked. False: it must not run after all,
// for gathering the operands has evicted something made from the old value.
bool Runtime::BeginOverwrite() {
  const TensorId root = graph_.Root(overwrite_.old);
  if (!MayOverwrite(root)) return false;
  Storage& s = graph_.storages_[graph_.tensors_[root].storage];
  PinDependents();
  s.overwritten = ++next_serial_;
  output_data_.push_back(s.block.data);
  overwrite_.done = true;
  return true;
}

// A storage that was pinned because what it was made from is gone, and that nobody holds any more,
// can go when what was made from it takes its place as pinned. Not where that would pin more than
// it frees, unless all goes by a schedule, which counts on the memory.
void Runtime::PassPinOn(StorageId id) {
  const Storage& s = graph_.storages_[id];
  if (!s.live || !s.keeps_readers || s.pins == 0 || s.refs > 0 || s.locks > 0) return;
  if (!stack_.empty() || !FindDependents(id)) return;
  uint64_t pinned = 0;
  for (TensorId out : dependents_) {
    const Storage& made = graph_.storages_[graph_.tensors_[out].storage];
    if (made.pins == 0) pinned += made.block.bytes;
  }
  if (follows_schedule_ || pinned <= s.block.bytes) PinDependents();
}

}  // namespace dtr
