// The search of the DTR prototype (paper, appendix E): the best of about sqrt(n) random
// candidates, and storages under one percent of the mean size, or under `smallest`, are left alone
// while there are others.
#ifndef TVM_DTR_CORE_SEARCH_SAMPLE_H_
#define TVM_DTR_CORE_SEARCH_SAMPLE_H_

#include <algorithm>
#include <cmath>
#include <random>

#include "core/search/scored_policy.h"

namespace dtr {

template <typename Score>
class SamplePolicy : public ScoredPolicy<Score> {
 public:
  explicit SamplePolicy(uint64_t seed) : generator_(seed) {}

  StorageId SelectVictim(const Graph& graph, double clock, uint64_t smallest) override {
    const auto& candidates = graph.evictable();
    if (candidates.empty()) return kNone;
    double mean = graph.evictable_bytes() / static_cast<double>(candidates.size());
    double least = std::max(0.01 * mean, static_cast<double>(smallest));
    auto trials = static_cast<size_t>(std::ceil(std::sqrt(candidates.size())));
    StorageId victim = kNone, fallback = kNone;
    double best = -1;
    for (size_t i = 0; i < trials; ++i) {
      const Graph::Candidate& c = candidates[generator_() % candidates.size()];
      fallback = c.storage;
      if (c.bytes < least) continue;
      double value = this->score_.Exact(graph, c).At(clock);
      if (value > best) {
        best = value;
        victim = c.storage;
      }
    }
    return victim != kNone ? victim : fallback;
  }

 private:
  std::mt19937_64 generator_;
};

}  // namespace dtr

#endif  // TVM_DTR_CORE_SEARCH_SAMPLE_H_
