#include "cuda/driver.h"

#include <dlfcn.h>

#include <utility>

namespace dtr::cuda {

Driver::Driver(const std::string& library) {
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const char* why = dlerror();
    throw DriverError("the CUDA driver '" + library + "' cannot be opened (" + (why ? why : "") +
                          "): install the NVIDIA driver, or use the CPU",
                      abi::kNotInitialized);
  }
#define DTR_RESOLVE_FUNCTION(member, symbol, parameters)               \
  member = reinterpret_cast<decltype(member)>(dlsym(handle, #symbol)); \
  if (!member) {                                                       \
    throw DriverError("the CUDA driver '" + library +                  \
                          "' has no " #symbol                          \
                          ": a driver for CUDA "                       \
                          "10.2 or later is needed",                   \
                      abi::kNotInitialized);                           \
  }
  DTR_CUDA_FUNCTIONS(DTR_RESOLVE_FUNCTION)
#undef DTR_RESOLVE_FUNCTION
  Check(init(0), "cuInit");
  Check(device_get_count(&device_count_), "cuDeviceGetCount");
}

void Driver::Check(abi::Result result, const char* call) const {
  if (result == abi::kSuccess) return;
  const char *name = nullptr, *text = nullptr;
  get_error_name(result, &name);
  get_error_string(result, &text);
  throw DriverError(std::string(call) + ": " + (text ? text : "unknown error") + " (" +
                        (name ? name : std::to_string(result)) + ")",
                    result);
}

Device::Device(std::shared_ptr<const Driver> driver, int ordinal)
    : driver_(std::move(driver)), ordinal_(ordinal) {
  if (ordinal < 0 || ordinal >= driver_->device_count()) {
    throw DriverError("there is no CUDA device " + std::to_string(ordinal) + ": this machine has " +
                          std::to_string(driver_->device_count()),
                      abi::kInvalidDevice);
  }
  driver_->Check(driver_->device_get(&device_, ordinal), "cuDeviceGet");
  int supported = 0;
  driver_->Check(driver_->device_get_attribute(&supported, abi::kVirtualMemory, device_),
                 "cuDeviceGetAttribute");
  if (!supported) {
    throw DriverError(
        "CUDA device " + std::to_string(ordinal) + " has no virtual memory management: use the CPU",
        abi::kInvalidDevice);
  }
  driver_->Check(driver_->primary_context_retain(&context_, device_), "cuDevicePrimaryCtxRetain");
}

Device::~Device() { driver_->primary_context_release(device_); }

Device::Scope::Scope(const Device& device) : driver_(device.driver()) {
  driver_.Check(driver_.context_push(device.context_), "cuCtxPushCurrent");
}

Device::Scope::~Scope() {
  abi::Context popped;
  driver_.context_pop(&popped);
}

}  // namespace dtr::cuda
