#include "cuda/cuda_arena.h"

#include <stdexcept>

#include "core/arena/best_fit_arena.h"
#include "core/arena/page_arena.h"

namespace dtr::cuda {
namespace {

constexpr uint64_t kAlignment = 256;  // what cuMemAlloc promises, and kernels rely on

}  // namespace

CudaArena MakeCudaArena(const std::string& name, uint64_t capacity,
                        std::shared_ptr<const Device> device) {
  MakeArena(name, 0, /*backed=*/false);  // throws for an unknown name
  auto pages = std::make_unique<CudaPages>(std::move(device));
  StreamOrder* order = &pages->order();
  if (name == "best-fit") {
    return {std::make_unique<BestFitArena>(capacity, std::move(pages), kAlignment), order};
  }
  uint64_t page = pages->page();
  PageLayout layout{page, kAlignment, kUnlimited};
  return {std::make_unique<PageArena>(capacity, std::move(pages), layout), order};
}

}  // namespace dtr::cuda
