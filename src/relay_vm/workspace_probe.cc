// Measures a kernel: its time, and the most workspace that it holds at once.
//
// Kernels take workspace through pointers in their library. While a probe is open those pointers
// lead here, so that sizes are seen and the memory does not stay in TVM's per-thread pools.
#include <dlfcn.h>
#include <tvm/runtime/container/array.h>
#include <tvm/runtime/container/shape_tuple.h>
#include <tvm/runtime/ndarray.h>
#include <tvm/runtime/packed_func.h>
#include <tvm/runtime/registry.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace dtr::relay_vm {
namespace {

using tvm::runtime::Array;
using tvm::runtime::NDArray;
using tvm::runtime::PackedFunc;
using tvm::runtime::ShapeTuple;
using tvm::runtime::String;

constexpr uint64_t kAlignment = 128;  // bytes, at least what TVM's own workspace has

// held_ == sum of the sizes in live_; peak_ == greatest held_ since the last Reset.
class Probe {
 public:
  static Probe& Global() {
    static Probe probe;
    return probe;
  }

  void* Allocate(uint64_t bytes) {
    bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    std::lock_guard<std::mutex> lock(mutex_);
    void* data = Take(bytes);
    if (data == nullptr) return nullptr;
    live_[data] = bytes;
    held_ += bytes;
    peak_ = std::max(peak_, held_);
    return data;
  }

  int Free(void* data) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto it = live_.find(data);
    if (it == live_.end()) return -1;
    held_ -= it->second;
    idle_.emplace(it->second, data);
    live_.erase(it);
    return 0;
  }

  // Gives the idle memory back and returns the peak, in bytes.
  uint64_t Reset() {
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto& entry : idle_) std::free(entry.second);
    idle_.clear();
    uint64_t peak = peak_;
    peak_ = held_;
    return peak;
  }

 private:
  // Blocks are kept between the calls of one measurement: page faults are not the kernel's cost.
  void* Take(uint64_t bytes) {
    auto it = idle_.find(bytes);
    if (it == idle_.end()) return std::aligned_alloc(kAlignment, std::max(bytes, kAlignment));
    void* data = it->second;
    idle_.erase(it);
    return data;
  }

  std::mutex mutex_;
  std::unordered_map<void*, uint64_t> live_;
  std::multimap<uint64_t, void*> idle_;
  uint64_t held_ = 0;
  uint64_t peak_ = 0;
};

void* ProbeAllocate(int, int, uint64_t bytes, int, int) { return Probe::Global().Allocate(bytes); }
int ProbeFree(int, int, void* data) { return Probe::Global().Free(data); }

// While it lives, the workspace pointers of a loaded library lead to the probe.
class Redirection {
 public:
  explicit Redirection(const std::string& library)
      : handle_(dlopen(library.c_str(), RTLD_LAZY | RTLD_NOLOAD)) {
    ICHECK(handle_ != nullptr) << library << " is not loaded";
    allocate_ = Replace("__TVMBackendAllocWorkspace", reinterpret_cast<void*>(&ProbeAllocate));
    free_ = Replace("__TVMBackendFreeWorkspace", reinterpret_cast<void*>(&ProbeFree));
  }
  ~Redirection() {
    Replace("__TVMBackendAllocWorkspace", allocate_);
    Replace("__TVMBackendFreeWorkspace", free_);
    dlclose(handle_);
  }

 private:
  // A library whose kernels take no workspace has no such pointer.
  void* Replace(const char* name, void* function) {
    auto** pointer = reinterpret_cast<void**>(dlsym(handle_, name));
    if (pointer == nullptr) return nullptr;
    std::swap(*pointer, function);
    return function;
  }

  void* handle_;
  void* allocate_;
  void* free_;
};

// 0.5 for floats, so that no kernel meets denormals or NaN; 0 for integers, a valid index.
void Fill(const NDArray& array) {
  size_t elements = tvm::runtime::GetDataSize(*array.operator->()) * 8 / array->dtype.bits;
  DLDataType type = array->dtype;
  if (type.code == kDLFloat && type.bits == 32) {
    std::fill_n(static_cast<float*>(array->data), elements, 0.5f);
  } else if (type.code == kDLFloat && type.bits == 64) {
    std::fill_n(static_cast<double*>(array->data), elements, 0.5);
  } else if (type.bits == 16 && (type.code == kDLFloat || type.code == kDLBfloat)) {
    uint16_t half = type.code == kDLFloat ? 0x3800 : 0x3f00;
    std::fill_n(static_cast<uint16_t*>(array->data), elements, half);
  } else {
    std::memset(array->data, 0, tvm::runtime::GetDataSize(*array.operator->()));
  }
}

double SecondsOf(const PackedFunc& kernel, const tvm::runtime::TVMArgs& args, int calls) {
  auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) {
    tvm::runtime::TVMRetValue result;
    kernel.CallPacked(args, &result);
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Median over `samples` of the time per call, each sample at least `seconds` long.
double MedianNanoseconds(const PackedFunc& kernel, const Array<NDArray>& arrays, int samples,
                         double seconds) {
  std::vector<TVMValue> values(arrays.size());
  std::vector<int> codes(arrays.size());
  tvm::runtime::TVMArgsSetter set(values.data(), codes.data());
  for (size_t i = 0; i < arrays.size(); ++i) set(i, arrays[i]);
  tvm::runtime::TVMArgs args(values.data(), codes.data(), static_cast<int>(arrays.size()));
  SecondsOf(kernel, args, 1);  // the first call meets cold caches and unmapped pages
  double once = SecondsOf(kernel, args, 1);
  int calls = 1 + static_cast<int>(seconds / std::max(once, 1e-7));
  std::vector<double> times;
  for (int i = 0; i < samples; ++i) times.push_back(SecondsOf(kernel, args, calls) / calls * 1e9);
  std::nth_element(times.begin(), times.begin() + samples / 2, times.end());
  return times[samples / 2];
}

// (library path, kernel, its arrays, samples, seconds per sample) -> (ps per call, peak bytes).
TVM_REGISTER_GLOBAL("tvm_dtr.measure_kernel")
    .set_body_typed([](String library, PackedFunc kernel, Array<NDArray> arrays, int samples,
                       double seconds) {
      Redirection redirection(library);
      for (const NDArray& array : arrays) Fill(array);
      Probe::Global().Reset();
      double nanoseconds = MedianNanoseconds(kernel, arrays, samples, seconds);
      int64_t peak = static_cast<int64_t>(Probe::Global().Reset());
      return ShapeTuple({static_cast<int64_t>(nanoseconds * 1e3), peak});
    });

}  // namespace
}  // namespace dtr::relay_vm
