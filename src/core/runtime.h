// Dynamic Tensor Rematerialization (Kirisame et al., ICLR 2021, section 3) under a hard budget.
//
// Invariants, checked together by Runtime::Validate():
//   1. mapped bytes <= budget, always: parameters, inputs, constants, activations, gradients,
//      outputs and workspace.
//   2. A storage is evictable iff resident, not pinned, locks == 0, and each op filling it can
//      run again.
//   3. Evicting loses no information: every evicted storage that is referenced, or is an ancestor
//      of one, is reachable by ops from resident or pinned storages.
//   4. While an op runs its inputs and outputs are locked; when nothing runs no lock is held.
//   5. Reference counts equal the number of holders of a tensor.
//   6. Results are bitwise those of the same program with no budget (kernels are deterministic).
//      Nothing is ever recomputed through a value that was overwritten in place: ops that read a
//      storage are younger than its latest write.
//   7. Nothing stays behind but what is referenced: records go with their last need.
#ifndef TVM_DTR_CORE_RUNTIME_H_
#define TVM_DTR_CORE_RUNTIME_H_

#include <memory>
#include <string>
#include <vector>

#include "core/arena.h"
#include "core/deallocation.h"
#include "core/errors.h"
#include "core/executor.h"
#include "core/graph.h"
#include "core/policy.h"
#include "core/types.h"

namespace dtr {

// Counters since construction or the last ResetStats(); costs in clock units (nanoseconds).
struct Stats {
  uint64_t calls = 0;               // first executions
  uint64_t rematerializations = 0;  // further executions
  uint64_t evictions = 0;           // for want of memory
  uint64_t eager_evictions = 0;     // because the last reference went
  uint64_t banishments = 0;         // storages freed for good that others were made from
  uint64_t overwrites = 0;          // ops that wrote over an operand
  uint64_t copies_on_write = 0;     // that were not allowed to
  double compute_cost = 0;
  double remat_cost = 0;
  double compute_seconds = 0;  // measured
  double remat_seconds = 0;
  double search_seconds = 0;   // choosing and evicting victims, and finding a place then
  double placing_seconds = 0;  // of that: the arena's part
};

// Why memory is given back: nobody needs it any more; for want of memory; the last reference went
// and the history stays.
enum class FreeReason { kReleased, kEvicted, kUnreferenced };

// Told of what happens, after it has; without observers it costs one branch.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void OnRun(OpId op, KernelId kernel, bool rematerialization, double seconds) {}
  virtual void OnEvict(StorageId storage, bool eager) {}
  // After each change of memory in use.
  virtual void OnMemory(uint64_t active_bytes) {}
  // A new record; the id may have been another storage's before.
  virtual void OnStorage(StorageId storage, uint64_t bytes) {}
  // `bytes` of the block, which is the storage's, or workspace of the op at hand for kNone.
  virtual void OnAllocate(StorageId storage, uint64_t bytes) {}
  virtual void OnFree(StorageId storage, uint64_t bytes, FreeReason reason) {}
  virtual void OnPin(StorageId storage, bool pinned) {}
  virtual void OnView(StorageId storage) {}
  virtual void OnOverwrite(StorageId storage) {}  // an op has written over its value
  // Before the victim goes: its score and how many storages could have gone.
  virtual void OnDecision(StorageId victim, double score, size_t candidates) {}
  // Spent on choosing and evicting for one allocation.
  virtual void OnSearch(double seconds) {}
  virtual void OnBudget(uint64_t bytes) {}
};

// Nanoseconds to call a kernel and to have memory for what it makes. Kernels of a microsecond are
// not as cheap to run again as they look, and how their measured costs compare is chance.
inline constexpr double kDispatchCost = 3000;

struct RuntimeOptions {
  std::string policy = "dtr-eq";
  std::string search = "heap";
  uint64_t seed = 0;
  std::string dealloc = "eager";  // what a lost last reference does: deallocation.h
  // Stop when recomputation exceeds this multiple of the invocation's own work; <= 0: never.
  double thrash_limit = 10.0;
  // Storages under this share of the budget are evicted only when nothing else is left: they free
  // next to nothing (a small block shares its page) and cut the history that others need.
  double small_share = 1.0 / 16384;
  // What running an op again takes beside its kernel: policies add it to each op's cost. See
  // kDispatchCost.
  double dispatch_cost = 0;
  // A pending op lets go of its operands when nothing else can be evicted.
  bool relax_pending = true;
  bool measure_time = true;  // off in simulations: the seconds in Stats stay 0
};

class Runtime : private BlockOwner {
 public:
  // `arena` and `executor` must outlive the runtime. The arena's capacity is the budget.
  Runtime(Arena* arena, Executor* executor, const RuntimeOptions& options);
  ~Runtime() override;
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  // Room for as many records, so that a program of known size does not grow them as it goes.
  void Reserve(size_t storages, size_t tensors, size_t ops);

  // -- Making tensors. Each returned tensor carries one reference of the caller's. -------------

  // A pinned tensor in arena memory, contents undefined: write through Data().
  TensorId AddConstant(uint64_t bytes);
  // A pinned tensor in memory of the caller's, who keeps it alive until Executor::Forget.
  TensorId AddExternal(void* data, uint64_t bytes);
  // A storage that takes no memory until an op fills a tensor in it. Carries one hold.
  StorageId NewStorage(uint64_t bytes);
  void ReleaseStorage(StorageId storage);
  // A tensor in `storage`, to be an output of one Call.
  TensorId NewTensor(StorageId storage);
  // Another tensor with the same bytes (reshape): defined iff `base` is, costs nothing.
  TensorId NewView(TensorId base);

  void Retain(TensorId tensor);
  // At the last reference the storage is evicted (eager eviction), its record kept as long as
  // another tensor may be recomputed through it; or as RuntimeOptions::dealloc has it.
  void Release(TensorId tensor);

  // -- Running ----------------------------------------------------------------------------------

  // Runs `kernel` on `inputs` into `outputs` (tensors from NewTensor, not yet written).
  // `cost` in nanoseconds, negative: take the measured time of this run; NaN counts as 0. On an
  // exception (BudgetError, ThrashError, or what the kernel threw) nothing is recorded and the same
  // call may be made again.
  void Call(KernelId kernel, Span<TensorId> inputs, Span<TensorId> outputs, double cost,
            uint64_t workspace_bytes);

  // The tensor's value may be overwritten by TryOverwrite. To be called on a pinned tensor before
  // an op that is still alive has read it.
  void AllowOverwrite(TensorId tensor);
  // From now on calls come as a planner has ordered them, with recomputation: what is dead is not
  // wanted again, so it goes at once whatever has to be pinned in its place.
  void FollowSchedule(bool follow) { follows_schedule_ = follow; }
  // As Call, for an op whose one output takes the place of `old`, one of its inputs, which is
  // pinned and allowed for: afterwards every reference to `old` sees the new value, so the caller
  // must know that none still wants the old one. False if that may not be, since something evicted
  // would have to be recomputed from the old value: nothing is recorded then, and Call does it out
  // of place. Throws as Call does.
  bool TryOverwrite(KernelId kernel, Span<TensorId> inputs, TensorId old, double cost,
                    uint64_t workspace_bytes);

  // Brings the tensor's bytes into memory; the address is that of its storage and stays valid
  // until the next call on this runtime, or as long as the tensor is pinned.
  void* Data(TensorId tensor);
  // Data(), then keeps it there and forgets how it was made: what a caller gets as an output.
  void* Pin(TensorId tensor);

  // Starts the thrash guard's count anew. `expected_cost`: the invocation's own work in
  // nanoseconds where it is known, else 0.
  void BeginInvocation(double expected_cost);
  // Ends what BeginInvocation began: releases that were ignored in between take effect.
  void EndInvocation();

  // Returns the old budget. Shrinking evicts at once; throws BudgetError, with the budget
  // unchanged, if what is pinned does not fit.
  uint64_t SetBudget(uint64_t bytes);
  // Goes on with another policy, which learns what is in memory and what is evicted.
  void SetPolicy(std::unique_ptr<Policy> policy);

  // -- Looking ------------------------------------------------------------------------------------

  const Graph& graph() const { return graph_; }
  const Stats& stats() const { return stats_; }
  void ResetStats() { stats_ = Stats(); }
  double clock() const { return clock_; }
  // Makes a tensor's storage dearer than the ops that fill it, for the choice of what to evict.
  void RaiseCost(TensorId tensor, double cost) {
    ChangeCost(graph_.tensors_[tensor].storage, cost);
  }
  double last_run_cost() const { return last_run_cost_; }
  const Arena& arena() const { return *arena_; }
  uint64_t pinned_bytes() const { return pinned_bytes_; }
  // Observers are not owned; the same one is added once.
  void AddObserver(Observer* observer);
  void RemoveObserver(Observer* observer);
  // Throws InternalError naming the first invariant that does not hold. O(records).
  void Validate() const;

  // Evicts one storage now (tests and tools). Throws InternalError if it is not evictable.
  void Evict(StorageId storage);

 private:
  struct Frame {
    OpId op;
    uint32_t next_input;  // inputs before it are in memory
    bool first_run;
    TensorId wanted;      // what the caller of Data() asked for, else kNone
    bool locked = false;  // its operands
    int relaxations = 0;  // how often it had to let go of them
  };
  // The op that is to write over an operand.
  struct Overwrite {
    OpId op = kNone;
    TensorId old = kNone;
    bool done = false;
  };

  // records (runtime.cc)
  TensorId MakeConstant(StorageId storage);
  void RecordOp(OpId op, KernelId kernel, Span<TensorId> inputs, Span<TensorId> outputs,
                double cost, uint64_t workspace_bytes);
  void UnrecordOp(OpId op);
  void DropDeadOps();
  void TensorMayDie(TensorId tensor);
  void ForgetTensor(TensorId tensor);
  void StorageMayDie(StorageId storage);
  void FreeStorageBlock(StorageId storage, FreeReason reason = FreeReason::kReleased);
  void PinTensor(TensorId tensor);
  void Unpin(StorageId storage);
  void ChangeCost(StorageId storage, double delta);

  // last references (deallocation.cc)
  void Unreferenced(StorageId storage);
  void NoteBanishable(const Op& op);
  void BanishWhatCan();
  bool Depends(TensorId output, StorageId on) const;
  bool Banishable(StorageId storage) const;
  void Banish(StorageId storage);
  void ValidateDeallocation() const;

  // in-place updates (overwrite.cc)
  bool MayOverwrite(TensorId root);
  bool FindDependents(StorageId storage);
  bool NoteDependent(TensorId tensor);
  void PinDependents();
  bool BeginOverwrite();
  void PassPinOn(StorageId storage);

  // running (materialize.cc)
  void Execute(OpId target, bool first_run, TensorId wanted);
  void PushFrame(const Frame& frame);
  void PopFrame();
  void LockOperands();
  void UnlockOperands(Frame* frame);
  bool RelaxPending();
  OpId NextMissing();
  void Perform(const Frame& frame);
  void AllocateOutputs(const Frame& frame);
  void RunKernel(const Frame& frame);
  void Account(const Frame& frame, const Op& op, double seconds);
  void Finish(const Frame& frame);
  void ReleaseOutputs();
  void EvictTainted();
  bool WantedNow(const Frame& frame, StorageId storage) const;
  void CheckThrash() const;
  void Lock(StorageId storage);
  void Unlock(StorageId storage);

  // memory (eviction.cc)
  bool MayMove(uint32_t storage) const override;
  void OnMove(uint32_t storage, void* data) override;
  Block AllocateOrEvict(uint64_t bytes, OpId op);
  bool EvictNext();
  void Evict(StorageId storage, bool eager);
  std::vector<Holder> Holders() const;
  uint64_t StillNeeded(uint64_t bytes, OpId op) const;
  [[noreturn]] void ThrowBudgetError(uint64_t bytes, OpId op, uint64_t still_needed);
  StorageId SelectVictim();

  // kernel_workspace.cc
  Block AllocateWorkspace(uint64_t bytes, OpId op);
  void FreeWorkspace(const Block& block);
  Block TakeWorkspace(uint64_t bytes, OpId op);
  Block WorkspaceOf(const Op& op) const;
  void GiveWorkspace();
  bool WorthKeeping() const;
  void DropWorkspace();

  void MemoryChanged() {
    Tell([&](Observer& o) { o.OnMemory(arena_->active()); });
  }
  template <typename F>
  void Tell(F f) {
    for (Observer* observer : observers_) f(*observer);
  }

  Arena* arena_;
  Executor* executor_;
  RuntimeOptions options_;
  Deallocation deallocation_;
  std::unique_ptr<Policy> policy_;
  std::vector<Observer*> observers_;
  Graph graph_;
  Stats stats_;
  double clock_ = 0;
  double last_run_cost_ = 0;
  double invocation_compute_ = 0, invocation_remat_ = 0, expected_cost_ = 0;
  uint64_t pinned_bytes_ = 0;  // rounded sizes of pinned storages
  bool in_invocation_ = false;
  bool follows_schedule_ = false;
  Overwrite overwrite_;
  uint64_t next_serial_ = 0, visit_ = 0;
  std::vector<TensorId> deferred_;           // releases ignored so far, under kIgnore
  std::vector<StorageId> maybe_banishable_;  // to be looked at when nothing is pending

  // Kept between calls so that running allocates nothing.
  std::vector<Frame> stack_;
  std::vector<OpId> dead_ops_;
  std::vector<TensorId> dependents_;  // in memory, made from what is to be overwritten
  std::vector<StorageId> to_visit_;
  std::vector<void*> input_data_, output_data_;
  // Of the op at hand: outputs allocated for it, outputs locked, outputs to give back at once,
  // outputs a failed kernel may have spoilt; memory for outputs that now belong to the caller,
  // workspace.
  std::vector<StorageId> fresh_, locked_outputs_, unwanted_, tainted_;
  std::vector<Block> scratch_;
  Block workspace_;
  // That of an op before, for those that come; counted in ops that have run.
  Block kept_workspace_;
  uint64_t runs_ = 0, latest_eviction_ = 0, latest_workspace_ = 0;
};

}  // namespace dtr

#endif  // TVM_DTR_CORE_RUNTIME_H_
