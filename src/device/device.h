// device/device.h
// What a compiled program asks of the device it runs on: one class, DeviceInterface, with one file a device.
// Nothing above this folder, and nothing below it but its code generator, knows which devices there are.
//
//   compile    the kernels of a plan that belong to the device -> DeviceCode
//   allocate   room for temporaries, and results
//   launch     a kernel of the DeviceCode, on the Queue of a call
//   look       at the contents of weights that were used beforehand (folded, packed)
//
// A plan says for each buffer and step which device it belongs to (loops/plan.h). One plan may have several:
// then there is DeviceCode for each kind, and a Queue and a block of temporaries for each single one.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "device/driver/multiplication.h"
#include "device/driver/turns.h"
#include "loops/plan.h"

namespace bolt::record {
struct Tape;
}

namespace bolt::device {

/// Where the launches of one call go on one device, and what their kernels report. Kept from call to call by
/// who runs the program, for one call at a time.
class Queue {
 public:
  virtual ~Queue();
  /// A call begins: launches go to where the caller's own work on the device goes now. Raises what kernels of
  /// earlier calls reported.
  virtual void begin() {}
  /// Launches go to where the caller's own work goes now. Raises nothing.
  virtual void follow() { begin(); }
  /// Which of the device's orders of work that is; the same number for the same order.
  virtual int64_t order() const { return 0; }
  /// Work that was launched so far is done: later work in any order may build on it.
  virtual void finish() {}
  /// Memory that was made in another order is used in this one: it must not be given away before that is
  /// done.
  virtual void keep(const at::Tensor&) {}
  /// Has a kernel met an index out of range? Never waits: a device that works behind the host's back tells
  /// it when the host waits for it next, as eager's kernels do.
  virtual bool reported() const { return false; }

  // ---- recordings (DeviceInterface::record)
  /// Is what is launched here recorded by somebody, the user or us? Then it is not to be recorded once more.
  virtual bool is_being_recorded() const { return false; }
  /// Recordings of one order share memory: from filling one's inputs to reading its results a call has it to
  /// itself. None: somebody has it for so long that the call is better launched step by step.
  virtual Turn turn() { return {}; }
  virtual void copy(void* to, const void* from, int64_t bytes);
  /// Is a recording under way that sees launches of kernels only? Then it is told what repeats the others.
  virtual bool keeps_calls() const { return false; }
  virtual void keep_call(std::function<void()>) {}
};

/// The launches of a call, which are given to the device all at once.
class RecordedLaunches {
 public:
  virtual ~RecordedLaunches();
  virtual void launch(Queue& queue) = 0;
};

/// Memory of results that recordings write to, of one recording. Each is made and let go of as any other
/// tensor is, so that the device's allocator alone knows when it may be written again: when nobody holds it,
/// and no work that was announced to it reads it. Nobody else is given it meanwhile, so it lies where it lay.
class ResultMemory {
 public:
  struct Result {
    std::vector<int64_t> sizes, strides;
    c10::ScalarType dtype;
  };
  virtual ~ResultMemory();
  /// In the order of the caller's work. As long as nothing of it is in use, the same addresses each time.
  virtual std::vector<at::Tensor> make(const std::vector<Result>& results) = 0;
};

/// What one launch of a kernel gets.
struct Launch {
  std::vector<void*>& pointers;  ///< of the kernel's buffers, in its order; a device may append its own
  const int64_t* numbers;        ///< values of the kernel's symbols
  const int64_t* extents;        ///< values of KernelFacts::extents
};

struct KernelFacts {
  Syms extents;  ///< how much work a launch is: evaluated once for a set of sizes
};

/// The machine code of a plan's kernels for one kind of device.
class DeviceCode {
 public:
  virtual ~DeviceCode();
  /// Of kernel `kernel` of the plan. Extents are over the kernel's symbols.
  virtual const KernelFacts& facts(int kernel) const = 0;
  /// Before the first launch: waits until there is code, which other threads may be compiling. Throws what
  /// went wrong. False: some of it had to be compiled.
  virtual bool finish() = 0;
  virtual void launch(int kernel, Queue& queue, const Launch& launch) const = 0;
  /// Gets the memory that launches of the kernel need beside its buffers, so that none fails for lack of it
  /// when others have written what the caller can see. Nothing where an allocator has it at hand.
  virtual void reserve(int kernel, Queue& queue, const int64_t* extents) const;
  /// A Pack step: the weights of the contraction that ends in `kernel`, in the order in which it reads them.
  virtual void pack(int kernel, Queue& queue, const void* weights, const std::vector<int64_t>& strides,
                    void* packed) const = 0;
  /// Several kernels of the plan, none of which reads what another writes.
  struct OfList {
    int kernel;
    Launch launch;
  };
  virtual void launch_list(std::span<const OfList> list, Queue& queue) const;
};

class DeviceInterface {
 public:
  virtual ~DeviceInterface();

  // ---- planning and compiling: on any thread, without the GIL
  /// loops::PlanOptions::generates and accepts_epilogue, for calls on this device.
  virtual std::optional<int64_t> generates(const loops::PlannedContraction& call) const = 0;
  virtual bool accepts_epilogue(const loops::PlannedContraction& call,
                                const loops::Kernel& epilogue) const = 0;
  virtual std::unique_ptr<DeviceCode> compile(const loops::Plan& plan) const = 0;

  // ---- running
  /// May work go on when what launched it has returned?
  virtual bool works_behind_host() const = 0;
  virtual std::unique_ptr<Queue> queue(c10::Device device) const = 0;
  /// A block that temporaries lie in.
  virtual at::Tensor arena(c10::Device device, int64_t bytes) const = 0;
  /// May the block of one call serve the next? Not where work is still under way when a call returns: another
  /// stream might be given the same memory. There the device's allocator keeps it, and knows the order.
  virtual bool keeps_arenas() const = 0;
  virtual at::Tensor result(c10::Device device, at::IntArrayRef sizes, at::IntArrayRef strides,
                            c10::ScalarType dtype) const = 0;

  /// Are there recordings?
  virtual bool records() const { return false; }
  /// Of what ATen launches, too?
  virtual bool records_calls() const { return records(); }
  /// What `work` launches is not run, but kept. Its memory is used again by later recordings of the same
  /// order, once `work` has let go of it. Queues must follow within it, and again before a launch. The turn
  /// is the caller's. What cannot be recorded raises, and leaves nothing behind.
  /// `draws`: from the device's default generator, from which each launch draws anew.
  virtual std::unique_ptr<RecordedLaunches> record(Queue& queue, bool draws,
                                                   const std::function<void()>& work) const;
  /// What `work` does is done. Its memory is of the same kind, while somebody keeps what is returned. Where
  /// arenas are kept there is no such memory, and what recordings need must be.
  virtual std::shared_ptr<void> reserve(Queue& queue, const std::function<void()>& work) const;

  /// None: results of recordings are copied out of their memory.
  virtual std::unique_ptr<ResultMemory> result_memory(c10::Device) const { return nullptr; }

  // ---- contents of weights
  using Sample = std::array<uint64_t, 4>;
  /// A few words that tell most updates apart. What would have to wait for the device gives the same words
  /// always: there the version counter alone tells.
  virtual Sample sample(const c10::TensorImpl& tensor) const = 0;
  /// Of all contents. None: too dear to ask, and contents that may have changed count as changed.
  virtual std::optional<uint64_t> hash(const c10::TensorImpl& tensor) const = 0;

  /// All that times measured on it rest on: what it is, and versions of libraries.
  virtual std::string fingerprint(c10::Device device) const = 0;

  /// Schedules that there are for a kernel (loops::Step::schedule).
  virtual int schedules(const loops::Kernel&) const { return 1; }

  /// loops::PlanOptions::widens, for contractions on this device.
  virtual bool widens(const graph::Node& /*contraction*/) const { return false; }

  // ---- products of libraries
  /// Where its operands and its result lie; `bias` null where there is none.
  struct Places {
    const void *a, *b, *bias, *added;
    void* result;
  };
  /// Has the device a library of matrices that it calls without ATen in between?
  virtual bool multiplies() const { return false; }
  /// The multiplication by that library. False: nothing has been done.
  virtual bool multiply(Queue&, const driver::Multiplication&, const Places&) const { return false; }
  /// So many ways there are to do it (Multiplication::way).
  virtual int ways_to_multiply(Queue&, const driver::Multiplication&, const Places&) const { return 0; }
  /// loops::PlanOptions::merges, for products on this device.
  virtual bool merges(const std::vector<const graph::Node*>& /*products*/) const { return false; }
  /// loops::PlanOptions::ends_in, of a call on this device.
  virtual bool ends_in(const graph::Node& /*call*/, graph::Op /*ending*/) const { return false; }
  /// loops::PlanOptions::ends_in_float, of a product on this device.
  virtual bool ends_in_float(const graph::Node& /*product*/) const { return false; }

  // ---- lists of kernels
  /// loops::PlanOptions::list_key, for kernels on this device.
  virtual std::string list_key(const loops::Kernel&, const std::vector<char>& /*numbers*/,
                               graph::Device) const {
    return "";
  }
};

/// Null: nothing is compiled for it.
const DeviceInterface* find(graph::DeviceKind kind);
/// Why nothing is compiled for tensors there; "": it is.
std::string why_not(c10::Device device);
/// Of the first of its tensors for which that is so.
std::string why_not(const record::Tape& tape);

c10::Device to_torch(graph::Device device);

/// What plans are made with: the planner's questions are put to the device of each call.
loops::PlanOptions options_of_devices();

/// loops::PlanOptions::apart_on: where the device's allocator has to be asked for the arena, too, each
/// temporary may as well be asked for when it is needed, and the results of calls have its memory before and
/// after.
bool hands_out_memory(graph::Device device);

/// Code of a whole plan, for each kind of device in it.
class PlanCode {
 public:
  PlanCode() = default;
  explicit PlanCode(const loops::Plan& plan);
  /// Made when a call asks for it first, of a plan that stays where it is.
  static PlanCode when_used(const loops::Plan& plan);
  bool is_there() const { return codes_[0] || codes_[1]; }
  const DeviceCode& of(graph::Device device) const;
  /// Code::finish, of all of it.
  bool finish() const;

 private:
  std::array<std::unique_ptr<DeviceCode>, 2> codes_;  // by kind
};

}  // namespace bolt::device
