#include "bindings/arena.h"

#include <nanobind/stl/string.h>

#include <memory>
#include <string>
#include <unordered_map>

#include "core/arena.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

// Blocks by numbers of the caller's.
class NumberedArena {
 public:
  NumberedArena(const std::string& name, uint64_t capacity)
      : arena_(dtr::MakeArena(name, capacity, /*backed=*/false)) {}

  bool Allocate(uint64_t number, uint64_t bytes) {
    if (live_.count(number)) throw nb::value_error("the block is live already");
    dtr::Block block = arena_->Allocate(bytes);
    if (block) live_[number] = block;
    return static_cast<bool>(block);
  }
  void Free(uint64_t number) {
    auto found = live_.find(number);
    if (found == live_.end()) throw nb::value_error("the block is not live");
    arena_->Free(found->second);
    live_.erase(found);
  }
  dtr::Arena& arena() { return *arena_; }

 private:
  std::unique_ptr<dtr::Arena> arena_;
  std::unordered_map<uint64_t, dtr::Block> live_;
};

}  // namespace

void BindArena(nb::module_& m) {
  nb::class_<NumberedArena>(m, "Arena", "An arena without memory: --arena's names, in bytes.")
      .def(nb::init<const std::string&, uint64_t>(), "name"_a, "capacity"_a)
      .def("allocate", &NumberedArena::Allocate, "number"_a, "size"_a,
           "Whether a block of `size` bytes fits; it is then known by `number`.")
      .def("free", &NumberedArena::Free, "number"_a)
      .def(
          "charge", [](NumberedArena& a, uint64_t size) { return a.arena().Charge(size); },
          "size"_a)
      .def(
          "discharge", [](NumberedArena& a, uint64_t size) { a.arena().Discharge(size); }, "size"_a)
      .def_prop_ro("active", [](NumberedArena& a) { return a.arena().active(); })
      .def_prop_ro("mapped", [](NumberedArena& a) { return a.arena().mapped(); })
      .def_prop_ro("largest_free", [](NumberedArena& a) { return a.arena().largest_free(); });
}
