// tests/cuda/emulate/threads.cpp
// See threads.h. A fault (memory that nobody owns, a check of the compiler's) leaves the launch from where it
// happens, by a jump over all stacks: nothing on them owns anything.

#include "threads.h"

#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <memory>
#include <vector>

namespace emulated {
namespace {

constexpr int kLanes = 32;
constexpr size_t kStackBytes = 256 << 10;

// ---- stacks

#ifdef __x86_64__
/// Leaves what must outlive a call on this stack, `*here`, and takes it up on the other.
extern "C" void bolt_emulated_switch(void** here, void* there);
asm(R"(
.text
.type bolt_emulated_switch, @function
bolt_emulated_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size bolt_emulated_switch, .-bolt_emulated_switch
)");

class Stack {
 public:
  void make(char* bottom, size_t bytes, void (*body)()) {
    auto* top = reinterpret_cast<void**>(bottom + bytes) - 1;  // where a call would have left its return
    *top = nullptr;
    *--top = reinterpret_cast<void*>(body);
    for (int saved = 0; saved < 6; ++saved) *--top = nullptr;
    inside_ = top;
  }
  void enter() { bolt_emulated_switch(&outside_, inside_); }
  void leave() { bolt_emulated_switch(&inside_, outside_); }

 private:
  void *inside_ = nullptr, *outside_ = nullptr;
};
#else
/// Switches by the C library, which asks the system about signals each time.
class Stack {
 public:
  void make(char* bottom, size_t bytes, void (*body)()) {
    getcontext(&inside_);
    inside_.uc_stack.ss_sp = bottom;
    inside_.uc_stack.ss_size = bytes;
    inside_.uc_link = nullptr;
    makecontext(&inside_, body, 0);
  }
  void enter() { swapcontext(&outside_, &inside_); }
  void leave() { swapcontext(&inside_, &outside_); }

 private:
  ucontext_t inside_, outside_;
};
#endif

/// A stack whose body never returns. Below it lies memory that nobody owns.
class Fiber {
 public:
  explicit Fiber(void (*body)()) {
    void* at = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                    -1, 0);
    memory_ = static_cast<char*>(at);
    mprotect(memory_, 4096, PROT_NONE);
    stack_.make(memory_, kStackBytes, body);
  }
  ~Fiber() { munmap(memory_, kStackBytes); }
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  void enter() { stack_.enter(); }
  void leave() { stack_.leave(); }

 private:
  char* memory_;
  Stack stack_;
};

// ---- threads

enum class State : uint8_t { New, Ready, WaitsForWarp, WaitsForBlock, WaitsForCluster, Ended };

/// At the cluster's barrier, which all have come to once it is complete.
enum class Arrival : uint8_t { None, Arrived, Complete };

struct Thread {
  State state = State::New;
  Fiber* fiber = nullptr;
  uint64_t bits = 0;  // what it brings to an exchange, and then what it gets
  Arrival arrival = Arrival::None;
};

struct Warp {
  int arrived = 0, by = 0;
  Exchange how = kXor;
};

struct Block {
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  int live = 0, waiting = 0;
  std::vector<char> shared;  // while another block runs
};

class Grid {
 public:
  std::string run(const Launch& launch);

  void wait_for_block();
  uint64_t exchange(Exchange how, unsigned mask, uint64_t bits, int by);
  void cluster_arrive();
  void cluster_wait();
  unsigned place_in_block(const void* mine, int block);
  unsigned word_of_block(unsigned place);
  [[noreturn]] void fail(const std::string& what);
  std::string place(const char* address) const { return l_->place(address); }

 private:
  void run_cluster(unsigned first);
  void begin(Block& block);
  bool run_block(size_t number);
  bool run_warp(Block& block, size_t warp);
  void go_on(size_t thread);
  static void body();
  void wait(State state);
  size_t in_order(size_t i, size_t count) const { return l_->backwards ? count - 1 - i : i; }
  bool all_ended() const;
  std::string who_waits() const;
  void check_shared();
  /// The pieces of what a block of this launch shares: all but the rest of the dynamic part.
  template <typename F>
  void each_shared(const F& piece) const {
    const size_t dynamic = l_->dynamic ? static_cast<size_t>(l_->dynamic - l_->shared) : l_->shared_bytes;
    piece(0, dynamic + l_->dynamic_bytes);
    if (l_->dynamic && dynamic + kMostShared < l_->shared_bytes)
      piece(dynamic + kMostShared, l_->shared_bytes - dynamic - kMostShared);
  }

  const Launch* l_ = nullptr;
  std::vector<Block> blocks_;  // of one cluster
  unsigned first_ = 0;
  int arrived_ = 0;  // of a cluster's threads
  size_t block_ = 0, thread_ = 0;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> free_;
  sigjmp_buf out_;
  std::string wrong_;
};

/// The one that runs; a function that a signal calls is given no other way to it.
Grid* current = nullptr;

void Grid::fail(const std::string& what) {
  const Module& m = *l_->module;
  wrong_ = "block " + std::to_string(m.block.x) + " of " + std::to_string(l_->blocks) + ", thread " +
           std::to_string(m.thread.x) + " of " + std::to_string(l_->threads) + ": " + what;
  siglongjmp(out_, 1);
}

void Grid::body() {
  for (;;) {
    Grid& g = *current;
    g.l_->kernel->run(g.l_->arguments);
    Block& block = g.blocks_[g.block_];
    Thread& thread = block.threads[g.thread_];
    thread.state = State::Ended;
    --block.live;
    g.free_.push_back(thread.fiber);
    thread.fiber->leave();
  }
}

void Grid::go_on(size_t thread) {
  Thread& t = blocks_[block_].threads[thread];
  if (t.state == State::New) {
    if (free_.empty()) {
      fibers_.push_back(std::make_unique<Fiber>(&Grid::body));
      free_.push_back(fibers_.back().get());
    }
    t.fiber = free_.back();
    free_.pop_back();
  }
  t.state = State::Ready;
  thread_ = thread;
  l_->module->thread = {static_cast<unsigned>(thread), 0, 0};
  t.fiber->enter();
}

void Grid::wait(State state) {
  Thread& t = blocks_[block_].threads[thread_];
  t.state = state;
  t.fiber->leave();
}

void Grid::wait_for_block() {
  ++blocks_[block_].waiting;
  wait(State::WaitsForBlock);
}

uint64_t Grid::exchange(Exchange how, unsigned mask, uint64_t bits, int by) {
  Block& block = blocks_[block_];
  const size_t first = thread_ / kLanes * kLanes;
  Warp& warp = block.warps[thread_ / kLanes];
  Thread& mine = block.threads[thread_];
  if (mask != ~0u) fail("an exchange of some lanes only, which is not emulated");
  if (first + kLanes > block.threads.size()) fail("an exchange of 32 lanes in a warp that has fewer");
  if (warp.arrived > 0 && (warp.how != how || warp.by != by))
    fail("an exchange where other lanes of the warp are at another one");
  warp.how = how;
  warp.by = by;
  mine.bits = bits;
  if (++warp.arrived < kLanes) {
    wait(State::WaitsForWarp);
    return mine.bits;
  }
  std::array<uint64_t, kLanes> all{};
  for (int lane = 0; lane < kLanes; ++lane) all[lane] = block.threads[first + lane].bits;
  for (int lane = 0; lane < kLanes; ++lane) {
    const int from = how == kXor ? lane ^ by : how == kUp ? lane - by : by % kLanes;
    Thread& t = block.threads[first + lane];
    t.bits = all[from >= 0 && from < kLanes ? from : lane];
    t.state = State::Ready;
  }
  warp.arrived = 0;
  return mine.bits;
}

void Grid::cluster_arrive() {
  Thread& t = blocks_[block_].threads[thread_];
  if (t.arrival != Arrival::None) fail("arrives at its cluster's barrier twice without waiting");
  t.arrival = Arrival::Arrived;
  ++arrived_;
}

void Grid::cluster_wait() {
  Thread& t = blocks_[block_].threads[thread_];
  if (t.arrival == Arrival::None) fail("waits at its cluster's barrier without arriving");
  if (t.arrival == Arrival::Arrived) wait(State::WaitsForCluster);
  t.arrival = Arrival::None;
}

/// The block's number in the cluster and, behind it, where its memory is meant.
constexpr unsigned kBlockAt = 24, kWithin = (1u << kBlockAt) - 1;

unsigned Grid::place_in_block(const void* mine, int block) {
  const auto at = static_cast<size_t>(static_cast<const char*>(mine) - l_->shared);
  if (at >= l_->shared_bytes) fail("asks where another block has what is not shared");
  if (block < 0 || static_cast<size_t>(block) >= blocks_.size())
    fail("asks for a block that its cluster has not");
  return static_cast<unsigned>(block) << kBlockAt | static_cast<unsigned>(at);
}

unsigned Grid::word_of_block(unsigned place) {
  const size_t number = place >> kBlockAt;
  const Block& block = blocks_[number];
  if (block.live == 0) fail("reads what a block shares that has ended");
  unsigned word = 0;
  std::memcpy(&word, (number == block_ ? l_->shared : block.shared.data()) + (place & kWithin), sizeof word);
  return word;
}

void Grid::begin(Block& block) {
  const int threads = static_cast<int>(l_->threads);
  block.threads.assign(l_->threads, Thread());
  block.warps.assign((l_->threads + kLanes - 1) / kLanes, Warp());
  block.live = threads;
  block.waiting = 0;
  if (blocks_.size() > 1)
    block.shared.assign(l_->shared_bytes, static_cast<char>(kRubbish));
  else
    each_shared([&](size_t at, size_t bytes) { std::memset(l_->shared + at, kRubbish, bytes); });
}

bool Grid::run_warp(Block& block, size_t warp) {
  const size_t first = warp * kLanes, count = std::min<size_t>(kLanes, block.threads.size() - first);
  bool any = false;
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t i = 0; i < count; ++i) {
      const size_t thread = first + in_order(i, count);
      const State state = block.threads[thread].state;
      if (state != State::New && state != State::Ready) continue;
      go_on(thread);
      any = moved = true;
    }
  }
  return any;
}

/// As far as its threads come without other blocks.
bool Grid::run_block(size_t number) {
  Block& block = blocks_[number];
  if (block.live == 0) return false;
  block_ = number;
  l_->module->block = {first_ + static_cast<unsigned>(number), 0, 0};
  if (blocks_.size() > 1)
    each_shared([&](size_t at, size_t bytes) { std::memcpy(l_->shared + at, &block.shared[at], bytes); });
  bool any = false;
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t w = 0; w < block.warps.size(); ++w) moved |= run_warp(block, in_order(w, block.warps.size()));
    // Those that have ended are not waited for.
    if (block.waiting > 0 && block.waiting == block.live) {
      for (Thread& t : block.threads)
        if (t.state == State::WaitsForBlock) t.state = State::Ready;
      block.waiting = 0;
      moved = true;
    }
    any |= moved;
  }
  if (blocks_.size() > 1)
    each_shared([&](size_t at, size_t bytes) { std::memcpy(&block.shared[at], l_->shared + at, bytes); });
  return any;
}

/// What the launch has not asked for stays as it is.
void Grid::check_shared() {
  for (size_t i = l_->dynamic_bytes; l_->dynamic && i < kMostShared; ++i)
    if (static_cast<unsigned char>(l_->dynamic[i]) != kRubbish)
      fail("a block wrote " + std::to_string(i - l_->dynamic_bytes) + " bytes behind its shared memory");
}

bool Grid::all_ended() const {
  for (const Block& b : blocks_)
    if (b.live > 0) return false;
  return true;
}

std::string Grid::who_waits() const {
  int warp = 0, block = 0, cluster = 0;
  for (const Block& b : blocks_)
    for (const Thread& t : b.threads) {
      warp += t.state == State::WaitsForWarp;
      block += t.state == State::WaitsForBlock;
      cluster += t.state == State::WaitsForCluster;
    }
  return "no thread can go on: " + std::to_string(warp) + " wait for their warp, " + std::to_string(block) +
         " for their block, " + std::to_string(cluster) + " for their cluster";
}

void Grid::run_cluster(unsigned first) {
  first_ = first;
  arrived_ = 0;
  for (Block& b : blocks_) begin(b);
  while (!all_ended()) {
    bool moved = false;
    for (size_t b = 0; b < blocks_.size(); ++b) moved |= run_block(in_order(b, blocks_.size()));
    int live = 0;
    for (const Block& b : blocks_) live += b.live;
    if (live > 0 && arrived_ == live) {
      arrived_ = 0;
      for (Block& b : blocks_)
        for (Thread& t : b.threads) {
          if (t.arrival == Arrival::Arrived) t.arrival = Arrival::Complete;
          if (t.state == State::WaitsForCluster) t.state = State::Ready, moved = true;
        }
    }
    if (!moved) fail(who_waits());
  }
}

void faulted(int signal, siginfo_t* info, void* context) {
  const auto* address = static_cast<const char*>(info->si_addr);
  std::string did = "touched ";
#if defined(__x86_64__) && defined(REG_ERR)
  did = static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & 2 ? "wrote " : "read ";
#endif
  if (signal == SIGFPE) current->fail("divided an integer by zero, or the smallest by -1");
  if (signal == SIGILL) current->fail("met an instruction that is none");
  current->fail(did + current->place(address));
}

/// Faults are caught while it lives, on a stack of their own: the one in use may be what is at fault.
class Faults {
 public:
  Faults() : stack_(64 << 10) {
    stack_t mine{};
    mine.ss_sp = stack_.data();
    mine.ss_size = stack_.size();
    sigaltstack(&mine, &stack_before_);
    struct sigaction action{};
    action.sa_sigaction = &faulted;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &action, &before_[i]);
  }
  ~Faults() {
    for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &before_[i], nullptr);
    sigaltstack(&stack_before_, nullptr);
  }
  Faults(const Faults&) = delete;
  Faults& operator=(const Faults&) = delete;

 private:
  static constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
  std::vector<char> stack_;
  stack_t stack_before_{};
  struct sigaction before_[std::size(kSignals)]{};
};

std::string Grid::run(const Launch& launch) {
  l_ = &launch;
  wrong_.clear();
  blocks_.resize(static_cast<size_t>(launch.kernel->cluster));
  launch.module->threads = {launch.threads, 1, 1};
  launch.module->blocks = {launch.blocks, 1, 1};
  const auto step = static_cast<unsigned>(launch.kernel->cluster), clusters = launch.blocks / step;
  const Faults caught;
  if (sigsetjmp(out_, 1)) {
    // Those stacks are in the middle of something.
    free_.clear();
    fibers_.clear();
    return wrong_;
  }
  std::memset(launch.shared, kRubbish, launch.shared_bytes);
  for (unsigned i = 0; i < clusters; ++i) run_cluster(static_cast<unsigned>(in_order(i, clusters)) * step);
  check_shared();
  return "";
}

}  // namespace

std::string run(const Launch& launch) {
  static Grid grid;
  static constexpr Device device = {
      [] { current->wait_for_block(); },
      [](Exchange how, unsigned mask, unsigned long long bits, int by) -> unsigned long long {
        return current->exchange(how, mask, bits, by);
      },
      [] { current->cluster_arrive(); },
      [] { current->cluster_wait(); },
      [](const void* mine, int block) { return current->place_in_block(mine, block); },
      [](unsigned place) { return current->word_of_block(place); },
      [](unsigned line, const char* what, unsigned long long where) {
        current->fail("line " + std::to_string(line) + " of the text: " + what + " (" +
                      std::to_string(where) + ")");
      },
  };
  current = &grid;
  launch.module->device = &device;
  return grid.run(launch);
}

}  // namespace emulated
