// autograd/writer.h
// Operators on fakes -> entries of the joint tape.
//
// Tensors of the run's tape keep their numbers and what is known of them; those that only exist below
// autograd are numbered behind them. Where an operator that arrives is the very one that the run's entry
// recorded, the tape says what it gives, and no rule is asked. What is true of a tensor of the run must be
// true of the fake that stands for it: where ATen has taken another way than in the run, it is an error.
//
// In a trial (trial.h), where the run's inputs have other sizes, rules say what every operator gives, and the
// trial's tape learns it.
#pragma once

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "autograd/fake.h"
#include "autograd/joint.h"
#include "autograd/trial.h"

namespace bolt::autograd {

/// A number that differs between calls, which ATen's formulas hand on as they do a tensor.
inline bool is_operand_that_differs(const record::Arg& arg) {
  return arg.kind == record::Arg::Kind::WrappedNumber && record::differs_between_calls(arg);
}
/// Does autograd follow any tensor of it?
bool holds_followed(const c10::IValue& v);

class Writer final : public Listener {
 public:
  Writer(const record::Tape& run, Joint& joint, Trial* trial);

  /// The fake for an input of the run.
  at::Tensor input(record::TensorId id);
  /// A new input of the joint tape: as large as `t`, and dense.
  at::Tensor tangent(const at::Tensor& t);

  /// The run's entry `index` is replayed;
  void begin(size_t index);
  /// it has given these.
  void end(size_t index, const torch::jit::Stack& results);
  /// A number that the entry is given in a tensor's place, and that is another one in each call. It stays
  /// what the run's tape says of it wherever formulas of ATen's hand it on, and whoever asks for it is
  /// refused.
  void follow_number(const at::Tensor& number, const record::Arg& recorded);

  /// The run has been replayed. What comes belongs to this line of the tape's.
  void go_on_at(int loc);

  void call(const c10::OperatorHandle& op, torch::jit::Stack& stack) override;
  /// By a formula of ours, where ATen's would look at data. False: it is for none of those.
  bool call_by_formula(const record::Entry& entry, torch::jit::Stack& stack);
  /// The entry that is replayed is written as it stands in the run's tape. `stack`: its arguments, then its
  /// results.
  void copy(torch::jit::Stack& stack);

  /// The number of a tensor that the joint tape gives, also where it is no fake.
  record::TensorId id_of(const at::Tensor& t);
  /// Gives tensors the numbers of the run, where they have one. No entry may come behind.
  void finish();

  /// Throws Unsupported: what it is that cannot be written, and where.
  [[noreturn]] void refuse(const std::string& why) const;

 private:
  using Stack = torch::jit::Stack;
  record::Entry take_arguments(const c10::OperatorHandle& op, const Stack& arguments);
  void take(const c10::IValue& v, record::Arg& arg);
  const record::Arg* followed_number(const at::Tensor& t) const;
  bool computes_numbers(const c10::OperatorHandle& op, Stack& stack);
  void call_turning(Stack& stack);
  void write(const c10::OperatorHandle& op, Stack& stack);
  void call_dropout(const c10::OperatorHandle& op, Stack& stack);
  void call_seen_otherwise(const std::string& name, Stack& stack);
  void call_batch_norm(Stack& stack);
  void call_batch_norm_backward(Stack& stack);
  void call_convolution_backward(const c10::OperatorHandle& op, Stack& stack);
  void turn(const at::Tensor& object, const FakeLayout& place, record::TensorId id);
  bool is_of_run(const record::Entry& entry) const;
  Stack results_of(record::Entry& entry, const Stack& arguments);
  Stack recorded_results(record::Entry& entry, const Stack& arguments);
  at::Tensor recorded_result(record::TensorId id, const Stack& arguments);
  Stack as_rules_say(const record::Entry& entry, const Stack& arguments);
  Stack tried_results(record::Entry& entry, const Stack& arguments);
  void lay_as_recorded(const record::Entry& recorded, const Stack& results, const Stack& arguments);
  bool take_recorded_layout(const record::TensorInfo& info, const at::Tensor& made);
  Stack described(const record::Entry& entry, const Stack& arguments);
  Stack adopted(const Stack& metas, c10::Device device);
  at::Tensor adopted(const at::Tensor& meta, c10::Device device);
  at::Tensor recorded_fake(record::TensorId id);
  record::TensorId add(at::ScalarType dtype, c10::Device device, const FakeLayout& place,
                       const c10::Storage& storage);
  int number_of(const c10::Storage& storage);
  const c10::Storage& storage_of_run(int storage);
  void match(record::TensorId recorded, const at::Tensor& made);
  void match_storages(int recorded, int made);
  std::string last_operator() const;
  record::TensorId renamed(record::TensorId id) const;

  const record::Tape& run_;
  Joint& joint_;
  Trial* trial_;
  const record::Entry* entry_ = nullptr;  ///< of the run, until what it recorded has arrived
  int loc_ = -1;
  std::vector<size_t> bytes_in_run_;  ///< by storage of the run
  std::unordered_map<const c10::StorageImpl*, int> numbers_;
  std::vector<c10::Storage> storages_;  ///< by number on the joint tape; no address may come again
  std::unordered_map<const c10::StorageImpl*, std::pair<at::Tensor, const record::Arg*>> followed_numbers_;
  std::unordered_map<int, int> now_, in_run_;  ///< storages of the run -> of the joint tape, and back
  std::unordered_map<record::TensorId, record::TensorId> renamed_;
};

/// What inference mode makes inside is to gradients what no_grad() makes, unless it is handed out: then it
/// says that it is none of autograd's.
void check_inference(const record::Tape& run, const std::vector<record::TensorId>& wanted);

}  // namespace bolt::autograd
