// device/driver/turns.cpp
#include "device/driver/turns.h"

namespace bolt::device {

Turns::Answer Turns::ask() {
  const std::lock_guard lock(mutex_);
  if (taken_) return elsewhere_ ? Answer::without : Answer::not_now;
  taken_ = true;
  return Answer::yours;
}

bool Turns::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !taken_ || elsewhere_; });
  if (taken_) return false;
  return taken_ = true;
}

void Turns::give_back() {
  {
    const std::lock_guard lock(mutex_);
    taken_ = false;
  }
  changed_.notify_one();
}

void Turns::elsewhere(bool is) {
  {
    const std::lock_guard lock(mutex_);
    elsewhere_ = is;
  }
  if (is) changed_.notify_all();
}

}  // namespace bolt::device
