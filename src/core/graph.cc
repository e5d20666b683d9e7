#include "core/graph.h"

namespace dtr {

void CheckFailed(const char* file, int line, const char* condition, const std::string& detail) {
  throw InternalError(std::string(file) + ":" + std::to_string(line) +
                      ": internal check failed: " + condition + ": " + detail);
}

void Graph::LinkTensor(TensorId id) {
  Tensor& t = tensors_[id];
  Storage& s = storages_[t.storage];
  t.previous = kNone;
  t.next = s.first_tensor;
  if (t.next != kNone) tensors_[t.next].previous = id;
  s.first_tensor = id;
}

void Graph::UnlinkTensor(TensorId id) {
  Tensor& t = tensors_[id];
  if (t.previous == kNone) {
    storages_[t.storage].first_tensor = t.next;
  } else {
    tensors_[t.previous].next = t.next;
  }
  if (t.next != kNone) tensors_[t.next].previous = t.previous;
}

EdgeId Graph::AddEdge(StorageId parent, StorageId child, OpId op) {
  EdgeId id = edges_.Add();
  Edge& e = edges_[id];
  e = Edge();
  e.parent = parent;
  e.child = child;
  e.op = op;
  e.next_child = storages_[parent].first_child;
  if (e.next_child != kNone) edges_[e.next_child].previous_child = id;
  storages_[parent].first_child = id;
  e.next_parent = storages_[child].first_parent;
  if (e.next_parent != kNone) edges_[e.next_parent].previous_parent = id;
  storages_[child].first_parent = id;
  return id;
}

void Graph::RemoveEdge(EdgeId id) {
  const Edge& e = edges_[id];
  if (e.previous_child == kNone) {
    storages_[e.parent].first_child = e.next_child;
  } else {
    edges_[e.previous_child].next_child = e.next_child;
  }
  if (e.next_child != kNone) edges_[e.next_child].previous_child = e.previous_child;
  if (e.previous_parent == kNone) {
    storages_[e.child].first_parent = e.next_parent;
  } else {
    edges_[e.previous_parent].next_parent = e.next_parent;
  }
  if (e.next_parent != kNone) edges_[e.next_parent].previous_parent = e.previous_parent;
  edges_.Remove(id);
}

void Graph::Relist(StorageId id, bool eligible) {
  Storage& s = storages_[id];
  if (eligible) {
    s.evictable_index = static_cast<uint32_t>(evictable_.size());
    evictable_.push_back(
        {id, next_since_++, static_cast<double>(s.block.bytes), s.cost, s.last_access});
    evictable_bytes_ += static_cast<double>(s.block.bytes);
    if (!s.relisted) {
      s.relisted = true;
      relisted_.push_back(id);
    }
    return;
  }
  evictable_bytes_ -= evictable_[s.evictable_index].bytes;
  Candidate& hole = evictable_[s.evictable_index];
  hole = evictable_.back();
  storages_[hole.storage].evictable_index = s.evictable_index;
  evictable_.pop_back();
  s.evictable_index = kNone;
}

void Graph::RelistAll() {
  for (const Candidate& c : evictable_) {
    Storage& s = storages_[c.storage];
    if (!s.relisted) relisted_.push_back(c.storage);
    s.relisted = true;
  }
}

void Graph::Touch(StorageId id, double clock) {
  Storage& s = storages_[id];
  s.last_access = clock;
  if (s.evictable_index != kNone) evictable_[s.evictable_index].last_access = clock;
}

}  // namespace dtr
