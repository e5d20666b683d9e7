// Registers the planners' part of _core: schedules, their checker, the annealer.
#ifndef TVM_DTR_BINDINGS_PLANNING_H_
#define TVM_DTR_BINDINGS_PLANNING_H_

#include <nanobind/nanobind.h>

#include "core/replay.h"

void AddPlanning(nanobind::class_<dtr::Program>* program);

#endif  // TVM_DTR_BINDINGS_PLANNING_H_
