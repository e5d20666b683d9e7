// A runtime on real memory whose kernels leave a hash of (kernel, inputs) in their outputs, so
// that every tensor's right contents are known without running anything else.
#ifndef TVM_DTR_TESTS_CORE_LAB_H_
#define TVM_DTR_TESTS_CORE_LAB_H_

#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/arena.h"
#include "core/runtime.h"

namespace dtr_test {

inline uint64_t Mix(uint64_t hash, uint64_t value) {
  hash ^= value + 0x9e3779b97f4a7c15ULL + (hash << 6) + (hash >> 2);
  return hash * 0xff51afd7ed558ccdULL;
}

struct KernelFailure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Passes everything on to another arena, but for the allocation that is to fail.
class FailingArena : public dtr::Arena {
 public:
  explicit FailingArena(dtr::Arena* arena) : arena_(arena) {}
  dtr::Block Allocate(uint64_t bytes) override {
    if (fail_at >= 0 && fail_at-- == 0) return {};
    return arena_->Allocate(bytes);
  }
  void Free(const dtr::Block& block) override { arena_->Free(block); }
  void SetOwner(dtr::BlockOwner* owner) override { arena_->SetOwner(owner); }
  void Own(const dtr::Block& block, uint32_t number) override { arena_->Own(block, number); }
  bool Charge(uint64_t bytes) override { return arena_->Charge(bytes); }
  void Discharge(uint64_t bytes) override { arena_->Discharge(bytes); }
  uint64_t RoundedSize(uint64_t bytes) const override { return arena_->RoundedSize(bytes); }
  uint64_t LeastSize(uint64_t bytes) const override { return arena_->LeastSize(bytes); }
  uint64_t BytesToAllocate(uint64_t bytes) const override { return arena_->BytesToAllocate(bytes); }
  uint64_t active() const override { return arena_->active(); }
  uint64_t mapped() const override { return arena_->mapped(); }
  uint64_t peak_active() const override { return arena_->peak_active(); }
  uint64_t peak_mapped() const override { return arena_->peak_mapped(); }
  void ResetPeak() override { arena_->ResetPeak(); }
  uint64_t capacity() const override { return arena_->capacity(); }
  uint64_t SetCapacity(uint64_t capacity, bool* fits) override {
    return arena_->SetCapacity(capacity, fits);
  }
  uint64_t largest_free() const override { return arena_->largest_free(); }
  const dtr::AddressRuns* runs() const override { return arena_->runs(); }
  int fail_at = -1;

 private:
  dtr::Arena* arena_;
};

class HashExecutor : public dtr::Executor {
 public:
  void Run(const dtr::KernelCall& call) override {
    if (fail_at >= 0 && fail_at-- == 0) {
      Spoil(call);
      throw KernelFailure("the kernel failed");
    }
    uint64_t hash = Mix(0, call.kernel);
    for (size_t i = 0; i < call.inputs.size(); ++i) hash = Mix(hash, Read(call.input_data[i]));
    for (size_t i = 0; i < call.outputs.size(); ++i) Write(call.output_data[i], Mix(hash, i));
    if (call.workspace) std::memset(call.workspace.data, 0xab, call.workspace.bytes);
  }
  void Forget(dtr::TensorId) override { ++forgotten; }
  static uint64_t Read(const void* data) {
    uint64_t value;
    std::memcpy(&value, data, sizeof value);
    return value;
  }
  static void Write(void* data, uint64_t value) { std::memcpy(data, &value, sizeof value); }
  int fail_at = -1;
  int forgotten = 0;

 private:
  // What a kernel leaves that fails halfway; one that updates in place fails before it begins.
  static void Spoil(const dtr::KernelCall& call) {
    for (const void* in : call.input_data) {
      for (const void* out : call.output_data) {
        if (in == out) return;
      }
    }
    for (void* data : call.output_data) Write(data, 0xbadbadbadbadbadULL);
  }
};

// Names ops and storages and writes down what the runtime does: "a" computed, "~a" recomputed,
// "-a" evicted for want of memory.
class Lab : public dtr::Observer {
 public:
  static constexpr uint64_t kUnit = 4096;

  explicit Lab(uint64_t units, const std::string& policy = "dtr-eq", double thrash_limit = 0,
               const std::string& dealloc = "eager")
      : arena_(dtr::MakeArena(policy == "window" ? "best-fit" : "paged",
                              units == dtr::kUnlimited ? units : units * kUnit, /*backed=*/true)),
        failing_arena(arena_.get()),
        arena(*arena_),
        runtime(&failing_arena, &executor, Options(policy, thrash_limit, dealloc)) {
    runtime.AddObserver(this);
  }

  dtr::TensorId Constant(uint64_t value) {
    dtr::TensorId t = runtime.AddConstant(kUnit);
    HashExecutor::Write(runtime.Data(t), value);
    return t;
  }

  // One op with outputs of `units` each.
  std::vector<dtr::TensorId> Op(const std::string& name, const std::vector<dtr::TensorId>& inputs,
                                size_t outputs = 1, double cost = 1, uint64_t units = 1,
                                uint64_t workspace = 0) {
    auto kernel = static_cast<dtr::KernelId>(names_.size());
    names_.push_back(name);
    std::vector<dtr::TensorId> made;
    for (size_t i = 0; i < outputs; ++i) {
      dtr::StorageId s = runtime.NewStorage(units * kUnit);
      made.push_back(runtime.NewTensor(s));
      runtime.ReleaseStorage(s);
      storage_names_[s] = outputs == 1 ? name : name + std::to_string(i);
    }
    try {
      runtime.Call(kernel, inputs, made, cost, workspace);
    } catch (...) {
      for (dtr::TensorId t : made) runtime.Release(t);
      names_.pop_back();  // the same op may be tried again
      throw;
    }
    return made;
  }
  dtr::TensorId One(const std::string& name, const std::vector<dtr::TensorId>& inputs) {
    return Op(name, inputs)[0];
  }
  // A constant that updates may overwrite.
  dtr::TensorId State(uint64_t value) {
    dtr::TensorId t = Constant(value);
    runtime.AllowOverwrite(t);
    return t;
  }

  // Whether the op could write over `old`.
  bool Overwrite(const std::string& name, const std::vector<dtr::TensorId>& inputs,
                 dtr::TensorId old, double cost = 1) {
    auto kernel = static_cast<dtr::KernelId>(names_.size());
    names_.push_back(name);
    bool done = false;
    try {
      done = runtime.TryOverwrite(kernel, inputs, old, cost, 0);
    } catch (...) {
      names_.pop_back();
      throw;
    }
    if (!done) names_.pop_back();
    return done;
  }
  // Kernels so far: the id of the next one.
  uint64_t kernels() const { return names_.size(); }
  std::string Trace() const { return trace_; }
  uint64_t Read(dtr::TensorId t) { return HashExecutor::Read(runtime.Data(t)); }

  void OnRun(dtr::OpId, dtr::KernelId kernel, bool rematerialization, double) override {
    Note((rematerialization ? "~" : "") + names_[kernel]);
  }
  void OnEvict(dtr::StorageId storage, bool eager) override {
    if (!eager) Note("-" + storage_names_[storage]);
  }

  HashExecutor executor;

 private:
  std::unique_ptr<dtr::Arena> arena_;

 public:
  FailingArena failing_arena;
  dtr::Arena& arena;
  dtr::Runtime runtime;

 private:
  static dtr::RuntimeOptions Options(const std::string& policy, double thrash_limit,
                                     const std::string& dealloc) {
    dtr::RuntimeOptions options;
    options.policy = policy;
    options.thrash_limit = thrash_limit;
    options.dealloc = dealloc;
    return options;
  }
  void Note(const std::string& event) { trace_ += (trace_.empty() ? "" : " ") + event; }

  std::vector<std::string> names_;
  std::map<dtr::StorageId, std::string> storage_names_;
  std::string trace_;
};

}  // namespace dtr_test

#endif  // TVM_DTR_TESTS_CORE_LAB_H_
