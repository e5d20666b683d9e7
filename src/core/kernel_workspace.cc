// Workspace of kernels. While memory is short, an op's workspace stays for the ops that follow:
// given back, it would be cut up for tensors, and the next op that needs as much would have to have
// it put together again.
#include <algorithm>

#include "core/runtime.h"

namespace dtr {
namespace {

constexpr uint64_t kShort = 32;         // ops since an eviction, since the last use
constexpr uint64_t kLargestShare = 16;  // of the budget: one 16th

}  // namespace

Block Runtime::AllocateWorkspace(uint64_t bytes, OpId op) {
  Block block = AllocateOrEvict(bytes, op);
  Tell([&](Observer& o) { o.OnAllocate(kNone, block.bytes); });
  return block;
}

void Runtime::FreeWorkspace(const Block& block) {
  arena_->Free(block);
  Tell([&](Observer& o) { o.OnFree(kNone, block.bytes, FreeReason::kReleased); });
}

Block Runtime::TakeWorkspace(uint64_t bytes, OpId op) {
  if (kept_workspace_ && kept_workspace_.bytes >= bytes) {
    Block block = kept_workspace_;
    kept_workspace_ = Block();
    return block;
  }
  if (kept_workspace_) DropWorkspace();
  return AllocateWorkspace(bytes, op);
}

// As much as the op asked for, though the block may be longer: a kernel that takes more is told.
Block Runtime::WorkspaceOf(const Op& op) const {
  Block block = workspace_;
  if (block) block.bytes = std::min(block.bytes, arena_->LeastSize(op.workspace_bytes));
  return block;
}

void Runtime::GiveWorkspace() {
  const bool is_short = stats_.evictions > 0 && runs_ - latest_eviction_ <= kShort;
  const bool is_small = workspace_.bytes <= arena_->capacity() / kLargestShare;
  if (in_invocation_ && is_short && is_small && !follows_schedule_) {
    kept_workspace_ = workspace_;
    latest_workspace_ = runs_;
  } else {
    FreeWorkspace(workspace_);
  }
  workspace_ = Block();
}

bool Runtime::WorthKeeping() const {
  return !follows_schedule_ && runs_ - latest_workspace_ <= kShort;
}

void Runtime::DropWorkspace() {
  FreeWorkspace(kept_workspace_);
  kept_workspace_ = Block();
  MemoryChanged();
}

}  // namespace dtr
