// Each runtime has its own arena: two threads at once, budgets that change within a step, and
// tensors that are still held when a runtime ends. Run under the thread sanitizer as well.
#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "lab.h"

using dtr_test::Lab;

namespace {

// f_1 ... f_n, then b_i from b_{i+1} and f_i: what the last tensor holds.
uint64_t RunChain(Lab* lab, int length) {
  std::vector<dtr::TensorId> forward{lab->Constant(7)};
  for (int i = 1; i <= length; ++i) forward.push_back(lab->One("f", {forward.back()}));
  dtr::TensorId back = lab->One("b", {forward.back()});
  for (int i = length - 1; i > 0; --i) {
    dtr::TensorId next = lab->One("b", {back, forward[static_cast<size_t>(i)]});
    lab->runtime.Release(back);
    back = next;
  }
  uint64_t value = lab->Read(back);
  for (dtr::TensorId t : forward) lab->runtime.Release(t);
  lab->runtime.Release(back);
  lab->runtime.Validate();
  return value;
}

}  // namespace

TEST(TwoThreadsEachWithItsOwnArena) {
  Lab alone(dtr::kUnlimited);
  const uint64_t expected = RunChain(&alone, 20);
  std::atomic<int> wrong{0};
  auto work = [&](uint64_t units, const char* policy) {
    for (int step = 0; step < 20; ++step) {
      Lab fresh(units + static_cast<uint64_t>(step % 3), policy);
      if (RunChain(&fresh, 20) != expected) ++wrong;
      if (fresh.arena.peak_mapped() > fresh.arena.capacity()) ++wrong;
    }
  };
  std::thread first(work, 8, "dtr-eq"), second(work, 9, "window");
  first.join();
  second.join();
  EXPECT_EQ(wrong.load(), 0);
}

// A kernel that changes the budget while it runs: what its op has locked stays, the rest may go.
class Shrinking : public dtr::Observer {
 public:
  explicit Shrinking(Lab* lab) : lab_(lab) {}
  void OnRun(dtr::OpId, dtr::KernelId, bool, double) override {
    uint64_t units = 5 + random_() % 20;
    try {
      lab_->runtime.SetBudget(units * Lab::kUnit);
      ++changed;
    } catch (const dtr::BudgetError&) {
      ++refused;  // what is locked and pinned needs more; the budget is as it was
    }
    wrong += lab_->arena.mapped() > lab_->arena.capacity();
  }
  int changed = 0, refused = 0, wrong = 0;

 private:
  Lab* lab_;
  std::mt19937_64 random_{3};
};

TEST(TheBudgetChangesWithinAStep) {
  Lab alone(dtr::kUnlimited);
  const uint64_t expected = RunChain(&alone, 20);
  for (const std::string policy : {"dtr-eq", "window"}) {
    Lab lab(20, policy);
    Shrinking shrinking(&lab);
    lab.runtime.AddObserver(&shrinking);
    EXPECT_EQ(RunChain(&lab, 20), expected);
    EXPECT(shrinking.changed > 30);
    EXPECT_EQ(shrinking.wrong, 0);
  }
}

TEST(WhatIsHeldWhenARuntimeEndsIsGivenBack) {
  for (const char* policy : {"dtr-eq", "window"}) {
    std::unique_ptr<dtr::Arena> arena =
        dtr::MakeArena(policy == std::string("window") ? "best-fit" : "paged", 1 << 20, true);
    dtr_test::HashExecutor executor;
    dtr::RuntimeOptions options;
    options.policy = policy;
    {
      dtr::Runtime runtime(arena.get(), &executor, options);
      std::vector<dtr::TensorId> inputs{runtime.AddConstant(4096)};
      for (int i = 0; i < 100; ++i) {
        dtr::StorageId storage = runtime.NewStorage(2000);
        std::vector<dtr::TensorId> outputs{runtime.NewTensor(storage)};
        runtime.ReleaseStorage(storage);
        runtime.Call(static_cast<dtr::KernelId>(i), inputs, outputs, 1, 0);
        runtime.Pin(outputs[0]);
      }
      EXPECT(arena->active() >= 100 * 2000);
    }
    EXPECT_EQ(arena->active(), 0u);
  }
}

TEST_MAIN()
