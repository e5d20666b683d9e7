// The table of arenas by the names that the command line takes.
#include <stdexcept>

#include "core/arena/best_fit_arena.h"
#include "core/arena/counting_arena.h"
#include "core/arena/page_arena.h"

namespace dtr {
namespace {

template <typename A>
std::unique_ptr<Arena> Make(uint64_t capacity, bool backed) {
  return std::make_unique<A>(capacity, backed);
}

struct Entry {
  const char* name;
  std::unique_ptr<Arena> (*make)(uint64_t capacity, bool backed);
};

constexpr Entry kArenas[] = {{"paged", Make<PageArena>}, {"best-fit", Make<BestFitArena>}};

}  // namespace

std::unique_ptr<Arena> MakeArena(const std::string& name, uint64_t capacity, bool backed) {
  if (name == "counting" && !backed) return std::make_unique<CountingArena>(capacity);
  if (name == "counting-rounded" && !backed) {
    return std::make_unique<CountingArena>(capacity, std::make_unique<PageArena>(0, false),
                                           PageArena::kPage);
  }
  std::string names;
  for (const Entry& entry : kArenas) {
    if (name == entry.name) return entry.make(capacity, backed);
    names += (names.empty() ? "" : ", ") + std::string(entry.name);
  }
  throw std::invalid_argument("unknown arena '" + name + "': use one of " + names);
}

std::vector<std::string> ArenaNames() {
  std::vector<std::string> names;
  for (const Entry& entry : kArenas) names.emplace_back(entry.name);
  return names;
}

}  // namespace dtr
