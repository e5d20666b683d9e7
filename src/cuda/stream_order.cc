#include "cuda/stream_order.h"

namespace dtr::cuda {

StreamOrder::~StreamOrder() {
  for (const Moment& moment : events_) device_->driver().event_destroy(moment.event);
}

// A moment that nobody has waited for yet serves all frees up to the next work on its stream.
StreamOrder::Ticket StreamOrder::Now() {
  bool current = latest_ != kDone && latest_stream_ == stream_ && !work_since_event_ &&
                 events_[latest_].references > 0;
  if (current) {
    Retain(latest_);
    return latest_;
  }
  const Driver& driver = device_->driver();
  Ticket ticket = static_cast<Ticket>(events_.size());
  if (unused_.empty()) {
    abi::Event event;
    driver.Check(driver.event_create(&event, abi::kDisableTiming), "cuEventCreate");
    events_.push_back({event, nullptr, 0});
  } else {
    ticket = unused_.back();
    unused_.pop_back();
  }
  events_[ticket].stream = stream_;
  events_[ticket].references = 1;
  driver.Check(driver.event_record(events_[ticket].event, stream_), "cuEventRecord");
  latest_ = ticket;
  latest_stream_ = stream_;
  work_since_event_ = false;
  return ticket;
}

void StreamOrder::Retain(Ticket ticket) {
  if (ticket != kDone) ++events_[ticket].references;
}

void StreamOrder::Release(Ticket ticket) {
  if (ticket != kDone && --events_[ticket].references == 0) unused_.push_back(ticket);
}

void StreamOrder::StreamWait(Ticket ticket) {
  if (ticket == kDone || events_[ticket].stream == stream_) return;
  const Driver& driver = device_->driver();
  driver.Check(driver.stream_wait_event(stream_, events_[ticket].event, 0), "cuStreamWaitEvent");
  work_since_event_ = true;
}

void StreamOrder::HostWait(Ticket ticket) {
  if (ticket == kDone) return;
  const Driver& driver = device_->driver();
  driver.Check(driver.event_synchronize(events_[ticket].event), "cuEventSynchronize");
}

}  // namespace dtr::cuda
