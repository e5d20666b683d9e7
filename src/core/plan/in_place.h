// In-place updates in plans: an op's result in the storage of the parameter that it replaces.
#ifndef TVM_DTR_CORE_PLAN_IN_PLACE_H_
#define TVM_DTR_CORE_PLAN_IN_PLACE_H_

#include <cstdint>
#include <vector>

#include "core/replay.h"

namespace dtr {

// The ops that, computed in this order, may write over the parameter that they update: they run
// once, and nothing behind them reads the old value. The others of Program::OpInfo::overwrites
// write elsewhere, as the runtime's copy on write does.
std::vector<uint32_t> OverwritesIn(const Program& program, const std::vector<uint32_t>& ops);

// The program with the result of each of `ops` in the storage that it takes over.
Program InPlace(const Program& program, const std::vector<uint32_t>& ops);

}  // namespace dtr

#endif  // TVM_DTR_CORE_PLAN_IN_PLACE_H_
