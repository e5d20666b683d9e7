// The CUDA driver library, opened at run time: one build serves machines with and without it.
#ifndef TVM_DTR_CUDA_DRIVER_H_
#define TVM_DTR_CUDA_DRIVER_H_

#include <memory>
#include <stdexcept>
#include <string>

#include "cuda/driver_abi.h"

namespace dtr::cuda {

// A call of the driver that failed: "cuMemMap: invalid argument (CUDA_ERROR_INVALID_VALUE)"; or the
// driver could not be opened.
class DriverError : public std::runtime_error {
 public:
  DriverError(const std::string& message, abi::Result code)
      : std::runtime_error(message), code(code) {}
  abi::Result code;
};

class Driver : public abi::Functions {
 public:
  static constexpr const char* kLibrary = "libcuda.so.1";

  // Opens and initializes the driver; it stays open for good. Throws DriverError with what to do
  // if there is no such library, it lacks a call (drivers before CUDA 10.2), or it has no device.
  explicit Driver(const std::string& library = kLibrary);
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  int device_count() const { return device_count_; }
  // Throws DriverError unless the call succeeded.
  void Check(abi::Result result, const char* call) const;

 private:
  int device_count_ = 0;
};

// A device's primary context, which TVM and CUDA's own libraries use too; held as long as this.
class Device {
 public:
  // Throws DriverError if there is no such device or it has no virtual memory management.
  Device(std::shared_ptr<const Driver> driver, int ordinal);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // Makes the context current on this thread, and what was current before when it ends.
  class Scope {
   public:
    explicit Scope(const Device& device);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    const Driver& driver_;
  };

  const Driver& driver() const { return *driver_; }
  int ordinal() const { return ordinal_; }

 private:
  std::shared_ptr<const Driver> driver_;
  int ordinal_;
  abi::Device device_ = 0;
  abi::Context context_ = nullptr;
};

}  // namespace dtr::cuda

#endif  // TVM_DTR_CUDA_DRIVER_H_
