// tests/cuda/emulate/threads.h
// A launch -> its threads, run on one thread of the processor.
//
// The threads of a block, or of all blocks of a cluster, are stacks between which the processor goes to and
// fro; other blocks come one after the other. A thread runs until it waits for its block, its warp (an
// exchange of 32 lanes) or its cluster. So each runs as far ahead of the others as its text lets it, first to
// last or, where `backwards`, last to first: what should have been waited for and was not is read before it
// is written, or written before it is read.
//
// What a block shares is filled with rubbish before it begins, of which every float is a NaN.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "interface.h"

namespace emulated {

constexpr unsigned char kRubbish = 0xff;

struct Launch {
  const Kernel* kernel = nullptr;
  Module* module = nullptr;
  void** arguments = nullptr;
  unsigned blocks = 0, threads = 0;
  char* shared = nullptr;  // all of what a block shares
  size_t shared_bytes = 0;
  char* dynamic = nullptr;  // of that, kMostShared bytes, of which the launch asks for these
  size_t dynamic_bytes = 0;
  bool backwards = false;
  /// What lies at an address, for a message.
  std::function<std::string(const char* address)> place;
};

/// What went wrong and in which thread; "" if nothing did.
std::string run(const Launch& launch);

}  // namespace emulated
