// record/text.cpp
// Tape -> text: see text.h. parse.cpp reads it back.
#include "record/text.h"

#include <unordered_set>

#include "device/host/host.h"
#include "graph/text.h"
#include "record/recorder.h"
#include "record/value_text.h"
#include "support/text.h"

namespace bolt::record {
namespace {

std::string id_text(TensorId id) { return "%" + std::to_string(id); }

template <class Items, class ItemText>
std::string joined(const Items& items, ItemText text) {
  std::string out;
  for (const auto& item : items) out += (out.empty() ? "" : ", ") + text(item);
  return out;
}

std::string ints(const Dims& values) {
  return joined(values, [](int64_t v) { return std::to_string(v); });
}

std::string bits(uint64_t mask) {
  std::vector<int> set;
  for (int i = 0; i < 64; ++i)
    if (mask >> i & 1) set.push_back(i);
  return "[" + joined(set, [](int i) { return std::to_string(i); }) + "]";
}

class TapePrinter {
 public:
  TapePrinter(const Tape& tape, const TapeContext& context) : tape_(tape), context_(context) {}

  std::string run() {
    out_ = "tape " + (context_.name.empty() ? "" : "@" + graph::identifier(context_.name) + " ") + "{\n";
    for (size_t i = 0; i < tape_.inputs.size(); ++i) {
      notes(false, i);
      line(id_text(tape_.inputs[i]) + " = input " + input_text(tape_.inputs[i]));
    }
    for (const SymbolRow& n : context_.numbers)
      line("number " + n.symbol.str() + " = " + std::to_string(n.hint) + (n.early ? " early" : ""));
    for (const SizeFact& f : context_.facts)
      line("fact " + str(f) + (f.where.empty() ? "" : "  # " + f.where));
    for (size_t i = 0; i < tape_.entries.size(); ++i) {
      notes(true, i);
      entry(static_cast<int>(i));
    }
    notes(true, tape_.entries.size());
    if (!context_.wanted.empty())
      line("return " + joined(context_.wanted, [](TensorId id) { return id < 0 ? "None" : id_text(id); }));
    return out_ + "}\n";
  }

 private:
  const TensorInfo& info(TensorId id) const { return tape_.tensors[id]; }
  void line(const std::string& text) { out_ += "  " + text + "\n"; }

  void notes(bool entry, size_t at) {
    for (const TapeNote& n : context_.notes)
      if (n.entry == entry && n.at == at) line("; " + n.text);
  }

  // ---- tensors ----

  std::string input_text(TensorId id) {
    std::string s = info_text(id);
    const auto input = static_cast<size_t>(info(id).input);
    if (input < context_.is_param.size() && context_.is_param[input]) s += " param";
    if (input < context_.dynamic.size() && context_.dynamic[input])
      s += " dynamic " + bits(context_.dynamic[input]);
    const auto constant = context_.constants.find(info(id).input);
    return constant == context_.constants.end() ? s : s + " const " + contents(constant->second);
  }

  static std::string contents(const at::Tensor& t) {
    const c10::Type& type = *c10::NumberType::get();
    std::vector<at::Tensor> elements = t.flatten().unbind();
    return "[" +
           joined(elements,
                  [&](const at::Tensor& e) { return ValueWriter().text(c10::IValue(e.item()), type); }) +
           "]";
  }

  std::string info_text(TensorId id) {
    const TensorInfo& t = info(id);
    std::string s = dtype_text(t.dtype) + "[" + ints(t.sizes) + "]";
    if (t.strides != contiguous(t.sizes)) s += "{" + ints(t.strides) + "}";
    if (!device::is_processor(t.device)) s += " " + t.device.str();
    const auto [first, fresh] = first_of_storage_.try_emplace(t.storage, id);
    if (!fresh && t.storage >= 0) s += " over " + id_text(first->second);
    if (t.offset) s += " at " + std::to_string(t.offset);
    if (!t.plain) s += " not_plain";
    if (t.zero) s += " zero";
    if (t.conjugated) s += " conjugated";
    if (t.negated) s += " negated";
    if (t.requires_grad) s += " requires_grad";
    if (t.chosen) s += " chosen";
    if (t.data_sized) s += " data_sized";
    if (t.data_dims) s += " data " + bits(t.data_dims);
    return s;
  }

  // ---- entries ----

  void entry(int index) {
    const Entry& e = tape_.entries[index];
    mode(e);
    const std::string results = joined(e.results, [&](const Arg& r) { return result(r, index); });
    std::string text = "  " + results + (results.empty() ? "" : " = ") + c10::toString(e.op.operator_name()) +
                       "(" + arguments(e) + ")";
    if (e.own_version) text += " counting writes apart";
    if (e.loc >= 0) {
      const SourceLine& l = tape_.locs[e.loc];
      graph::append_loc(text, {l.file, l.line, l.function});
    }
    out_ += text + "\n";
  }

  void mode(const Entry& e) {
    if (e.grad_mode == grad_ && e.inference_mode == inference_) return;
    grad_ = e.grad_mode;
    inference_ = e.inference_mode;
    line(std::string("mode ") + (grad_ ? "grad" : "no_grad") + (inference_ ? " inference" : ""));
  }

  std::string result(const Arg& r, int entry) {
    auto one = [&](TensorId id) {
      if (id < 0) return std::string("undefined");
      const bool made = info(id).producer == entry && told_.insert(id).second;
      return id_text(id) + (made ? ": " + info_text(id) : "");
    };
    if (r.kind == Arg::Kind::Tensor) return one(r.tensors[0]);
    return r.kind == Arg::Kind::Value ? "_" : "[" + joined(r.tensors, one) + "]";
  }

  std::string arguments(const Entry& e) {
    std::string out;
    const auto& schema = e.op.schema().arguments();
    for (size_t i = 0; i < e.args.size(); ++i) {
      if (i) out += ", ";
      if (schema[i].kwarg_only()) out += schema[i].name() + "=";
      out += argument(e.args[i], needed_type(*schema[i].real_type()));
    }
    return out;
  }

  std::string argument(const Arg& arg, const c10::Type& type) {
    auto tensor = [&](TensorId id) {
      if (id >= 0) return id_text(id);
      return std::string(arg.kind == Arg::Kind::OptionalTensorList ? "None" : "undefined");
    };
    switch (arg.kind) {
      case Arg::Kind::Tensor: return tensor(arg.tensors[0]);
      case Arg::Kind::TensorList:
      case Arg::Kind::OptionalTensorList: return "[" + joined(arg.tensors, tensor) + "]";
      case Arg::Kind::WrappedNumber:
      case Arg::Kind::Value: break;
    }
    if (arg.value.isList()) return list(arg, element_type(type));
    std::string s = values_.text(arg.value, type);
    if (!arg.syms.empty()) s += " is " + arg.syms[0].str();
    return arg.tensors.empty() ? s : s + " from " + id_text(arg.tensors[0]);
  }

  /// Numbers that are no expressions stand for themselves, but then one must say that there are expressions.
  std::string list(const Arg& arg, const c10::Type& type) {
    const auto& values = arg.value.toListRef();
    bool any = false;
    for (size_t i = 0; i < arg.syms.size(); ++i) any |= arg.syms[i] != own_number(values[i]);
    std::string out;
    for (size_t i = 0; i < values.size(); ++i) {
      out += (i ? ", " : "") + values_.text(values[i], type);
      if (!arg.syms.empty() && (arg.syms[i] != own_number(values[i]) || (i == 0 && !any)))
        out += " is " + arg.syms[i].str();
    }
    return "[" + out + "]";
  }

  const Tape& tape_;
  const TapeContext& context_;
  std::string out_;
  ValueWriter values_;
  std::unordered_map<int, TensorId> first_of_storage_;
  std::unordered_set<TensorId> told_;  // results whose type has been written
  bool grad_ = true, inference_ = false;
};

}  // namespace

std::string print(const Tape& tape, const TapeContext& context) { return TapePrinter(tape, context).run(); }
std::string print(const Tape& tape) { return print(tape, {}); }

}  // namespace bolt::record
