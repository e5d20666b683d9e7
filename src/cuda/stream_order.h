// When memory that kernels may still be using can be used again.
//
// A kernel runs behind the host: its operands may be freed, and their memory handed out again,
// before it has started. On the same stream that needs no care, for the next kernel starts when
// this one is done. Another stream must wait for an event; the host must wait for it before it
// takes the memory away.
#ifndef TVM_DTR_CUDA_STREAM_ORDER_H_
#define TVM_DTR_CUDA_STREAM_ORDER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "cuda/driver.h"

namespace dtr::cuda {

class StreamOrder {
 public:
  using Ticket = uint32_t;  // a moment of a stream; kDone: all that was asked for is over
  static constexpr Ticket kDone = ~uint32_t{0};

  explicit StreamOrder(std::shared_ptr<const Device> device) : device_(std::move(device)) {}
  ~StreamOrder();
  StreamOrder(const StreamOrder&) = delete;
  StreamOrder& operator=(const StreamOrder&) = delete;

  // The stream that work is queued on from now on.
  void Use(abi::Stream stream) { stream_ = stream; }
  // Something was queued on it. One event serves all that is freed until the next call.
  void NoteWork() { work_since_event_ = true; }

  // The present moment of the stream in use, with one reference.
  Ticket Now();
  void Retain(Ticket ticket);
  void Release(Ticket ticket);
  // The stream in use goes on only after the moment; nothing to do on the moment's own stream.
  void StreamWait(Ticket ticket);
  // The host goes on only after the moment.
  void HostWait(Ticket ticket);

  size_t live_events() const { return events_.size() - unused_.size(); }

 private:
  struct Moment {
    abi::Event event = nullptr;
    abi::Stream stream = nullptr;
    uint32_t references = 0;
  };

  std::shared_ptr<const Device> device_;
  abi::Stream stream_ = nullptr;
  bool work_since_event_ = false;
  Ticket latest_ = kDone;  // of stream_, if no work came since
  abi::Stream latest_stream_ = nullptr;
  std::vector<Moment> events_;
  std::vector<Ticket> unused_;  // their events are recorded again
};

}  // namespace dtr::cuda

#endif  // TVM_DTR_CUDA_STREAM_ORDER_H_
