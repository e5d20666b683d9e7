// Reading operands from registers and making the values that go into them.
#include <cstring>

#include "relay_vm/vm.h"

namespace dtr::relay_vm {

using tvm::runtime::make_object;
using tvm::runtime::ShapeTuple;

TensorHandleObj* DtrVirtualMachine::AsTensor(const ObjectRef& value) const {
  DTR_CHECK(value.defined(), "an instruction reads an empty register");
  DTR_CHECK(value->IsInstance<TensorHandleObj>(),
            "an instruction expects a tensor, but reads a " + value->GetTypeKey());
  return static_cast<TensorHandleObj*>(const_cast<Object*>(value.get()));
}

TensorHandleObj* DtrVirtualMachine::Tensor(RegName name) { return AsTensor(Register(name)); }

int64_t DtrVirtualMachine::ReadInteger(RegName name) {
  const TensorHandleObj* handle = Tensor(name);
  const void* data = engine_->Data(*handle);
  switch (handle->dtype.bits) {
    case 1:
    case 8:
      return *static_cast<const int8_t*>(data);
    case 16:
      return *static_cast<const int16_t*>(data);
    case 32:
      return *static_cast<const int32_t*>(data);
    case 64:
      return *static_cast<const int64_t*>(data);
    default:
      DTR_CHECK(false, "a scalar has " + std::to_string(handle->dtype.bits) + " bits");
  }
}

ShapeTuple DtrVirtualMachine::ReadShape(RegName name) {
  const TensorHandleObj* handle = Tensor(name);
  DTR_CHECK(handle->ndim <= 1, "a shape must be a vector");
  if (handle->ndim == 0) return ShapeTuple();
  const void* data = engine_->Data(*handle);
  int64_t count = handle->shape[0];
  DTR_CHECK(handle->dtype.code == kDLInt && handle->dtype.lanes == 1,
            "a shape must be of integers");
  if (handle->dtype.bits == 64) {
    auto* dims = static_cast<const int64_t*>(data);
    return ShapeTuple(dims, dims + count);
  }
  DTR_CHECK(handle->dtype.bits == 32, "a shape must be of int32 or int64");
  auto* dims = static_cast<const int32_t*>(data);
  return ShapeTuple(dims, dims + count);
}

TensorHandle DtrVirtualMachine::NewHandle(DLDataType dtype) const {
  auto handle = make_object<TensorHandleObj>(engine_.get());
  handle->dtype = dtype;
  return handle;
}

// A tensor in the storage that register `storage` holds, its shape to be set.
TensorHandle DtrVirtualMachine::PlaceTensor(RegName storage, RegName offset, DLDataType dtype) {
  const ObjectRef& value = Register(storage);
  DTR_CHECK(value.defined() && value->IsInstance<StorageHandleObj>(),
            "a tensor is allocated in what is no storage");
  TensorHandle handle = NewHandle(dtype);
  handle->byte_offset = static_cast<uint64_t>(ReadInteger(offset));
  handle->storage = tvm::runtime::GetObjectPtr<StorageHandleObj>(
      static_cast<StorageHandleObj*>(const_cast<Object*>(value.get())));
  return handle;
}

// A vector in host memory; in the arena if it is not small.
ObjectRef DtrVirtualMachine::HostValue(const void* bytes, int64_t elements, DLDataType dtype) {
  TensorHandle handle = NewHandle(dtype);
  handle->device = host_device();
  uint64_t size = static_cast<uint64_t>(elements) * dtype.bits / 8;
  if (size > kHostValueBytes) {
    handle->OwnShape(ShapeTuple({elements}));
    handle->tensor = engine_->runtime().AddConstant(size);
    engine_->executor().Describe(handle->tensor, *handle, {Origin::kHostValue, 0});
    std::memcpy(engine_->runtime().Data(handle->tensor), bytes, size);
    return ObjectRef(handle);
  }
  auto value = make_object<HostBytesObj>();
  if (size > 0) std::memcpy(value->bytes, bytes, size);
  value->shape[0] = elements;
  handle->shape = value->shape;
  handle->ndim = 1;
  handle->host = value->bytes;
  handle->source = ObjectRef(value);
  return ObjectRef(handle);
}

}  // namespace dtr::relay_vm
