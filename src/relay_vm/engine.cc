#include "relay_vm/engine.h"

#include <cstring>
#include <utility>

#include "relay_vm/report.h"

namespace dtr::relay_vm {

using tvm::runtime::NDArray;
using tvm::runtime::Object;
using tvm::runtime::ObjectPtr;
using tvm::runtime::ShapeTuple;

namespace {

constexpr uintptr_t kAlignment = 64;  // what compiled kernels rely on

ShapeTuple CopyShape(const TensorHandleObj& handle) {
  return ShapeTuple(handle.shape, handle.shape + handle.ndim);
}

}  // namespace

// -- Use ------------------------------------------------------------------------------------------

Engine::Use::Use(Engine* engine) : engine_(engine->shared_from_this()) {
  engine->mutex_.lock();
  if (engine->uses_++ == 0) engine->SettleQuietly();
  if (std::exception_ptr failure = std::exchange(engine->failure_, nullptr)) {
    --engine->uses_;
    engine->mutex_.unlock();
    std::rethrow_exception(failure);
  }
}

Engine::Use::~Use() {
  if (engine_->uses_ == 1) engine_->SettleQuietly();
  --engine_->uses_;
  engine_->mutex_.unlock();
  // A release that came between the last Settle and the unlock found the mutex taken.
  while (engine_->waiting_.load() && engine_->mutex_.try_lock()) {
    if (engine_->uses_ == 0) engine_->SettleQuietly();
    bool idle = engine_->uses_ == 0;
    engine_->mutex_.unlock();
    if (!idle) break;
  }
}

void Engine::ReleaseOutput(const Released& released) {
  {
    std::lock_guard<std::mutex> lock(waiting_mutex_);
    released_.push_back(released);
    waiting_.store(true);
  }
  if (!mutex_.try_lock()) return;  // whoever has it settles before or after unlocking
  if (uses_ == 0) SettleQuietly();
  mutex_.unlock();
}

void Engine::SettleQuietly() noexcept {
  try {
    Settle();
  } catch (...) {
    if (!failure_) failure_ = std::current_exception();
  }
}

void Engine::DoSettle() {
  std::vector<Released> released;
  {
    std::lock_guard<std::mutex> lock(waiting_mutex_);
    released.swap(released_);
    waiting_.store(false);
  }
  for (const Released& r : released) Drop(r);
  while (!executor_.forgotten().empty()) {
    std::vector<tvm::runtime::ObjectRef> forgotten;
    forgotten.swap(executor_.forgotten());
  }
}

void Engine::Drop(const Released& released) {
  auto found = outputs_.find(static_cast<const char*>(released.base));
  DTR_CHECK(found != outputs_.end(), "an output was released twice");
  if (--found->second.arrays == 0) {
    runtime_.Release(found->second.tensor);
    outputs_.erase(found);
  }
  runtime_.Release(released.tensor);
}

// -- Outputs --------------------------------------------------------------------------------------

struct Engine::OutputContainer : public NDArray::Container {
  using NDArray::Container::Container;
  std::shared_ptr<Engine> engine;
  Released released;
};

void Engine::DeleteOutput(Object* object) {
  auto* container = static_cast<OutputContainer*>(object);
  std::shared_ptr<Engine> engine = std::move(container->engine);
  Released released = container->released;
  delete container;
  engine->ReleaseOutput(released);
}

NDArray Engine::MakeOutput(const TensorHandleObj& handle) {
  if (handle.tensor == kNone) {
    DTR_CHECK(handle.host != nullptr, "the program returns a tensor that no kernel has written");
    NDArray copy = NDArray::Empty(CopyShape(handle), handle.dtype, handle.device);
    std::memcpy(copy->data, handle.host, handle.bytes());
    return copy;
  }
  if (const auto* given = handle.source.as<NDArray::Container>()) {
    if (handle.byte_offset == 0 && given->dl_tensor.data == handle.host &&
        given->dl_tensor.shape == handle.shape) {
      return tvm::runtime::Downcast<NDArray>(handle.source);
    }
  }
  char* base = static_cast<char*>(runtime_.Pin(handle.tensor));
  auto* container = new OutputContainer(base + handle.byte_offset, CopyShape(handle), handle.dtype,
                                        handle.device);
  container->SetDeleter(DeleteOutput);
  container->engine = shared_from_this();
  container->released = {handle.tensor, base};
  runtime_.Retain(handle.tensor);
  auto [entry, added] = outputs_.try_emplace(base, LiveOutput{handle.tensor, 0, 0});
  if (added) {
    runtime_.Retain(handle.tensor);
    StorageId storage = runtime_.graph().tensor(handle.tensor).storage;
    entry->second.bytes = runtime_.graph().storage(storage).bytes;
  }
  entry->second.arrays++;
  return NDArray(tvm::runtime::GetObjectPtr<Object>(container));
}

// -- Inputs ---------------------------------------------------------------------------------------

TensorHandle Engine::FromCaller(const NDArray& array, Origin origin) {
  auto handle = tvm::runtime::make_object<TensorHandleObj>(this);
  handle->device = array->device;
  handle->dtype = array->dtype;
  handle->OwnShape(array.Shape());
  if (!tvm::runtime::IsContiguous(*array.operator->())) {
    ThrowError("InputError", "an input array is not contiguous: copy it first");
  }
  char* data = static_cast<char*>(array->data) + array->byte_offset;
  if (reinterpret_cast<uintptr_t>(data) % kAlignment != 0) {
    CopyIn(array, handle.get(), origin);
    return handle;
  }
  if (FindOutput(data, handle->bytes(), handle.get(), origin)) return handle;
  handle->host = data;
  handle->source = array;
  handle->shape = array->shape;
  EnsureTensor(handle.get(), origin);
  return handle;
}

NDArray Engine::CopyToArena(const NDArray& array) {
  auto handle = tvm::runtime::make_object<TensorHandleObj>(this);
  handle->device = array->device;
  handle->dtype = array->dtype;
  handle->OwnShape(array.Shape());
  CopyIn(array, handle.get(), {Origin::kHostValue, 0});
  return MakeOutput(*handle.get());
}

bool Engine::FindOutput(const void* data, uint64_t bytes, TensorHandleObj* handle, Origin origin) {
  auto* address = static_cast<const char*>(data);
  auto entry = outputs_.upper_bound(address);
  if (entry == outputs_.begin()) return false;
  --entry;
  if (address + bytes > entry->first + entry->second.bytes) return false;
  handle->byte_offset = static_cast<uint64_t>(address - entry->first);
  handle->tensor = runtime_.NewView(entry->second.tensor);
  executor_.Describe(handle->tensor, *handle, origin);
  TensorId root = runtime_.graph().Root(handle->tensor);
  if (executor_.origin(root).kind != Origin::kNamed) executor_.set_origin(root, origin);
  return true;
}

bool Engine::NameOutput(const DLTensor& array, uint32_t name) {
  auto entry = outputs_.find(static_cast<const char*>(array.data) + array.byte_offset);
  if (entry == outputs_.end()) return false;
  executor_.set_origin(runtime_.graph().Root(entry->second.tensor), {Origin::kNamed, name});
  return true;
}

void Engine::CopyIn(const NDArray& array, TensorHandleObj* handle, Origin origin) {
  handle->tensor = runtime_.AddConstant(handle->bytes());
  executor_.Describe(handle->tensor, *handle, origin);
  copies_++;
  array.CopyToBytes(runtime_.Data(handle->tensor), handle->bytes());
}

void Engine::EnsureTensor(TensorHandleObj* handle, Origin origin) {
  if (handle->tensor != kNone) return;
  DTR_CHECK(handle->host != nullptr, "the program reads a tensor that no kernel has written");
  handle->tensor = runtime_.AddExternal(handle->host, handle->bytes());
  executor_.Describe(handle->tensor, *handle, origin);
}

void* Engine::Data(const TensorHandleObj& handle) {
  if (handle.host) return handle.host;
  DTR_CHECK(handle.tensor != kNone, "the program reads a tensor that no kernel has written");
  return static_cast<char*>(runtime_.Data(handle.tensor)) + handle.byte_offset;
}

}  // namespace dtr::relay_vm
