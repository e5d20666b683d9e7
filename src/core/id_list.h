// A list of ids with room for a few in place: most ops have so few operands that recording one
// allocates nothing. Grows only; clearing keeps the memory.
#ifndef TVM_DTR_CORE_ID_LIST_H_
#define TVM_DTR_CORE_ID_LIST_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

namespace dtr {

class IdList {
 public:
  IdList() = default;
  IdList(const IdList& other) { assign(other.begin(), other.end()); }
  IdList& operator=(const IdList& other) {
    if (this != &other) assign(other.begin(), other.end());
    return *this;
  }
  IdList(IdList&& other) noexcept { *this = std::move(other); }
  IdList& operator=(IdList&& other) noexcept {
    heap_ = std::move(other.heap_);
    capacity_ = other.capacity_;
    size_ = other.size_;
    std::copy_n(other.here_, kInPlace, here_);
    other.capacity_ = kInPlace;
    other.size_ = 0;
    return *this;
  }

  const uint32_t* data() const { return heap_ ? heap_.get() : here_; }
  const uint32_t* begin() const { return data(); }
  const uint32_t* end() const { return data() + size_; }
  uint32_t operator[](size_t i) const { return data()[i]; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

  void clear() { size_ = 0; }
  void push_back(uint32_t id) {
    if (size_ == capacity_) Grow(2 * capacity_);
    (heap_ ? heap_.get() : here_)[size_++] = id;
  }
  void assign(const uint32_t* first, const uint32_t* last) {
    auto count = static_cast<uint32_t>(last - first);
    size_ = 0;
    if (count > capacity_) Grow(count);
    std::copy(first, last, heap_ ? heap_.get() : here_);
    size_ = count;
  }

 private:
  static constexpr uint32_t kInPlace = 4;

  void Grow(uint32_t capacity) {
    std::unique_ptr<uint32_t[]> larger(new uint32_t[capacity]);
    std::copy(begin(), end(), larger.get());
    heap_ = std::move(larger);
    capacity_ = capacity;
  }

  std::unique_ptr<uint32_t[]> heap_;
  uint32_t size_ = 0, capacity_ = kInPlace;
  uint32_t here_[kInPlace] = {};
};

}  // namespace dtr

#endif  // TVM_DTR_CORE_ID_LIST_H_
