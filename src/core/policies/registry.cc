// The table of policies and searches by the names that the command line takes.
#include <stdexcept>

#include "core/policies/dtr.h"
#include "core/policies/dtr_eq.h"
#include "core/policies/local.h"
#include "core/policies/random.h"
#include "core/policies/window.h"
#include "core/policy.h"
#include "core/search/heap.h"
#include "core/search/sample.h"
#include "core/search/scan.h"

namespace dtr {
namespace {

enum class Search { kHeap, kScan, kSample };

template <typename Score>
std::unique_ptr<Policy> Make(Search search, uint64_t seed) {
  switch (search) {
    case Search::kScan:
      return std::make_unique<ScanPolicy<Score>>();
    case Search::kSample:
      return std::make_unique<SamplePolicy<Score>>(seed);
    case Search::kHeap:
      break;
  }
  return std::make_unique<HeapPolicy<Score>>();
}

std::unique_ptr<Policy> MakeRandom(Search, uint64_t seed) { return std::make_unique<Random>(seed); }

std::unique_ptr<Policy> MakeWindow(Search, uint64_t) { return std::make_unique<Window>(); }

struct PolicyEntry {
  const char* name;
  std::unique_ptr<Policy> (*make)(Search search, uint64_t seed);
};

constexpr PolicyEntry kPolicies[] = {
    {"dtr-eq", Make<DtrEq>}, {"dtr", Make<Dtr>},      {"dtr-local", Make<DtrLocal>},
    {"lru", Make<Lru>},      {"size", Make<Size>},    {"msps", Make<Msps>},
    {"dtr-up", Make<DtrUp>}, {"e-star", Make<EStar>}, {"random", MakeRandom},
    {"window", MakeWindow},
};

struct SearchEntry {
  const char* name;
  Search search;
};

constexpr SearchEntry kSearches[] = {
    {"heap", Search::kHeap}, {"scan", Search::kScan}, {"sqrt", Search::kSample}};

template <typename Table>
const auto& Lookup(const Table& table, const char* what, const std::string& name) {
  std::string names;
  for (const auto& entry : table) {
    if (name == entry.name) return entry;
    names += (names.empty() ? "" : ", ") + std::string(entry.name);
  }
  throw std::invalid_argument("unknown " + std::string(what) + " '" + name + "': use one of " +
                              names);
}

}  // namespace

std::unique_ptr<Policy> MakePolicy(const std::string& name, const std::string& search,
                                   uint64_t seed) {
  Search how = Lookup(kSearches, "search", search).search;
  return Lookup(kPolicies, "policy", name).make(how, seed);
}

std::vector<std::string> PolicyNames() {
  std::vector<std::string> names;
  for (const PolicyEntry& entry : kPolicies) names.emplace_back(entry.name);
  return names;
}

std::vector<std::string> SearchNames() {
  std::vector<std::string> names;
  for (const SearchEntry& entry : kSearches) names.emplace_back(entry.name);
  return names;
}

}  // namespace dtr
