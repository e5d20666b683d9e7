// Device memory by pages, through the driver's virtual memory calls: cuMemAddressReserve,
// cuMemCreate, cuMemMap, cuMemSetAccess, cuMemUnmap, cuMemRelease, cuMemAddressFree.
//
// A page has the driver's granularity (2 MiB on today's devices) and a physical handle of its own,
// so that pages can be unmapped, and moved to other addresses, one by one. Memory that kernels may
// still be using is reused in stream order and unmapped only when they are done (stream_order.h).
#ifndef TVM_DTR_CUDA_CUDA_PAGES_H_
#define TVM_DTR_CUDA_CUDA_PAGES_H_

#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/arena/page_source.h"
#include "cuda/stream_order.h"

namespace dtr::cuda {

class CudaPages : public PageSource {
 public:
  // Throws DriverError.
  explicit CudaPages(std::shared_ptr<const Device> device);
  // Waits for what is queued, then gives everything back.
  ~CudaPages() override;
  CudaPages(const CudaPages&) = delete;
  CudaPages& operator=(const CudaPages&) = delete;

  uint64_t page() const override { return page_; }
  uintptr_t Reserve(uint64_t least, uint64_t* bytes) override;
  // False if the device is out of memory: other processes may hold it. Throws DriverError.
  bool Map(uintptr_t start, uint64_t bytes) override;
  void Unmap(uintptr_t start, uint64_t bytes) override;
  bool Move(uintptr_t from, uintptr_t to, uint64_t bytes) override;
  void OnFree(uintptr_t start, uint64_t bytes) override;
  void OnAllocate(uintptr_t start, uint64_t bytes) override;

  StreamOrder& order() { return order_; }
  size_t mapped_pages() const { return pages_.size(); }

 private:
  struct Page {
    abi::Handle handle = 0;
    StreamOrder::Ticket last_use = StreamOrder::kDone;
  };

  bool Create(abi::Handle* handle);
  void Place(uintptr_t at, abi::Handle handle);
  void Allow(uintptr_t start, uint64_t bytes);
  // Takes a page's handle off its address, when no kernel can be using it.
  Page TakeOff(uintptr_t at);
  void SetLastUse(Page* page, StreamOrder::Ticket ticket);
  abi::AllocationProperties Properties() const;

  std::shared_ptr<const Device> device_;
  const Driver& driver_;
  StreamOrder order_;
  uint64_t page_ = 0;
  std::unordered_map<uintptr_t, Page> pages_;  // by address
  std::vector<std::pair<uintptr_t, uint64_t>> reservations_;
};

}  // namespace dtr::cuda

#endif  // TVM_DTR_CUDA_CUDA_PAGES_H_
