#include "core/search/tournament.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace dtr {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
// Crossings are found in floating point: matches are re-played a little before.
constexpr double kEarly = 1e-9;

}  // namespace

void Tournament::Set(uint32_t slot, const Line& line, uint64_t rank) {
  if (slot >= size_) Grow(slot + 1);
  entries_[slot] = {line, rank, true};
  ReplayPath(slot);
}

void Tournament::Remove(uint32_t slot) {
  if (!Contains(slot)) return;
  entries_[slot].present = false;
  ReplayPath(slot);
}

uint32_t Tournament::Top(double clock) {
  clock_ = std::max(clock_, clock);
  if (size_ == 0) return kNone;
  if (size_ == 1) return WinnerOf(1);
  if (matches_[1].until <= clock_) Advance(1);
  return matches_[1].winner;
}

double Tournament::RunnerUp() const {
  double best = 0;
  if (size_ < 2 || matches_[1].winner == kNone) return best;
  for (uint32_t node = matches_[1].winner + size_; node > 1; node /= 2) {
    uint32_t other = WinnerOf(node ^ 1);
    if (other != kNone) best = std::max(best, entries_[other].line.At(clock_));
  }
  return best;
}

void Tournament::Grow(uint32_t slots) {
  uint32_t size = std::max<uint32_t>(size_, 2);
  while (size < slots) size *= 2;
  size_ = size;
  entries_.resize(size);
  matches_.assign(size, Match());
  for (uint32_t node = size - 1; node > 0; --node) Replay(node);
}

uint32_t Tournament::WinnerOf(uint32_t node) const {
  if (node < size_) return matches_[node].winner;
  uint32_t slot = node - size_;
  return entries_[slot].present ? slot : kNone;
}

double Tournament::UntilOf(uint32_t node) const {
  return node < size_ ? matches_[node].until : kNever;
}

void Tournament::Replay(uint32_t node) {
  uint32_t left = WinnerOf(2 * node), right = WinnerOf(2 * node + 1);
  double until = std::min(UntilOf(2 * node), UntilOf(2 * node + 1));
  Match& match = matches_[node];
  if (left == kNone || right == kNone) {
    match = {left == kNone ? right : left, until};
    return;
  }
  bool left_wins = Beats(left, right);
  match.winner = left_wins ? left : right;
  match.until = std::min(until, CertainUntil(match.winner, left_wins ? right : left));
}

// Up to where nothing changes: most lines that come in are young and lose their first matches.
void Tournament::ReplayPath(uint32_t slot) {
  for (uint32_t node = (slot + size_) / 2; node > 0; node /= 2) {
    Match before = matches_[node];
    Replay(node);
    const Match& now = matches_[node];
    if (now.winner == before.winner && now.winner != slot && now.until == before.until) return;
  }
}

// The depth is that of the tree, so recursion is bounded by 32.
void Tournament::Advance(uint32_t node) {
  if (node >= size_ || matches_[node].until > clock_) return;
  Advance(2 * node);
  Advance(2 * node + 1);
  Replay(node);
}

bool Tournament::Beats(uint32_t a, uint32_t b) const {
  double va = entries_[a].line.At(clock_), vb = entries_[b].line.At(clock_);
  if (va != vb) return va > vb;
  bool earlier = entries_[a].rank < entries_[b].rank;
  return ties_ == Ties::kFirst ? earlier : !earlier;
}

// When the loser's line may reach the winner's: where they cross, if the loser is steeper.
double Tournament::CertainUntil(uint32_t winner, uint32_t loser) const {
  const Line& w = entries_[winner].line;
  const Line& l = entries_[loser].line;
  double steeper = l.slope - w.slope;
  if (steeper < 0) {
    // The winner pulls away, but two equal values now may be a tie decided by rank.
    return w.At(clock_) == l.At(clock_) ? std::nextafter(clock_, kNever) : kNever;
  }
  if (steeper == 0) return kNever;
  double gap = w.At(clock_) - l.At(clock_);
  double crossing = clock_ + gap / steeper;
  return std::max(crossing - kEarly * std::abs(crossing), std::nextafter(clock_, kNever));
}

}  // namespace dtr
