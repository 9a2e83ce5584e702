// autograd/copied_results.cpp
#include "autograd/copied_results.h"

#include <unordered_set>
#include <vector>

#include "autograd/flow.h"
#include "record/copy.h"
#include "record/unary.h"

namespace bolt::autograd {
namespace {

using record::Entry;
using record::TensorId;
using record::TensorInfo;

class Copying {
 public:
  explicit Copying(Joint& joint) : joint_(joint) {
    for (TensorId id : joint.outputs)
      if (id >= 0) results_.insert(info(id).storage);
    for (TensorId id : joint.tape.inputs) results_.erase(info(id).storage);
    // What eager keeps is kept as eager keeps it: writing to it is the caller's error.
    for (size_t i = joint.backward; i < joint.tape.entries.size(); ++i)
      for_each_tensor(joint.tape.entries[i].args, [&](TensorId id) { results_.erase(info(id).storage); });
  }

  void run() {
    std::vector<size_t> places;
    for (size_t i = 0; i < joint_.backward; ++i)
      if (widens_result(joint_.tape.entries[i])) places.push_back(i);
    if (places.empty()) return;
    record::replace_entries(joint_.tape, places,
                            [&](const Entry& entry) { record::add_entry(joint_.tape, of_a_copy(entry)); });
    joint_.backward += places.size();
  }

 private:
  const TensorInfo& info(TensorId id) const { return joint_.tape.tensors[id]; }

  bool widens_result(const Entry& entry) const {
    if (entry.op.operator_name().name != "aten::_to_copy" || entry.args[0].tensors.size() != 1) return false;
    const TensorId from = entry.args[0].tensors[0];
    if (from < 0 || !results_.contains(info(from).storage)) return false;
    const TensorInfo& to = info(entry.results[0].tensors[0]);
    return c10::elementSize(to.dtype) > c10::elementSize(info(from).dtype) && to.device == info(from).device;
  }

  /// Adds the copy that it reads instead.
  Entry of_a_copy(Entry entry) {
    const TensorId from = entry.args[0].tensors[0];
    const TensorId copy = record::add_contiguous(joint_.tape, from);
    if (!joint_.sizes.empty()) joint_.sizes.push_back(joint_.sizes[from]);
    record::add_entry(joint_.tape,
                      record::clone(joint_.tape, from, copy, entry.loc, at::MemoryFormat::Contiguous));
    auto args = joint_.tape.args->take(entry.args.size());
    for (size_t a = 0; a < args.size(); ++a) args[a] = entry.args[a];
    args[0].tensors = {copy};
    entry.args = args;
    return entry;
  }

  Joint& joint_;
  std::unordered_set<int> results_;  ///< storages that the caller is given, and nobody keeps
};

}  // namespace

void copy_results(Joint& joint) { Copying(joint).run(); }

}  // namespace bolt::autograd
