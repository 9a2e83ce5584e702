// run/prepared.h
// A plan with its code -> everything that can be decided before the first call: Prepared; and, for one set of
// sizes, all numbers that rest on them: Shapes.
//
// Sizes that are data (`u12_0`: how many rows nonzero() gives) are learnt from the step that finds them. What
// rests on them is listed here by the step that finds them, and evaluated when it has run (execution.h).
//
// A symbol is *shaping* when sizes, places or amounts of work rest on it. Other numbers (a learning rate) are
// no part of Shapes: they go to the kernels with each call.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "device/device.h"
#include "loops/plan.h"
#include "lower/functionalize.h"
#include "run/evaluate.h"
#include "run/library.h"
#include "run/results.h"
#include "run/step_times.h"
#include "support/size_fact.h"
#include "support/symbols.h"

namespace bolt::run {

/// One step with everything decided that can be decided before the call.
struct PreparedStep {
  const loops::Step* step;
  std::string name;                          // for profilers
  int kernel = -1;                           // of the plan
  int together = 1;                          // the first of a list: so many steps are launched at once
  const device::DeviceCode* code = nullptr;  // of that kernel, or of what a Pack step packs for
  size_t queue = 0;                          // among Prepared::devices
  const LibraryRow* library = nullptr;
  const lower::ExternCall* call = nullptr;
  bool shows = false;                              // results of the call that are views may stay them
  int shape = 0;                                   // index into Shapes::steps
  std::vector<std::pair<size_t, size_t>> numbers;  // among given(); among the program's symbols
  int learns = -1;                                 // index into Prepared::data_sizes
  std::vector<int> stores;  // buffers of a kernel whose sizes are data: there may be nothing to store
  std::vector<int> makes;   // buffers outside the arena that are made before it, the first to need them
  std::vector<int> frees;   // buffers outside the arena that nothing needs afterwards

  /// What a kernel, or a call of ATen, is given the values of.
  Syms given(const loops::Plan& plan) const;
  Syms extents() const { return kernel < 0 ? Syms() : code->facts(kernel).extents; }
};

/// The plan for one set of sizes.
struct Shapes {
  struct OfBuffer {
    Ints sizes, strides;
    int64_t offset = 0, arena_offset = 0;
  };
  struct OfStep {
    Ints extents, numbers;
    /// Of a library step that is one (run/products.h). Nothing where its sizes are data.
    std::optional<device::driver::Multiplication> product;
  };
  static OfBuffer of(const loops::PlanBuffer& b, const Evaluate& value);
  static OfStep of(const PreparedStep& p, const loops::Plan& plan, const Evaluate& value);
  static Result of(const lower::TensorOut& o, const Evaluate& value);

  Ints key;
  std::vector<OfBuffer> buffers;
  std::vector<OfStep> steps;    // fold steps first
  std::vector<Result> results;  // the outputs, then the inputs that became views of themselves
  Ints arena_bytes;             // by arena of the plan
};

/// What rests on the sizes that one step finds out (its rows say so: SymbolRow::found_by), and on no later
/// ones.
struct DataSizes {
  std::vector<int> buffers, results;  // what can be evaluated then; indices into Shapes
  std::vector<std::pair<const PreparedStep*, int>> steps;
  std::vector<SizeFact> facts;
};

/// A device of the plan, and how to reach it.
struct UsedDevice {
  c10::Device device;
  const device::DeviceInterface* driver;
};

class Prepared {
 public:
  /// `plan.graph` and `lowered` (its graph moved away) belong together.
  Prepared(lower::Lowered lowered, loops::Plan plan, device::PlanCode code, SymbolTable symbols);
  Prepared(const Prepared&) = delete;

  const lower::Lowered lowered;
  const loops::Plan plan;
  const device::PlanCode code;
  SymbolTable symbols;
  std::vector<UsedDevice> devices;
  std::vector<size_t> device_of_buffer, device_of_arena;  // among these
  std::vector<PreparedStep> steps, fold_steps;
  const int first_visible_write;      // of `steps`
  std::vector<int> fold_inputs;       // graph inputs the fold steps read
  std::vector<char> in_fold;          // by buffer: a fold step reads or writes it
  std::vector<char> shaping;          // by symbol: Shapes depend on it
  std::vector<DataSizes> data_sizes;  // in the order in which they become known
  mutable StepTimes times;            // of `steps`, where calls were timed

  const loops::PlanBuffer& buffer(int b) const { return plan.buffers[b]; }
  /// The buffer whose memory it shows.
  int owner(int b) const;
  /// Are its sizes data, so that it waits for them?
  bool waits(size_t buffer) const { return !buffer_phase_.empty() && buffer_phase_[buffer] > 0; }
  bool lies_in_arena(size_t buffer) const;
  /// Is the buffer made when a step needs it, and not when the call begins?
  bool made_by_step(size_t buffer) const { return made_by_step_[buffer] != 0; }
  /// `values` with those that decide no size left out: what Shapes are looked up by.
  Ints shaping_values(Ints values) const;
  std::shared_ptr<Shapes> shapes(Ints sizes) const;
  /// Of `steps`.
  std::vector<StepFacts> costs() const;
  /// Facts about sizes that are data go to the step that learns the last of them.
  void check_data_sizes(const std::vector<SizeFact>& taken_for_granted);

 private:
  size_t use(graph::Device device);
  std::optional<device::driver::Multiplication> product_of(const PreparedStep& p, const Shapes& shapes) const;
  void prepare(const std::vector<loops::Step>& from, std::vector<PreparedStep>& to);
  bool shows_operands(const loops::Step& step) const;
  std::string name_of(const loops::Step& step) const;
  void find_fold_inputs();
  void find_shaping_symbols();
  int data_phase(const Syms& sizes) const;
  bool is_taken_for_another(Sym size) const;
  void find_learning_steps();
  void find_waiting_buffers();
  void find_waiting_steps();
  void find_waiting_results();
  void find_lifetimes();

  std::vector<int> buffer_phase_;  // by buffer: so many of data_sizes must be known
  std::vector<char> made_by_step_;
};

/// Throws SizeDemand for sizes that a step of the plan must know: attributes of library calls.
void check_sizes(const loops::Plan& plan);

}  // namespace bolt::run
