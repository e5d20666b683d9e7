// A test double, not a CUDA driver: a shared library with the driver's virtual memory, stream and
// event calls over memfd and mmap, for tests on machines without a GPU. It keeps the real calls'
// rules and answers with their errors: granularity, whole mappings only, no mapping over another,
// no access before cuMemSetAccess, a physical size (STAND_IN_CUDA_BYTES, by default 256 MiB) and a
// current context. Device addresses are addresses of this process.
//
// Streams are as lazy as the real ones may be: what is queued runs only when somebody waits for it.
// What it then finds unmapped or without access is an illegal address, which from then on every
// call answers with, as on a device. Beside the driver's calls it exports stand_in_*: a log of
// calls, a call to be failed, what is mapped.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "cuda/driver_abi.h"

using namespace dtr::cuda::abi;  // NOLINT: the driver's names

namespace {

constexpr size_t kGranularity = 2 << 20;
constexpr size_t kHostPage = 4096;

struct Physical {
  int file;
  size_t bytes;
  int mappings = 0;
  bool released = false;
};
struct Mapping {
  size_t bytes;
  Handle handle;
  bool accessible = false;
};
struct EventState {
  Stream stream = nullptr;
  uint64_t place = 0;  // what of the stream must have run
  bool recorded = false;
};
struct StreamState {
  std::deque<std::function<void()>> queue;
  uint64_t queued = 0, run = 0;
};

struct State {
  bool initialized = false;
  Result sticky = kSuccess;
  size_t total = size_t{256} << 20, used = 0;
  int retained = 0;
  std::vector<Context> contexts;  // of the one thread that tests use
  std::map<DevicePointer, size_t> reservations;
  std::map<DevicePointer, Mapping> mappings;
  std::map<Handle, Physical> physical;
  Handle next_handle = 1;
  std::map<Stream, StreamState> streams{{nullptr, {}}};
  std::map<Event, EventState> events;
  uintptr_t next_object = 0x1000;
  std::string log;
  std::string failing_call;
  int failing_in = 0;
  Result failing_with = kSuccess;
};
State& Now() {
  static State* state = new State;  // never destroyed: calls may come late
  return *state;
}

Context TheContext() {
  static int context;
  return &context;
}

// What every call does first: log, the failure that was ordered, the state of the device.
Result Enter(const char* call, bool needs_context) {
  State& s = Now();
  s.log += std::string(s.log.empty() ? "" : " ") + call;
  if (s.failing_call == call && --s.failing_in == 0) return s.failing_with;
  if (!s.initialized) return kNotInitialized;
  if (s.sticky != kSuccess) return s.sticky;
  if (needs_context && s.contexts.empty()) return kInvalidContext;
  return kSuccess;
}
#define ENTER(needs_context)                                                \
  if (Result result = Enter(__func__, needs_context); result != kSuccess) { \
    return result;                                                          \
  }

void* Pointer(DevicePointer address) { return reinterpret_cast<void*>(address); }
bool Whole(uint64_t value) { return value % kGranularity == 0; }

bool Reserved(DevicePointer start, size_t bytes) {
  auto after = Now().reservations.upper_bound(start);
  if (after == Now().reservations.begin()) return false;
  --after;
  return start + bytes <= after->first + after->second;
}

// Calls f for each mapping if they cover [start, start + bytes) exactly, each of them whole.
template <typename F>
bool ForEachWholeMapping(DevicePointer start, size_t bytes, F f) {
  State& s = Now();
  DevicePointer at = start;
  for (auto m = s.mappings.find(start); at < start + bytes; ++m) {
    if (m == s.mappings.end() || m->first != at) return false;
    at += m->second.bytes;
  }
  if (at != start + bytes || bytes == 0) return false;
  for (at = start; at < start + bytes;) {
    auto m = s.mappings.find(at);
    at += m->second.bytes;
    f(m);
  }
  return true;
}

bool Accessible(DevicePointer start, size_t bytes) {
  State& s = Now();
  for (DevicePointer at = start; at < start + bytes;) {
    auto m = s.mappings.upper_bound(at);
    if (m == s.mappings.begin()) return false;
    --m;
    if (at >= m->first + m->second.bytes || !m->second.accessible) return false;
    at = m->first + m->second.bytes;
  }
  return true;
}

void DropIfUnused(Handle handle) {
  State& s = Now();
  Physical& p = s.physical.at(handle);
  if (!p.released || p.mappings > 0) return;
  close(p.file);
  s.used -= p.bytes;
  s.physical.erase(handle);
}

void RunUpTo(Stream stream, uint64_t place) {
  StreamState& s = Now().streams.at(stream);
  while (s.run < place && !s.queue.empty()) {
    auto work = std::move(s.queue.front());
    s.queue.pop_front();
    ++s.run;
    work();
  }
}

void Queue(Stream stream, std::function<void()> work) {
  StreamState& s = Now().streams.at(stream);
  s.queue.push_back(std::move(work));
  ++s.queued;
}

}  // namespace

extern "C" {

Result cuInit(unsigned flags) {
  if (flags) return kInvalidValue;
  State& s = Now();
  if (const char* bytes = std::getenv("STAND_IN_CUDA_BYTES"))
    s.total = std::strtoull(bytes, nullptr, 10);
  s.initialized = true;
  return kSuccess;
}

Result cuGetErrorName(Result error, const char** name) {
  static const std::map<Result, const char*> names = {
      {kSuccess, "CUDA_SUCCESS"},
      {kInvalidValue, "CUDA_ERROR_INVALID_VALUE"},
      {kOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY"},
      {kNotInitialized, "CUDA_ERROR_NOT_INITIALIZED"},
      {kInvalidDevice, "CUDA_ERROR_INVALID_DEVICE"},
      {kInvalidContext, "CUDA_ERROR_INVALID_CONTEXT"},
      {kInvalidHandle, "CUDA_ERROR_INVALID_HANDLE"},
      {kIllegalAddress, "CUDA_ERROR_ILLEGAL_ADDRESS"}};
  auto found = names.find(error);
  *name = found == names.end() ? nullptr : found->second;
  return found == names.end() ? kInvalidValue : kSuccess;
}
Result cuGetErrorString(Result error, const char** text) { return cuGetErrorName(error, text); }

Result cuDeviceGetCount(int* count) {
  ENTER(false);
  *count = 1;
  return kSuccess;
}
Result cuDeviceGet(Device* device, int ordinal) {
  ENTER(false);
  if (ordinal != 0) return kInvalidDevice;
  *device = 0;
  return kSuccess;
}
Result cuDeviceGetAttribute(int* value, int attribute, Device) {
  ENTER(false);
  *value = attribute == kVirtualMemory;
  return kSuccess;
}

Result cuDevicePrimaryCtxRetain(Context* context, Device device) {
  ENTER(false);
  if (device != 0) return kInvalidDevice;
  ++Now().retained;
  *context = TheContext();
  return kSuccess;
}
Result cuDevicePrimaryCtxRelease_v2(Device) {
  ENTER(false);
  if (Now().retained == 0) return kInvalidContext;
  --Now().retained;
  return kSuccess;
}
Result cuCtxPushCurrent_v2(Context context) {
  State& s = Now();
  if (context != TheContext() || s.retained == 0) return kInvalidContext;
  s.contexts.push_back(context);
  return kSuccess;
}
Result cuCtxPopCurrent_v2(Context* context) {
  State& s = Now();
  if (s.contexts.empty()) return kInvalidContext;
  *context = s.contexts.back();
  s.contexts.pop_back();
  return kSuccess;
}

Result cuMemGetAllocationGranularity(size_t* bytes, const AllocationProperties* p, int) {
  ENTER(true);
  if (p->type != kPinned || p->location.type != kLocationDevice) return kInvalidValue;
  if (p->location.id != 0) return kInvalidDevice;
  *bytes = kGranularity;
  return kSuccess;
}

Result cuMemAddressReserve(DevicePointer* start, size_t bytes, size_t alignment, DevicePointer,
                           unsigned long long flags) {
  ENTER(true);
  if (bytes == 0 || bytes % kHostPage || flags || (alignment & (alignment - 1))) {
    return kInvalidValue;
  }
  size_t align = std::max(alignment, kGranularity);
  void* data =
      mmap(nullptr, bytes + align, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) return kOutOfMemory;
  auto first = reinterpret_cast<DevicePointer>(data);
  *start = (first + align - 1) / align * align;
  if (*start > first) munmap(data, *start - first);
  munmap(Pointer(*start + bytes), first + align - *start);
  Now().reservations[*start] = bytes;
  return kSuccess;
}

Result cuMemAddressFree(DevicePointer start, size_t bytes) {
  ENTER(true);
  State& s = Now();
  auto found = s.reservations.find(start);
  if (found == s.reservations.end() || found->second != bytes) return kInvalidValue;
  auto mapped = s.mappings.lower_bound(start);
  if (mapped != s.mappings.end() && mapped->first < start + bytes) return kInvalidValue;
  munmap(Pointer(start), bytes);
  s.reservations.erase(found);
  return kSuccess;
}

Result cuMemCreate(Handle* handle, size_t bytes, const AllocationProperties* p,
                   unsigned long long flags) {
  ENTER(true);
  State& s = Now();
  if (bytes == 0 || !Whole(bytes) || flags || p->type != kPinned) return kInvalidValue;
  if (p->location.type != kLocationDevice || p->location.id != 0) return kInvalidDevice;
  if (bytes > s.total - s.used) return kOutOfMemory;
  int file = memfd_create("stand-in", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) return kOutOfMemory;
  s.used += bytes;
  *handle = s.next_handle++;
  s.physical[*handle] = {file, bytes};
  return kSuccess;
}

Result cuMemRelease(Handle handle) {
  ENTER(true);
  auto found = Now().physical.find(handle);
  if (found == Now().physical.end() || found->second.released) return kInvalidValue;
  found->second.released = true;
  DropIfUnused(handle);
  return kSuccess;
}

Result cuMemMap(DevicePointer start, size_t bytes, size_t offset, Handle handle,
                unsigned long long flags) {
  ENTER(true);
  State& s = Now();
  auto found = s.physical.find(handle);
  if (found == s.physical.end() || found->second.released) return kInvalidValue;
  if (bytes == 0 || !Whole(start) || !Whole(bytes) || offset != 0 || flags) return kInvalidValue;
  if (bytes > found->second.bytes || !Reserved(start, bytes)) return kInvalidValue;
  auto next = s.mappings.lower_bound(start);
  if (next != s.mappings.end() && next->first < start + bytes) return kInvalidValue;
  if (next != s.mappings.begin()) {
    auto previous = std::prev(next);
    if (previous->first + previous->second.bytes > start) return kInvalidValue;
  }
  void* data =
      mmap(Pointer(start), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, found->second.file, 0);
  if (data == MAP_FAILED) return kOutOfMemory;
  s.mappings[start] = {bytes, handle};
  ++found->second.mappings;
  return kSuccess;
}

Result cuMemSetAccess(DevicePointer start, size_t bytes, const AccessDescription* access,
                      size_t count) {
  ENTER(true);
  if (count != 1 || access->location.type != kLocationDevice) return kInvalidValue;
  if (access->location.id != 0) return kInvalidDevice;
  bool writable = access->flags == kReadWrite;
  bool covered = ForEachWholeMapping(start, bytes, [&](auto m) {
    m->second.accessible = writable;
    mprotect(Pointer(m->first), m->second.bytes, writable ? PROT_READ | PROT_WRITE : PROT_NONE);
  });
  return covered ? kSuccess : kInvalidValue;
}

Result cuMemUnmap(DevicePointer start, size_t bytes) {
  ENTER(true);
  State& s = Now();
  std::vector<DevicePointer> gone;
  if (!ForEachWholeMapping(start, bytes, [&](auto m) { gone.push_back(m->first); })) {
    return kInvalidValue;
  }
  for (DevicePointer at : gone) {
    Mapping mapping = s.mappings.at(at);
    mmap(Pointer(at), mapping.bytes, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    s.mappings.erase(at);
    --s.physical.at(mapping.handle).mappings;
    DropIfUnused(mapping.handle);
  }
  return kSuccess;
}

// Synchronous copies are ordered with the default stream only.
Result cuMemcpyHtoD_v2(DevicePointer to, const void* from, size_t bytes) {
  ENTER(true);
  RunUpTo(nullptr, Now().streams.at(nullptr).queued);
  if (!Accessible(to, bytes)) return kInvalidValue;
  std::memcpy(Pointer(to), from, bytes);
  return kSuccess;
}
Result cuMemcpyDtoH_v2(void* to, DevicePointer from, size_t bytes) {
  ENTER(true);
  RunUpTo(nullptr, Now().streams.at(nullptr).queued);
  if (!Accessible(from, bytes)) return kInvalidValue;
  std::memcpy(to, Pointer(from), bytes);
  return kSuccess;
}
Result cuMemsetD8Async(DevicePointer to, unsigned char value, size_t bytes, Stream stream) {
  ENTER(true);
  if (!Now().streams.count(stream)) return kInvalidHandle;
  Queue(stream, [=] {
    if (!Accessible(to, bytes)) {
      Now().sticky = kIllegalAddress;
      return;
    }
    std::memset(Pointer(to), value, bytes);
  });
  return kSuccess;
}

Result cuStreamCreate(Stream* stream, unsigned flags) {
  ENTER(true);
  if (flags > 1) return kInvalidValue;
  *stream = reinterpret_cast<Stream>(Now().next_object++);
  Now().streams[*stream];
  return kSuccess;
}
Result cuStreamSynchronize(Stream stream) {
  ENTER(true);
  if (!Now().streams.count(stream)) return kInvalidHandle;
  RunUpTo(stream, Now().streams.at(stream).queued);
  return Now().sticky;
}
Result cuStreamDestroy_v2(Stream stream) {
  ENTER(true);
  if (!stream || !Now().streams.count(stream)) return kInvalidHandle;
  RunUpTo(stream, Now().streams.at(stream).queued);
  Now().streams.erase(stream);
  return kSuccess;
}

Result cuEventCreate(Event* event, unsigned) {
  ENTER(true);
  *event = reinterpret_cast<Event>(Now().next_object++);
  Now().events[*event];
  return kSuccess;
}
Result cuEventDestroy_v2(Event event) {
  ENTER(false);
  return Now().events.erase(event) ? kSuccess : kInvalidHandle;
}
Result cuEventRecord(Event event, Stream stream) {
  ENTER(true);
  State& s = Now();
  if (!s.events.count(event) || !s.streams.count(stream)) return kInvalidHandle;
  s.events[event] = {stream, s.streams.at(stream).queued, true};
  return kSuccess;
}
Result cuEventSynchronize(Event event) {
  ENTER(true);
  State& s = Now();
  if (!s.events.count(event)) return kInvalidHandle;
  EventState e = s.events.at(event);
  if (e.recorded && s.streams.count(e.stream)) RunUpTo(e.stream, e.place);
  return s.sticky;
}
// The wait is for what the event means now, whatever is recorded in it later.
Result cuStreamWaitEvent(Stream stream, Event event, unsigned flags) {
  ENTER(true);
  State& s = Now();
  if (!s.events.count(event) || !s.streams.count(stream)) return kInvalidHandle;
  if (flags) return kInvalidValue;
  EventState e = s.events.at(event);
  if (!e.recorded) return kSuccess;
  Queue(stream, [e] {
    if (Now().streams.count(e.stream)) RunUpTo(e.stream, e.place);
  });
  return kSuccess;
}

// -- Of the stand-in's own ------------------------------------------------------------------------

const char* stand_in_log() { return Now().log.c_str(); }
void stand_in_clear_log() { Now().log.clear(); }
// The `nth` call of `call` from now on fails with `with`.
void stand_in_fail(const char* call, int nth, Result with) {
  Now().failing_call = call;
  Now().failing_in = nth;
  Now().failing_with = with;
}
size_t stand_in_used() { return Now().used; }
size_t stand_in_objects() {
  State& s = Now();
  return s.reservations.size() + s.mappings.size() + s.physical.size() + s.events.size() +
         static_cast<size_t>(s.retained) + s.contexts.size();
}

}  // extern "C"
