// Arenas without memory for Python, to try sequences of requests on.
#ifndef TVM_DTR_BINDINGS_ARENA_H_
#define TVM_DTR_BINDINGS_ARENA_H_

#include <nanobind/nanobind.h>

void BindArena(nanobind::module_& m);

#endif  // TVM_DTR_BINDINGS_ARENA_H_
