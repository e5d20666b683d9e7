// The CUDA backend on a driver: the stand-in beside this file, or the machine's own.
//
// DTR_CUDA_DRIVER names the library to open. With `--gpu` it is the real one; where that cannot be
// opened the program ends with status 77, which ctest takes for skipped. Tests of errors that only
// the stand-in can be told to make, and of the order of calls, run on the stand-in alone.
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "check.h"
#include "core/errors.h"
#include "core/runtime.h"
#include "cuda/cuda_arena.h"

using dtr::Block;
using dtr::cuda::CudaArena;
using dtr::cuda::CudaPages;
using dtr::cuda::Device;
using dtr::cuda::Driver;
using dtr::cuda::DriverError;
using dtr::cuda::MakeCudaArena;
namespace abi = dtr::cuda::abi;

namespace {

constexpr int kSkipped = 77;
std::shared_ptr<const Driver> driver;

// The stand-in's own functions; null on a real driver.
struct StandIn {
  const char* (*log)() = nullptr;
  void (*clear_log)() = nullptr;
  void (*fail)(const char*, int, abi::Result) = nullptr;
  size_t (*used)() = nullptr;
  size_t (*objects)() = nullptr;
} stand_in;

uintptr_t Address(const Block& block) { return reinterpret_cast<uintptr_t>(block.data); }

// A device with its context current, and a stream, for as long as a test runs.
struct Bench {
  Bench() : device(std::make_shared<Device>(driver, 0)), scope(*device) {
    driver->Check(driver->stream_create(&stream, abi::kNonBlocking), "cuStreamCreate");
    CudaPages pages(device);
    page = pages.page();
  }
  ~Bench() { driver->stream_destroy(stream); }
  void Fill(const Block& block, int value, abi::Stream on) {
    driver->Check(
        driver->set_async(Address(block), static_cast<unsigned char>(value), block.bytes, on),
        "cuMemsetD8Async");
  }
  void Sync() { driver->Check(driver->stream_synchronize(stream), "cuStreamSynchronize"); }
  unsigned char Read(const Block& block, uint64_t at) {
    unsigned char value = 0;
    driver->Check(driver->copy_to_host(&value, Address(block) + at, 1), "cuMemcpyDtoH");
    return value;
  }
  std::shared_ptr<Device> device;
  Device::Scope scope;
  abi::Stream stream = nullptr;
  uint64_t page = 0;
};

}  // namespace

TEST(GranularityComesFromTheDriver) {
  Bench bench;
  EXPECT(bench.page >= 4096 && (bench.page & (bench.page - 1)) == 0);
  CudaArena made = MakeCudaArena("paged", 8 * bench.page, bench.device);
  EXPECT_EQ(made.arena->RoundedSize(bench.page - 255), bench.page);
  EXPECT_EQ(made.arena->RoundedSize(bench.page + 1), 2 * bench.page);
  EXPECT_EQ(made.arena->RoundedSize(1), 256u);
  EXPECT_THROWS(MakeCudaArena("buddy", 1, bench.device), std::invalid_argument);
}

TEST(BlocksHoldWhatIsWrittenWithinTheCapacity) {
  Bench bench;
  for (const std::string name : {"paged", "best-fit"}) {
    CudaArena made = MakeCudaArena(name, 8 * bench.page, bench.device);
    made.order->Use(bench.stream);
    std::vector<Block> blocks;
    for (int i = 0; i < 4; ++i) {
      blocks.push_back(made.arena->Allocate(2 * bench.page));
      EXPECT(static_cast<bool>(blocks.back()));
      EXPECT_EQ(Address(blocks.back()) % 256, 0u);
      bench.Fill(blocks.back(), i + 1, bench.stream);
    }
    EXPECT(!made.arena->Allocate(bench.page));
    EXPECT_EQ(made.arena->mapped(), 8 * bench.page);
    bench.Sync();
    for (int i = 0; i < 4; ++i) EXPECT_EQ(int{bench.Read(blocks[i], 2 * bench.page - 1)}, i + 1);
    for (const Block& block : blocks) made.arena->Free(block);
    EXPECT_EQ(made.arena->active(), 0u);
  }
}

// Four free pages that are nowhere side by side become one block: moved, not allocated anew.
TEST(ScatteredPagesAreMovedTogether) {
  Bench bench;
  CudaArena made = MakeCudaArena("paged", 8 * bench.page, bench.device);
  made.order->Use(bench.stream);
  std::vector<Block> blocks;
  for (int i = 0; i < 8; ++i) {
    blocks.push_back(made.arena->Allocate(bench.page));
    bench.Fill(blocks.back(), 10 + i, bench.stream);
  }
  for (int i = 0; i < 8; i += 2) made.arena->Free(blocks[i]);
  if (stand_in.clear_log) stand_in.clear_log();
  Block whole = made.arena->Allocate(4 * bench.page);
  EXPECT(static_cast<bool>(whole));
  if (stand_in.log) {
    std::string log = stand_in.log();
    EXPECT(log.find("cuMemCreate") == std::string::npos);
    EXPECT(log.find("cuMemRelease") == std::string::npos);
    // Kernels are done with a page before it is unmapped; access comes last.
    EXPECT(log.find("cuEventSynchronize") < log.find("cuMemUnmap"));
    EXPECT(log.rfind("cuMemSetAccess") > log.rfind("cuMemMap"));
  }
  bench.Fill(whole, 99, bench.stream);
  bench.Sync();
  for (int i = 1; i < 8; i += 2) EXPECT_EQ(int{bench.Read(blocks[i], 0)}, 10 + i);
  EXPECT_EQ(int{bench.Read(whole, 4 * bench.page - 1)}, 99);
  made.arena->Free(whole);
  for (int i = 1; i < 8; i += 2) made.arena->Free(blocks[i]);
}

// Memory freed on one stream and handed out on another: the second waits for the first.
TEST(AnotherStreamWaitsForTheOneThatFreed) {
  Bench bench;
  abi::Stream other;
  driver->Check(driver->stream_create(&other, abi::kNonBlocking), "cuStreamCreate");
  for (uint64_t bytes : {2 * bench.page, uint64_t{1000}}) {  // pages, and a small block
    CudaArena made = MakeCudaArena("paged", 8 * bench.page, bench.device);
    made.order->Use(bench.stream);
    Block first = made.arena->Allocate(bytes);
    bench.Fill(first, 1, bench.stream);
    made.order->NoteWork();
    made.arena->Free(first);
    made.order->Use(other);
    Block second = made.arena->Allocate(bytes);
    EXPECT_EQ(Address(second), Address(first));
    bench.Fill(second, 2, other);
    // Whoever waits for the second stream has waited for the first as well: in the wrong order the
    // first fill would come now, over the second.
    driver->Check(driver->stream_synchronize(other), "cuStreamSynchronize");
    bench.Sync();
    EXPECT_EQ(int{bench.Read(second, 0)}, 2);
    made.arena->Free(second);
  }
  driver->stream_destroy(other);
}

TEST(MemoryIsTakenAwayOnlyWhenKernelsAreDone) {
  Bench bench;
  CudaArena made = MakeCudaArena("paged", 8 * bench.page, bench.device);
  made.order->Use(bench.stream);
  Block block = made.arena->Allocate(8 * bench.page);
  bench.Fill(block, 1, bench.stream);
  made.order->NoteWork();
  made.arena->Free(block);
  bool fits = false;
  made.arena->SetCapacity(bench.page, &fits);  // unmaps seven pages that the fill has yet to reach
  EXPECT(fits);
  EXPECT_EQ(made.arena->mapped(), bench.page);
  bench.Sync();  // an illegal address would show here
}

TEST(FreesOnOneStreamShareAnEvent) {
  Bench bench;
  CudaArena made = MakeCudaArena("paged", 8 * bench.page, bench.device);
  made.order->Use(bench.stream);
  std::vector<Block> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(made.arena->Allocate(bench.page));
  for (const Block& block : blocks) made.arena->Free(block);
  EXPECT_EQ(made.order->live_events(), 1u);
}

TEST(EverythingIsGivenBack) {
  if (!stand_in.objects) return;
  size_t before = stand_in.objects(), used = stand_in.used();
  {
    Bench bench;
    CudaArena made = MakeCudaArena("best-fit", 16 * bench.page, bench.device);
    made.order->Use(bench.stream);
    made.arena->Free(made.arena->Allocate(5 * bench.page));
    made.arena->Allocate(1);  // never freed: it goes with the arena
  }
  EXPECT_EQ(stand_in.objects(), before);
  EXPECT_EQ(stand_in.used(), used);
}

// Another process may hold the device's memory: there is none though the budget has room.
TEST(ADeviceThatIsFullRefusesAndRecovers) {
  if (!stand_in.fail) return;
  Bench bench;
  CudaArena made = MakeCudaArena("paged", 8 * bench.page, bench.device);
  size_t used = stand_in.used();
  stand_in.fail("cuMemCreate", 3, abi::kOutOfMemory);
  EXPECT(!made.arena->Allocate(4 * bench.page));
  EXPECT_EQ(stand_in.used(), used);  // the two pages it had are back
  EXPECT_EQ(made.arena->mapped(), 0u);
  Block block = made.arena->Allocate(4 * bench.page);
  EXPECT(static_cast<bool>(block));
  made.arena->Free(block);
}

TEST(OtherFailuresNameTheCall) {
  if (!stand_in.fail) return;
  Bench bench;
  for (const char* call : {"cuMemMap", "cuMemSetAccess", "cuMemCreate"}) {
    CudaArena made = MakeCudaArena("paged", 8 * bench.page, bench.device);
    stand_in.fail(call, 1, abi::kInvalidValue);
    std::string message;
    try {
      made.arena->Allocate(2 * bench.page);
    } catch (const DriverError& error) {
      message = error.what();
    }
    EXPECT(message.find(call) == 0);
    EXPECT(message.find("CUDA_ERROR_INVALID_VALUE") != std::string::npos);
  }
}

TEST(WhatCannotBeOpenedSaysWhatToDo) {
  std::string message;
  try {
    Driver missing("libcuda-that-is-not-there.so.1");
  } catch (const DriverError& error) {
    message = error.what();
  }
  EXPECT(message.find("install the NVIDIA driver, or use the CPU") != std::string::npos);
  EXPECT_THROWS(Driver("libm.so.6"), DriverError);  // opens, and has no cuInit
  EXPECT_THROWS(Device(driver, driver->device_count()), DriverError);
}

// The rules of the calls themselves, which the stand-in must keep as the driver does.
TEST(RulesOfTheCalls) {
  Bench bench;
  size_t page = bench.page;
  abi::AllocationProperties properties{};
  properties.type = abi::kPinned;
  properties.location = {abi::kLocationDevice, 0};
  abi::Handle handle = 0, second = 0;
  EXPECT(driver->create(&handle, page - 1, &properties, 0) != abi::kSuccess);
  EXPECT_EQ(driver->create(&handle, page, &properties, 0), abi::kSuccess);
  EXPECT_EQ(driver->create(&second, page, &properties, 0), abi::kSuccess);
  abi::DevicePointer at = 0;
  EXPECT_EQ(driver->address_reserve(&at, 4 * page, 0, 0, 0), abi::kSuccess);
  EXPECT(driver->map(at + 4096, page, 0, handle, 0) != abi::kSuccess);  // not a whole page
  EXPECT_EQ(driver->map(at, page, 0, handle, 0), abi::kSuccess);
  EXPECT(driver->map(at, page, 0, second, 0) != abi::kSuccess);  // over another
  unsigned char byte = 7;
  EXPECT(driver->copy_to_device(at, &byte, 1) != abi::kSuccess);  // before access
  abi::AccessDescription access{{abi::kLocationDevice, 0}, abi::kReadWrite};
  EXPECT(driver->set_access(at, 2 * page, &access, 1) != abi::kSuccess);  // half of it unmapped
  EXPECT_EQ(driver->set_access(at, page, &access, 1), abi::kSuccess);
  EXPECT_EQ(driver->copy_to_device(at, &byte, 1), abi::kSuccess);
  EXPECT(driver->address_free(at, 4 * page) != abi::kSuccess);  // something is mapped
  EXPECT_EQ(driver->unmap(at, page), abi::kSuccess);
  EXPECT(driver->unmap(at, page) != abi::kSuccess);
  // The same memory elsewhere has what was written, once access is set again.
  EXPECT_EQ(driver->map(at + 2 * page, page, 0, handle, 0), abi::kSuccess);
  EXPECT_EQ(driver->set_access(at + 2 * page, page, &access, 1), abi::kSuccess);
  byte = 0;
  EXPECT_EQ(driver->copy_to_host(&byte, at + 2 * page, 1), abi::kSuccess);
  EXPECT_EQ(int{byte}, 7);
  EXPECT_EQ(driver->unmap(at + 2 * page, page), abi::kSuccess);
  EXPECT_EQ(driver->release(handle), abi::kSuccess);
  EXPECT_EQ(driver->release(second), abi::kSuccess);
  EXPECT(driver->address_free(at, 3 * page) != abi::kSuccess);
  EXPECT_EQ(driver->address_free(at, 4 * page), abi::kSuccess);
}

// Random blocks, each filled on the device and read back, capacity and external memory changing.
TEST(Stress) {
  Bench bench;
  for (const std::string name : {"paged", "best-fit"}) {
    CudaArena made = MakeCudaArena(name, 16 * bench.page, bench.device);
    made.order->Use(bench.stream);
    std::mt19937_64 random(5);
    struct Live {
      Block block;
      int mark;
    };
    std::vector<Live> live;
    int refused = 0;
    for (int i = 0; i < 1500; ++i) {
      bool fits = false;
      if (i % 100 == 50) made.arena->SetCapacity((8 + random() % 8) * bench.page, &fits);
      if (live.empty() || random() % 5 < 3) {
        uint64_t bytes = 1 + random() % (random() % 2 ? 5000 : 3 * bench.page);
        Block block = made.arena->Allocate(bytes);
        if (!block) {
          ++refused;
          continue;
        }
        int mark = static_cast<int>(random() % 256);
        bench.Fill(block, mark, bench.stream);
        made.order->NoteWork();
        live.push_back({block, mark});
      } else {
        size_t which = random() % live.size();
        if (i % 10 == 0) {
          bench.Sync();
          EXPECT_EQ(int{bench.Read(live[which].block, live[which].block.bytes - 1)},
                    live[which].mark);
        }
        made.arena->Free(live[which].block);
        live[which] = live.back();
        live.pop_back();
      }
      EXPECT(made.arena->mapped() <= made.arena->capacity());
    }
    bench.Sync();
    for (const Live& l : live) {
      EXPECT_EQ(int{bench.Read(l.block, 0)}, l.mark);
      made.arena->Free(l.block);
    }
    EXPECT(refused > 10);
    EXPECT_EQ(made.arena->active(), 0u);
  }
}

namespace {

// Kernels of the runtime on the device: each fills its output with a hash of its inputs' values.
class FillExecutor : public dtr::Executor {
 public:
  FillExecutor(Bench* bench, dtr::cuda::StreamOrder* order) : bench_(bench), order_(order) {}
  void Run(const dtr::KernelCall& call) override {
    unsigned value = call.kernel;
    for (void* data : call.input_data) value = value * 31 + Read(data);
    for (void* data : call.output_data) {
      driver->Check(driver->set_async(reinterpret_cast<uintptr_t>(data),
                                      static_cast<unsigned char>(value), 1000, bench_->stream),
                    "cuMemsetD8Async");
    }
    order_->NoteWork();
  }
  unsigned char Read(void* data) {
    bench_->Sync();
    unsigned char value = 0;
    driver->Check(driver->copy_to_host(&value, reinterpret_cast<uintptr_t>(data) + 999, 1),
                  "cuMemcpyDtoH");
    return value;
  }

 private:
  Bench* bench_;
  dtr::cuda::StreamOrder* order_;
};

// A chain forward and back, as training makes it; the last value.
unsigned char RunChain(Bench* bench, uint64_t pages, const std::string& name,
                       const std::string& policy, uint64_t* evictions) {
  CudaArena made = MakeCudaArena(name, pages * bench->page, bench->device);
  made.order->Use(bench->stream);
  FillExecutor executor(bench, made.order);
  dtr::RuntimeOptions options;
  options.policy = policy;
  options.thrash_limit = 0;
  dtr::Runtime runtime(made.arena.get(), &executor, options);
  auto call = [&](uint32_t kernel, std::vector<dtr::TensorId> inputs) {
    dtr::StorageId storage = runtime.NewStorage(bench->page);
    std::vector<dtr::TensorId> outputs{runtime.NewTensor(storage)};
    runtime.ReleaseStorage(storage);
    runtime.Call(kernel, inputs, outputs, 1, 0);
    return outputs[0];
  };
  dtr::TensorId x = runtime.AddConstant(bench->page);
  unsigned char one[1000];
  std::memset(one, 1, sizeof one);
  driver->Check(driver->copy_to_device(reinterpret_cast<uintptr_t>(runtime.Data(x)), one, 1000),
                "cuMemcpyHtoD");
  std::vector<dtr::TensorId> forward{x};
  for (uint32_t i = 1; i <= 10; ++i) forward.push_back(call(i, {forward.back()}));
  dtr::TensorId back = call(20, {forward.back()});
  for (size_t i = forward.size() - 1; i-- > 1;) {
    dtr::TensorId next = call(static_cast<uint32_t>(20 + i), {back, forward[i]});
    runtime.Release(back);
    back = next;
  }
  EXPECT(made.arena->peak_mapped() <= pages * bench->page);
  *evictions = runtime.stats().evictions;
  return executor.Read(runtime.Data(back));
}

}  // namespace

TEST(TheRuntimeOnTheDeviceGivesTheSameValuesUnderABudget) {
  Bench bench;
  uint64_t evictions = 0;
  unsigned char expected = RunChain(&bench, 16, "paged", "dtr-eq", &evictions);
  EXPECT_EQ(evictions, 0u);
  for (const std::string policy : {"dtr-eq", "window"}) {
    const char* arena = policy == "window" ? "best-fit" : "paged";
    EXPECT_EQ(int{RunChain(&bench, 7, arena, policy, &evictions)}, int{expected});
    EXPECT(evictions > 0);
  }
}

int main(int argc, char** argv) {
  bool gpu = argc > 1 && std::string(argv[1]) == "--gpu";
  const char* named = std::getenv("DTR_CUDA_DRIVER");
  std::string library = gpu || !named ? Driver::kLibrary : named;
  try {
    driver = std::make_shared<Driver>(library);
  } catch (const DriverError& error) {
    std::cout << "skipped: " << error.what() << "\n";
    return gpu ? kSkipped : 1;
  }
  if (gpu && driver->device_count() == 0) {
    std::cout << "skipped: the driver has no device\n";
    return kSkipped;
  }
  if (void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_NOLOAD)) {
    auto resolve = [&](auto* function, const char* name) {
      *function =
          reinterpret_cast<std::remove_reference_t<decltype(*function)>>(dlsym(handle, name));
    };
    resolve(&stand_in.log, "stand_in_log");
    resolve(&stand_in.clear_log, "stand_in_clear_log");
    resolve(&stand_in.fail, "stand_in_fail");
    resolve(&stand_in.used, "stand_in_used");
    resolve(&stand_in.objects, "stand_in_objects");
  }
  return dtr_test::RunAll();
}
