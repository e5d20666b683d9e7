// Writes what the runtime does to a file while it happens: calls, memory, decisions.
//
// The file (docs/file-formats.md) is a header and records of 16 bytes. Records go through a buffer
// of fixed size that is written when it is full, when an invocation ends and at least every fifth
// of a second while events come, with a checksum behind it: after a crash or a kill the file holds
// all but the last of them, and whatever part of a record may stand at its end is ignored.
#ifndef TVM_DTR_CORE_EVENT_TRACE_H_
#define TVM_DTR_CORE_EVENT_TRACE_H_

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "core/runtime.h"

namespace dtr {

// Values are in bytes or nanoseconds. `storage`: a number given once to each storage, unlike
// StorageId, which is used again.
enum class TraceKind : uint8_t {
  kTime = 1,       // value: nanoseconds that pass beside the record's own
  kStep,           // id: the step that begins
  kStepEnd,        // id: the step; value: what it took by the caller's clock
  kInvoke,         // id: number of the call that comes next
  kInvokeEnd,      // id: an InvokeResult
  kCall,           // id: number of the call; aux: kernel; value: duration
  kRecompute,      // id: number of the call that ran first; aux: kernel; value: duration
  kStorage,        // id: storage; value: bytes asked for
  kAllocate,       // id: storage; value: bytes of its block
  kFree,           // id: storage; value: bytes of its block: nobody needs it any more
  kEvict,          // the same, for want of memory
  kUnreferenced,   // the same, with its history kept: its last reference went
  kWorkspace,      // value: bytes taken for the op at hand
  kWorkspaceFree,  // value: bytes given back
  kActive,         // value: bytes in use, where the records before do not add up to it
  kMapped,         // value: bytes mapped, when they have changed
  kPin,            // id: storage
  kUnpin,          // id: storage
  kView,           // id: storage
  kOverwrite,      // id: storage, written in place
  kDecision,       // id: storage chosen to go; aux: candidates, at most 65535; value: score
  kSearch,         // value: time for choosing and evicting
  kBudget,         // value: bytes; id 1: no budget
  kInput,          // id: storage; value: index of the function's parameter
  kOutput,         // id: storage; value: index of the function's result
  kMade,           // id: storage; aux: which output; value: number of the call it is an output of
  kNote,           // value: bytes of JSON that follow, filled up to a whole record; id: their check
  kCheck,          // id: records since the last check or note; value: a checksum of them
};

enum class InvokeResult : uint32_t { kOk, kBudgetError, kThrashError, kFailed };

class EventTrace : public Observer {
 public:
  // Begins the file with `header`, then all storages that `runtime` has now. Throws
  // std::runtime_error naming the path if it cannot be written. `runtime` must outlive the trace.
  EventTrace(const std::string& path, const std::string& header, const Runtime* runtime);
  ~EventTrace() override;
  EventTrace(const EventTrace&) = delete;
  EventTrace& operator=(const EventTrace&) = delete;

  void Step(uint32_t number);
  void StepEnd(uint32_t number, double seconds);
  void Invoke();
  void InvokeEnd(InvokeResult result);
  void Input(StorageId storage, uint32_t index) { Add(TraceKind::kInput, Number(storage), index); }
  void Output(StorageId storage, uint32_t index) {
    Add(TraceKind::kOutput, Number(storage), index);
  }
  void Note(const std::string& json);
  // Writes what is in the buffer. Empty, or why the file has ended early (a full disk).
  const std::string& Flush();

  void OnRun(OpId op, KernelId kernel, bool rematerialization, double seconds) override;
  void OnStorage(StorageId storage, uint64_t bytes) override;
  void OnAllocate(StorageId storage, uint64_t bytes) override;
  void OnFree(StorageId storage, uint64_t bytes, FreeReason reason) override;
  void OnMemory(uint64_t active_bytes) override;
  void OnPin(StorageId storage, bool pinned) override;
  void OnView(StorageId storage) override { Add(TraceKind::kView, Number(storage), 0); }
  void OnOverwrite(StorageId storage) override { Add(TraceKind::kOverwrite, Number(storage), 0); }
  void OnDecision(StorageId victim, double score, size_t candidates) override;
  void OnSearch(double seconds) override;
  void OnBudget(uint64_t bytes) override;

 private:
  using Clock = std::chrono::steady_clock;
  struct Record {
    uint32_t nanoseconds;  // since the record before
    uint8_t kind;
    uint8_t high;  // bits 32 to 39 of the value
    uint16_t aux;
    uint32_t id;
    uint32_t low;
  };
  static_assert(sizeof(Record) == 16, "records are written as they are");
  static constexpr size_t kBufferRecords = 4096;  // and one more for the check
  static constexpr uint64_t kFlushNanoseconds = 200'000'000;

  void Add(TraceKind kind, uint32_t id, uint64_t value, size_t aux = 0);
  // Of the same moment as the record before: spares a look at the clock.
  void AddAtOnce(TraceKind kind, uint32_t id, uint64_t value, size_t aux = 0) {
    Push(kind, 0, id, value, aux);
  }
  void Push(TraceKind kind, uint32_t nanoseconds, uint32_t id, uint64_t value, size_t aux);
  void Write(const void* data, size_t bytes);
  void NoteMapped();
  void NoteExisting();
  uint32_t Number(StorageId storage);

  const Runtime* runtime_;
  std::string path_, failure_;
  int file_ = -1;
  std::unique_ptr<Record[]> buffer_;
  size_t filled_ = 0;
  Clock::time_point last_;
  uint64_t unwritten_nanoseconds_ = 0;  // since the last flush
  uint64_t active_ = 0;                 // as the records so far add up to
  uint64_t mapped_ = 0;
  uint32_t next_call_ = 0, next_storage_ = 0;
  std::vector<uint32_t> call_of_, number_of_;  // by OpId, by StorageId
};

}  // namespace dtr

#endif  // TVM_DTR_CORE_EVENT_TRACE_H_
