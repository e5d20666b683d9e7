// What the arena uses of the CUDA driver's binary interface, declared here so that the build needs
// no CUDA toolkit. Names and values are the driver's; check_abi.cc compares them with cuda.h where
// there is one. The interface is stable: the driver adds versions, it does not change them.
#ifndef TVM_DTR_CUDA_DRIVER_ABI_H_
#define TVM_DTR_CUDA_DRIVER_ABI_H_

#include <cstddef>
#include <cstdint>

namespace dtr::cuda::abi {

using Result = int;                 // CUresult
using Device = int;                 // CUdevice
using DevicePointer = uint64_t;     // CUdeviceptr
using Handle = unsigned long long;  // CUmemGenericAllocationHandle
using Context = void*;              // CUcontext
using Stream = void*;               // CUstream; null: the legacy default stream
using Event = void*;                // CUevent

inline constexpr Result kSuccess = 0;
inline constexpr Result kInvalidValue = 1;
inline constexpr Result kOutOfMemory = 2;
inline constexpr Result kNotInitialized = 3;
inline constexpr Result kNoDevice = 100;
inline constexpr Result kInvalidDevice = 101;
inline constexpr Result kInvalidContext = 201;
inline constexpr Result kInvalidHandle = 400;
inline constexpr Result kNotReady = 600;
inline constexpr Result kIllegalAddress = 700;

inline constexpr int kPinned = 1;              // CU_MEM_ALLOCATION_TYPE_PINNED
inline constexpr int kLocationDevice = 1;      // CU_MEM_LOCATION_TYPE_DEVICE
inline constexpr int kReadWrite = 3;           // CU_MEM_ACCESS_FLAGS_PROT_READWRITE
inline constexpr int kGranularityMinimum = 0;  // CU_MEM_ALLOC_GRANULARITY_MINIMUM
inline constexpr unsigned kDisableTiming = 2;  // CU_EVENT_DISABLE_TIMING
inline constexpr unsigned kNonBlocking = 1;    // CU_STREAM_NON_BLOCKING
inline constexpr int kVirtualMemory = 102;     // CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_...

struct Location {
  int type;
  int id;
};
struct AllocationProperties {  // CUmemAllocationProp
  int type;
  int requested_handle_types;
  Location location;
  void* win32_handle_meta_data;
  struct {
    unsigned char compression_type;
    unsigned char gpu_direct_rdma_capable;
    unsigned short usage;
    unsigned char reserved[4];
  } flags;
};
struct AccessDescription {  // CUmemAccessDesc
  Location location;
  int flags;
};

// (member, symbol, parameters), in the order in which they are resolved.
#define DTR_CUDA_FUNCTIONS(F)                                                                    \
  F(init, cuInit, (unsigned))                                                                    \
  F(get_error_name, cuGetErrorName, (Result, const char**))                                      \
  F(get_error_string, cuGetErrorString, (Result, const char**))                                  \
  F(device_get_count, cuDeviceGetCount, (int*))                                                  \
  F(device_get, cuDeviceGet, (Device*, int))                                                     \
  F(device_get_attribute, cuDeviceGetAttribute, (int*, int, Device))                             \
  F(primary_context_retain, cuDevicePrimaryCtxRetain, (Context*, Device))                        \
  F(primary_context_release, cuDevicePrimaryCtxRelease_v2, (Device))                             \
  F(context_push, cuCtxPushCurrent_v2, (Context))                                                \
  F(context_pop, cuCtxPopCurrent_v2, (Context*))                                                 \
  F(get_granularity, cuMemGetAllocationGranularity, (size_t*, const AllocationProperties*, int)) \
  F(address_reserve, cuMemAddressReserve,                                                        \
    (DevicePointer*, size_t, size_t, DevicePointer, unsigned long long))                         \
  F(address_free, cuMemAddressFree, (DevicePointer, size_t))                                     \
  F(create, cuMemCreate, (Handle*, size_t, const AllocationProperties*, unsigned long long))     \
  F(release, cuMemRelease, (Handle))                                                             \
  F(map, cuMemMap, (DevicePointer, size_t, size_t, Handle, unsigned long long))                  \
  F(unmap, cuMemUnmap, (DevicePointer, size_t))                                                  \
  F(set_access, cuMemSetAccess, (DevicePointer, size_t, const AccessDescription*, size_t))       \
  F(copy_to_device, cuMemcpyHtoD_v2, (DevicePointer, const void*, size_t))                       \
  F(copy_to_host, cuMemcpyDtoH_v2, (void*, DevicePointer, size_t))                               \
  F(set_async, cuMemsetD8Async, (DevicePointer, unsigned char, size_t, Stream))                  \
  F(stream_create, cuStreamCreate, (Stream*, unsigned))                                          \
  F(stream_destroy, cuStreamDestroy_v2, (Stream))                                                \
  F(stream_synchronize, cuStreamSynchronize, (Stream))                                           \
  F(stream_wait_event, cuStreamWaitEvent, (Stream, Event, unsigned))                             \
  F(event_create, cuEventCreate, (Event*, unsigned))                                             \
  F(event_destroy, cuEventDestroy_v2, (Event))                                                   \
  F(event_record, cuEventRecord, (Event, Stream))                                                \
  F(event_synchronize, cuEventSynchronize, (Event))

struct Functions {
#define DTR_DECLARE_FUNCTION(member, symbol, parameters) Result(*member) parameters = nullptr;
  DTR_CUDA_FUNCTIONS(DTR_DECLARE_FUNCTION)
#undef DTR_DECLARE_FUNCTION
};

}  // namespace dtr::cuda::abi

#endif  // TVM_DTR_CUDA_DRIVER_ABI_H_
