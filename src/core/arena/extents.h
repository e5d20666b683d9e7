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
    if (next != by_start_.begin()) {
      auto previous = std::prev(next);
      if (previous->first + previous->second == start) {
        start = previous->first;
        bytes += previous->second;
        Forget(previous);
      }
    }
    if (next != by_start_.end() && start + bytes == next->first) {
      bytes += next->second;
      Forget(next);
    }
    Note(start, bytes);
  }

  // The first `bytes` bytes of the smallest run that has as many; false if there is none.
  bool Take(uint64_t bytes, uintptr_t* start) {
    auto fit = by_size_.lower_bound({bytes, 0});
    if (fit == by_size_.end()) return false;
    auto [size, first] = *fit;
    Forget(by_start_.find(first));
    if (size > bytes) Note(first + bytes, size - bytes);
    bytes_ -= bytes;
    *start = first;
    return true;
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
