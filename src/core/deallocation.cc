#include "core/deallocation.h"

#include <map>
#include <stdexcept>

#include "core/runtime.h"

namespace dtr {
namespace {

struct Entry {
  const char* name;
  Deallocation value;
};
constexpr Entry kDeallocations[] = {{"eager", Deallocation::kEager},
                                    {"banish", Deallocation::kBanish},
                                    {"ignore", Deallocation::kIgnore}};

}  // namespace

Deallocation DeallocationNamed(const std::string& name) {
  std::string names;
  for (const Entry& entry : kDeallocations) {
    if (name == entry.name) return entry.value;
    names += (names.empty() ? "" : ", ") + std::string(entry.name);
  }
  throw std::invalid_argument("unknown deallocation '" + name + "': use one of " + names);
}

std::vector<std::string> DeallocationNames() {
  std::vector<std::string> names;
  for (const Entry& entry : kDeallocations) names.emplace_back(entry.name);
  return names;
}

void Runtime::EndInvocation() {
  if (kept_workspace_) DropWorkspace();
  in_invocation_ = false;
  for (TensorId id : deferred_) Release(id);
  deferred_.clear();
}

// The storage has lost its last reference; records that nobody needs are gone already.
void Runtime::Unreferenced(StorageId id) {
  if (deallocation_ == Deallocation::kBanish) {
    maybe_banishable_.push_back(id);
    BanishWhatCan();
  } else if (graph_.storages_[id].evictable_index != kNone) {
    Evict(id, /*eager=*/true);
  } else {
    PassPinOn(id);
  }
}

// An operand of the op may have become free of evicted dependents.
void Runtime::NoteBanishable(const Op& op) {
  if (deallocation_ != Deallocation::kBanish) return;
  for (TensorId t : op.inputs) maybe_banishable_.push_back(graph_.tensors_[t].storage);
  for (TensorId t : op.outputs) maybe_banishable_.push_back(graph_.tensors_[t].storage);
}

// Not while ops are pending: they hold ids of ops that banishing would drop.
void Runtime::BanishWhatCan() {
  if (!stack_.empty()) return;
  while (!maybe_banishable_.empty()) {
    StorageId id = maybe_banishable_.back();
    maybe_banishable_.pop_back();
    if (Banishable(id)) Banish(id);
  }
}

// Whether the op, which reads the storage, has to be able to make this output again, or else to
// have it pinned. Outputs in the storage itself go with it.
bool Runtime::Depends(TensorId output, StorageId on) const {
  const Tensor& t = graph_.tensors_[output];
  return t.storage != on && !t.detached && t.refs + t.uses > 0;
}

bool Runtime::Banishable(StorageId id) const {
  const Storage& s = graph_.storages_[id];
  if (!s.live || !s.resident || s.refs > 0 || s.locks > 0) return false;
  for (EdgeId e = s.first_child; e != kNone; e = graph_.edges_[e].next_child) {
    for (TensorId out : graph_.ops_[graph_.edges_[e].op].outputs) {
      if (Depends(out, id) && !graph_.tensors_[out].defined) return false;
    }
  }
  return true;
}

// Pins what was made from the storage and drops the ops that read it; with its last use it goes.
void Runtime::Banish(StorageId id) {
  if (graph_.storages_[id].first_child != kNone) stats_.banishments++;
  for (EdgeId e = graph_.storages_[id].first_child; e != kNone; e = graph_.edges_[e].next_child) {
    OpId reader = graph_.edges_[e].op;
    for (TensorId out : graph_.ops_[reader].outputs) {
      if (!Depends(out, id)) continue;
      PinTensor(out);
      if (--graph_.ops_[reader].live_outputs == 0) dead_ops_.push_back(reader);
    }
  }
  DropDeadOps();
  // Its record may stay for a sibling that the same op makes; its memory does not.
  const Storage& s = graph_.storages_[id];
  if (s.live && s.refs == 0 && s.evictable_index != kNone) Evict(id, /*eager=*/true);
}

void Runtime::ValidateDeallocation() const {
  std::map<TensorId, uint32_t> deferred;
  for (TensorId id : deferred_) ++deferred[id];
  for (auto [id, count] : deferred) {
    DTR_CHECK(graph_.tensors_[id].live && count <= graph_.tensors_[id].refs,
              "a deferred release has lost its reference");
  }
  if (deallocation_ != Deallocation::kBanish || !stack_.empty()) return;
  DTR_CHECK(maybe_banishable_.empty(), "a storage was left to be banished");
  for (StorageId id = 0; id < graph_.storages_.capacity(); ++id) {
    DTR_CHECK(!Banishable(id), "a storage could be banished but is in memory");
  }
}

}  // namespace dtr
