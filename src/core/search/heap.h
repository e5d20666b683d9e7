// Kinetic search: a tournament of lines, re-keyed where something changed. O(log n) amortised.
//
// Keys are made for storages that became evictable and brought up to date for those that the score
// names as affected by a rematerialization. Others may be stale; a key that promises too much (a
// later access, dearer neighbours) is found out when it wins, so only one that promises too
// little can hide. Where the score does not name all that are affected (dtr-eq: next to the
// component, but not to the storage, that a rematerialization made cheaper), keys are brought up to
// date with every access, which finds most of them.
#ifndef TVM_DTR_CORE_SEARCH_HEAP_H_
#define TVM_DTR_CORE_SEARCH_HEAP_H_

#include <vector>

#include "core/search/scored_policy.h"
#include "core/search/tournament.h"

namespace dtr {

template <typename Score>
class HeapPolicy : public ScoredPolicy<Score> {
 public:
  HeapPolicy() : large_(Score::kTies), small_(Score::kTies) {}

  StorageId SelectVictim(const Graph& graph, double clock, uint64_t smallest) override {
    Resize(graph, static_cast<double>(smallest));
    graph.DrainRelisted([&](StorageId s) {
      if (!StillPromised(s)) Rekey(graph, s);
    });
    for (StorageId s : changed_) Rekey(graph, s);
    changed_.clear();
    StorageId victim = Best(graph, clock, &large_);
    return victim != kNone ? victim : Best(graph, clock, &small_);
  }

  void OnEvict(const Graph& graph, StorageId s) override {
    this->score_.OnEvict(graph, s);
    Remove(s);  // it made others dearer, which shows when they win
  }
  void OnRematerialize(const Graph& graph, StorageId s) override {
    this->score_.OnRematerialize(graph, s);
    this->score_.ForEachAffected(graph, s, [&](StorageId id) { Note(id); });
  }
  void OnCostChange(const Graph& graph, StorageId s, double delta) override {
    this->score_.OnCostChange(graph, s, delta);
    this->score_.ForEachAffected(graph, s, [&](StorageId id) { Note(id); });
    Note(s);
  }
  void OnForget(const Graph& graph, StorageId s) override {
    this->score_.OnForget(graph, s);
    Remove(s);
  }

 private:
  void Note(StorageId s) {
    if (large_.Contains(s) || small_.Contains(s)) changed_.push_back(s);
  }
  // One that was only in use is younger than its key tells, which promises too much and shows when
  // it wins: most storages are used several times before that, and are brought up to date once.
  bool StillPromised(StorageId s) const {
    return Score::kTracked && Score::kTies == Ties::kFirst &&
           (large_.Contains(s) || small_.Contains(s));
  }
  void Resize(const Graph& graph, double smallest) {
    if (smallest == smallest_) return;
    smallest_ = smallest;
    for (const Graph::Candidate& c : graph.evictable()) Rekey(graph, c.storage);
  }
  void Rekey(const Graph& graph, StorageId s) {
    if (s >= graph.storage_capacity()) return;
    uint32_t index = graph.storage(s).evictable_index;
    if (index == kNone) return Remove(s);  // it is made a key when it is listed again
    const Graph::Candidate& c = graph.evictable()[index];
    bool large = c.bytes >= smallest_;
    (large ? small_ : large_).Remove(s);
    (large ? large_ : small_).Set(s, Key(graph, c), c.since);
  }
  void Remove(StorageId s) {
    large_.Remove(s);
    small_.Remove(s);
  }

  StorageId Best(const Graph& graph, double clock, Tournament* tournament) {
    uint32_t top;
    while ((top = tournament->Top(clock)) != kNone) {
      uint32_t index = graph.storage(top).evictable_index;
      if (index == kNone) {
        // Locked: it comes back to us when it is listed again. Or gone.
        tournament->Remove(top);
        continue;
      }
      const Graph::Candidate& c = graph.evictable()[index];
      bool exact = true;
      Line line = TopKey(graph, c, clock, *tournament, &exact);
      if (tournament->Holds(top, line, c.since)) {
        if (exact) return top;
        line = this->score_.Exact(graph, c);
        if (tournament->Holds(top, line, c.since)) return top;
      }
      tournament->Set(top, line, c.since);
    }
    return kNone;
  }
  Line Key(const Graph& graph, const Graph::Candidate& c) {
    if constexpr (Score::kBounded) {
      return this->score_.Promise(graph, c);
    } else {
      return this->score_.Exact(graph, c);
    }
  }
  Line TopKey(const Graph& graph, const Graph::Candidate& c, double clock,
              const Tournament& tournament, bool* exact) {
    if constexpr (Score::kBounded) {
      return this->score_.ExactUnlessBelow(graph, c, clock, tournament.RunnerUp(), exact);
    } else {
      return this->score_.Exact(graph, c);
    }
  }

  Tournament large_, small_;
  double smallest_ = 0;
  std::vector<StorageId> changed_;
};

}  // namespace dtr

#endif  // TVM_DTR_CORE_SEARCH_HEAP_H_
