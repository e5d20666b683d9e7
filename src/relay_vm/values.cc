#include "relay_vm/values.h"

namespace dtr::relay_vm {

using tvm::runtime::ObjectRef;
using tvm::runtime::vm::VMClosure;
using tvm::runtime::vm::VMClosureObj;

namespace {

constexpr int kDeepest = 32;  // links of a chain that are destroyed recursively

// Of this thread: how deep Discard is in itself, and what waits for the outermost one. Neither has
// a destructor, since values may outlive what a thread has.
thread_local int depth = 0;
thread_local std::vector<ObjectRef>* waiting = nullptr;

class ClosureObj : public VMClosureObj {
 public:
  ~ClosureObj() {
    for (ObjectRef& variable : free_vars) Discard(std::move(variable));
  }
};

void DiscardOutermost(ObjectRef value) noexcept {
  std::vector<ObjectRef> later;
  waiting = &later;
  depth = 1;
  value = ObjectRef();
  while (!later.empty()) {
    ObjectRef next = std::move(later.back());
    later.pop_back();
    next = ObjectRef();
  }
  depth = 0;
  waiting = nullptr;
}

}  // namespace

void Discard(ObjectRef value) noexcept {
  if (!value.defined() || !value.unique()) return;
  if (depth == 0) return DiscardOutermost(std::move(value));
  if (depth >= kDeepest) {
    waiting->push_back(std::move(value));
    return;
  }
  ++depth;
  value = ObjectRef();
  --depth;
}

VMClosure MakeClosure(size_t function, std::vector<ObjectRef> variables) {
  auto closure = tvm::runtime::make_object<ClosureObj>();
  closure->func_index = function;
  closure->free_vars = std::move(variables);
  return VMClosure(tvm::runtime::ObjectPtr<tvm::runtime::Object>(std::move(closure)));
}

}  // namespace dtr::relay_vm
