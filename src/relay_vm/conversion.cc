// Values between the caller's world (NDArray) and the VM's (handles).
#include <unordered_map>

#include "relay_vm/report.h"
#include "relay_vm/values.h"
#include "relay_vm/vm.h"

namespace dtr::relay_vm {

using tvm::runtime::ADT;
using tvm::runtime::ADTObj;

namespace {

// A tuple or closure with some of its parts rebuilt.
struct Pending {
  const Object* object;
  std::vector<ObjectRef> parts;
};

size_t PartCount(const Object* object) {
  if (object->IsInstance<ADTObj>()) return static_cast<const ADTObj*>(object)->size;
  return static_cast<const VMClosureObj*>(object)->free_vars.size();
}

ObjectRef Part(const Object* object, size_t i) {
  if (object->IsInstance<ADTObj>()) return (*static_cast<const ADTObj*>(object))[i];
  return static_cast<const VMClosureObj*>(object)->free_vars[i];
}

ObjectRef Assemble(Pending pending) {
  if (const auto* data = pending.object->IsInstance<ADTObj>()
                             ? static_cast<const ADTObj*>(pending.object)
                             : nullptr) {
    return MakeData(data->tag, pending.parts.begin(), pending.parts.end());
  }
  const auto* closure = static_cast<const VMClosureObj*>(pending.object);
  return MakeClosure(closure->func_index, std::move(pending.parts));
}

bool IsLeaf(const ObjectRef& value) {
  return !value.defined() || !(value->IsInstance<ADTObj>() || value->IsInstance<VMClosureObj>());
}

}  // namespace

// Without recursion, since lists are as long as programs make them; what is shared stays shared.
ObjectRef DtrVirtualMachine::Rebuild(const ObjectRef& root, const Leaf& leaf) {
  std::unordered_map<const Object*, ObjectRef> done;
  auto rebuilt = [&](const ObjectRef& value) -> const ObjectRef* {
    auto found = done.find(value.get());
    if (found != done.end()) return &found->second;
    if (!IsLeaf(value)) return nullptr;
    return &done.emplace(value.get(), leaf(value)).first->second;
  };
  if (const ObjectRef* value = rebuilt(root)) return *value;
  std::vector<Pending> stack;
  stack.push_back({root.get(), {}});
  while (true) {
    Pending& top = stack.back();
    if (top.parts.size() < PartCount(top.object)) {
      ObjectRef part = Part(top.object, top.parts.size());
      if (const ObjectRef* value = rebuilt(part)) {
        top.parts.push_back(*value);
      } else {
        stack.push_back({part.get(), {}});
      }
      continue;
    }
    const Object* object = top.object;
    ObjectRef whole = Assemble(std::move(top));
    stack.pop_back();
    if (stack.empty()) return whole;
    done.emplace(object, std::move(whole));
  }
}

ObjectRef DtrVirtualMachine::FromCaller(const ObjectRef& value, Origin origin) {
  return Rebuild(value, [&](const ObjectRef& leaf) -> ObjectRef {
    if (!leaf.defined() || !leaf->IsInstance<NDArray::ContainerType>()) {
      ThrowError("InputError", "inputs must be arrays, or tuples and lists of arrays, but one is " +
                                   (leaf.defined() ? leaf->GetTypeKey() : "missing"));
    }
    return ObjectRef(engine_->FromCaller(tvm::runtime::Downcast<NDArray>(leaf), origin));
  });
}

ObjectRef DtrVirtualMachine::ToCaller(const ObjectRef& value) {
  return Rebuild(value, [&](const ObjectRef& leaf) -> ObjectRef {
    return engine_->MakeOutput(*AsTensor(leaf));
  });
}

}  // namespace dtr::relay_vm
