// autograd/some_tangents.cpp
#include "autograd/some_tangents.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "autograd/flow.h"
#include "record/copy.h"
#include "record/unary.h"

namespace bolt::autograd {
namespace {

using record::Arg;
using record::Entry;
using record::Tape;
using record::TensorId;

/// What memory is made of.
struct Origin {
  bool given = false, missing = false;  ///< tangents
  bool spoilt = false;                  ///< what should be zero has met what may make more of it
  void add(const Origin& other) {
    given |= other.given;
    missing |= other.missing;
    spoilt |= other.spoilt;
  }
};

/// Do its numbers alone make more than zeros of zeros? A large one is infinite to a tensor of floats.
bool makes_more_of_zeros(const Entry& entry) {
  const bool divides = entry.op.operator_name().name == "aten::div";
  return std::ranges::any_of(entry.args, [&](const Arg& arg) {
    if (!arg.value.isDouble() && !arg.value.isComplexDouble() && !arg.value.isInt()) return false;
    const c10::complex<double> number = arg.value.toScalar().toComplexDouble();
    const auto is_bounded = [](double part) { return std::abs(part) <= std::numeric_limits<float>::max(); };
    return !is_bounded(number.real()) || !is_bounded(number.imag()) || (divides && number == 0.);
  });
}

class Writing {
 public:
  Writing(const Tape& backward, const std::vector<bool>& given)
      : out_(record::tensors_alone(backward)),
        origins_(static_cast<size_t>(record::count_storages(backward))),
        storages_(record::count_storages(backward)) {
    for (TensorId id : backward.inputs) record::add_input(out_, id);
    const size_t first = backward.inputs.size() - given.size();
    for (size_t k = 0; k < given.size(); ++k) {
      Origin& origin = of(backward.inputs[first + k]);
      (given[k] ? origin.given : origin.missing) = true;
    }
    for (const Entry& entry : backward.entries) add(entry);
  }

  bool is_spoilt(TensorId id) { return id >= 0 && of(id).given && of(id).spoilt; }
  Tape take() { return std::move(out_); }

 private:
  Origin& of(TensorId id) { return origins_[storage(id)]; }
  int storage(TensorId id) const { return out_.tensors[id].storage; }

  void add(const Entry& entry) {
    Origin read;
    std::vector<int> storages;
    bool meets_others = makes_more_of_zeros(entry);
    for_each_tensor(entry.args, [&](TensorId id) {
      read.add(of(id));
      meets_others |= !of(id).given && !of(id).missing;
      storages.push_back(storage(id));
    });
    const bool is_zero = read.missing && !read.given;
    read.spoilt |= is_zero && meets_others;
    const auto is_made = [&](TensorId id) {
      return id >= 0 && std::ranges::find(storages, storage(id)) == storages.end();
    };
    is_zero ? add_zeros(entry, is_made) : record::add_entry(out_, entry);
    for_each_tensor(entry.results, [&](TensorId id) { of(id).add(read); });
    for_each_written(entry, [&](TensorId id) { of(id).add(read); });
  }

  /// What the entry makes has another number, and the tensors are zeros of its sizes.
  template <class IsMade>
  void add_zeros(Entry entry, IsMade is_made) {
    const auto results = entry.results;
    entry.results = out_.args->take(results.size());
    std::ranges::copy(results, entry.results.begin());
    std::vector<std::pair<TensorId, TensorId>> zeros;
    for (Arg& result : entry.results)
      for (TensorId& id : result.tensors)
        if (is_made(id)) {
          const TensorId made = record::add_like(out_, id, storages_++);
          zeros.emplace_back(std::exchange(id, made), made);
        }
    origins_.resize(static_cast<size_t>(storages_));
    record::add_entry(out_, entry);
    static const c10::OperatorHandle op =
        c10::Dispatcher::singleton().findSchemaOrThrow("aten::zeros_like", "");
    for (const auto& [id, made] : zeros)
      record::add_entry(out_, record::unary(out_, op, made, id, entry.loc));
  }

  Tape out_;
  std::vector<Origin> origins_;  ///< by storage
  int storages_;
};

}  // namespace

std::optional<Tape> with_some_tangents(const Tape& backward, const std::vector<TensorId>& wanted,
                                       const std::vector<bool>& given) {
  Writing writing(backward, given);
  if (std::ranges::none_of(wanted, [&](TensorId id) { return writing.is_spoilt(id); })) return std::nullopt;
  return writing.take();
}

}  // namespace bolt::autograd
