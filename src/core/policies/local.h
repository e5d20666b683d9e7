// Scores that look at the storage alone (DTR paper, section 4.1).
#ifndef TVM_DTR_CORE_POLICIES_LOCAL_H_
#define TVM_DTR_CORE_POLICIES_LOCAL_H_

#include "core/graph.h"
#include "core/search/line.h"

namespace dtr {

class LocalScore {
 public:
  static constexpr Ties kTies = Ties::kFirst;
  static constexpr bool kTracked = true;
  static constexpr bool kBounded = false;
  void OnCreate(const Graph&, StorageId) {}
  void OnEvict(const Graph&, StorageId) {}
  void OnRematerialize(const Graph&, StorageId) {}
  void OnCostChange(const Graph&, StorageId, double) {}
  void OnForget(const Graph&, StorageId) {}
  template <typename F>
  void ForEachAffected(const Graph&, StorageId, F) {}
};

// dtr-local: c0 / (m s)
class DtrLocal : public LocalScore {
 public:
  Line Bound(const Graph::Candidate& c) const {
    return {c.bytes / AtLeastTiny(c.cost), c.last_access, 0};
  }
  Line Exact(const Graph&, const Graph::Candidate& c) const { return Bound(c); }
};

// lru: 1 / s
class Lru : public LocalScore {
 public:
  Line Bound(const Graph::Candidate& c) const { return {1, c.last_access, 0}; }
  Line Exact(const Graph&, const Graph::Candidate& c) const { return Bound(c); }
};

// size: 1 / m. Sizes tie all the time; the paper's simulator takes the newest, which tells.
class Size : public LocalScore {
 public:
  static constexpr Ties kTies = Ties::kLast;
  Line Bound(const Graph::Candidate& c) const { return {0, 0, c.bytes}; }
  Line Exact(const Graph&, const Graph::Candidate& c) const { return Bound(c); }
};

}  // namespace dtr

#endif  // TVM_DTR_CORE_POLICIES_LOCAL_H_
