// Choices made by the bytes of an input; when they are used up, every choice is 0.
#ifndef TVM_DTR_TESTS_FUZZ_BYTES_H_
#define TVM_DTR_TESTS_FUZZ_BYTES_H_

#include <cstddef>
#include <cstdint>

namespace dtr_fuzz {

class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : data_(data), left_(size) {}
  bool empty() const { return left_ == 0; }

  uint8_t Next() {
    if (left_ == 0) return 0;
    --left_;
    return *data_++;
  }
  // 0 to limit - 1.
  uint32_t Below(uint32_t limit) {
    uint32_t value = Next();
    if (limit > 256) value = value << 8 | Next();
    return limit == 0 ? 0 : value % limit;
  }
  bool OneIn(uint32_t n) { return Below(n) == n - 1; }
  uint64_t Word() {
    uint64_t value = 0;
    for (int i = 0; i < 8; ++i) value = value << 8 | Next();
    return value;
  }

 private:
  const uint8_t* data_;
  size_t left_;
};

}  // namespace dtr_fuzz

// What libFuzzer calls; by standalone.cc where there is no libFuzzer.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

#endif  // TVM_DTR_TESTS_FUZZ_BYTES_H_
