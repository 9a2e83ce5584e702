// lower/lists.cpp
#include "lower/lists.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lower/entry_facts.h"
#include "lower/lowering.h"
#include "record/operator_facts.h"
#include "support/pointer_map.h"

namespace bolt::lower {
namespace {

using record::Arg;
using record::Entry;
using record::Tape;
using record::TensorId;

constexpr std::string_view kForeach = "aten::_foreach_";

/// What a single tensor's operator is called otherwise. ATen computes these two as clamps, which there are of
/// numbers, too.
constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kOtherNames{
    {{"maximum", "clamp_min"}, {"minimum", "clamp_max"}, {"norm", "linalg_vector_norm"}}};

/// How an argument of the single operator comes about.
enum class TakenFrom : uint8_t {
  Same,     ///< it is the list operator's
  Item,     ///< one of the list
  Element,  ///< a number: one element of a tensor that has as many
  Default
};

struct ListArgument {
  TakenFrom from = TakenFrom::Default;
  size_t argument = 0;  ///< of the list operator
};

/// An operator over lists, and the one that it is for each.
struct Single {
  c10::OperatorHandle op;
  std::vector<ListArgument> arguments;
};

std::string single_name(std::string_view name) {
  name.remove_prefix(kForeach.size());
  const bool in_place = name.ends_with('_');
  if (in_place) name.remove_suffix(1);
  for (const auto& [list, single] : kOtherNames)
    if (name == list) name = single;
  return "aten::" + std::string(name) + (in_place ? "_" : "");
}

bool is_list_of(const c10::Argument& a, c10::TypeKind kind) {
  const auto list = a.type()->cast<c10::ListType>();
  return list && list->getElementType()->kind() == kind;
}
c10::TypeKind kind_of(const c10::Argument& a) {
  const auto optional = a.type()->cast<c10::OptionalType>();
  return optional ? optional->getElementType()->kind() : a.type()->kind();
}

std::optional<TakenFrom> way(const c10::Argument& given, const c10::Argument& wanted, bool elements) {
  using c10::TypeKind;
  const TypeKind kind = kind_of(wanted);
  for (TypeKind each : {TypeKind::TensorType, TypeKind::NumberType})
    if (is_list_of(given, each)) return kind == each ? std::optional(TakenFrom::Item) : std::nullopt;
  if (elements && given.type()->kind() == TypeKind::TensorType && kind == TypeKind::NumberType)
    return TakenFrom::Element;
  return kind_of(given) == kind ? std::optional(TakenFrom::Same) : std::nullopt;
}

/// The arguments of `single` out of those of `list`, in order; those of a name by their names.
std::optional<std::vector<ListArgument>> fitted_arguments(const c10::FunctionSchema& list,
                                                          const c10::FunctionSchema& single, bool elements) {
  const auto &given = list.arguments(), &wanted = single.arguments();
  std::vector<ListArgument> out(wanted.size());
  size_t next = 0;
  for (size_t g = 0; g < given.size(); ++g) {
    size_t w = next;
    while (w < wanted.size() && wanted[w].name() != given[g].name()) ++w;
    if (w == wanted.size()) w = next;
    if (w == wanted.size()) return std::nullopt;
    const auto from = way(given[g], wanted[w], elements);
    if (!from) return std::nullopt;
    out[w] = {*from, g};
    next = w + 1;
  }
  for (size_t w = 0; w < wanted.size(); ++w)
    if (wanted[w].is_out() || (out[w].from == TakenFrom::Default && !wanted[w].default_value()))
      return std::nullopt;
  return out;
}

std::optional<Single> find_single(const c10::OperatorHandle& op) {
  const std::string name = single_name(op.operator_name().name);
  auto& dispatcher = c10::Dispatcher::singleton();
  std::vector<c10::OperatorHandle> candidates;
  for (const c10::OperatorName& each : dispatcher.getAllOpNames())
    if (each.name == name)
      // Without a row a call for each tensor would take longer than one for all.
      if (auto found = dispatcher.findSchema(each); found && has_row(*found)) candidates.push_back(*found);
  std::ranges::sort(candidates, {}, [](const auto& c) { return c.operator_name().overload_name; });
  for (const bool elements : {false, true})
    for (const c10::OperatorHandle& each : candidates)
      if (auto arguments = fitted_arguments(op.schema(), each.schema(), elements))
        return Single{each, std::move(*arguments)};
  return std::nullopt;
}

/// Looked for once in a process. Null: it is none over lists, or none for each.
const Single* single_of(const Entry& e) {
  if (!e.op.operator_name().name.starts_with(kForeach)) return nullptr;
  static std::mutex mutex;
  static auto* known = new PointerMap<const Single*>();
  const std::lock_guard lock(mutex);
  if (const auto* found = known->find(e.facts)) return *found;
  auto found = find_single(e.op);
  return (*known)[e.facts] = found ? new Single(std::move(*found)) : nullptr;
}

/// Entries of one tape -> those of another, which has the same tensors and more.
class Unrolling {
 public:
  explicit Unrolling(const Tape& from) : from_(from) {
    tape_.tensors = from.tensors;
    tape_.inputs = from.inputs;
    tape_.locs = from.locs;
  }

  Tape run() {
    std::vector<int> now;  // where an entry is, the last of those that it became
    for (const Entry& e : from_.entries) {
      const Single* single = single_of(e);
      if (!single || !unroll(e, *single)) tape_.entries.push_back(e);
      now.push_back(static_cast<int>(tape_.entries.size()) - 1);
    }
    for (size_t id = 0; id < from_.tensors.size(); ++id)
      if (int& producer = tape_.tensors[id].producer; producer >= 0) producer = now[producer];
    return std::move(tape_);
  }

 private:
  /// False: it stays as it is.
  bool unroll(const Entry& e, const Single& single) {
    const std::optional<size_t> count = length(e, single);
    if (!count) return false;
    for (size_t i = 0; i < *count; ++i) {
      std::vector<Arg> args;
      for (size_t a = 0; a < single.arguments.size(); ++a) {
        const ListArgument& from = single.arguments[a];
        switch (from.from) {
          case TakenFrom::Same: args.push_back(e.args[from.argument]); break;
          case TakenFrom::Item: args.push_back(item(e.args[from.argument], i)); break;
          case TakenFrom::Element: args.push_back(element(e, e.args[from.argument], i)); break;
          case TakenFrom::Default:
            args.emplace_back().value = *single.op.schema().arguments()[a].default_value();
            if (kind_of(single.op.schema().arguments()[a]) == c10::TypeKind::TensorType)
              args.back() = of_tensor(-1);
            break;
        }
      }
      Entry& one = push(e, single.op, args);
      one.results = tape_.args->take(1);
      // What is written is handed back.
      one.results[0] = of_tensor(e.results.empty() ? args[0].tensors[0] : e.results[0].tensors[i]);
    }
    return true;
  }

  /// Of the lists; none where they are not as the schema says.
  std::optional<size_t> length(const Entry& e, const Single& single) const {
    if (single.op.schema().returns().size() != 1 || e.results.size() > 1) return std::nullopt;
    std::optional<size_t> all;
    auto agrees = [&](size_t n) { return n == all.value_or(n) && (all = n, true); };
    for (const ListArgument& a : single.arguments) {
      if (a.from == TakenFrom::Default) continue;
      const Arg& given = e.args[a.argument];
      if (a.from == TakenFrom::Element) {
        const record::TensorInfo& t = tape_.tensors[given.tensors[0]];
        if (t.sizes.size() != 1 || !agrees(static_cast<size_t>(t.sizes[0]))) return std::nullopt;
      }
      if (a.from != TakenFrom::Item) continue;
      if (given.kind == Arg::Kind::TensorList) {
        if (!agrees(given.tensors.size())) return std::nullopt;
        if (std::ranges::any_of(given.tensors, [](TensorId id) { return id < 0; })) return std::nullopt;
      } else if (!given.value.isList() || !given.tensors.empty() || !agrees(given.value.toListRef().size())) {
        return std::nullopt;
      }
    }
    for (const Arg& r : e.results)
      if (r.kind != Arg::Kind::TensorList || !agrees(r.tensors.size())) return std::nullopt;
    return all;
  }

  static Arg of_tensor(TensorId id) {
    Arg a;
    a.kind = Arg::Kind::Tensor;
    a.tensors.push_back(id);
    return a;
  }
  static Arg of_number(int64_t n) {
    Arg a;
    a.value = n;
    return a;
  }
  static Arg item(const Arg& list, size_t i) {
    if (list.kind == Arg::Kind::TensorList) return of_tensor(list.tensors[i]);
    Arg a;
    a.value = list.value.toListRef()[i];
    if (!list.syms.empty() && !list.syms[i].is_const()) a.syms = std::vector<Sym>{list.syms[i]};
    return a;
  }

  /// One element of a tensor, taken out of it as a number.
  Arg element(const Entry& e, const Arg& of, size_t i) {
    static const auto* select =
        new c10::OperatorHandle(c10::Dispatcher::singleton().findSchemaOrThrow("aten::select", "int"));
    record::TensorInfo info = tape_.tensors[of.tensors[0]];
    info.offset += static_cast<int64_t>(i) * info.strides[0];
    info.sizes.clear();
    info.strides.clear();
    info.input = -1;
    info.producer = static_cast<int>(tape_.entries.size());
    const auto id = static_cast<TensorId>(tape_.tensors.size());
    const bool real = c10::isFloatingType(info.dtype);
    tape_.tensors.push_back(std::move(info));
    const std::array args{of, of_number(0), of_number(static_cast<int64_t>(i))};
    push(e, *select, args).results = tape_.args->take(1);
    tape_.entries.back().results[0] = of_tensor(id);
    Arg number;
    number.value = real ? c10::IValue(1.0) : c10::IValue(int64_t{1});
    number.tensors.push_back(id);
    return number;
  }

  Entry& push(const Entry& like, const c10::OperatorHandle& op, std::span<const Arg> args) {
    Entry& one = tape_.entries.emplace_back(like);
    one.op = op;
    one.facts = &record::facts_of(op);
    one.args = tape_.args->take(args.size());
    std::ranges::copy(args, one.args.begin());
    return one;
  }

  const Tape& from_;
  Tape tape_;
};

}  // namespace

std::optional<Tape> without_lists(const Tape& tape) {
  if (std::ranges::none_of(tape.entries, [](const Entry& e) { return single_of(e) != nullptr; }))
    return std::nullopt;
  return Unrolling(tape).run();
}

}  // namespace bolt::lower
