// session/bridge.h
// The observer of Python <-> the recorder of operators. The observer knows where tensors and numbers come
// from, the recorder what operators did with them; neither includes the other. What one of them has to know
// of the other is asked here.
//
// Which sizes are recorded as symbols is decided here too, when a tensor comes in: from the settings, from
// what differed between calls, and from mark_dynamic.
#pragma once

#include <ATen/SequenceNumber.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "observe/observation.h"
#include "record/recorder.h"
#include "session/alike_places.h"
#include "session/entries.h"
#include "session/marks.h"
#include "support/pointer_map.h"

namespace bolt::session {

/// A tensor found on an object (a module's parameter or buffer, a global) rather than among the arguments: it
/// is the same at every call, most likely.
bool is_on_object(const guard::Source& source);

/// Lives as long as a recording; `changed` is what differed between those before it.
class Bridge final : public observe::RecorderHooks {
 public:
  Bridge(const Options& options, const guard::Differences& changed, bool may_advance);
  Dynamic which() const { return which_; }

  // Tensors and what operators did to them.
  void input(PyObject* tensor, int slot, const guard::Source& source,
             const std::vector<std::string>& names) override;
  int output(PyObject* tensor) override;
  bool knows(PyObject* tensor) override;
  Py_ssize_t references_to(PyObject* tensor) override;
  int64_t writes(PyObject* tensor) override;
  void own_version(PyObject* tensor) override;
  bool given_data(PyObject* tensor, PyObject* data) override;
  std::optional<std::pair<int64_t, int64_t>> contents(PyObject* tensor) override;
  std::optional<std::vector<PyRef>> made_of(PyObject* tensor) override;
  bool changed_inputs() override { return recorder.changed_inputs(); }
  bool placed() override { return recorder.placed(); }
  bool differentiates() override;
  std::vector<bool> memory_matters(size_t slots) override;
  std::string trace() override;

  // Sizes and numbers.
  bool follows_sizes() override { return sizes_differ_ |= recorder.has_data_sizes(); }
  bool rests_on_data(Sym size) override;
  Sym size_of(PyObject* tensor, int dim) override;
  Sym size_of(record::TensorId id, int dim);
  std::vector<std::pair<Sym, int64_t>> differing_strides() override;
  std::vector<std::pair<int, uint64_t>> unread_sizes() override;
  bool follows_numbers() override;
  bool follows_number(PyObject* object, const guard::Source& source,
                      const std::vector<std::string>& names) override;
  bool may_know_number(const guard::Source& source, const std::vector<std::string>& names, int most) override;
  bool gives_up_numbers() override { return !options_.fullgraph && !changed_.times.empty(); }
  bool follows_within(const guard::Source& source, const std::vector<std::string>& names) override;
  void follows_number_of_text() override { recorder.follows_sizes = sizes_differ_ = true; }
  bool follows_length(const guard::Source& source, const std::vector<std::string>& names) override;
  bool lends_open() override { return options_.road == run::Road::compile && !options_.backend; }
  PyObject* lend(Sym size, int64_t value, const std::shared_ptr<SizeNotes>& notes) override;
  PyObject* lend_float(Sym symbol, double value, const std::shared_ptr<SizeNotes>& notes) override;
  PyObject* lend_data(Sym symbol, PyObject* number, PyObject* tensor,
                      const std::shared_ptr<SizeNotes>& notes) override;
  void begin_lent_call(const std::string& function) override { recorder.parsed.begin(function); }
  std::vector<Sym> end_lent_call() override { return recorder.parsed.end(); }
  std::optional<Sym> size_in(PyObject* number) override;
  std::optional<Sym> size_from(PyObject* tensor, int64_t element) override;
  bool expect(PyObject* tensor, bool value, const std::string& where) override;

  // The course of the recording.
  bool may_advance() override { return may_advance_; }
  bool names_generators() override { return !options_.backend; }
  size_t recorded() override { return recorder.tape().entries.size(); }
  bool worked_since(size_t from) override;
  bool gives_followed(size_t from) override;
  void instruction(const char* file, const char* function, int line) override {
    recorder.instruction(file, function, line);
  }
  const Reason* wants_end() override;
  bool may_idle() override;
  bool end_may_raise() override { return recorder.escaped_raises(); }
  const char* raised() override { return recorder.raised().empty() ? nullptr : recorder.raised().c_str(); }
  bool in_operator() const override { return recorder.in_operator(); }
  bool proves_guards() const override;
  PyObject* places_behind(PyObject* outputs, PyObject* asked) override;
  void take_back() override { recorder.take_back(); }
  bool pause(bool on) override { return recorder.pause(on); }
  void end_region(bool before_instruction) override { recorder.stop(before_instruction); }

  // For whoever makes an entry of the recording.
  /// -1: none, it came from nowhere outside.
  int slot_of(const at::Tensor& t) const;
  /// Of a tape input: a bit for each size and stride that is a symbol.
  uint64_t dynamic_of(const at::Tensor& t) const;
  /// What is known of sizes beyond what was asked: mark_dynamic's limits, and sizes that must be what they
  /// were.
  std::vector<SizeFact> further_facts();
  /// Notes backward passes that come to what the recording made: its results, and inputs that have another
  /// history now.
  void note_backward_passes(const std::shared_ptr<run::DoubleBackward>& noted) const;

  record::Recorder recorder;
  bool has_other_sizes = false;       ///< the call, than each entry of its site
  bool ends_before_backward = false;  ///< EndsEarlier: backward passes are the engine's
  std::vector<record::TensorId> wanted;
  std::vector<std::pair<int, uint64_t>> marked;  ///< dimensions the user wants to be symbols, by slot
  struct Refused {
    int slot, dim;
    int64_t size;
  };
  std::vector<Refused> refused;  ///< those that cannot be

 private:
  uint64_t dynamic_dims(const at::Tensor& t, const guard::Source& source,
                        const std::vector<std::string>& names, const Marks& marks);
  bool may_have_other_sizes(record::TensorId id);

  struct Range {
    int slot, dim;
    std::optional<int64_t> low, high;
  };
  std::vector<at::Tensor> results_;  ///< `wanted`
  const Options& options_;
  const Dynamic which_;
  const guard::Differences& changed_;
  const bool may_advance_;
  const uint64_t first_node_ = at::sequence_number::peek();  ///< autograd's number of it
  AlikePlaces alike_;
  std::vector<Range> ranges_;
  bool sizes_differ_ = false;  ///< between calls: some size, or a number that sizes may come from
  PointerMap<int> slots_;      ///< by implementation
  std::unordered_map<int, uint64_t> dynamic_;  ///< by slot
  std::vector<bool> may_have_other_sizes_;     ///< by tensor of the tape, as far as was asked for
};

}  // namespace bolt::session
