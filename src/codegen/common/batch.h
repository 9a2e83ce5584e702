// codegen/common/batch.h
// Functions that are wanted together -> their addresses: what every code generator shares.
//
// Equal functions are compiled once, also across the batches of this process (an entry goes with the last
// program that uses it). The rest is looked up on disk, as one file for the batch, and what is not there is
// compiled on several threads, one object per thread. What an object is, and how it is made and loaded, is
// the code generator's: Compiler.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "support/export.h"

namespace bolt::codegen {

/// Machine code in memory; unmapped when it dies.
class BOLT_API Code {
 public:
  virtual ~Code();
  /// Address of a function; an internal error when the object has none of this name.
  virtual void* address(const std::string& name) const = 0;
  virtual size_t bytes() const = 0;
};

/// One function of a batch: what it is, and, once compiled, where it is.
struct Unit {
  std::string key;  ///< all that its code depends on but the target: equal keys are one function
  std::shared_ptr<Code> code;
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
  /// These units as one object. Called on several threads at once, for each unit at most once.
  std::function<std::string(const std::vector<NamedUnit>& units)> object;
  /// An object, which may come from disk: a damaged one throws Error(Internal), it is never loaded half.
  std::function<std::shared_ptr<Code>(const std::string& object)> load;
};

/// Fills `code` and `function` of every unit. The keys must differ. False: some had to be compiled.
BOLT_API bool compile(std::vector<Unit>& units, const Compiler& compiler);

}  // namespace bolt::codegen
