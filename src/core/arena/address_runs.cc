#include "core/arena/address_runs.h"

#include "core/errors.h"

namespace dtr {

AddressRuns::Id AddressRuns::Add() {
  Id id = static_cast<Id>(runs_.size());
  if (unused_.empty()) {
    runs_.emplace_back();
  } else {
    id = unused_.back();
    unused_.pop_back();
    runs_[id] = Run();
  }
  // xorshift32 (Marsaglia, 2003): all that a treap asks of randomness.
  random_ ^= random_ << 13;
  random_ ^= random_ >> 17;
  random_ ^= random_ << 5;
  runs_[id].priority = random_;
  return id;
}

AddressRuns::Id AddressRuns::Append(uintptr_t start, uint64_t bytes) {
  Id id = Add();
  Run& run = runs_[id];
  run.start = run.vacant_start = start;
  run.bytes = run.vacant_bytes = bytes;
  run.free = true;
  run.previous = last_;
  (last_ == kNone ? first_ : runs_[last_].next) = id;
  last_ = id;
  return id;
}

AddressRuns::Id AddressRuns::BestFit(uint64_t bytes) const {
  if (bytes <= kUnit * kBins) {
    uint64_t bin = bytes == 0 ? 0 : (bytes - 1) / kUnit;
    uint64_t fitting = occupied_ >> bin << bin;
    if (fitting) return bins_[__builtin_ctzll(fitting)];
  }
  Id best = kNone;
  for (Id node = root_; node != kNone;) {
    if (runs_[node].bytes >= bytes) {
      best = node;
      node = runs_[node].left;
    } else {
      node = runs_[node].right;
    }
  }
  return best;
}

AddressRuns::Id AddressRuns::Largest() const {
  Id node = root_;
  while (node != kNone && runs_[node].right != kNone) node = runs_[node].right;
  if (node != kNone || occupied_ == 0) return node;
  return bins_[63 - __builtin_clzll(occupied_)];
}

void AddressRuns::ListInBin(Id id) {
  uint64_t bin = runs_[id].bytes / kUnit - 1;
  runs_[id].left = kNone;
  runs_[id].right = bins_[bin];
  if (bins_[bin] != kNone) runs_[bins_[bin]].left = id;
  bins_[bin] = id;
  occupied_ |= uint64_t{1} << bin;
}

void AddressRuns::UnlistFromBin(Id id) {
  uint64_t bin = runs_[id].bytes / kUnit - 1;
  Id before = runs_[id].left, after = runs_[id].right;
  if (after != kNone) runs_[after].left = before;
  if (before != kNone) {
    runs_[before].right = after;
    return;
  }
  bins_[bin] = after;
  if (after == kNone) occupied_ &= ~(uint64_t{1} << bin);
}

// Down to where the new run's priority belongs; what hangs there is cut in two by its key.
void AddressRuns::List(Id id) {
  if (Binned(runs_[id].bytes)) return ListInBin(id);
  Id* link = &root_;
  while (*link != kNone && runs_[*link].priority >= runs_[id].priority) {
    link = Before(id, *link) ? &runs_[*link].left : &runs_[*link].right;
  }
  Id rest = *link;
  *link = id;
  Id *smaller = &runs_[id].left, *larger = &runs_[id].right;
  while (rest != kNone) {
    if (Before(rest, id)) {
      *smaller = rest;
      smaller = &runs_[rest].right;
      rest = *smaller;
    } else {
      *larger = rest;
      larger = &runs_[rest].left;
      rest = *larger;
    }
  }
  *smaller = *larger = kNone;
}

void AddressRuns::Unlist(Id id) {
  if (Binned(runs_[id].bytes)) return UnlistFromBin(id);
  Id* link = &root_;
  while (*link != id) {
    DTR_CHECK(*link != kNone, "a free run is not listed");
    link = Before(id, *link) ? &runs_[*link].left : &runs_[*link].right;
  }
  Id left = runs_[id].left, right = runs_[id].right;
  while (left != kNone && right != kNone) {
    if (runs_[left].priority > runs_[right].priority) {
      *link = left;
      link = &runs_[left].right;
      left = *link;
    } else {
      *link = right;
      link = &runs_[right].left;
      right = *link;
    }
  }
  *link = left != kNone ? left : right;
}

AddressRuns::Id AddressRuns::Split(Id id, uint64_t bytes) {
  Id rest = Add();
  Run &run = runs_[id], &tail = runs_[rest];
  tail.start = run.start + bytes;
  tail.bytes = run.bytes - bytes;
  tail.free = true;
  run.bytes = bytes;
  tail.previous = id;
  tail.next = run.next;
  (run.next == kNone ? last_ : runs_[run.next].previous) = rest;
  run.next = rest;
  return rest;
}

void AddressRuns::AbsorbNext(Id id) {
  Run& run = runs_[id];
  Id gone = run.next;
  run.bytes += runs_[gone].bytes;
  run.next = runs_[gone].next;
  (run.next == kNone ? last_ : runs_[run.next].previous) = id;
  unused_.push_back(gone);
}

void AddressRuns::Validate() const {
  uint64_t free_runs = 0;
  for (Id id = first_; id != kNone; id = runs_[id].next) {
    const Run& run = runs_[id];
    DTR_CHECK(run.bytes > 0, "a run is empty");
    free_runs += run.free;
    if (run.next == kNone) {
      DTR_CHECK(id == last_, "the list of runs ends early");
      continue;
    }
    const Run& next = runs_[run.next];
    DTR_CHECK(run.end() == next.start && next.previous == id, "runs overlap or leave a gap");
    DTR_CHECK(!run.free || !next.free, "two free neighbours were not joined");
  }
  uint64_t listed = 0;
  for (uint64_t bin = 0; bin < kBins; ++bin) {
    DTR_CHECK((bins_[bin] != kNone) == (occupied_ >> bin & 1), "a bin is wrongly marked");
    for (Id id = bins_[bin]; id != kNone; id = runs_[id].right, ++listed) {
      DTR_CHECK(runs_[id].free && runs_[id].bytes == (bin + 1) * kUnit, "a run is in a wrong bin");
    }
  }
  std::vector<Id> path;
  Id node = root_, before = kNone;
  while (node != kNone || !path.empty()) {
    for (; node != kNone; node = runs_[node].left) path.push_back(node);
    node = path.back();
    path.pop_back();
    DTR_CHECK(runs_[node].free, "a live run is listed as free");
    DTR_CHECK(before == kNone || Before(before, node), "free runs are out of order");
    ++listed;
    before = node;
    node = runs_[node].right;
  }
  DTR_CHECK(listed == free_runs, "a free run is not listed");
}

}  // namespace dtr
