#include "core/policies/registry.h"

#include <stdexcept>

namespace dtr {
namespace {

struct Entry {
  const char* name;
  std::unique_ptr<Policy> (*make)(uint64_t seed);
};

constexpr Entry kPolicies[] = {
    {"dtr-eq", MakeDtrEq}, {"dtr", MakeDtr},   {"dtr-local", MakeDtrLocal}, {"lru", MakeLru},
    {"size", MakeSize},    {"msps", MakeMsps}, {"random", MakeRandom},
};

}  // namespace

std::unique_ptr<Policy> MakePolicy(const std::string& name, uint64_t seed) {
  std::string names;
  for (const Entry& entry : kPolicies) {
    if (name == entry.name) return entry.make(seed);
    names += names.empty() ? entry.name : std::string(", ") + entry.name;
  }
  throw std::invalid_argument("unknown policy '" + name + "': use one of " + names);
}

std::vector<std::string> PolicyNames() {
  std::vector<std::string> names;
  for (const Entry& entry : kPolicies) names.emplace_back(entry.name);
  return names;
}

}  // namespace dtr
