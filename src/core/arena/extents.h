// Runs of addresses that are free for some use, found by address and by size.
//
// Runs never overlap and never touch: neighbours are joined as they come in.
#ifndef TVM_DTR_CORE_ARENA_EXTENTS_H_
#define TVM_DTR_CORE_ARENA_EXTENTS_H_

#include <cstdint>
#include <map>
#include <set>
#include <utility>

namespace dtr {

class Extents {
 public:
  uint64_t bytes() const { return bytes_; }

  void Add(uintptr_t start, uint64_t bytes) {
    bytes_ += bytes;
    auto next = by_start_.lower_bound(start);
    const bool before_next = next != by_start_.end() && start + bytes == next->first;
    if (next != by_start_.begin()) {
      auto previous = std::prev(next);
      if (previous->first + previous->second == start) {
        bytes += previous->second;
        if (before_next) {
          bytes += next->second;
          Forget(next);
        }
        return Change(previous, previous->first, bytes);
      }
    }
    if (before_next) return Change(next, start, bytes + next->second);
    Note(start, bytes);
  }

  // The first `bytes` bytes of the smallest run that has as many; false if there is none.
  bool Take(uint64_t bytes, uintptr_t* start) {
    auto fit = by_size_.lower_bound({bytes, 0});
    if (fit == by_size_.end()) return false;
    auto [size, first] = *fit;
    auto run = by_start_.find(first);
    if (size > bytes) {
      Change(run, first + bytes, size - bytes);
    } else {
      Forget(run);
    }
    bytes_ -= bytes;
    *start = first;
    return true;
  }

  // Length of the run that starts, that ends there; 0 if none does.
  uint64_t StartingAt(uintptr_t start) const {
    auto run = by_start_.find(start);
    return run == by_start_.end() ? 0 : run->second;
  }
  uint64_t EndingAt(uintptr_t end) const {
    auto run = by_start_.lower_bound(end);
    if (run == by_start_.begin()) return 0;
    --run;
    return run->first + run->second == end ? run->second : 0;
  }
  // Takes the run that starts there, all of it.
  void TakeRun(uintptr_t start) {
    auto run = by_start_.find(start);
    bytes_ -= run->second;
    Forget(run);
  }
  // Takes `bytes` bytes that start there, in the middle of a run or not.
  void TakeAt(uintptr_t start, uint64_t bytes) {
    auto run = std::prev(by_start_.upper_bound(start));
    auto [first, size] = *run;
    Forget(run);
    if (first < start) Note(first, start - first);
    if (first + size > start + bytes) Note(start + bytes, first + size - start - bytes);
    bytes_ -= bytes;
  }
  // Calls f(start, bytes) for up to `most` runs, the longest first, until it returns false.
  template <typename F>
  void ForEachLongest(int most, F f) const {
    for (auto run = by_size_.rbegin(); run != by_size_.rend() && most-- > 0; ++run) {
      if (!f(run->second, run->first)) return;
    }
  }

  // Up to `bytes` bytes from the end of the smallest run that has as many, else all of the
  // largest; the run must exist.
  std::pair<uintptr_t, uint64_t> TakeUpTo(uint64_t bytes) {
    auto fit = by_size_.lower_bound({bytes, 0});
    if (fit == by_size_.end()) --fit;
    auto [size, first] = *fit;
    Forget(by_start_.find(first));
    uint64_t taken = size < bytes ? size : bytes;
    if (size > taken) Note(first, size - taken);
    bytes_ -= taken;
    return {first + (size - taken), taken};
  }

 private:
  using ByStart = std::map<uintptr_t, uint64_t>;

  void Note(uintptr_t start, uint64_t bytes) {
    by_start_.emplace(start, bytes);
    by_size_.emplace(bytes, start);
  }
  // The run becomes one that overlaps it, in its place among the others; allocates nothing.
  void Change(ByStart::iterator run, uintptr_t start, uint64_t bytes) {
    auto sized = by_size_.extract({run->second, run->first});
    sized.value() = {bytes, start};
    by_size_.insert(std::move(sized));
    run->second = bytes;
    if (run->first == start) return;
    auto behind = std::next(run);
    auto moved = by_start_.extract(run);
    moved.key() = start;
    by_start_.insert(behind, std::move(moved));
  }
  void Forget(ByStart::iterator run) {
    by_size_.erase({run->second, run->first});
    by_start_.erase(run);
  }

  ByStart by_start_;
  std::set<std::pair<uint64_t, uintptr_t>> by_size_;
  uint64_t bytes_ = 0;
};

}  // namespace dtr

#endif  // TVM_DTR_CORE_ARENA_EXTENTS_H_
