// cache/choices.h
// Several ways to do the same -> the one that takes the least time, measured once and kept on disk.
//
// What is asked is a text that holds all that the times rest on: the operation, sizes, element types, how
// operands lie, the device, versions of libraries. Who asks brings the ways, the usual one first, and each
// measures itself. Times of a machine vary: so the ways are measured in turns, those far behind leave after
// the first turn, and another way than the usual one is taken only where it is clearly faster: its best time
// by kWins, and even its worst one is below the usual way's best. The answer holds for the process, and for
// others by way of the disk cache; the same question is never measured twice, so programs stay the same.
//
// Measuring is bounded by an allowance of seconds, which all questions of one program share. Where it is
// spent, the usual way is taken, and the question stays open for another program.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cache/disk_cache.h"
#include "support/export.h"

namespace bolt::cache {

/// One way to do it, and what it takes.
struct Way {
  std::string name;
  /// In nanoseconds, warm. Throws where it cannot be done so.
  std::function<double()> measure;
};

struct Choice {
  std::string name;   ///< of one of the ways
  std::string times;  ///< what was measured, in words; "": nothing was
};

class BOLT_API Allowance {
 public:
  /// Of so many seconds of measuring; `now`, in seconds: the steady clock where not given.
  explicit Allowance(double seconds, std::function<double()> now = {});
  bool is_spent() const { return left_ <= 0; }
  /// Runs it at the allowance's expense.
  void spend(const std::function<void()>& measuring);

 private:
  const std::function<double()> now_;
  std::atomic<double> left_;
};

class BOLT_API Choices {
 public:
  /// `disk`: nullptr: answers are this object's alone.
  explicit Choices(const DiskCache* disk) : disk_(disk) {}
  /// Of the process, in DiskCache::global() unless that is switched off.
  static Choices& global();

  /// The first way is the usual one. On any thread; one measures at a time.
  Choice choose(const std::string& question, const std::vector<Way>& ways, Allowance& allowance);

 private:
  std::optional<Choice> known(const std::string& key, const std::vector<Way>& ways);
  Choice kept(const std::string& key, const Choice& choice);

  const DiskCache* disk_;
  std::mutex measuring_;
  std::mutex mutex_;  // guards what follows
  std::map<std::string, Choice> known_;
};

}  // namespace bolt::cache
