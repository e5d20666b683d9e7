// What happens to a storage when its last reference goes (DTR paper, section 2 and appendix D.4).
//
//   eager   it is evicted at once; its record stays while others may be recomputed through it.
//   banish  it is freed for good, record and all, once nothing evicted depends on it; what was
//           made from it can then not be made again and is pinned. Until then it stays, evictable.
//   ignore  nothing, until the invocation ends: memory is found by eviction alone.
#ifndef TVM_DTR_CORE_DEALLOCATION_H_
#define TVM_DTR_CORE_DEALLOCATION_H_

#include <cstdint>
#include <string>
#include <vector>

namespace dtr {

enum class Deallocation : uint8_t { kEager, kBanish, kIgnore };

// `name` as in --dealloc; throws std::invalid_argument naming the valid ones.
Deallocation DeallocationNamed(const std::string& name);
std::vector<std::string> DeallocationNames();

}  // namespace dtr

#endif  // TVM_DTR_CORE_DEALLOCATION_H_
