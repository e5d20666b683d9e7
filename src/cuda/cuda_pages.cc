#include "cuda/cuda_pages.h"

#include <algorithm>

namespace dtr::cuda {

CudaPages::CudaPages(std::shared_ptr<const Device> device)
    : device_(std::move(device)), driver_(device_->driver()), order_(device_) {
  Device::Scope scope(*device_);
  abi::AllocationProperties properties = Properties();
  size_t granularity = 0;
  driver_.Check(driver_.get_granularity(&granularity, &properties, abi::kGranularityMinimum),
                "cuMemGetAllocationGranularity");
  page_ = granularity;
}

CudaPages::~CudaPages() {
  try {
    Device::Scope scope(*device_);
    while (!pages_.empty()) driver_.release(TakeOff(pages_.begin()->first).handle);
    for (const auto& [start, bytes] : reservations_) driver_.address_free(start, bytes);
  } catch (const DriverError&) {
    // A device that failed has lost its memory with its context.
  }
}

abi::AllocationProperties CudaPages::Properties() const {
  abi::AllocationProperties properties{};
  properties.type = abi::kPinned;
  properties.location = {abi::kLocationDevice, device_->ordinal()};
  return properties;
}

uintptr_t CudaPages::Reserve(uint64_t least, uint64_t* bytes) {
  Device::Scope scope(*device_);
  least = (least + page_ - 1) / page_ * page_;
  *bytes = (*bytes + page_ - 1) / page_ * page_;
  for (;; *bytes = std::max(*bytes / 2 / page_ * page_, least)) {
    abi::DevicePointer start = 0;
    abi::Result result = driver_.address_reserve(&start, *bytes, 0, 0, 0);
    if (result == abi::kSuccess) {
      reservations_.emplace_back(start, *bytes);
      return start;
    }
    if (result != abi::kOutOfMemory) driver_.Check(result, "cuMemAddressReserve");
    if (*bytes <= least) return 0;
  }
}

bool CudaPages::Map(uintptr_t start, uint64_t bytes) {
  Device::Scope scope(*device_);
  for (uint64_t done = 0; done < bytes; done += page_) {
    abi::Handle handle = 0;
    if (Create(&handle)) {
      Place(start + done, handle);
      continue;
    }
    for (uint64_t i = 0; i < done; i += page_) driver_.release(TakeOff(start + i).handle);
    return false;
  }
  Allow(start, bytes);
  return true;
}

bool CudaPages::Create(abi::Handle* handle) {
  abi::AllocationProperties properties = Properties();
  abi::Result result = driver_.create(handle, page_, &properties, 0);
  if (result == abi::kOutOfMemory) return false;
  driver_.Check(result, "cuMemCreate");
  return true;
}

void CudaPages::Place(uintptr_t at, abi::Handle handle) {
  abi::Result result = driver_.map(at, page_, 0, handle, 0);
  if (result != abi::kSuccess) driver_.release(handle);
  driver_.Check(result, "cuMemMap");
  pages_[at].handle = handle;
}

void CudaPages::Allow(uintptr_t start, uint64_t bytes) {
  abi::AccessDescription access{{abi::kLocationDevice, device_->ordinal()}, abi::kReadWrite};
  driver_.Check(driver_.set_access(start, bytes, &access, 1), "cuMemSetAccess");
}

CudaPages::Page CudaPages::TakeOff(uintptr_t at) {
  auto found = pages_.find(at);
  Page page = found->second;
  order_.HostWait(page.last_use);
  order_.Release(page.last_use);
  page.last_use = StreamOrder::kDone;
  pages_.erase(found);
  driver_.Check(driver_.unmap(at, page_), "cuMemUnmap");
  return page;
}

void CudaPages::Unmap(uintptr_t start, uint64_t bytes) {
  Device::Scope scope(*device_);
  for (uint64_t done = 0; done < bytes; done += page_) {
    driver_.Check(driver_.release(TakeOff(start + done).handle), "cuMemRelease");
  }
}

bool CudaPages::Move(uintptr_t from, uintptr_t to, uint64_t bytes) {
  Device::Scope scope(*device_);
  for (uint64_t done = 0; done < bytes; done += page_) {
    Place(to + done, TakeOff(from + done).handle);
  }
  Allow(to, bytes);
  return true;
}

// -- Order ----------------------------------------------------------------------------------------

void CudaPages::SetLastUse(Page* page, StreamOrder::Ticket ticket) {
  order_.Retain(ticket);
  order_.Release(page->last_use);
  page->last_use = ticket;
}

// A page that small blocks share keeps one last use: where another block's was on another stream,
// this stream waits for that first, so that its own moment comes after both.
void CudaPages::OnFree(uintptr_t start, uint64_t bytes) {
  Device::Scope scope(*device_);
  uintptr_t first = start / page_ * page_;
  for (uintptr_t at = first; at < start + bytes; at += page_) {
    order_.StreamWait(pages_.at(at).last_use);
  }
  StreamOrder::Ticket now = order_.Now();
  for (uintptr_t at = first; at < start + bytes; at += page_) SetLastUse(&pages_.at(at), now);
  order_.Release(now);
}

void CudaPages::OnAllocate(uintptr_t start, uint64_t bytes) {
  Device::Scope scope(*device_);
  for (uintptr_t at = start / page_ * page_; at < start + bytes; at += page_) {
    order_.StreamWait(pages_.at(at).last_use);
  }
}

}  // namespace dtr::cuda
