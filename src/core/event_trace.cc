#include "core/event_trace.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <stdexcept>

namespace dtr {
namespace {

constexpr uint64_t kMostValue = (uint64_t{1} << 40) - 1;  // what a record holds

uint64_t Nanoseconds(double seconds) {
  return static_cast<uint64_t>(std::llround(std::max(0.0, seconds) * 1e9));
}

// 40 bits over whole records: the sum of their 64-bit words and the sum of those sums (Fletcher,
// 1982), mixed.
uint64_t Checksum(const void* records, size_t bytes) {
  auto* data = static_cast<const char*>(records);
  uint64_t first = 0, second = 0;
  for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
    uint64_t word;
    std::memcpy(&word, data + at, sizeof word);
    second += first += word;
  }
  return ((first ^ (second << 32 | second >> 32)) * 0x9E3779B97F4A7C15u) >> 24;
}

template <typename T>
void SetAt(std::vector<T>* values, size_t index, T value) {
  if (values->size() <= index) values->resize(index + 1, kNone);
  (*values)[index] = value;
}

}  // namespace

EventTrace::EventTrace(const std::string& path, const std::string& header, const Runtime* runtime)
    : runtime_(runtime),
      path_(path),
      file_(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)),
      buffer_(new Record[kBufferRecords + 1]),
      last_(Clock::now()) {
  if (file_ < 0) throw std::runtime_error(path + ": " + std::strerror(errno));
  Write(header.data(), header.size());
  if (!failure_.empty()) {
    close(file_);
    throw std::runtime_error(failure_);
  }
  NoteExisting();
}

EventTrace::~EventTrace() {
  Flush();
  if (file_ >= 0) close(file_);
}

void EventTrace::NoteExisting() {
  const Graph& graph = runtime_->graph();
  for (StorageId s = 0; s < graph.storage_capacity(); ++s) {
    const Storage& storage = graph.storage(s);
    if (!storage.live) continue;
    OnStorage(s, storage.bytes);
    if (storage.resident) OnAllocate(s, storage.block.bytes);
    if (storage.pins > 0) OnPin(s, true);
  }
  OnBudget(runtime_->arena().capacity());
  OnMemory(runtime_->arena().active());
}

void EventTrace::Step(uint32_t number) { Add(TraceKind::kStep, number, 0); }

void EventTrace::StepEnd(uint32_t number, double seconds) {
  Add(TraceKind::kStepEnd, number, Nanoseconds(seconds));
  Flush();
}

void EventTrace::Invoke() { Add(TraceKind::kInvoke, next_call_, 0); }

void EventTrace::InvokeEnd(InvokeResult result) {
  NoteMapped();
  Add(TraceKind::kInvokeEnd, static_cast<uint32_t>(result), 0);
  Flush();
}

void EventTrace::Note(const std::string& json) {
  Flush();
  std::string text = json;
  text.resize((json.size() + sizeof(Record) - 1) / sizeof(Record) * sizeof(Record), ' ');
  const auto check = static_cast<uint32_t>(Checksum(text.data(), text.size()) >> 8);
  const Record record = {0,     static_cast<uint8_t>(TraceKind::kNote), 0, 0,
                         check, static_cast<uint32_t>(json.size())};
  Write(&record, sizeof record);
  Write(text.data(), text.size());
}

// -- What the runtime tells -----------------------------------------------------------------------

void EventTrace::OnRun(OpId op, KernelId kernel, bool rematerialization, double seconds) {
  if (!rematerialization) SetAt(&call_of_, op, next_call_++);
  const uint32_t call = op < call_of_.size() ? call_of_[op] : kNone;
  Add(rematerialization ? TraceKind::kRecompute : TraceKind::kCall, call, Nanoseconds(seconds),
      kernel);
  if (rematerialization) return;
  const Graph& graph = runtime_->graph();
  size_t position = 0;
  for (TensorId output : graph.op(op).outputs) {
    AddAtOnce(TraceKind::kMade, Number(graph.tensor(output).storage), call, position++);
  }
}

void EventTrace::OnStorage(StorageId storage, uint64_t bytes) {
  SetAt(&number_of_, storage, next_storage_);
  Add(TraceKind::kStorage, next_storage_++, bytes);
}

void EventTrace::OnAllocate(StorageId storage, uint64_t bytes) {
  active_ += bytes;
  if (storage == kNone) {
    Add(TraceKind::kWorkspace, 0, bytes);
  } else {
    Add(TraceKind::kAllocate, Number(storage), bytes);
  }
  OnMemory(runtime_->arena().active());
}

void EventTrace::OnFree(StorageId storage, uint64_t bytes, FreeReason reason) {
  active_ -= bytes;
  static constexpr TraceKind kKinds[] = {TraceKind::kFree, TraceKind::kEvict,
                                         TraceKind::kUnreferenced};
  if (storage == kNone) {
    Add(TraceKind::kWorkspaceFree, 0, bytes);
  } else {
    Add(kKinds[static_cast<int>(reason)], Number(storage), bytes);
  }
  OnMemory(runtime_->arena().active());
}

// Blocks share pages, so blocks do not add up to what is in use.
void EventTrace::OnMemory(uint64_t active_bytes) {
  if (active_bytes != active_) AddAtOnce(TraceKind::kActive, 0, active_bytes);
  active_ = active_bytes;
  NoteMapped();
}

void EventTrace::OnPin(StorageId storage, bool pinned) {
  Add(pinned ? TraceKind::kPin : TraceKind::kUnpin, Number(storage), 0);
}

void EventTrace::OnDecision(StorageId victim, double score, size_t candidates) {
  auto single = static_cast<float>(score);
  uint32_t bits;
  std::memcpy(&bits, &single, sizeof bits);
  Add(TraceKind::kDecision, Number(victim), bits, candidates);
}

void EventTrace::OnSearch(double seconds) { Add(TraceKind::kSearch, 0, Nanoseconds(seconds)); }

void EventTrace::OnBudget(uint64_t bytes) {
  const bool unlimited = bytes == kUnlimited;
  Add(TraceKind::kBudget, unlimited, unlimited ? 0 : bytes);
}

// -- Records --------------------------------------------------------------------------------------

void EventTrace::NoteMapped() {
  uint64_t mapped = runtime_->arena().mapped();
  if (mapped != mapped_) AddAtOnce(TraceKind::kMapped, 0, mapped_ = mapped);
}

uint32_t EventTrace::Number(StorageId storage) {
  return storage < number_of_.size() ? number_of_[storage] : kNone;
}

void EventTrace::Add(TraceKind kind, uint32_t id, uint64_t value, size_t aux) {
  const Clock::time_point now = Clock::now();
  auto passed = static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(now - last_).count());
  last_ = now;
  unwritten_nanoseconds_ += passed;
  if (passed > UINT32_MAX) {
    Push(TraceKind::kTime, 0, 0, passed, 0);
    passed = 0;
  }
  Push(kind, static_cast<uint32_t>(passed), id, value, aux);
  if (unwritten_nanoseconds_ > kFlushNanoseconds) Flush();
}

void EventTrace::Push(TraceKind kind, uint32_t nanoseconds, uint32_t id, uint64_t value,
                      size_t aux) {
  if (filled_ == kBufferRecords) Flush();
  value = std::min(value, kMostValue);
  buffer_[filled_++] = {nanoseconds,
                        static_cast<uint8_t>(kind),
                        static_cast<uint8_t>(value >> 32),
                        static_cast<uint16_t>(std::min<size_t>(aux, UINT16_MAX)),
                        id,
                        static_cast<uint32_t>(value)};
}

const std::string& EventTrace::Flush() {
  if (filled_ > 0) {
    const uint64_t check = Checksum(buffer_.get(), filled_ * sizeof(Record));
    buffer_[filled_] = {
        0, static_cast<uint8_t>(TraceKind::kCheck), static_cast<uint8_t>(check >> 32),
        0, static_cast<uint32_t>(filled_),          static_cast<uint32_t>(check)};
    Write(buffer_.get(), (filled_ + 1) * sizeof(Record));
  }
  filled_ = 0;
  unwritten_nanoseconds_ = 0;
  return failure_;
}

// After a failure nothing more is written: what is in the file stays readable.
void EventTrace::Write(const void* data, size_t bytes) {
  auto* next = static_cast<const char*>(data);
  while (bytes > 0 && failure_.empty()) {
    ssize_t written = write(file_, next, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      failure_ = path_ + ": " + std::strerror(errno);
      return;
    }
    next += written;
    bytes -= static_cast<size_t>(written);
  }
}

}  // namespace dtr
