// Records: making and forgetting tensors. Running them is in materialize.cc.
#include "core/runtime.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace dtr {
namespace {

// Nobody waits for a kernel for longer than eleven days; sums of such costs stay finite, and a cost
// that is no number counts as nothing. Negative ones stay: they ask for the measured time.
double SaneCost(double cost) {
  constexpr double kLongest = 1e15;
  return cost != cost ? 0.0 : std::min(cost, kLongest);
}

}  // namespace

Runtime::Runtime(Arena* arena, Executor* executor, const RuntimeOptions& options)
    : arena_(arena),
      executor_(executor),
      options_(options),
      deallocation_(DeallocationNamed(options.dealloc)),
      policy_(MakePolicy(options.policy, options.search, options.seed)) {
  if (policy_->needs_addresses() && !arena_->runs()) {
    throw std::invalid_argument("policy '" + options.policy +
                                "' chooses by address: it needs the arena best-fit");
  }
  arena_->SetOwner(this);
}

Runtime::~Runtime() {
  if (kept_workspace_) DropWorkspace();
  for (StorageId s = 0; s < graph_.storages_.capacity(); ++s) {
    if (graph_.storages_[s].live) FreeStorageBlock(s);
  }
  arena_->SetOwner(nullptr);
}

void Runtime::AddObserver(Observer* observer) {
  RemoveObserver(observer);
  observers_.push_back(observer);
}

void Runtime::RemoveObserver(Observer* observer) {
  observers_.erase(std::remove(observers_.begin(), observers_.end(), observer), observers_.end());
}

void Runtime::Reserve(size_t storages, size_t tensors, size_t ops) {
  graph_.storages_.Reserve(storages);
  graph_.tensors_.Reserve(tensors);
  graph_.ops_.Reserve(ops);
  graph_.edges_.Reserve(2 * ops);
}

// -- Making ---------------------------------------------------------------------------------------

StorageId Runtime::NewStorage(uint64_t bytes) {
  StorageId id = graph_.storages_.Add();
  Storage& s = graph_.storages_[id];
  bool relisted = s.relisted;  // the id may still wait in the list
  s = Storage();
  s.relisted = relisted;
  s.bytes = bytes;
  s.holds = s.refs = 1;
  s.live = true;
  Tell([&](Observer& o) { o.OnStorage(id, bytes); });
  return id;
}

void Runtime::ReleaseStorage(StorageId id) {
  Storage& s = graph_.storages_[id];
  DTR_CHECK(s.live && s.holds > 0, "released a storage more often than it was held");
  --s.holds;
  --s.refs;
  if (s.first_tensor == kNone) {
    StorageMayDie(id);
  } else if (s.refs == 0) {
    Unreferenced(id);
  }
}

TensorId Runtime::NewTensor(StorageId storage) {
  TensorId id = graph_.tensors_.Add();
  Tensor& t = graph_.tensors_[id];
  t = Tensor();
  t.storage = storage;
  t.refs = 1;
  t.live = true;
  graph_.storages_[storage].refs++;
  graph_.LinkTensor(id);
  return id;
}

TensorId Runtime::NewView(TensorId base) {
  TensorId root = graph_.Root(base);
  TensorId id = graph_.tensors_.Add();
  Tensor& t = graph_.tensors_[id];
  t = Tensor();
  t.storage = graph_.tensors_[root].storage;
  t.base = root;
  t.refs = 1;
  t.live = true;
  graph_.storages_[t.storage].refs++;
  graph_.tensors_[root].uses++;
  Tell([&](Observer& o) { o.OnView(t.storage); });
  return id;
}

TensorId Runtime::AddConstant(uint64_t bytes) {
  Block block = AllocateOrEvict(bytes, kNone);
  StorageId storage = NewStorage(bytes);
  graph_.storages_[storage].block = block;
  return MakeConstant(storage);
}

TensorId Runtime::AddExternal(void* data, uint64_t bytes) {
  bool charged = arena_->Charge(bytes);
  if (!charged) policy_->OnRequest(*arena_, 0);
  while (!charged) {
    if (!EvictNext()) ThrowBudgetError(bytes, kNone, bytes);
    charged = arena_->Charge(bytes);
  }
  StorageId storage = NewStorage(bytes);
  graph_.storages_[storage].external = data;
  graph_.storages_[storage].block = {data, bytes, kNone};
  return MakeConstant(storage);
}

TensorId Runtime::MakeConstant(StorageId storage) {
  TensorId id = NewTensor(storage);
  Storage& s = graph_.storages_[storage];
  s.resident = s.computed = true;
  s.last_access = clock_;
  graph_.tensors_[id].defined = true;
  Tell([&](Observer& o) { o.OnAllocate(storage, s.block.bytes); });
  PinTensor(id);
  ReleaseStorage(storage);
  MemoryChanged();
  return id;
}

// -- References -----------------------------------------------------------------------------------

void Runtime::Retain(TensorId id) {
  Tensor& t = graph_.tensors_[id];
  DTR_CHECK(t.live && t.refs > 0, "retained a tensor that nobody holds");
  t.refs++;
  graph_.storages_[t.storage].refs++;
}

void Runtime::Release(TensorId id) {
  Tensor& t = graph_.tensors_[id];
  DTR_CHECK(t.live && t.refs > 0, "released a tensor more often than it was held");
  if (in_invocation_ && deallocation_ == Deallocation::kIgnore) {
    deferred_.push_back(id);
    return;
  }
  StorageId storage = t.storage;
  --t.refs;
  --graph_.storages_[storage].refs;
  // First let records go: a storage nobody can need again is freed without joining a component.
  TensorMayDie(id);
  DropDeadOps();
  const Storage& s = graph_.storages_[storage];
  if (s.live && s.refs == 0) Unreferenced(storage);
  BanishWhatCan();
}

// Acts on a tensor that may have lost its last reference or use.
void Runtime::TensorMayDie(TensorId id) {
  Tensor& t = graph_.tensors_[id];
  if (t.refs > 0 || t.uses > 0) return;
  if (t.base != kNone) {
    TensorId root = t.base;
    ForgetTensor(id);
    graph_.tensors_[root].uses--;
    return TensorMayDie(root);
  }
  if (t.detached) {
    t.detached = false;
    Unpin(t.storage);
    if (t.producer == kNone) return ForgetTensor(id);
    // A sibling keeps the op: the record stays for it, the memory does not.
    const Storage& s = graph_.storages_[t.storage];
    if (s.refs == 0 && s.evictable_index != kNone) Evict(t.storage, /*eager=*/true);
    return;
  }
  if (t.producer == kNone) return ForgetTensor(id);
  Op& op = graph_.ops_[t.producer];
  NoteBanishable(op);
  if (--op.live_outputs == 0) dead_ops_.push_back(t.producer);
}

void Runtime::ForgetTensor(TensorId id) {
  Tensor& t = graph_.tensors_[id];
  StorageId storage = t.storage;
  if (t.base == kNone) graph_.UnlinkTensor(id);
  t.live = false;
  executor_->Forget(id);
  graph_.tensors_.Remove(id);
  StorageMayDie(storage);
}

void Runtime::StorageMayDie(StorageId id) {
  Storage& s = graph_.storages_[id];
  if (s.first_tensor != kNone || s.holds > 0) return;
  FreeStorageBlock(id);
  policy_->OnForget(graph_, id);
  s.live = false;
  graph_.storages_.Remove(id);
}

// Gives the memory back without telling the policy: the storage is not wanted any more.
void Runtime::FreeStorageBlock(StorageId id, FreeReason reason) {
  Storage& s = graph_.storages_[id];
  if (!s.resident) return;
  s.resident = false;
  graph_.UpdateEvictable(id);
  for (TensorId t = s.first_tensor; t != kNone; t = graph_.tensors_[t].next) {
    graph_.tensors_[t].defined = false;
  }
  if (s.external) {
    arena_->Discharge(s.bytes);
  } else {
    arena_->Free(s.block);
  }
  Tell([&](Observer& o) { o.OnFree(id, s.block.bytes, reason); });
  s.block = Block();
  MemoryChanged();
}

void Runtime::PinTensor(TensorId id) {
  Tensor& t = graph_.tensors_[id];
  Storage& s = graph_.storages_[t.storage];
  t.detached = true;
  const bool first = s.pins++ == 0;
  graph_.UpdateEvictable(t.storage);
  if (!first) return;
  pinned_bytes_ += s.block.bytes;
  Tell([&](Observer& o) { o.OnPin(t.storage, true); });
}

void Runtime::Unpin(StorageId id) {
  Storage& s = graph_.storages_[id];
  if (--s.pins > 0) return;
  pinned_bytes_ -= s.block.bytes;
  graph_.UpdateEvictable(id);
  Tell([&](Observer& o) { o.OnPin(id, false); });
}

// -- Ops ------------------------------------------------------------------------------------------

void Runtime::RecordOp(OpId id, KernelId kernel, Span<TensorId> inputs, Span<TensorId> outputs,
                       double cost, uint64_t workspace_bytes) {
  Op& op = graph_.ops_[id];
  op.kernel = kernel;
  op.cost = SaneCost(cost);
  op.workspace_bytes = workspace_bytes;
  op.serial = ++next_serial_;
  op.inputs.assign(inputs.begin(), inputs.end());
  op.outputs.assign(outputs.begin(), outputs.end());
  op.edges.clear();
  op.live_outputs = static_cast<uint32_t>(outputs.size());
  op.live = true;
  for (TensorId in : inputs) {
    Tensor& t = graph_.tensors_[in];
    t.uses++;
    // Constants are never evicted, so they are nobody's evicted neighbour. They can be banished.
    // What was made from a value that is overwritten must be found.
    const Storage& s = graph_.storages_[t.storage];
    if (s.pins > 0 && !s.keeps_readers && deallocation_ != Deallocation::kBanish) continue;
    for (TensorId out : outputs) {
      StorageId child = graph_.tensors_[out].storage;
      if (child != t.storage) op.edges.push_back(graph_.AddEdge(t.storage, child, id));
    }
  }
  for (TensorId out : outputs) graph_.tensors_[out].producer = id;
}

// Takes back an op that never ran: its inputs are held by the caller, its outputs unwritten.
void Runtime::UnrecordOp(OpId id) {
  Op& op = graph_.ops_[id];
  for (EdgeId e : op.edges) graph_.RemoveEdge(e);
  for (TensorId in : op.inputs) graph_.tensors_[in].uses--;
  for (TensorId out : op.outputs) graph_.tensors_[out].producer = kNone;
  op.live = false;
  graph_.ops_.Remove(id);
}

void Runtime::DropDeadOps() {
  while (!dead_ops_.empty()) {
    OpId id = dead_ops_.back();
    dead_ops_.pop_back();
    Op& op = graph_.ops_[id];
    NoteBanishable(op);
    op.live = false;
    StorageId charged = kNone;
    for (TensorId out : op.outputs) {  // while its neighbours can be told
      StorageId s = graph_.tensors_[out].storage;
      if (s != charged) ChangeCost(charged = s, -op.cost - options_.dispatch_cost);
    }
    for (EdgeId e : op.edges) graph_.RemoveEdge(e);
    for (TensorId out : op.outputs) {
      Tensor& t = graph_.tensors_[out];
      t.producer = kNone;
      if (t.refs == 0 && t.uses == 0) ForgetTensor(out);  // else detached: it stays, pinned
    }
    for (TensorId in : op.inputs) {
      graph_.tensors_[in].uses--;
      TensorMayDie(in);
    }
    graph_.ops_.Remove(id);
  }
}

void Runtime::ChangeCost(StorageId id, double delta) {
  Storage& s = graph_.storages_[id];
  s.cost += delta;
  if (s.evictable_index != kNone) graph_.evictable_[s.evictable_index].cost = s.cost;
  policy_->OnCostChange(graph_, id, delta);
}

void Runtime::BeginInvocation(double expected_cost) {
  EndInvocation();
  in_invocation_ = true;
  expected_cost_ = expected_cost;
  invocation_compute_ = invocation_remat_ = 0;
}

void Runtime::SetPolicy(std::unique_ptr<Policy> policy) {
  if (policy->needs_addresses() && !arena_->runs()) {
    throw std::invalid_argument("a policy that chooses by address needs the arena best-fit");
  }
  policy_ = std::move(policy);
  graph_.RelistAll();
  for (StorageId id = 0; id < graph_.storages_.capacity(); ++id) {
    const Storage& s = graph_.storages_[id];
    if (!s.live || !s.computed) continue;
    policy_->OnCreate(graph_, id);
    if (!s.resident) policy_->OnEvict(graph_, id);
  }
}

uint64_t Runtime::SetBudget(uint64_t bytes) {
  uint64_t old = arena_->capacity();
  bool fits = false;
  arena_->SetCapacity(bytes, &fits);
  if (!fits) policy_->OnRequest(*arena_, 0);
  while (!fits) {
    if (!EvictNext()) {
      throw BudgetError("the new budget is smaller than what is pinned", kNone, kNone, bytes, 0,
                        arena_->active() - bytes, arena_->active(), Holders());
    }
    arena_->SetCapacity(bytes, &fits);
  }
  Tell([&](Observer& o) { o.OnBudget(bytes); });
  return old;
}

}  // namespace dtr
