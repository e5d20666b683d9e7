// How much it pays to evict a storage, as a line over the clock. The DTR scores are minimised;
// their reciprocals are lines: 1 / (c / (m s)) = (m / c) (t - l), and the largest is evicted.
#ifndef TVM_DTR_CORE_SEARCH_LINE_H_
#define TVM_DTR_CORE_SEARCH_LINE_H_

namespace dtr {

struct Line {
  double slope = 0;
  double origin = 0;  // where the sloped part is zero
  double constant = 0;
  double At(double clock) const { return constant + slope * (clock - origin); }
  bool operator==(const Line& other) const {
    return slope == other.slope && origin == other.origin && constant == other.constant;
  }
};

// Equal values go to the storage that became evictable first, or last.
enum class Ties { kFirst, kLast };

// Costs of zero would make a storage infinitely attractive whatever its size; in nanoseconds.
inline double AtLeastTiny(double cost) { return cost > 1e-3 ? cost : 1e-3; }

}  // namespace dtr

#endif  // TVM_DTR_CORE_SEARCH_LINE_H_
