// The arenas of src/core on device memory.
#ifndef TVM_DTR_CUDA_CUDA_ARENA_H_
#define TVM_DTR_CUDA_CUDA_ARENA_H_

#include <memory>
#include <string>

#include "core/arena.h"
#include "cuda/cuda_pages.h"

namespace dtr::cuda {

struct CudaArena {
  std::unique_ptr<Arena> arena;
  StreamOrder* order;  // the arena's: told of streams and of what is queued on them
};

// `name` as in --arena. Blocks are aligned to 256 bytes; paged blocks up to a quarter of a page
// share pages by size class. Throws DriverError, std::invalid_argument for an unknown name.
CudaArena MakeCudaArena(const std::string& name, uint64_t capacity,
                        std::shared_ptr<const Device> device);

}  // namespace dtr::cuda

#endif  // TVM_DTR_CUDA_CUDA_ARENA_H_
