// Seconds since it was made; off in simulations, where reading the clock is most of the work.
#ifndef TVM_DTR_CORE_TIMER_H_
#define TVM_DTR_CORE_TIMER_H_

#include <chrono>

namespace dtr {

class Timer {
 public:
  explicit Timer(bool on) : on_(on) {
    if (on_) start_ = std::chrono::steady_clock::now();
  }
  double Seconds() const {
    if (!on_) return 0;
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  bool on_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace dtr

#endif  // TVM_DTR_CORE_TIMER_H_
