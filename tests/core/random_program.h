// A random program on a Lab; the contents of every held tensor are checked against the value that
// the hashes must give, whatever was evicted or failed on the way.
#ifndef TVM_DTR_TESTS_CORE_RANDOM_PROGRAM_H_
#define TVM_DTR_TESTS_CORE_RANDOM_PROGRAM_H_

#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "check.h"
#include "lab.h"

namespace dtr_test {

class RandomProgram {
 public:
  // Runs a step of the program; what a test of failures replaces by something that tries again.
  using Attempt = std::function<void(const std::function<void()>&)>;

  RandomProgram(Lab* lab, uint64_t seed) : RandomProgram(lab, std::mt19937_64(seed)) {}
  // Every choice is made by a number of `random`.
  RandomProgram(Lab* lab, std::function<uint64_t()> random)
      : lab_(lab), random_(std::move(random)) {}

  Attempt attempt = [](const std::function<void()>& step) { step(); };
  std::function<double()> cost = [this] { return 1.0 + static_cast<double>(random_() % 5); };

  uint64_t states = 0;  // tensors that are read and overwritten on the way

  void Run(int ops) {
    lab_->runtime.BeginInvocation(0);
    for (uint64_t i = 0; i < 2; ++i) {
      attempt([&] { held_.push_back({lab_->Constant(i + 1), i + 1}); });
    }
    for (uint64_t i = 0; i < states; ++i) {
      attempt([&] { states_.push_back({lab_->State(100 + i), 100 + i}); });
    }
    for (int i = 0; i < ops; ++i) {
      MakeOp(i);
      Update();
      Rename();
      LetGo();
      if (random_() % 6 == 0) Check(held_[random_() % held_.size()]);
      if (random_() % 16 == 0) attempt([&] { lab_->runtime.Pin(held_.back().tensor); });
      lab_->runtime.Validate();
      EXPECT(lab_->arena.mapped() <= lab_->arena.capacity());
    }
    Finish();
  }

 private:
  struct Held {
    dtr::TensorId tensor;
    uint64_t value;
  };

  void MakeOp(int i) {
    std::vector<dtr::TensorId> inputs;
    size_t outputs = 1 + random_() % 8 / 6;
    uint64_t hash = Mix(0, lab_->kernels());
    if (!states_.empty() && random_() % 2 == 0) {
      const Held& state = states_[random_() % states_.size()];
      inputs.push_back(state.tensor);
      hash = Mix(hash, state.value);
    }
    for (uint64_t n = 1 + random_() % 2; n > 0; --n) {
      const Held& in = held_[held_.size() - 1 - random_() % std::min<size_t>(held_.size(), 12)];
      inputs.push_back(in.tensor);
      hash = Mix(hash, in.value);
    }
    uint64_t workspace = random_() % 4 == 0 ? 1 + random_() % Lab::kUnit : 0;
    double op_cost = cost();
    uint64_t units = 1 + random_() % 2;
    std::vector<dtr::TensorId> made;
    attempt(
        [&] { made = lab_->Op(std::to_string(i), inputs, outputs, op_cost, units, workspace); });
    for (size_t k = 0; k < outputs; ++k) held_.push_back({made[k], Mix(hash, k)});
  }

  // Of a copy of a state: only who holds the state itself may see its new value.
  void Update() {
    if (states_.empty() || random_() % 3 != 0) return;
    Held& state = states_[random_() % states_.size()];
    const Held& other = held_[random_() % held_.size()];
    const uint64_t kernel = lab_->kernels();
    bool done = false;
    attempt([&] { done = lab_->Overwrite("u", {state.tensor, other.tensor}, state.tensor); });
    if (done) state.value = Mix(Mix(Mix(Mix(0, kernel), state.value), other.value), 0);
    Check(state);
  }

  void Rename() {
    if (random_() % 4 != 0) return;
    const Held base = held_[random_() % held_.size()];
    held_.push_back({lab_->runtime.NewView(base.tensor), base.value});
  }

  void LetGo() {
    while (held_.size() > 10 && random_() % 3 != 0) {
      size_t which = random_() % held_.size();
      lab_->runtime.Release(held_[which].tensor);
      held_.erase(held_.begin() + static_cast<long>(which));
    }
  }

  void Check(const Held& held) {
    uint64_t value = 0;
    attempt([&] { value = lab_->Read(held.tensor); });
    EXPECT_EQ(value, held.value);
  }

  void Finish() {
    for (const Held& held : held_) {
      Check(held);
      lab_->runtime.Release(held.tensor);
    }
    for (const Held& state : states_) {
      Check(state);
      lab_->runtime.Release(state.tensor);
    }
    lab_->runtime.EndInvocation();
    lab_->runtime.Validate();
    EXPECT_EQ(lab_->runtime.graph().live_storages(), 0u);
    EXPECT_EQ(lab_->runtime.graph().live_tensors(), 0u);
    EXPECT_EQ(lab_->runtime.graph().live_ops(), 0u);
    EXPECT_EQ(lab_->arena.active(), 0u);
  }

  Lab* lab_;
  std::function<uint64_t()> random_;
  std::vector<Held> held_;
  std::vector<Held> states_;
};

inline void RunRandomProgram(Lab* lab, uint64_t seed, int ops) {
  RandomProgram(lab, seed).Run(ops);
}

}  // namespace dtr_test

#endif  // TVM_DTR_TESTS_CORE_RANDOM_PROGRAM_H_
