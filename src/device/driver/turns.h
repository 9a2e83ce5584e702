// device/driver/turns.h
// Threads that share something -> one of them at a time, without a deadlock.
//
// Who has the turn may call code of others' meanwhile, which may wait for another thread (a backward pass
// within an operator does). If that thread waited for the turn, both would for ever. So who calls such code
// says so (`Elsewhere`), and until it is back nobody waits: they do without, as they can.
#pragma once

#include <condition_variable>
#include <mutex>

#include "support/export.h"

namespace bolt::device {

class BOLT_API Turns {
 public:
  Turns() = default;
  Turns(const Turns&) = delete;

  enum class Answer : uint8_t { yours, not_now, without };
  /// not_now: somebody has it. without: and is elsewhere, perhaps for good.
  Answer ask();
  /// Waits. False: without.
  bool wait();
  void give_back();
  void elsewhere(bool is);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool taken_ = false, elsewhere_ = false;
};

/// A turn, or none, for as long as it lives.
class Turn {
 public:
  Turn() = default;
  explicit Turn(Turns* turns) : turns_(turns) {}
  Turn(Turn&& other) noexcept : turns_(other.turns_) { other.turns_ = nullptr; }
  Turn& operator=(Turn&&) = delete;
  ~Turn() {
    if (turns_) turns_->give_back();
  }
  explicit operator bool() const { return turns_; }

  /// Who has the turn calls code of others'.
  class Elsewhere {
   public:
    explicit Elsewhere(const Turn& turn) : turns_(turn.turns_) { turns_->elsewhere(true); }
    ~Elsewhere() { turns_->elsewhere(false); }
    Elsewhere(const Elsewhere&) = delete;

   private:
    Turns* const turns_;
  };

 private:
  Turns* turns_ = nullptr;
};

}  // namespace bolt::device
