// Tuples, algebraic data types and closures whose teardown needs no deep stack.
//
// A list of n rows, or the pullbacks of n iterations, hold each other in a chain; TVM's objects
// destroy such a chain recursively. Ours are TVM's classes to everyone else, but hand what they
// hold to Discard.
#ifndef TVM_DTR_RELAY_VM_VALUES_H_
#define TVM_DTR_RELAY_VM_VALUES_H_

#include <tvm/runtime/container/adt.h>
#include <tvm/runtime/vm/vm.h>

#include <utility>
#include <vector>

namespace dtr::relay_vm {

// Drops a reference; of a chain that dies with it, only the first links are destroyed recursively.
void Discard(tvm::runtime::ObjectRef value) noexcept;

template <typename Iterator>
tvm::runtime::ADT MakeData(int32_t tag, Iterator begin, Iterator end);
tvm::runtime::vm::VMClosure MakeClosure(size_t function,
                                        std::vector<tvm::runtime::ObjectRef> variables);

// -- Implementation -------------------------------------------------------------------------------

// Adds no member: the fields lie right behind an ADTObj.
class DataObj : public tvm::runtime::ADTObj {
 public:
  ~DataObj() {
    for (size_t i = 0; i < this->size; ++i) Discard(std::move((*this)[i]));
  }

  void Append(tvm::runtime::ObjectRef value) {
    this->EmplaceInit(this->size, std::move(value));
    this->size++;
  }
};
static_assert(sizeof(DataObj) == sizeof(tvm::runtime::ADTObj));

template <typename Iterator>
tvm::runtime::ADT MakeData(int32_t tag, Iterator begin, Iterator end) {
  const auto count = static_cast<size_t>(std::distance(begin, end));
  auto data = tvm::runtime::make_inplace_array_object<DataObj, tvm::runtime::ObjectRef>(count);
  data->tag = tag;
  data->size = 0;
  for (; begin != end; ++begin) data->Append(*begin);
  return tvm::runtime::ADT(tvm::runtime::ObjectPtr<tvm::runtime::Object>(std::move(data)));
}

}  // namespace dtr::relay_vm

#endif  // TVM_DTR_RELAY_VM_VALUES_H_
