// Where an arena's pages come from: addresses are reserved once, memory is mapped to them and
// taken away page by page.
//
// All sizes and addresses are multiples of page(). An arena maps a page once, unmaps it once, and
// never touches what is not mapped.
#ifndef TVM_DTR_CORE_ARENA_PAGE_SOURCE_H_
#define TVM_DTR_CORE_ARENA_PAGE_SOURCE_H_

#include <cstdint>
#include <map>

namespace dtr {

class PageSource {
 public:
  virtual ~PageSource() = default;

  virtual uint64_t page() const = 0;
  // Addresses without memory behind them, 0 if there are none left. At least `least` bytes and at
  // most `*bytes`, which is set to what was reserved. They go with the source.
  virtual uintptr_t Reserve(uint64_t least, uint64_t* bytes) = 0;
  // Memory at reserved addresses, contents undefined; false if there is none.
  virtual bool Map(uintptr_t start, uint64_t bytes) = 0;
  virtual void Unmap(uintptr_t start, uint64_t bytes) = 0;
  // Takes the memory at `from` to the unmapped addresses at `to`, contents and all; `from` is then
  // unmapped. False, and nothing changed, where that is not possible or does not pay.
  virtual bool Move(uintptr_t from, uintptr_t to, uint64_t bytes) { return false; }

  // Whether the host can copy mapped memory; and copying it, perhaps to where some of it lies.
  virtual bool copies() const { return false; }
  virtual void Copy(uintptr_t from, uintptr_t to, uint64_t bytes) {}

  // Whether addresses are short: then no more are reserved than get memory, and unmapped ones are
  // released at once.
  virtual bool scarce() const { return false; }
  virtual void Release(uintptr_t start, uint64_t bytes) {}

  // A block in mapped memory was freed, is handed out: for devices whose kernels run behind.
  virtual void OnFree(uintptr_t start, uint64_t bytes) {}
  virtual void OnAllocate(uintptr_t start, uint64_t bytes) {}
};

// The process's own memory, by mmap.
class HostPages : public PageSource {
 public:
  HostPages();
  ~HostPages() override;
  HostPages(const HostPages&) = delete;
  HostPages& operator=(const HostPages&) = delete;

  static constexpr uint64_t kPage = 4096;
  uint64_t page() const override { return kPage; }
  uintptr_t Reserve(uint64_t least, uint64_t* bytes) override;
  bool Map(uintptr_t start, uint64_t bytes) override;
  void Unmap(uintptr_t start, uint64_t bytes) override;
  bool Move(uintptr_t from, uintptr_t to, uint64_t bytes) override;
  bool copies() const override { return true; }
  void Copy(uintptr_t from, uintptr_t to, uint64_t bytes) override;
  bool scarce() const override { return scarce_; }
  void Release(uintptr_t start, uint64_t bytes) override;

 private:
  const bool scarce_;                           // `ulimit -v` counts reserved addresses too
  std::map<uintptr_t, uint64_t> reservations_;  // start -> bytes, what has not been released
};

// Addresses without memory, for simulations that take the same decisions as a real run.
class NoPages : public PageSource {
 public:
  uint64_t page() const override { return HostPages::kPage; }
  uintptr_t Reserve(uint64_t, uint64_t*) override { return ++reservations_ << 44; }
  bool Map(uintptr_t, uint64_t) override { return true; }
  void Unmap(uintptr_t, uint64_t) override {}
  bool Move(uintptr_t, uintptr_t, uint64_t) override { return true; }
  bool copies() const override { return true; }

 private:
  uintptr_t reservations_ = 0;
};

}  // namespace dtr

#endif  // TVM_DTR_CORE_ARENA_PAGE_SOURCE_H_
