// Runtime::Validate: the invariants of runtime.h and the equations of graph.h, recomputed from
// the records alone.
#include <string>
#include <vector>

#include "core/runtime.h"

namespace dtr {

class Validator {
 public:
  Validator(const Graph& graph, const Arena& arena, uint64_t pinned_bytes, bool running)
      : graph_(graph), arena_(arena), pinned_bytes_(pinned_bytes), running_(running) {}

  void Run() {
    CountFromRecords();
    for (StorageId s = 0; s < graph_.storages_.capacity(); ++s) {
      if (graph_.storages_[s].live) CheckStorage(s);
    }
    for (TensorId t = 0; t < graph_.tensors_.capacity(); ++t) {
      if (graph_.tensors_[t].live) CheckTensor(t);
    }
    for (OpId o = 0; o < graph_.ops_.capacity(); ++o) {
      if (graph_.ops_[o].live) CheckOp(o);
    }
    CheckMemory();
    CheckReachable();
  }

 private:
  static void Require(bool condition, int invariant, const std::string& what) {
    if (condition) return;
    throw InternalError("invariant " + std::to_string(invariant) + " does not hold: " + what);
  }
  static std::string Name(const char* kind, uint32_t id) { return kind + std::to_string(id); }

  void CountFromRecords() {
    uses_.assign(graph_.tensors_.capacity(), 0);
    refs_.assign(graph_.storages_.capacity(), 0);
    roots_.assign(graph_.storages_.capacity(), 0);
    for (OpId o = 0; o < graph_.ops_.capacity(); ++o) {
      if (!graph_.ops_[o].live) continue;
      for (TensorId in : graph_.ops_[o].inputs) uses_[in]++;
    }
    for (TensorId t = 0; t < graph_.tensors_.capacity(); ++t) {
      const Tensor& tensor = graph_.tensors_[t];
      if (!tensor.live) continue;
      refs_[tensor.storage] += tensor.refs;
      if (tensor.base != kNone) {
        uses_[tensor.base]++;
      } else {
        roots_[tensor.storage]++;
      }
    }
  }

  void CheckStorage(StorageId id) {
    const Storage& s = graph_.storages_[id];
    std::string name = Name("storage ", id);
    Require(s.refs == s.holds + refs_[id], 5, name + " miscounts its references");
    Require(s.resident == static_cast<bool>(s.block), 2, name + " is resident without memory");
    Require(running_ || s.locks == 0, 4, name + " is locked while nothing runs");
    bool evictable = s.resident && s.pins == 0 && s.locks == 0;
    Require(evictable == (s.evictable_index != kNone), 2, name + " is wrongly listed as evictable");
    if (evictable) {
      const Graph::Candidate& c = graph_.evictable_[s.evictable_index];
      Require(c.storage == id && c.cost == s.cost && c.last_access == s.last_access, 2,
              name + " differs from its candidate");
    }
    uint32_t roots = 0, pins = 0;
    for (TensorId t = s.first_tensor; t != kNone; t = graph_.tensors_[t].next) {
      ++roots;
      pins += graph_.tensors_[t].detached;
    }
    Require(roots == roots_[id], 7, name + " lists the wrong tensors");
    Require(pins == s.pins, 2, name + " miscounts its pins");
    Require(s.holds > 0 || roots > 0, 7, name + " outlived its tensors");
    Require(s.pins == 0 || s.resident, 3, name + " is pinned but not in memory");
  }

  void CheckTensor(TensorId id) {
    const Tensor& t = graph_.tensors_[id];
    std::string name = Name("tensor ", id);
    Require(t.uses == uses_[id], 5, name + " miscounts its uses");
    Require(!t.defined || graph_.storages_[t.storage].resident, 3, name + " is defined nowhere");
    if (t.base != kNone) {
      Require(graph_.tensors_[t.base].base == kNone, 7, name + " is a view of a view");
      Require(t.refs + t.uses > 0, 7, name + " outlived its last need");
    } else if (t.producer == kNone) {
      Require(t.refs + t.uses > 0, 7, name + " outlived its last need");
      Require(t.detached || t.uses == 0, 3, name + " is needed but can never be made");
    } else {
      Require(graph_.ops_[t.producer].live, 3, name + " has lost its producer");
    }
    Require(!t.detached || t.defined, 3, name + " is pinned but undefined");
  }

  void CheckOp(OpId id) {
    const Op& op = graph_.ops_[id];
    uint32_t live = 0;
    for (TensorId out : op.outputs) {
      const Tensor& t = graph_.tensors_[out];
      Require(t.live && t.producer == id, 3, Name("op ", id) + " has lost an output");
      live += !t.detached && t.refs + t.uses > 0;
    }
    Require(live == op.live_outputs, 7, Name("op ", id) + " miscounts its live outputs");
    Require(live > 0, 7, Name("op ", id) + " outlived its last need");
    for (TensorId in : op.inputs) {
      Require(graph_.tensors_[in].live, 3, Name("op ", id) + " has lost an input");
      const Storage& s = graph_.storages_[graph_.tensors_[in].storage];
      Require(op.serial > s.overwritten, 6, Name("op ", id) + " has read a value that is gone");
      if (s.keeps_readers) CheckEdges(op, graph_.tensors_[in].storage, Name("op ", id));
    }
  }

  // Each output that lies elsewhere is found from a storage that may be overwritten.
  void CheckEdges(const Op& op, StorageId parent, const std::string& name) {
    for (TensorId out : op.outputs) {
      StorageId child = graph_.tensors_[out].storage;
      bool found = child == parent;
      for (EdgeId e : op.edges) {
        found |= graph_.edges_[e].parent == parent && graph_.edges_[e].child == child;
      }
      Require(found, 6, name + " is not known as a reader of what it reads");
    }
  }

  void CheckMemory() {
    Require(arena_.mapped() <= arena_.capacity(), 1, "more is mapped than the budget allows");
    uint64_t pinned = 0, resident = 0;
    for (StorageId id = 0; id < graph_.storages_.capacity(); ++id) {
      const Storage& s = graph_.storages_[id];
      if (!s.live || !s.resident) continue;
      resident += s.block.bytes;
      if (s.pins > 0) pinned += s.block.bytes;
    }
    Require(pinned == pinned_bytes_, 1, "the pinned bytes are miscounted");
    Require(resident <= arena_.active(), 1, "resident storages exceed the arena's active bytes");
  }

  // Every undefined tensor with a producer can be computed: ops form no cycle and start at
  // defined or pinned tensors. Iterative, for chains as long as programs.
  void CheckReachable() {
    std::vector<uint8_t> state(graph_.ops_.capacity(), 0);  // 1: on the path, 2: fine
    std::vector<std::pair<OpId, uint32_t>> path;
    for (OpId start = 0; start < graph_.ops_.capacity(); ++start) {
      if (!graph_.ops_[start].live || state[start] == 2) continue;
      path.push_back({start, 0});
      state[start] = 1;
      while (!path.empty()) {
        auto& [op, next] = path.back();
        if (next == graph_.ops_[op].inputs.size()) {
          state[op] = 2;
          path.pop_back();
          continue;
        }
        TensorId in = graph_.Root(graph_.ops_[op].inputs[next++]);
        OpId producer = graph_.tensors_[in].producer;
        if (graph_.tensors_[in].detached) continue;
        Require(producer != kNone, 3, Name("tensor ", in) + " has no history");
        Require(state[producer] != 1, 3, Name("op ", producer) + " depends on itself");
        if (state[producer] == 0) {
          state[producer] = 1;
          path.push_back({producer, 0});
        }
      }
    }
  }

  const Graph& graph_;
  const Arena& arena_;
  uint64_t pinned_bytes_;
  bool running_;
  std::vector<uint32_t> uses_, refs_, roots_;
};

void Runtime::Validate() const {
  Validator(graph_, *arena_, pinned_bytes_, !stack_.empty()).Run();
  ValidateDeallocation();
}

}  // namespace dtr
