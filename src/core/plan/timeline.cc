#include "core/plan/timeline.h"

#include <algorithm>

#include "core/errors.h"

namespace dtr {
namespace {

template <typename T>
void Insert(std::vector<T>* sorted, const T& value) {
  sorted->insert(std::lower_bound(sorted->begin(), sorted->end(), value), value);
}

template <typename T>
void Erase(std::vector<T>* sorted, const T& value) {
  sorted->erase(std::lower_bound(sorted->begin(), sorted->end(), value));
}

}  // namespace

Timeline::Timeline(const PlanningGraph& graph)
    : graph_(graph),
      n_(graph.size()),
      stages_(n_),
      stages_max_(std::max<uint32_t>(n_, 1)),
      computed_in_(n_),
      reads_(graph.bytes.size()) {
  for (uint32_t p = 0; p < n_; ++p) {
    stages_[p].push_back({p, static_cast<int64_t>(graph.ops[p].workspace_bytes)});
    computed_in_[p].push_back(p);
    RefreshStage(p);
  }
  for (uint32_t s = 0; s < graph.bytes.size(); ++s) {
    if (graph.maker[s] == kNone) continue;
    for (uint32_t p : graph.readers[s]) reads_[s].push_back(KeyOf(p, p));
    if (graph.kept[s]) reads_[s].push_back(End());
    Key made = KeyOf(graph.maker[s], graph.maker[s]);
    AddRange(made, LastRead(s, made, End() + 1), static_cast<int64_t>(graph.bytes[s]));
  }
}

bool Timeline::Has(Key event) const {
  const std::vector<uint32_t>& stages = computed_in_[PositionOf(event)];
  return std::binary_search(stages.begin(), stages.end(), StageOf(event));
}

// -- Looking up -----------------------------------------------------------------------------------

Timeline::Key Timeline::MadeBefore(uint32_t storage, Key before) const {
  const uint32_t maker = graph_.maker[storage];
  const std::vector<uint32_t>& stages = computed_in_[maker];
  uint32_t stage = StageOf(before) + (PositionOf(before) > maker ? 1 : 0);  // first too late
  auto it = std::lower_bound(stages.begin(), stages.end(), stage);
  return KeyOf(*(it - 1), maker);
}

Timeline::Key Timeline::MadeAfter(uint32_t storage, Key after) const {
  const uint32_t maker = graph_.maker[storage];
  const std::vector<uint32_t>& stages = computed_in_[maker];
  uint32_t stage = StageOf(after) + (PositionOf(after) >= maker ? 1 : 0);
  auto it = std::lower_bound(stages.begin(), stages.end(), stage);
  return it == stages.end() ? End() + 1 : KeyOf(*it, maker);
}

Timeline::Key Timeline::LastRead(uint32_t storage, Key from, Key before) const {
  const std::vector<Key>& reads = reads_[storage];
  auto it = std::lower_bound(reads.begin(), reads.end(), before);
  if (it == reads.begin() || *(it - 1) < from) return from;
  return *(it - 1);
}

Timeline::Copy Timeline::CopyAt(uint32_t storage, Key at) const {
  Key made = MadeBefore(storage, at);
  Key last = LastRead(storage, made, MadeAfter(storage, made));
  return {last, last > at};
}

Timeline::Gap Timeline::GapAt(uint32_t storage, Key at) const {
  const uint32_t maker = graph_.maker[storage];
  if (KeyOf(maker, maker) >= at || PositionOf(at) == maker) return {};
  Key made = MadeBefore(storage, at);
  const std::vector<Key>& reads = reads_[storage];
  auto it = std::lower_bound(reads.begin(), reads.end(), at);
  if (it == reads.end() || *it == at || *it >= MadeAfter(storage, made)) return {};
  Key from = it == reads.begin() ? made : std::max(made, *(it - 1));
  return {from, *it};
}

uint64_t Timeline::OutputBytes(uint32_t position) const {
  uint64_t bytes = 0;
  for (uint32_t s : graph_.ops[position].outputs) bytes += graph_.bytes[s];
  return bytes;
}

int64_t Timeline::BytesAt(Key event) const {
  const Stage& stage = stages_[StageOf(event)];
  auto it = std::lower_bound(stage.begin(), stage.end(), PositionOf(event),
                             [](const Element& e, uint32_t p) { return e.position < p; });
  return it->bytes + stages_max_.Added(StageOf(event));
}

Timeline::Key Timeline::PeakEvent() const {
  uint32_t top = stages_max_.Top();
  auto it = std::max_element(stages_[top].begin(), stages_[top].end(),
                             [](const Element& a, const Element& b) { return a.bytes < b.bytes; });
  return KeyOf(top, it->position);
}

std::vector<uint32_t> Timeline::Sequence() const {
  std::vector<uint32_t> ids;
  for (const Stage& stage : stages_) {
    for (const Element& element : stage) ids.push_back(graph_.ops[element.position].id);
  }
  return ids;
}

std::vector<Timeline::Key> Timeline::Recomputations() const {
  std::vector<Key> events;
  for (uint32_t j = 0; j < n_; ++j) {
    for (const Element& element : stages_[j]) {
      if (element.position != j) events.push_back(KeyOf(j, element.position));
    }
  }
  return events;
}

// -- Changing -------------------------------------------------------------------------------------

void Timeline::RefreshStage(uint32_t stage) {
  int64_t most = stages_[stage].front().bytes;
  for (const Element& element : stages_[stage]) most = std::max(most, element.bytes);
  stages_max_.Set(stage, most);
}

void Timeline::AddWithin(uint32_t stage, uint32_t first, uint32_t last, int64_t delta) {
  for (Element& element : stages_[stage]) {
    if (element.position >= first && element.position <= last) element.bytes += delta;
  }
  RefreshStage(stage);
}

void Timeline::AddRange(Key first, Key last, int64_t delta) {
  last = std::min(last, End() - 1);
  if (first > last) return;
  uint32_t from = StageOf(first), to = StageOf(last);
  if (from == to) return AddWithin(from, PositionOf(first), PositionOf(last), delta);
  if (PositionOf(first) > 0) AddWithin(from++, PositionOf(first), n_, delta);
  if (PositionOf(last) < to) AddWithin(to--, 0, PositionOf(last), delta);
  if (from <= to) stages_max_.Add(from, to, delta);
}

void Timeline::Add(Key event) {
  const uint32_t j = StageOf(event), p = PositionOf(event);
  const PlanningGraph::Op& op = graph_.ops[p];
  // What is alive on both sides of the new event is what the next one finds in memory.
  Stage& stage = stages_[j];
  auto next = std::lower_bound(stage.begin(), stage.end(), p,
                               [](const Element& e, uint32_t at) { return e.position < at; });
  const PlanningGraph::Op& after = graph_.ops[next->position];
  int64_t carried = next->bytes - static_cast<int64_t>(OutputBytes(next->position)) -
                    static_cast<int64_t>(after.workspace_bytes);
  stage.insert(next, {p, carried + static_cast<int64_t>(op.workspace_bytes)});
  RefreshStage(j);
  for (uint32_t s : op.outputs) {
    const auto bytes = static_cast<int64_t>(graph_.bytes[s]);
    Key made = MadeBefore(s, event), remade = MadeAfter(s, event);
    if (LastRead(s, made, remade) < event) {
      AddRange(event, event, bytes);  // nobody wants it: it comes and goes
    } else {
      AddRange(LastRead(s, made, event) + 1, event - 1, -bytes);
    }
  }
  Insert(&computed_in_[p], j);
  for (uint32_t s : op.inputs) {
    Key made = MadeBefore(s, event);
    Key last = LastRead(s, made, MadeAfter(s, made));
    if (last < event) AddRange(last + 1, event, static_cast<int64_t>(graph_.bytes[s]));
    Insert(&reads_[s], event);
  }
  extra_cost_ += op.cost;
  ++recomputations_;
}

void Timeline::Remove(Key event) {
  const uint32_t j = StageOf(event), p = PositionOf(event);
  const PlanningGraph::Op& op = graph_.ops[p];
  for (uint32_t s : op.inputs) {
    Erase(&reads_[s], event);
    Key made = MadeBefore(s, event);
    Key last = LastRead(s, made, MadeAfter(s, made));
    if (last < event) AddRange(last + 1, event, -static_cast<int64_t>(graph_.bytes[s]));
  }
  Erase(&computed_in_[p], j);
  for (uint32_t s : op.outputs) {
    Key made = MadeBefore(s, event);
    if (LastRead(s, made, MadeAfter(s, event)) < event) continue;
    AddRange(LastRead(s, made, event) + 1, event - 1, static_cast<int64_t>(graph_.bytes[s]));
  }
  Stage& stage = stages_[j];
  stage.erase(std::lower_bound(stage.begin(), stage.end(), p,
                               [](const Element& e, uint32_t at) { return e.position < at; }));
  RefreshStage(j);
  extra_cost_ -= op.cost;
  --recomputations_;
}

}  // namespace dtr
