// Writes a Relay VM Executable from a flat description of an OpGraph.
//
// The stock compiler takes time superlinear in the number of ops to reach the same bytecode. Each
// tensor gets its own storage; registers are reused once their tensor is killed, except those of
// results, which VirtualMachine::SetOutputs tells from others by number.
#include <tvm/runtime/container/array.h>
#include <tvm/runtime/container/string.h>
#include <tvm/runtime/ndarray.h>
#include <tvm/runtime/registry.h>
#include <tvm/runtime/vm/executable.h>
#include <tvm/runtime/vm/vm.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace dtr::relay_vm {
namespace {

using tvm::runtime::Array;
using tvm::runtime::Module;
using tvm::runtime::NDArray;
using tvm::runtime::String;
using tvm::runtime::vm::Executable;
using tvm::runtime::vm::Index;
using tvm::runtime::vm::Instruction;
using tvm::runtime::vm::RegName;
using tvm::runtime::vm::VMFunction;

constexpr int64_t kCpuIndex = 0;     // the only virtual device
constexpr int64_t kAlignment = 128;  // bytes; what the stock compiler asks for is 64 or 128
constexpr RegName kNoRegister = -1;

enum Code : int64_t { kOp = 0, kView = 1, kConst = 2, kKill = 3 };

struct TensorDescription {
  int64_t storage, base;
  DLDataType dtype;
  std::vector<int64_t> shape;
};

struct OpDescription {
  int64_t kernel;
  std::vector<int64_t> inputs, outputs;
};

struct Description {
  std::vector<int64_t> storage_bytes;
  std::vector<TensorDescription> tensors;
  std::vector<OpDescription> ops;
  std::vector<int64_t> parameters, constants, results, instructions;
};

// Reads the int64 sequence that tvm_dtr/compile/emit.py writes: lists are length first.
class Reader {
 public:
  explicit Reader(const NDArray& codes)
      : at_(static_cast<const int64_t*>(codes->data)), end_(at_ + codes->shape[0]) {}

  Description Read() {
    Description d;
    d.storage_bytes = List();
    d.tensors.resize(Next());
    for (TensorDescription& t : d.tensors) {
      t.storage = Next();
      t.base = Next();
      t.dtype.code = static_cast<uint8_t>(Next());
      t.dtype.bits = static_cast<uint8_t>(Next());
      t.dtype.lanes = 1;
      t.shape = List();
    }
    d.ops.resize(Next());
    for (OpDescription& op : d.ops) {
      op.kernel = Next();
      op.inputs = List();
      op.outputs = List();
    }
    d.parameters = List();
    d.constants = List();
    d.results = List();
    d.instructions = List();
    ICHECK(at_ == end_) << "the description is longer than its lists";
    return d;
  }

 private:
  int64_t Next() {
    ICHECK(at_ < end_) << "the description is cut short";
    return *at_++;
  }
  std::vector<int64_t> List() {
    int64_t size = Next();
    ICHECK(size >= 0 && size <= end_ - at_) << "the description is cut short";
    std::vector<int64_t> list(at_, at_ + size);
    at_ += size;
    return list;
  }

  const int64_t* at_;
  const int64_t* end_;
};

class Emitter {
 public:
  Emitter(Description description, Array<NDArray> constants)
      : d_(std::move(description)), exec_(tvm::runtime::make_object<Executable>()) {
    for (const NDArray& value : constants) AddConstant(value);
    register_of_.assign(d_.tensors.size(), kNoRegister);
    is_result_.assign(d_.tensors.size(), false);
    for (int64_t tensor : d_.results) is_result_[tensor] = true;
    constant_of_.assign(d_.tensors.size(), -1);
    for (size_t i = 0; i < d_.constants.size(); ++i) constant_of_[d_.constants[i]] = i;
  }

  Module Emit(const Array<String>& kernels, const Array<String>& parameters) {
    for (int64_t tensor : d_.parameters) register_of_[tensor] = registers_++;
    for (size_t i = 0; i < d_.instructions.size(); i += 2) {
      EmitOne(static_cast<Code>(d_.instructions[i]), d_.instructions[i + 1]);
    }
    Return();
    Finish(kernels, parameters);
    return Module(exec_);
  }

 private:
  void EmitOne(Code code, int64_t id) {
    switch (code) {
      case kOp:
        return EmitOp(d_.ops[id]);
      case kView:
        return EmitView(id);
      case kConst:
        code_.push_back(Instruction::LoadConst(constant_of_[id], kCpuIndex, Define(id)));
        return;
      case kKill:
        return Kill(id);
    }
    LOG(FATAL) << "unknown code " << code << " in the description";
  }

  void EmitOp(const OpDescription& op) {
    std::vector<RegName> args;
    for (int64_t tensor : op.inputs) args.push_back(Defined(tensor));
    for (int64_t tensor : op.outputs) {
      AllocateTensor(tensor);
      args.push_back(Defined(tensor));
    }
    code_.push_back(Instruction::InvokePacked(op.kernel, args.size(), op.outputs.size(), args));
  }

  void AllocateTensor(int64_t id) {
    const TensorDescription& tensor = d_.tensors[id];
    RegName size = ScalarRegister(d_.storage_bytes[tensor.storage]);
    RegName offset = ScalarRegister(0);
    RegName storage = TakeRegister();
    code_.push_back(
        Instruction::AllocStorage(size, kAlignment, tensor.dtype, kCpuIndex, {}, storage));
    code_.push_back(
        Instruction::AllocTensor(storage, offset, tensor.shape, tensor.dtype, Define(id)));
    code_.push_back(Instruction::KillRegister(storage));
    free_registers_.push_back(storage);
  }

  void EmitView(int64_t id) {
    const TensorDescription& view = d_.tensors[id];
    RegName shape = ShapeRegister(view.shape);
    code_.push_back(Instruction::ReshapeTensor(Defined(view.base), shape, Define(id)));
  }

  void Kill(int64_t id) {
    RegName reg = Defined(id);
    code_.push_back(Instruction::KillRegister(reg));
    free_registers_.push_back(reg);
    register_of_[id] = kNoRegister;
  }

  void Return() {
    std::vector<RegName> fields;
    for (int64_t tensor : d_.results) fields.push_back(Defined(tensor));
    RegName tuple = registers_++;
    code_.push_back(Instruction::AllocADT(0, fields.size(), fields, tuple));
    code_.push_back(Instruction::Ret(tuple));
  }

  // Sizes, offsets and shapes are loaded once and stay: there are few different ones.
  RegName ScalarRegister(int64_t value) {
    return SharedConstant(&scalar_registers_, value, {value}, {});
  }

  RegName ShapeRegister(const std::vector<int64_t>& shape) {
    return SharedConstant(&shape_registers_, shape, shape, {static_cast<int64_t>(shape.size())});
  }

  template <typename Key>
  RegName SharedConstant(std::map<Key, RegName>* known, const Key& key,
                         const std::vector<int64_t>& values, std::vector<int64_t> shape) {
    auto [it, is_new] = known->try_emplace(key, kNoRegister);
    if (is_new) {
      NDArray array = NDArray::Empty(shape, DLDataType{kDLInt, 64, 1}, DLDevice{kDLCPU, 0});
      std::copy(values.begin(), values.end(), static_cast<int64_t*>(array->data));
      it->second = registers_++;
      code_.push_back(Instruction::LoadConst(AddConstant(array), kCpuIndex, it->second));
    }
    return it->second;
  }

  Index AddConstant(const NDArray& value) {
    exec_->constants.push_back(value);
    exec_->const_device_indexes.push_back(kCpuIndex);
    return exec_->constants.size() - 1;
  }

  RegName TakeRegister() {
    if (free_registers_.empty()) return registers_++;
    RegName reg = free_registers_.back();
    free_registers_.pop_back();
    return reg;
  }

  RegName Define(int64_t id) {
    ICHECK_EQ(register_of_[id], kNoRegister) << "tensor " << id << " is defined twice";
    return register_of_[id] = is_result_[id] ? registers_++ : TakeRegister();
  }

  RegName Defined(int64_t id) const {
    ICHECK_NE(register_of_[id], kNoRegister) << "tensor " << id << " is not alive";
    return register_of_[id];
  }

  void Finish(const Array<String>& kernels, const Array<String>& parameters) {
    for (size_t i = 0; i < kernels.size(); ++i) exec_->primitive_map[kernels[i]] = i;
    std::vector<std::string> names(parameters.begin(), parameters.end());
    std::vector<Index> devices(names.size(), kCpuIndex);
    exec_->virtual_devices = {{DLDevice{kDLCPU, 0}, ""}};
    exec_->host_device_index = kCpuIndex;
    exec_->global_map["main"] = 0;
    exec_->functions.emplace_back("main", names, std::move(code_), registers_, devices);
  }

  Description d_;
  tvm::runtime::ObjectPtr<Executable> exec_;
  std::vector<Instruction> code_;
  std::vector<RegName> register_of_;  // of each tensor, while it is alive
  std::vector<bool> is_result_;
  std::vector<Index> constant_of_;  // place of a constant tensor in the constant pool
  std::vector<RegName> free_registers_;
  RegName registers_ = 0;
  std::map<int64_t, RegName> scalar_registers_;
  std::map<std::vector<int64_t>, RegName> shape_registers_;
};

// (codes: int64 NDArray, kernel names, parameter names, constants) -> Executable without library.
TVM_REGISTER_GLOBAL("tvm_dtr.emit_executable")
    .set_body_typed([](NDArray codes, Array<String> kernels, Array<String> parameters,
                       Array<NDArray> constants) {
      return Emitter(Reader(codes).Read(), constants).Emit(kernels, parameters);
    });

// (executable, count) -> its first constants, which are those of the OpGraph it was emitted from.
TVM_REGISTER_GLOBAL("tvm_dtr.executable_constants")
    .set_body_typed([](Module executable, int64_t count) {
      auto* exec = dynamic_cast<Executable*>(executable.operator->());
      ICHECK(exec != nullptr && static_cast<size_t>(count) <= exec->constants.size())
          << "expected a Relay VM executable with that many constants";
      Array<NDArray> constants;
      for (int64_t i = 0; i < count; ++i) {
        constants.push_back(tvm::runtime::Downcast<NDArray>(exec->constants[i]));
      }
      return constants;
    });

TVM_REGISTER_GLOBAL("tvm_dtr.set_library").set_body_typed([](Module executable, Module library) {
  auto* exec = dynamic_cast<Executable*>(executable.operator->());
  ICHECK(exec != nullptr) << "expected a Relay VM executable";
  exec->SetLib(library);
});

}  // namespace
}  // namespace dtr::relay_vm
