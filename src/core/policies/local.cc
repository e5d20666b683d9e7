// Policies that look at the storage alone (DTR paper, section 4.1).
#include <random>

#include "core/policies/registry.h"
#include "core/policies/scan.h"

namespace dtr {
namespace {

// c0 / (m s)
class DtrLocal : public Policy {
 public:
  StorageId SelectVictim(const Graph& graph, double clock) override {
    return ScanForLargest(graph, [&](const Graph::Candidate& c, double) {
      return c.bytes * (clock - c.last_access) / AtLeastTiny(c.cost);
    });
  }
};

// 1 / s
class Lru : public Policy {
 public:
  StorageId SelectVictim(const Graph& graph, double clock) override {
    return ScanForLargest(graph,
                          [&](const Graph::Candidate& c, double) { return clock - c.last_access; });
  }
};

// 1 / m. Sizes tie all the time; the paper's simulator takes the newest, which tells.
class Size : public Policy {
 public:
  StorageId SelectVictim(const Graph& graph, double) override {
    return ScanForLargest<Ties::kLast>(graph,
                                       [](const Graph::Candidate& c, double) { return c.bytes; });
  }
};

// Uniform, seeded.
class Random : public Policy {
 public:
  explicit Random(uint64_t seed) : generator_(seed) {}
  StorageId SelectVictim(const Graph& graph, double) override {
    const auto& candidates = graph.evictable();
    if (candidates.empty()) return kNone;
    return candidates[generator_() % candidates.size()].storage;
  }

 private:
  std::mt19937_64 generator_;
};

}  // namespace

std::unique_ptr<Policy> MakeDtrLocal(uint64_t) { return std::make_unique<DtrLocal>(); }
std::unique_ptr<Policy> MakeLru(uint64_t) { return std::make_unique<Lru>(); }
std::unique_ptr<Policy> MakeSize(uint64_t) { return std::make_unique<Size>(); }
std::unique_ptr<Policy> MakeRandom(uint64_t seed) { return std::make_unique<Random>(seed); }

}  // namespace dtr
