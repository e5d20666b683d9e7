// Identifiers and small value types shared by the core.
#ifndef TVM_DTR_CORE_TYPES_H_
#define TVM_DTR_CORE_TYPES_H_

#include <cstddef>
#include <cstdint>

namespace dtr {

using StorageId = uint32_t;  // a buffer, the unit of eviction
using TensorId = uint32_t;   // a view of a storage
using OpId = uint32_t;       // one call of a kernel
using KernelId = uint32_t;   // what is called; only the Executor knows its meaning

inline constexpr uint32_t kNone = ~uint32_t{0};

// A read-only run of values (std::span is C++20).
template <typename T>
class Span {
 public:
  Span() = default;
  Span(const T* data, size_t size) : data_(data), size_(size) {}
  template <typename Container>
  Span(const Container& c) : data_(c.data()), size_(c.size()) {}  // NOLINT: implicit on purpose
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  const T& operator[](size_t i) const { return data_[i]; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

 private:
  const T* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace dtr

#endif  // TVM_DTR_CORE_TYPES_H_
