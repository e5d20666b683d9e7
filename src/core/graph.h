// The record of how every tensor was made: storages, tensors (views), ops and their edges.
//
// Equations that hold between public calls (Runtime::Validate checks them):
//   storage.refs      == storage.holds + sum of tensor.refs over its tensors and views
//   storage.resident  == (storage.block is not empty)
//   tensor.uses       == live ops that read it, with repetition, + views based on it
//   op.live_outputs   == outputs that are not detached and have refs + uses > 0
//   storage is listed as evictable iff resident, pins == 0, locks == 0 and each root tensor
//                        in it that is defined has a producer
// A record goes as soon as nobody can need it: an op when live_outputs reaches 0, a tensor when
// refs + uses == 0 and its producer is gone, a storage with its last tensor and hold.
#ifndef TVM_DTR_CORE_GRAPH_H_
#define TVM_DTR_CORE_GRAPH_H_

#include <vector>

#include "core/arena.h"
#include "core/errors.h"
#include "core/id_list.h"
#include "core/types.h"

namespace dtr {

using EdgeId = uint32_t;

struct Storage {
  uint64_t bytes = 0;      // as requested
  double cost = 0;         // c0: sum over the ops that fill its tensors
  double last_access = 0;  // l, in clock units
  Block block;
  void* external = nullptr;  // memory of the caller, charged to the arena
  uint32_t refs = 0;
  uint32_t holds = 0;  // callers that may still put tensors into it
  uint32_t locks = 0;
  uint32_t pins = 0;              // tensors in it that are constants or detached
  TensorId first_tensor = kNone;  // list of root tensors
  EdgeId first_parent = kNone;    // edges to storages its ops read
  EdgeId first_child = kNone;     // edges to storages made from it
  uint32_t evictable_index = kNone;
  uint64_t overwritten = 0;       // serial of the latest write in place
  uint64_t visit = 0;             // the latest walk that met it
  bool keeps_readers = false;     // has edges to what is made from it even while pinned
  mutable bool relisted = false;  // waits in Graph::relisted_
  bool resident = false;
  bool computed = false;  // has been resident: evicted means computed && !resident
  bool live = false;
};

struct Tensor {
  StorageId storage = kNone;
  OpId producer = kNone;                    // kNone: constant, detached or not yet written
  TensorId base = kNone;                    // of a view: the root tensor that defines it
  TensorId next = kNone, previous = kNone;  // root tensors of one storage
  uint32_t refs = 0;                        // registers, tuples, closures, callers
  uint32_t uses = 0;
  bool defined = false;   // roots only: its bytes are in memory
  bool detached = false;  // pinned for the caller, its history dropped
  bool live = false;
};

struct Op {
  KernelId kernel = 0;
  double cost = 0;
  uint64_t workspace_bytes = 0;
  uint64_t serial = 0;  // later ops have higher ones
  IdList inputs;        // tensors as called, views included
  IdList outputs;       // root tensors
  IdList edges;
  uint32_t live_outputs = 0;
  bool live = false;
};

// parent -> child: an op reads `parent` and fills `child`. In two intrusive lists.
struct Edge {
  StorageId parent = kNone, child = kNone;
  OpId op = kNone;
  EdgeId next_child = kNone, previous_child = kNone;    // among the edges of `parent`
  EdgeId next_parent = kNone, previous_parent = kNone;  // among the edges of `child`
};

// Slots with reuse: ids stay small and records keep their vectors' memory.
template <typename T>
class Slots {
 public:
  uint32_t Add() {
    if (free_.empty()) {
      items_.emplace_back();
      return static_cast<uint32_t>(items_.size() - 1);
    }
    uint32_t id = free_.back();
    free_.pop_back();
    return id;
  }
  void Remove(uint32_t id) { free_.push_back(id); }
  T& operator[](uint32_t id) { return items_[id]; }
  const T& operator[](uint32_t id) const { return items_[id]; }
  void Reserve(size_t count) { items_.reserve(count); }
  uint32_t capacity() const { return static_cast<uint32_t>(items_.size()); }
  uint32_t size() const { return static_cast<uint32_t>(items_.size() - free_.size()); }

 private:
  std::vector<T> items_;
  std::vector<uint32_t> free_;
};

class Graph {
 public:
  // What a search reads of an evictable storage, packed for a linear scan.
  struct Candidate {
    StorageId storage;
    uint64_t since;  // order in which storages became evictable, for ties
    double bytes;
    double cost;
    double last_access;
  };

  const Storage& storage(StorageId id) const { return storages_[id]; }
  const Tensor& tensor(TensorId id) const { return tensors_[id]; }
  const Op& op(OpId id) const { return ops_[id]; }
  const Edge& edge(EdgeId id) const { return edges_[id]; }
  const std::vector<Candidate>& evictable() const { return evictable_; }
  double evictable_bytes() const { return evictable_bytes_; }
  // Calls f(StorageId) once for each storage that became evictable since the last drain; some of
  // them may not be evictable, or not exist, any more.
  template <typename F>
  void DrainRelisted(F f) const {
    for (StorageId id : relisted_) {
      storages_[id].relisted = false;
      if (storages_[id].live) f(id);
    }
    relisted_.clear();
  }
  uint32_t storage_capacity() const { return storages_.capacity(); }
  uint32_t live_storages() const { return storages_.size(); }
  uint32_t live_tensors() const { return tensors_.size(); }
  uint32_t live_ops() const { return ops_.size(); }

  bool Evicted(StorageId id) const {
    const Storage& s = storages_[id];
    return s.computed && !s.resident;
  }
  TensorId Root(TensorId id) const { return tensors_[id].base == kNone ? id : tensors_[id].base; }
  bool Defined(TensorId id) const { return tensors_[Root(id)].defined; }

  // Calls f(StorageId) for each storage that an op connects with this one, perhaps repeatedly.
  template <typename F>
  void ForEachNeighbour(StorageId id, F f) const {
    const Storage& s = storages_[id];
    for (EdgeId e = s.first_parent; e != kNone; e = edges_[e].next_parent) f(edges_[e].parent);
    for (EdgeId e = s.first_child; e != kNone; e = edges_[e].next_child) f(edges_[e].child);
  }
  // Calls f(StorageId) for each evicted neighbour, perhaps more than once for the same one.
  template <typename F>
  void ForEachEvictedNeighbour(StorageId id, F f) const {
    ForEachNeighbour(id, [&](StorageId neighbour) {
      if (Evicted(neighbour)) f(neighbour);
    });
  }

 private:
  friend class Runtime;
  friend class Validator;

  void LinkTensor(TensorId id);
  void UnlinkTensor(TensorId id);
  EdgeId AddEdge(StorageId parent, StorageId child, OpId op);
  void RemoveEdge(EdgeId id);
  // Brings the evictable list in line with the storage's state.
  void UpdateEvictable(StorageId id) {
    const Storage& s = storages_[id];
    bool eligible = s.resident && s.pins == 0 && s.locks == 0;
    if (eligible != (s.evictable_index != kNone)) Relist(id, eligible);
  }
  void Relist(StorageId id, bool eligible);
  // As if each evictable storage had just become so, for a search that starts anew.
  void RelistAll();
  void Touch(StorageId id, double clock);

  Slots<Storage> storages_;
  Slots<Tensor> tensors_;
  Slots<Op> ops_;
  Slots<Edge> edges_;
  std::vector<Candidate> evictable_;
  double evictable_bytes_ = 0;
  // Bookkeeping of the search, not state of the graph: hence mutable.
  mutable std::vector<StorageId> relisted_;
  uint64_t next_since_ = 0;
};

}  // namespace dtr

#endif  // TVM_DTR_CORE_GRAPH_H_
