// random: uniform, seeded. Needs no score and no search.
#ifndef TVM_DTR_CORE_POLICIES_RANDOM_H_
#define TVM_DTR_CORE_POLICIES_RANDOM_H_

#include <random>

#include "core/graph.h"
#include "core/policy.h"

namespace dtr {

class Random : public Policy {
 public:
  explicit Random(uint64_t seed) : generator_(seed) {}
  StorageId SelectVictim(const Graph& graph, double, uint64_t) override {
    const auto& candidates = graph.evictable();
    if (candidates.empty()) return kNone;
    return candidates[generator_() % candidates.size()].storage;
  }

 private:
  std::mt19937_64 generator_;
};

}  // namespace dtr

#endif  // TVM_DTR_CORE_POLICIES_RANDOM_H_
