// What moving scattered pages together saves over unmapping them and faulting new ones in: the same
// requests on both, in turns, every block written to. Prints milliseconds and their ratio.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <iostream>
#include <memory>
#include <random>
#include <vector>

#include "core/arena/page_arena.h"

namespace {

class WithoutMoves : public dtr::HostPages {
 public:
  bool Move(uintptr_t, uintptr_t, uint64_t) override { return false; }
};

// Blocks of 64 KiB to 4 MiB at random in an arena that is nearly full.
double Milliseconds(bool moves) {
  constexpr uint64_t kCapacity = uint64_t{128} << 20;
  std::unique_ptr<dtr::PageSource> pages;
  if (moves) {
    pages = std::make_unique<dtr::HostPages>();
  } else {
    pages = std::make_unique<WithoutMoves>();
  }
  dtr::PageArena arena(kCapacity, std::move(pages), dtr::PageArena::kHost);
  std::mt19937_64 random(1);
  std::vector<dtr::Block> live;
  auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 500; ++i) {
    uint64_t bytes = uint64_t{65536} << (random() % 7);
    dtr::Block block;
    while (!(block = arena.Allocate(bytes))) {
      size_t which = random() % live.size();
      arena.Free(live[which]);
      live[which] = live.back();
      live.pop_back();
    }
    std::memset(block.data, i, bytes);
    live.push_back(block);
  }
  std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - start;
  for (const dtr::Block& block : live) arena.Free(block);
  return taken.count();
}

}  // namespace

int main() {
  std::vector<double> with, without;
  for (int round = 0; round < 3; ++round) {
    with.push_back(Milliseconds(true));
    without.push_back(Milliseconds(false));
  }
  std::nth_element(with.begin(), with.begin() + 1, with.end());
  std::nth_element(without.begin(), without.begin() + 1, without.end());
  std::cout << "moved " << with[1] << " ms, mapped anew " << without[1] << " ms, ratio "
            << without[1] / with[1] << "\n";
}
