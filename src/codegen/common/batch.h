// codegen/common/batch.h
// Functions that are wanted together -> their addresses: what every code generator shares.
//
// Equal functions are compiled once, also across the batches of this process (an entry goes with the last
// program that uses it). The rest is looked up on disk, as one file for the batch, and what is not there is
// compiled on several threads, one object per thread. What an object is, and how it is made and loaded, is
// the code generator's: Compiler.
//
// A batch is made where its units become known, and compiled there or on a thread of its own, while others
// are planned: the two passes of a training step, and all pieces of a region, are compiled at once. What a
// batch takes upon itself is decided when it is made. So it rests on the order in which batches are made, not
// on which thread comes first, and the batch is found on disk again.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "support/export.h"

namespace bolt::codegen {

/// Machine code in memory; unmapped when it dies.
class BOLT_API MachineCode {
 public:
  virtual ~MachineCode();
  /// Address of a function; an internal error when the object has none of this name.
  virtual void* address(const std::string& name) const = 0;
  virtual size_t bytes() const = 0;
};

/// One function of a batch: what it is, and, once compiled, where it is.
struct BatchUnit {
  std::string key;  ///< all that its code depends on but the target: equal keys are one function
  std::shared_ptr<MachineCode> code;
  void* function = nullptr;
};

/// A unit, by its place in the batch, and what its function is to be called.
struct NamedUnit {
  size_t unit;
  std::string name;
};

/// What a code generator brings.
struct Compiler {
  std::string target;  ///< all that its code depends on beside the units: device, features, tool versions
  /// Compiles units to one object. Called on several threads at once, for each unit at most once.
  std::function<std::string(const std::vector<NamedUnit>& units)> object;
  /// An object, which may come from disk: a damaged one throws Error(Internal), it is never loaded half.
  std::function<std::shared_ptr<MachineCode>(const std::string& object)> load;
};

class BOLT_API Batch {
 public:
  /// The keys must differ.
  Batch(std::vector<BatchUnit> units, Compiler compiler);
  /// One that was not compiled leaves its units to those that wait for them.
  ~Batch();
  Batch(const Batch&) = delete;

  /// Fills `code` and `function` of every unit. Waits for batches that were made before this one where they
  /// have units in common. Once. False: some had to be compiled.
  bool compile();
  const std::vector<BatchUnit>& units() const { return units_; }

 private:
  struct Awaited {
    size_t unit;
    std::shared_future<void> made;
  };
  bool make(const std::vector<size_t>& units);

  std::vector<BatchUnit> units_;
  const Compiler compiler_;
  std::promise<void> promise_;
  std::vector<size_t> ours_;  ///< what nobody has compiled before
  std::vector<Awaited> others_;
};

}  // namespace bolt::codegen
