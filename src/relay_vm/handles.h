// What the VM's registers, tuples and closures hold in place of TVM's NDArray and Storage.
//
// A tensor handle is in one of three states:
//   undefined   storage set,  tensor == kNone, host == null   allocated, no kernel has written it
//   host        source set,   host != null                    readable without the runtime; becomes
//                                                             a core tensor when a kernel reads it
//   device      tensor != kNone                               the core knows it, resident or not
#ifndef TVM_DTR_RELAY_VM_HANDLES_H_
#define TVM_DTR_RELAY_VM_HANDLES_H_

#include <tvm/runtime/ndarray.h>
#include <tvm/runtime/object.h>

#include <utility>
#include <vector>

#include "core/types.h"

namespace dtr::relay_vm {

class Engine;

// Scalars and shapes that control flow reads live in host memory outside of the arena up to this
// size; everything larger counts against the budget.
inline constexpr uint64_t kHostValueBytes = 64;

struct HostBytesObj : public tvm::runtime::Object {
  alignas(64) unsigned char bytes[kHostValueBytes];
  int64_t shape[1];

  static constexpr const uint32_t _type_index = tvm::runtime::TypeIndex::kDynamic;
  static constexpr const char* _type_key = "tvm_dtr.HostBytes";
  TVM_DECLARE_FINAL_OBJECT_INFO(HostBytesObj, tvm::runtime::Object);
};

// What alloc_storage makes: a size. The core's storage is made with its first tensor.
struct StorageHandleObj : public tvm::runtime::Object {
  using Range = std::pair<uint64_t, uint64_t>;  // [begin, end) in bytes

  StorageHandleObj(Engine* engine, uint64_t bytes) : engine(engine), bytes(bytes) {}
  ~StorageHandleObj();

  // Marks the range as written; false if it overlaps one that already is, or the storage's end.
  bool Claim(Range range);
  // Takes the last claim back.
  void Unclaim();

  Engine* engine;
  uint64_t bytes;
  StorageId storage = kNone;
  uint32_t claims = 0;
  Range first{0, 0};
  std::vector<Range> further;

  static constexpr const uint32_t _type_index = tvm::runtime::TypeIndex::kDynamic;
  static constexpr const char* _type_key = "tvm_dtr.StorageHandle";
  TVM_DECLARE_FINAL_OBJECT_INFO(StorageHandleObj, tvm::runtime::Object);
};

struct TensorHandleObj : public tvm::runtime::Object {
  explicit TensorHandleObj(Engine* engine) : engine(engine) {}
  ~TensorHandleObj();

  uint64_t bytes() const;
  bool empty() const;  // some dimension is 0
  // Makes the shape the handle's own, where it does not outlive it (static shapes do).
  void OwnShape(tvm::runtime::ShapeTuple own);

  Engine* engine;
  TensorId tensor = kNone;
  int32_t ndim = 0;
  const int64_t* shape = nullptr;
  DLDataType dtype{};
  DLDevice device{kDLCPU, 0};
  uint64_t byte_offset = 0;  // in its storage
  void* host = nullptr;
  tvm::runtime::ObjectRef shape_owner;
  tvm::runtime::ObjectRef source;  // owner of `host`
  tvm::runtime::ObjectPtr<StorageHandleObj> storage;

  static constexpr const uint32_t _type_index = tvm::runtime::TypeIndex::kDynamic;
  static constexpr const char* _type_key = "tvm_dtr.TensorHandle";
  TVM_DECLARE_FINAL_OBJECT_INFO(TensorHandleObj, tvm::runtime::Object);
};

using TensorHandle = tvm::runtime::ObjectPtr<TensorHandleObj>;

// Bytes of a dense tensor, as TVM counts them: each element rounded up to whole bytes.
uint64_t DenseBytes(const int64_t* shape, int32_t ndim, DLDataType dtype);

}  // namespace dtr::relay_vm

#endif  // TVM_DTR_RELAY_VM_HANDLES_H_
