#include <random>
#include <vector>

#include "check.h"
#include "core/search/tournament.h"

using dtr::Line;
using dtr::Ties;
using dtr::Tournament;

namespace {

struct Held {
  Line line;
  uint64_t rank;
  bool present;
};

uint32_t Best(const std::vector<Held>& held, double clock, Ties ties) {
  uint32_t best = dtr::kNone;
  for (uint32_t i = 0; i < held.size(); ++i) {
    if (!held[i].present) continue;
    if (best == dtr::kNone) {
      best = i;
      continue;
    }
    double a = held[i].line.At(clock), b = held[best].line.At(clock);
    bool earlier = held[i].rank < held[best].rank;
    if (a > b || (a == b && earlier == (ties == Ties::kFirst))) best = i;
  }
  return best;
}

// Whole numbers, so that crossings and ties are exact and many.
void Compare(uint64_t seed, Ties ties) {
  std::mt19937_64 random(seed);
  Tournament tournament(ties);
  std::vector<Held> held(50);
  double clock = 0;
  uint64_t rank = 0;
  for (int i = 0; i < 3000; ++i) {
    auto slot = static_cast<uint32_t>(random() % held.size());
    if (random() % 4 == 0) {
      held[slot].present = false;
      tournament.Remove(slot);
    } else {
      Line line{static_cast<double>(random() % 4), static_cast<double>(random() % 50),
                static_cast<double>(random() % 3)};
      held[slot] = {line, rank++, true};
      tournament.Set(slot, line, held[slot].rank);
    }
    clock += static_cast<double>(random() % 3);
    EXPECT_EQ(tournament.Top(clock), Best(held, clock, ties));
  }
}

}  // namespace

TEST(AgreesWithAScan) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Compare(seed, Ties::kFirst);
    Compare(seed, Ties::kLast);
  }
}

TEST(EmptyAndSingle) {
  Tournament tournament(Ties::kFirst);
  EXPECT_EQ(tournament.Top(1), dtr::kNone);
  tournament.Set(0, {1, 0, 0}, 0);
  EXPECT_EQ(tournament.Top(2), 0u);
  tournament.Remove(0);
  EXPECT_EQ(tournament.Top(3), dtr::kNone);
}

TEST_MAIN()
