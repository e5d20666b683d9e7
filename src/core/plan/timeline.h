// The computations of a schedule in a fixed order of first computations, with the memory in use at
// each of them, kept up to date as recomputations come and go.
//
// Stage j ends with the first computation of position j. Before it, in ascending order, come the
// recomputations of stage j: event (stage, position) with position < stage. So any set of
// recomputations is a valid schedule, and memory is the one thing that can be wrong with it. This
// is the search space of Moccasin (Bartan et al., 2023) and of Checkmate's frontier-advancing
// stages (Jain et al., MLSys 2020, section 4.2).
//
// Storages live as schedule.h's ScheduleOf frees them: from the op that fills them to the last
// read before that op runs again, kept ones to the end.
#ifndef TVM_DTR_CORE_PLAN_TIMELINE_H_
#define TVM_DTR_CORE_PLAN_TIMELINE_H_

#include <cstdint>
#include <vector>

#include "core/plan/max_tree.h"
#include "core/plan/planning_graph.h"

namespace dtr {

class Timeline {
 public:
  using Key = uint64_t;  // an event, in the order they run: stage * size + position

  explicit Timeline(const PlanningGraph& graph);

  Key KeyOf(uint32_t stage, uint32_t position) const { return Key{stage} * n_ + position; }
  uint32_t StageOf(Key event) const { return static_cast<uint32_t>(event / n_); }
  uint32_t PositionOf(Key event) const { return static_cast<uint32_t>(event % n_); }
  bool Has(Key event) const;
  // Whether a position may be recomputed in a stage.
  bool Allowed(Key event) const {
    uint32_t p = PositionOf(event), j = StageOf(event);
    return p < j && j <= graph_.ops[p].last_rerun;
  }

  void Add(Key event);     // not there yet, and allowed
  void Remove(Key event);  // a recomputation that is there

  uint64_t Peak() const { return static_cast<uint64_t>(stages_max_.Max()) + graph_.pinned_bytes; }
  Key PeakEvent() const;
  double extra_cost() const { return extra_cost_; }
  uint64_t recomputations() const { return recomputations_; }

  // The stretch of a storage's life around an event at which it is neither read nor filled:
  // after `from` and before `until`. `until` is 0 if it is not in memory then, or in use.
  struct Gap {
    Key from = 0, until = 0;
  };
  Gap GapAt(uint32_t storage, Key at) const;
  // The last read (or filling) of the storage's copy that an event would find, and whether that
  // copy is in memory at the event.
  struct Copy {
    Key last;
    bool alive;
  };
  Copy CopyAt(uint32_t storage, Key at) const;

  // All events as the program's op ids, in the order they run.
  std::vector<uint32_t> Sequence() const;
  std::vector<Key> Recomputations() const;
  const PlanningGraph& graph() const { return graph_; }
  // Stages in which a position is computed; the first is itself.
  const std::vector<uint32_t>& StagesOf(uint32_t position) const { return computed_in_[position]; }

 private:
  struct Element {
    uint32_t position;
    int64_t bytes;  // without what stages_max_ has added to the stage
  };
  using Stage = std::vector<Element>;

  void AddRange(Key first, Key last, int64_t delta);  // both included
  void AddWithin(uint32_t stage, uint32_t first, uint32_t last, int64_t delta);
  void RefreshStage(uint32_t stage);
  int64_t BytesAt(Key event) const;
  // Of the copy made last before `before`: where it was made, where the next one is made.
  Key MadeBefore(uint32_t storage, Key before) const;
  Key MadeAfter(uint32_t storage, Key after) const;
  // The last read in [from, before), else `from`.
  Key LastRead(uint32_t storage, Key from, Key before) const;
  Key End() const { return Key{n_} * n_; }
  uint64_t OutputBytes(uint32_t position) const;

  const PlanningGraph& graph_;
  const uint32_t n_;
  std::vector<Stage> stages_;
  MaxTree stages_max_;
  std::vector<std::vector<uint32_t>> computed_in_;  // by position: stages, ascending
  std::vector<std::vector<Key>> reads_;             // by storage: ascending
  double extra_cost_ = 0;
  uint64_t recomputations_ = 0;
};

}  // namespace dtr

#endif  // TVM_DTR_CORE_PLAN_TIMELINE_H_
