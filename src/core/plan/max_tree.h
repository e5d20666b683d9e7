// Range-add, maximum: values at positions 0..n-1, O(log n) each.
#ifndef TVM_DTR_CORE_PLAN_MAX_TREE_H_
#define TVM_DTR_CORE_PLAN_MAX_TREE_H_

#include <algorithm>
#include <cstdint>
#include <vector>

namespace dtr {

// A segment tree whose additions stay at the nodes they were made at:
//   highest[node] == added[node] + max(highest[left], highest[right])
class MaxTree {
 public:
  explicit MaxTree(uint32_t size) : width_(1) {
    while (width_ < size) width_ *= 2;
    highest_.assign(2 * width_, kLowest);
    added_.assign(2 * width_, 0);
  }

  int64_t Max() const { return highest_[1]; }

  // The first position that has the maximum.
  uint32_t Top() const {
    uint32_t node = 1;
    while (node < width_)
      node = highest_[2 * node] >= highest_[2 * node + 1] ? 2 * node : 2 * node + 1;
    return node - width_;
  }

  // What has been added to the position by Add since the beginning, apart from its own Set.
  int64_t Added(uint32_t position) const {
    int64_t sum = 0;
    for (uint32_t node = position + width_; node > 0; node /= 2) sum += added_[node];
    return sum;
  }

  // The position's value becomes `own` + Added(position).
  void Set(uint32_t position, int64_t own) {
    uint32_t node = position + width_;
    highest_[node] = own + added_[node];
    Update(node);
  }

  // Adds to positions first..last, both included.
  void Add(uint32_t first, uint32_t last, int64_t delta) {
    if (first > last) return;
    uint32_t left = first + width_, right = last + width_ + 1;
    for (uint32_t l = left, r = right; l < r; l /= 2, r /= 2) {
      if (l & 1) Apply(l++, delta);
      if (r & 1) Apply(--r, delta);
    }
    Update(left);
    Update(right - 1);
  }

 private:
  static constexpr int64_t kLowest = INT64_MIN / 4;

  void Apply(uint32_t node, int64_t delta) {
    highest_[node] += delta;
    added_[node] += delta;
  }
  void Update(uint32_t node) {
    for (node /= 2; node > 0; node /= 2) {
      highest_[node] = added_[node] + std::max(highest_[2 * node], highest_[2 * node + 1]);
    }
  }

  uint32_t width_;
  std::vector<int64_t> highest_, added_;
};

}  // namespace dtr

#endif  // TVM_DTR_CORE_PLAN_MAX_TREE_H_
