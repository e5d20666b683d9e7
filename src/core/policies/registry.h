// One maker per policy; the table in registry.cc gives them their names.
#ifndef TVM_DTR_CORE_POLICIES_REGISTRY_H_
#define TVM_DTR_CORE_POLICIES_REGISTRY_H_

#include <memory>

#include "core/policy.h"

namespace dtr {

std::unique_ptr<Policy> MakeDtrEq(uint64_t seed);
std::unique_ptr<Policy> MakeDtr(uint64_t seed);
std::unique_ptr<Policy> MakeMsps(uint64_t seed);
std::unique_ptr<Policy> MakeDtrLocal(uint64_t seed);
std::unique_ptr<Policy> MakeLru(uint64_t seed);
std::unique_ptr<Policy> MakeSize(uint64_t seed);
std::unique_ptr<Policy> MakeRandom(uint64_t seed);

}  // namespace dtr

#endif  // TVM_DTR_CORE_POLICIES_REGISTRY_H_
