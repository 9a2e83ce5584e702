// support/background.cpp
#include "support/background.h"

#include <pthread.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

namespace bolt {
namespace {

// Never destroyed: the thread may outlive static destruction, and waits for work then until the process ends.
struct JobQueue {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> jobs;
  int running = 0, elsewhere = 0;  ///< jobs; compilations of other threads
  bool started = false;
  bool stopped = false;  ///< for good

  void work() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return !jobs.empty(); });
      auto job = std::move(jobs.front());
      jobs.pop_front();
      ++running;
      lock.unlock();
      job();
      job = nullptr;
      lock.lock();
      --running;
      changed.notify_all();
    }
  }
};

JobQueue* queue = new JobQueue();

// A forked child has no worker: it starts its own.
void after_fork() { queue = new JobQueue(); }

}  // namespace

void run_in_background(std::function<void()> job) {
  static const int registered = pthread_atfork(nullptr, nullptr, after_fork);
  (void)registered;
  std::lock_guard lock(queue->mutex);
  if (queue->stopped) return;
  if (!queue->started) {
    queue->started = true;
    std::thread([q = queue] { q->work(); }).detach();
  }
  queue->jobs.push_back(std::move(job));
  queue->changed.notify_all();
}

void wait_for_background() {
  std::unique_lock lock(queue->mutex);
  queue->changed.wait(lock, [] { return queue->jobs.empty() && queue->running == 0; });
}

void stop_background() {
  std::deque<std::function<void()>> dropped;  // may want Python's lock, whose holder may want this one
  {
    std::lock_guard lock(queue->mutex);
    queue->stopped = true;
    dropped.swap(queue->jobs);
  }
  dropped.clear();
  std::unique_lock lock(queue->mutex);
  queue->changed.wait(lock, [] { return queue->running == 0 && queue->elsewhere == 0; });
}

CompilationHere::CompilationHere() {
  std::lock_guard lock(queue->mutex);
  may_begin_ = !queue->stopped;
  queue->elsewhere += may_begin_;
}

CompilationHere::~CompilationHere() {
  std::lock_guard lock(queue->mutex);
  queue->elsewhere -= may_begin_;
  queue->changed.notify_all();
}

}  // namespace bolt
