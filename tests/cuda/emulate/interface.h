// tests/cuda/emulate/interface.h
// What the emulator and the text of kernels, compiled for the processor (cuda.h), know of each other.
#pragma once

namespace emulated {

/// Bytes of shared memory that a launch may ask for.
constexpr unsigned kMostShared = 227 << 10;

enum Exchange : int { kXor, kUp, kFrom };

/// What the emulator does for a thread.
struct Device {
  void (*wait_for_block)();
  unsigned long long (*exchange)(Exchange how, unsigned mask, unsigned long long bits, int by);
  void (*cluster_arrive)();
  void (*cluster_wait)();
  unsigned (*place_in_block)(const void* mine, int block);
  unsigned (*word_of_block)(unsigned place);
  void (*fail)(unsigned line, const char* what, unsigned long long where);
};

/// A function of the text: its arguments, launch bounds, blocks of a cluster, and a call with arguments that
/// are pointed at.
struct Kernel {
  void (*run)(void** arguments);
  int arguments;
  const unsigned* bytes;  // of each
  int threads, cluster;
};

struct Index {
  unsigned x, y, z;
};

/// The emulator, and the thread that runs.
struct Module {
  const Device* device;
  Index thread, block, threads, blocks;
};

/// What the emulator asks of a text.
struct Loaded {
  Module* module;
  char* shared;   // somewhere in what a block shares
  char* dynamic;  // the part that a launch says the size of; null: there is none
};

}  // namespace emulated
