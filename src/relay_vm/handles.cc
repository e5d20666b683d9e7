#include "relay_vm/handles.h"

#include "relay_vm/engine.h"
#include "relay_vm/report.h"

namespace dtr::relay_vm {

TVM_REGISTER_OBJECT_TYPE(HostBytesObj);
TVM_REGISTER_OBJECT_TYPE(StorageHandleObj);
TVM_REGISTER_OBJECT_TYPE(TensorHandleObj);

uint64_t DenseBytes(const int64_t* shape, int32_t ndim, DLDataType dtype) {
  uint64_t bytes = (uint64_t{dtype.bits} * dtype.lanes + 7) / 8;
  bool fits = true;
  for (int32_t i = 0; i < ndim; ++i) {
    if (shape[i] == 0) return 0;
    fits = fits && shape[i] > 0 && !__builtin_mul_overflow(bytes, uint64_t(shape[i]), &bytes);
  }
  if (!fits)
    ThrowError("UsageError",
               "a tensor has a negative dimension, or more bytes than can be addressed");
  return bytes;
}

StorageHandleObj::~StorageHandleObj() {
  if (storage != kNone) engine->ReleaseStorage(storage);
}

bool StorageHandleObj::Claim(Range range) {
  if (range.second > bytes) return false;
  auto overlaps = [&](const Range& r) { return range.first < r.second && r.first < range.second; };
  if (claims > 0 && overlaps(first)) return false;
  for (const Range& r : further) {
    if (overlaps(r)) return false;
  }
  if (claims++ == 0) {
    first = range;
  } else {
    further.push_back(range);
  }
  return true;
}

void StorageHandleObj::Unclaim() {
  if (--claims > 0) further.pop_back();
}

TensorHandleObj::~TensorHandleObj() {
  if (tensor != kNone) engine->Release(tensor);
}

uint64_t TensorHandleObj::bytes() const { return DenseBytes(shape, ndim, dtype); }

bool TensorHandleObj::empty() const {
  for (int32_t i = 0; i < ndim; ++i) {
    if (shape[i] == 0) return true;
  }
  return false;
}

void TensorHandleObj::OwnShape(tvm::runtime::ShapeTuple own) {
  shape = own.data();
  ndim = static_cast<int32_t>(own.size());
  shape_owner = std::move(own);
}

}  // namespace dtr::relay_vm
