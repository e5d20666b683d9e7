// Finding memory: evictions for want of it, and what a refusal says.
#include <algorithm>

#include "core/runtime.h"
#include "core/timer.h"

namespace dtr {

Block Runtime::AllocateOrEvict(uint64_t bytes, OpId op) {
  Block block = arena_->Allocate(bytes);
  if (!block) {
    Timer timer(options_.measure_time);
    policy_->OnRequest(*arena_, bytes);
    do {
      if (!EvictNext() && !RelaxPending()) ThrowBudgetError(bytes, op, StillNeeded(bytes, op));
      Timer placing(options_.measure_time);
      block = arena_->Allocate(bytes);
      stats_.placing_seconds += placing.Seconds();
    } while (!block);
    const double seconds = timer.Seconds();
    stats_.search_seconds += seconds;
    Tell([&](Observer& o) { o.OnSearch(seconds); });
  }
  return block;
}

// Gives up one thing for want of memory; false if there is none.
bool Runtime::EvictNext() {
  if (kept_workspace_ && !WorthKeeping()) {
    DropWorkspace();
    return true;
  }
  StorageId victim = SelectVictim();
  if (victim != kNone) {
    Evict(victim, /*eager=*/false);
    return true;
  }
  if (!kept_workspace_) return false;
  DropWorkspace();
  return true;
}

// What may be evicted may as well be elsewhere: nobody has its address at hand.
bool Runtime::MayMove(uint32_t storage) const {
  return graph_.storages_[storage].evictable_index != kNone;
}

void Runtime::OnMove(uint32_t storage, void* data) { graph_.storages_[storage].block.data = data; }

StorageId Runtime::SelectVictim() {
  auto smallest =
      static_cast<uint64_t>(options_.small_share * static_cast<double>(arena_->capacity()));
  StorageId victim = policy_->SelectVictim(graph_, clock_, smallest);
  if (observers_.empty() || victim == kNone) return victim;
  const double score = policy_->ScoreOf(graph_, victim, clock_);
  Tell([&](Observer& o) { o.OnDecision(victim, score, graph_.evictable().size()); });
  return victim;
}

void Runtime::Evict(StorageId id) {
  DTR_CHECK(graph_.storages_[id].live && graph_.storages_[id].evictable_index != kNone,
            "the storage is not evictable");
  Evict(id, /*eager=*/false);
}

void Runtime::Evict(StorageId id, bool eager) {
  FreeStorageBlock(id, eager ? FreeReason::kUnreferenced : FreeReason::kEvicted);
  (eager ? stats_.eager_evictions : stats_.evictions)++;
  if (!eager) latest_eviction_ = runs_;
  policy_->OnEvict(graph_, id);
  Tell([&](Observer& o) { o.OnEvict(id, eager); });
}

std::vector<Holder> Runtime::Holders() const {
  std::vector<Holder> holders;
  for (StorageId id = 0; id < graph_.storages_.capacity(); ++id) {
    const Storage& s = graph_.storages_[id];
    if (!s.live || !s.resident || (s.pins == 0 && s.locks == 0)) continue;
    holders.push_back({id, s.block.bytes, s.pins > 0, s.locks, s.first_tensor});
  }
  std::stable_sort(holders.begin(), holders.end(),
                   [](const Holder& a, const Holder& b) { return a.bytes > b.bytes; });
  return holders;
}

// Bytes that the op has yet to get, the request that failed included.
uint64_t Runtime::StillNeeded(uint64_t bytes, OpId id) const {
  if (id == kNone) return arena_->BytesToAllocate(bytes);
  const Op& op = graph_.ops_[id];
  uint64_t needed = 0;
  size_t scratched = 0;
  for (TensorId out : op.outputs) {
    const Tensor& t = graph_.tensors_[out];
    const Storage& s = graph_.storages_[t.storage];
    bool has_memory = t.detached ? scratched++ < scratch_.size() : static_cast<bool>(s.block);
    if (!has_memory) needed += arena_->BytesToAllocate(s.bytes);
  }
  if (op.workspace_bytes > 0) needed += arena_->BytesToAllocate(op.workspace_bytes);
  return needed;
}

void Runtime::ThrowBudgetError(uint64_t bytes, OpId op, uint64_t still_needed) {
  uint64_t needed = arena_->active() + still_needed;
  uint64_t budget = arena_->capacity();
  const uint64_t missing = needed > budget ? needed - budget : 0;
  // Enough is free, but scattered: room behind all that is there takes the op.
  if (missing == 0) needed = budget + still_needed;
  BudgetError error("the memory budget is too small: nothing is left to evict", op,
                    op == kNone ? kNone : graph_.ops_[op].kernel, budget, bytes, missing, needed,
                    Holders());
  if (missing == 0) error.largest_free_bytes = arena_->largest_free();
  throw error;
}

}  // namespace dtr
