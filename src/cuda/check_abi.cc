// Compares driver_abi.h with the toolkit's cuda.h: it compiles iff they agree. Not part of any
// library; built where the toolkit is found.
#include <cuda.h>

#include <cstddef>
#include <type_traits>

#include "cuda/driver_abi.h"

namespace dtr::cuda::abi {
namespace {

static_assert(sizeof(CUresult) == sizeof(Result) && sizeof(CUdevice) == sizeof(Device));
static_assert(sizeof(CUdeviceptr) == sizeof(DevicePointer) && sizeof(size_t) == 8);
static_assert(sizeof(CUmemGenericAllocationHandle) == sizeof(Handle));
static_assert(kSuccess == CUDA_SUCCESS && kInvalidValue == CUDA_ERROR_INVALID_VALUE);
static_assert(kOutOfMemory == CUDA_ERROR_OUT_OF_MEMORY);
static_assert(kNotInitialized == CUDA_ERROR_NOT_INITIALIZED && kNoDevice == CUDA_ERROR_NO_DEVICE);
static_assert(kInvalidDevice == CUDA_ERROR_INVALID_DEVICE);
static_assert(kInvalidContext == CUDA_ERROR_INVALID_CONTEXT);
static_assert(kInvalidHandle == CUDA_ERROR_INVALID_HANDLE && kNotReady == CUDA_ERROR_NOT_READY);
static_assert(kIllegalAddress == CUDA_ERROR_ILLEGAL_ADDRESS);
static_assert(kPinned == CU_MEM_ALLOCATION_TYPE_PINNED);
static_assert(kLocationDevice == CU_MEM_LOCATION_TYPE_DEVICE);
static_assert(kReadWrite == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
static_assert(kGranularityMinimum == CU_MEM_ALLOC_GRANULARITY_MINIMUM);
static_assert(kDisableTiming == CU_EVENT_DISABLE_TIMING && kNonBlocking == CU_STREAM_NON_BLOCKING);
static_assert(kVirtualMemory == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);

using Ours = AllocationProperties;
using Theirs = CUmemAllocationProp;
static_assert(sizeof(Ours) == sizeof(Theirs) && sizeof(Location) == sizeof(CUmemLocation));
static_assert(offsetof(Ours, location) == offsetof(Theirs, location));
static_assert(offsetof(Ours, win32_handle_meta_data) == offsetof(Theirs, win32HandleMetaData));
static_assert(offsetof(Ours, flags) == offsetof(Theirs, allocFlags));
static_assert(sizeof(AccessDescription) == sizeof(CUmemAccessDesc));
static_assert(offsetof(AccessDescription, flags) == offsetof(CUmemAccessDesc, flags));

// Types that are passed alike: pointers to anything, integers and enumerations of one size.
template <typename A, typename B>
constexpr bool kAlike = sizeof(A) == sizeof(B) && std::is_pointer_v<A> == std::is_pointer_v<B>;

template <typename A, typename B>
struct SameCall : std::false_type {};
template <typename R, typename S, typename... A, typename... B>
struct SameCall<R (*)(A...), S (*)(B...)> {
  template <bool counts>
  static constexpr bool Compare() {
    if constexpr (counts) {
      return kAlike<R, S> && (kAlike<A, B> && ...);
    } else {
      return false;
    }
  }
  static constexpr bool value = Compare<sizeof...(A) == sizeof...(B)>();
};

#define DTR_CHECK_FUNCTION(member, symbol, parameters) \
  static_assert(SameCall<Result(*) parameters, decltype(&::symbol)>::value, #symbol);
// The opaque handles of ours are void*, those of the driver pointers to structs: both pointers.
DTR_CUDA_FUNCTIONS(DTR_CHECK_FUNCTION)

}  // namespace
}  // namespace dtr::cuda::abi
