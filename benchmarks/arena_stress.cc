// Millions of random allocations and frees on an arena, every block checked and every call timed.
//
//   arena_stress ARENA OPERATIONS [SIZES]
//
// SIZES is a file of block sizes in bytes, one a line, drawn from uniformly: those of a real
// program. Workloads: those sizes, sizes by a power law, and a checkerboard that frees every other
// block and then asks for twice the size. Checked at each call: no two live blocks overlap, the
// arena's equations and its capacity hold; at the end: everything is back. Prints one JSON object a
// workload; status 1 if a check fails.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/arena.h"
#include "core/arena/best_fit_arena.h"

namespace {

using Clock = std::chrono::steady_clock;
constexpr int kMostNanoseconds = 1 << 16;

class Stress {
 public:
  Stress(const std::string& arena, uint64_t capacity, bool backed)
      : arena_(dtr::MakeArena(arena, capacity, backed)), times_(kMostNanoseconds + 1) {}

  bool Allocate(uint64_t bytes) {
    auto start = Clock::now();
    dtr::Block block = arena_->Allocate(bytes);
    Note(start);
    Require(arena_->mapped() <= arena_->capacity(), "more is mapped than the capacity");
    if (!block) {
      ++refused;
      return false;
    }
    Require(block.bytes >= bytes, "a block is too short");
    auto begin = reinterpret_cast<uintptr_t>(block.data), end = begin + block.bytes;
    auto next = taken_.lower_bound(begin);
    Require(next == taken_.end() || next->first >= end, "two blocks overlap");
    Require(next == taken_.begin() || std::prev(next)->second <= begin, "two blocks overlap");
    taken_.emplace_hint(next, begin, end);
    live_.push_back(block);
    return true;
  }
  void Free(size_t which) {
    dtr::Block block = live_[which];
    live_[which] = live_.back();
    live_.pop_back();
    auto start = Clock::now();
    arena_->Free(block);
    Note(start);
    taken_.erase(reinterpret_cast<uintptr_t>(block.data));
    auto* best_fit = dynamic_cast<dtr::BestFitArena*>(arena_.get());
    if (best_fit && calls_ % 65536 == 0) best_fit->Validate();
  }
  void Drain() {
    while (!live_.empty()) Free(live_.size() - 1);
    Require(arena_->active() == 0, "memory has leaked");
  }
  // Nanoseconds that a share of the calls stays under; includes reading the clock.
  int Quantile(double share) const {
    auto left = static_cast<double>(calls_) * share;
    for (int ns = 0; ns <= kMostNanoseconds; ++ns) {
      left -= static_cast<double>(times_[static_cast<size_t>(ns)]);
      if (left <= 0) return ns;
    }
    return kMostNanoseconds;
  }
  size_t live() const { return live_.size(); }
  uint64_t calls() const { return calls_; }
  uint64_t refused = 0;

 private:
  void Note(Clock::time_point start) {
    auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
    ++times_[static_cast<size_t>(std::min<int64_t>(ns, kMostNanoseconds))];
    ++calls_;
  }
  static void Require(bool condition, const char* what) {
    if (!condition) throw std::runtime_error(what);
  }

  std::unique_ptr<dtr::Arena> arena_;
  std::vector<dtr::Block> live_;
  std::map<uintptr_t, uintptr_t> taken_;
  std::vector<uint64_t> times_;
  uint64_t calls_ = 0;
};

// Allocates and frees at random around the point where the arena is full.
template <typename Draw>
void RunRandom(Stress* stress, uint64_t operations, Draw draw, std::mt19937_64* random) {
  while (stress->calls() < operations) {
    bool grow = stress->live() == 0 || (*random)() % 100 < 52;
    if (grow && stress->Allocate(draw())) continue;
    if (stress->live() > 0) stress->Free((*random)() % stress->live());
  }
}

// Fills the arena with blocks of one size, frees every other one, asks for twice the size.
void RunCheckerboard(Stress* stress, uint64_t operations, uint64_t capacity,
                     std::mt19937_64* random) {
  while (stress->calls() < operations) {
    uint64_t bytes = 64 + (*random)() % (capacity / 256);
    while (stress->Allocate(bytes)) {
    }
    for (size_t i = stress->live(); i > 1; i -= 2) stress->Free(i - 1);
    for (int i = 0; i < 64; ++i) stress->Allocate(2 * bytes);
    while (stress->live() > 0) stress->Free((*random)() % stress->live());
  }
}

std::vector<uint64_t> ReadSizes(const char* path) {
  std::ifstream file(path);
  std::vector<uint64_t> sizes;
  for (uint64_t bytes; file >> bytes;) sizes.push_back(bytes);
  if (sizes.empty()) throw std::runtime_error(std::string("no sizes in ") + path);
  return sizes;
}

void Report(const char* workload, const std::string& arena, const Stress& stress) {
  std::cout << "{\"arena\": \"" << arena << "\", \"workload\": \"" << workload
            << "\", \"calls\": " << stress.calls() << ", \"refused\": " << stress.refused
            << ", \"median_ns\": " << stress.Quantile(0.5)
            << ", \"p99_ns\": " << stress.Quantile(0.99) << "}\n"
            << std::flush;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::cerr << "usage: arena_stress ARENA OPERATIONS [SIZES]\n";
    return 2;
  }
  const std::string arena = argv[1];
  const uint64_t operations = std::strtoull(argv[2], nullptr, 10);
  constexpr uint64_t kCapacity = uint64_t{256} << 20;
  std::mt19937_64 random(1);
  try {
    if (argc > 3) {
      std::vector<uint64_t> sizes = ReadSizes(argv[3]);
      Stress stress(arena, kCapacity, /*backed=*/true);
      RunRandom(&stress, operations, [&] { return sizes[random() % sizes.size()]; }, &random);
      stress.Drain();
      Report("real sizes", arena, stress);
    }
    {
      Stress stress(arena, kCapacity, /*backed=*/true);
      auto power_law = [&] {  // P(size > s) = (64 / s) ^ 0.7, up to an eighth of the capacity
        double uniform = static_cast<double>(random() >> 11) * 0x1p-53;
        return std::min(static_cast<uint64_t>(64 * std::pow(1 - uniform, -1 / 0.7)), kCapacity / 8);
      };
      RunRandom(&stress, operations, power_law, &random);
      stress.Drain();
      Report("power law", arena, stress);
    }
    Stress stress(arena, kCapacity, /*backed=*/true);
    RunCheckerboard(&stress, operations, kCapacity, &random);
    stress.Drain();
    Report("checkerboard", arena, stress);
  } catch (const std::exception& error) {
    std::cerr << arena << ": " << error.what() << "\n";
    return 1;
  }
}
