// A kinetic tournament: the largest of n lines as the clock moves on.
//
// A complete binary tree over slots; each inner node keeps the winner of its two children and the
// time until which that outcome is certain. Setting a line re-plays the matches on its path,
// moving the clock re-plays only those whose time has come: O(log n) amortised. (Kinetic data
// structures: Basch, Guibas and Hershberger, SODA 1997.)
#ifndef TVM_DTR_CORE_SEARCH_TOURNAMENT_H_
#define TVM_DTR_CORE_SEARCH_TOURNAMENT_H_

#include <cstdint>
#include <vector>

#include "core/search/line.h"
#include "core/types.h"

namespace dtr {

class Tournament {
 public:
  explicit Tournament(Ties ties) : ties_(ties) {}

  // `rank` decides between equal values, by Ties.
  void Set(uint32_t slot, const Line& line, uint64_t rank);
  void Remove(uint32_t slot);
  // The slot with the largest line at `clock`, kNone if there is none. The clock never goes back.
  uint32_t Top(double clock);
  // The largest value at the clock of the last Top() among the other slots, 0 if there is none.
  double RunnerUp() const;

  bool Holds(uint32_t slot, const Line& line, uint64_t rank) const {
    return slot < size_ && entries_[slot].present && entries_[slot].line == line &&
           entries_[slot].rank == rank;
  }
  bool Contains(uint32_t slot) const { return slot < size_ && entries_[slot].present; }

 private:
  struct Entry {
    Line line;
    uint64_t rank = 0;
    bool present = false;
  };
  struct Match {
    uint32_t winner = kNone;
    double until = 0;  // certain before this time, for the whole subtree
  };

  void Grow(uint32_t slots);
  void Replay(uint32_t node);
  void ReplayPath(uint32_t slot);
  void Advance(uint32_t node);
  bool Beats(uint32_t a, uint32_t b) const;
  double CertainUntil(uint32_t winner, uint32_t loser) const;
  uint32_t WinnerOf(uint32_t node) const;
  double UntilOf(uint32_t node) const;

  Ties ties_;
  uint32_t size_ = 0;  // leaves, a power of two
  double clock_ = 0;
  std::vector<Entry> entries_;
  std::vector<Match> matches_;  // [1] is the root; children of i are 2i and 2i + 1
};

}  // namespace dtr

#endif  // TVM_DTR_CORE_SEARCH_TOURNAMENT_H_
