// record/parse.cpp
// Text -> Tape: see text.h. The schema of an operator says how its arguments are to be read.
#include <ATen/ops/empty.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "graph/text.h"
#include "record/operator_facts.h"
#include "record/text.h"
#include "record/value_text.h"
#include "support/text.h"

namespace bolt::record {
namespace {

using c10::TypeKind;

class Parser {
 public:
  explicit Parser(std::string_view text) : in_(text), values_(in_) {}

  ReadTape run() {
    try {
      in_.expect("tape");
      if (in_.accept("@")) context_.name = in_.name();
      in_.expect("{");
      while (!in_.accept("}")) statement();
      if (!in_.at_end()) in_.fail("text after the tape");
      fill_gaps();
    } catch (const Error& e) {
      in_.rethrow(e);
    }
    return {std::move(tape_), std::move(context_)};
  }

 private:
  void statement() {
    if (in_.at_end()) in_.fail("the tape has no end");
    if (in_.accept("mode")) return mode();
    if (in_.accept("number")) return number();
    if (in_.accept("fact")) return fact();
    if (in_.accept("return")) return wanted();
    const std::string_view start = in_.place();
    if (in_.accept("%")) {
      const auto id = static_cast<TensorId>(in_.integer());
      if (in_.accept("=") && in_.accept("input")) return input(id);
    }
    in_.go_to(start);
    entry();
  }

  void mode() {
    grad_ = in_.accept("grad");
    if (!grad_) in_.expect("no_grad");
    inference_ = in_.accept("inference");
  }

  void number() {
    const Sym symbol = in_.sym();
    if (symbol.is_const() || symbol.node()->op != SymOp::Symbol) in_.fail("expected the symbol of a number");
    in_.expect("=");
    const int64_t recorded = in_.integer();
    context_.numbers.push_back(SymbolRow::of_number(symbol, recorded, in_.accept("early")));
  }

  void fact() {
    static constexpr std::pair<const char*, Relation> kSigns[] = {
        {"==", Relation::eq}, {"!=", Relation::ne}, {"<=", Relation::le}, {"<", Relation::lt}};
    SizeFact f;
    f.a = in_.sym();
    const auto* sign = std::find_if(std::begin(kSigns), std::end(kSigns),
                                    [&](const auto& each) { return in_.accept(each.first); });
    if (sign == std::end(kSigns)) in_.fail("expected ==, !=, < or <=");
    f.relation = sign->second;
    f.b = in_.sym();
    if (in_.accept("#")) f.where = in_.rest_of_line();
    context_.facts.push_back(std::move(f));
  }

  void wanted() {
    do context_.wanted.push_back(in_.accept("None") ? -1 : tensor());
    while (in_.accept(","));
  }

  // ---- tensors ----

  bool is_known(TensorId id) const { return static_cast<size_t>(id) < known_.size() && known_[id]; }
  TensorId tensor() {
    const TensorId id = in_.number_after("%");
    if (!is_known(id)) in_.fail("%" + std::to_string(id) + " is not defined before");
    return id;
  }

  TensorInfo& define(TensorId id) {
    constexpr TensorId kMost = 1 << 24;
    if (id < 0 || id >= kMost || is_known(id))
      in_.fail("%" + std::to_string(id) + " is defined twice, or out of range");
    while (tape_.tensors.size() <= static_cast<size_t>(id)) tape_.tensors.emplace_back();
    known_.resize(tape_.tensors.size());
    known_[id] = true;
    TensorInfo& t = tape_.tensors[id];
    info(t);
    return t;
  }

  Dims dims(std::string_view close) {
    Dims out;
    if (in_.accept(close)) return out;
    do out.push_back(in_.integer());
    while (in_.accept(","));
    in_.expect(close);
    return out;
  }
  uint64_t bits() {
    uint64_t mask = 0;
    in_.expect("[");
    for (int64_t bit : dims("]")) mask |= uint64_t{1} << (bit & 63);
    return mask;
  }

  void info(TensorInfo& t) {
    t.dtype = read_torch_dtype(in_);
    in_.expect("[");
    t.sizes = dims("]");
    t.strides = in_.accept("{") ? dims("}") : contiguous(t.sizes);
    if (const auto device = accept_device(in_)) t.device = *device;
    std::optional<TensorId> over;
    while (fact_of(t, over)) continue;
    if (t.plain) t.storage = over ? tape_.tensors[*over].storage : storages_++;
  }
  bool fact_of(TensorInfo& t, std::optional<TensorId>& over) {
    static constexpr std::pair<const char*, bool TensorInfo::*> kWords[] = {
        {"zero", &TensorInfo::zero},       {"conjugated", &TensorInfo::conjugated},
        {"negated", &TensorInfo::negated}, {"requires_grad", &TensorInfo::requires_grad},
        {"chosen", &TensorInfo::chosen},   {"data_sized", &TensorInfo::data_sized}};
    for (const auto& [word, flag] : kWords)
      if (in_.accept(word)) return t.*flag = true;
    if (in_.accept("over"))
      over = tensor();
    else if (in_.accept("at"))
      t.offset = in_.integer();
    else if (in_.accept("not_plain"))
      t.plain = false;
    else if (in_.accept("data"))
      t.data_dims = bits();
    else
      return false;
    return true;
  }

  void input(TensorId id) {
    TensorInfo& t = define(id);
    t.input = static_cast<int>(tape_.inputs.size());
    tape_.inputs.push_back(id);
    context_.is_param.push_back(in_.accept("param"));
    context_.dynamic.push_back(in_.accept("dynamic") ? bits() : 0);
    if (in_.accept("const")) context_.constants.emplace(t.input, contents(t));
  }
  at::Tensor contents(const TensorInfo& t) {
    const c10::Type& type = *c10::NumberType::get();
    at::Tensor out = at::empty({t.elements()}, t.dtype);
    in_.expect("[");
    for (int64_t i = 0; i < out.numel(); ++i) {
      if (i) in_.expect(",");
      out[i].fill_(values_.value(type).toScalar());
    }
    in_.expect("]");
    return out.reshape({t.sizes.begin(), t.sizes.end()});
  }

  /// Numbers that the text does not name are of tensors that nobody uses.
  void fill_gaps() {
    for (size_t i = 0; i < known_.size(); ++i) {
      if (known_[i]) continue;
      tape_.tensors[i].dtype = c10::ScalarType::Float;
      tape_.tensors[i].storage = storages_++;
    }
  }

  // ---- entries ----

  void entry() {
    std::vector<Arg> results;
    if (in_.sees("%") || in_.sees("[") || in_.sees("_") || in_.sees("undefined")) {
      do results.push_back(result());
      while (in_.accept(","));
      in_.expect("=");
    }
    const c10::OperatorHandle op = operation();
    const OperatorFacts& facts = facts_of(op);
    if (results.size() != facts.returns)
      in_.fail(c10::toString(op.operator_name()) + " has " + std::to_string(facts.returns) + " results,");
    Entry e{op, &facts, tape_.args->take(facts.arguments), tape_.args->take(facts.returns)};
    arguments(e);
    std::move(results.begin(), results.end(), e.results.begin());
    e.grad_mode = grad_;
    e.inference_mode = inference_;
    if (in_.accept("counting")) {
      in_.expect("writes");
      in_.expect("apart");
      e.own_version = true;
    }
    e.loc = line();
    tape_.entries.push_back(std::move(e));
  }

  Arg result() {
    Arg r;
    if (in_.accept("_")) return r;
    if (!in_.accept("[")) {
      r.kind = Arg::Kind::Tensor;
      r.tensors.push_back(one_result());
      return r;
    }
    r.kind = Arg::Kind::TensorList;
    if (in_.accept("]")) return r;
    do r.tensors.push_back(one_result());
    while (in_.accept(","));
    in_.expect("]");
    return r;
  }
  TensorId one_result() {
    if (in_.accept("undefined")) return -1;
    const std::string_view start = in_.place();
    const TensorId id = in_.number_after("%");
    if (in_.accept(":")) {
      define(id).producer = static_cast<int>(tape_.entries.size());
      return id;
    }
    in_.go_to(start);
    return tensor();
  }

  c10::OperatorHandle operation() {
    const std::string_view start = in_.place();
    std::string name(in_.name());
    in_.expect("::");
    const std::string_view rest = in_.name();
    const size_t dot = rest.find('.');
    name += "::" + std::string(rest.substr(0, dot));
    const std::string overload(dot == rest.npos ? "" : rest.substr(dot + 1));
    if (auto op = c10::Dispatcher::singleton().findSchema({name, overload})) return *op;
    std::vector<std::string> known;
    for (const c10::OperatorName& each : c10::Dispatcher::singleton().getAllOpNames())
      known.push_back(c10::toString(each));
    const std::string wanted = name + (overload.empty() ? "" : "." + overload);
    const std::string_view guess = nearest(wanted, {known.begin(), known.end()});
    in_.go_to(start);
    in_.fail("no operator '" + wanted + "' is registered" +
             (guess.empty() ? "" : "; did you mean '" + std::string(guess) + "'?"));
  }

  void arguments(Entry& e) {
    const auto& schema = e.op.schema().arguments();
    std::vector<bool> given(schema.size());
    in_.expect("(");
    for (size_t next = 0; !in_.accept(")"); ++next) {
      if (next) in_.expect(",");
      const size_t i = place_of_argument(e, next);
      if (i >= schema.size() || given[i])
        in_.fail(c10::toString(e.op.operator_name()) + " is given an argument too many, or twice,");
      given[i] = true;
      e.args[i] = argument(*schema[i].real_type(), *schema[i].type());
    }
    for (size_t i = 0; i < schema.size(); ++i) {
      if (given[i]) continue;
      if (!schema[i].default_value())
        in_.fail(c10::toString(e.op.operator_name()) + " needs the argument '" + schema[i].name() + "'");
      e.args[i].value = *schema[i].default_value();
    }
  }
  /// alpha=1, or the next one in the schema's order.
  size_t place_of_argument(const Entry& e, size_t next) {
    const std::string_view start = in_.place();
    const std::string name(in_.word());
    if (!name.empty() && in_.accept("=")) {
      const auto known = e.op.schema().argumentIndexWithName(name);
      if (!known) in_.fail(c10::toString(e.op.operator_name()) + " has no argument '" + name + "'");
      return static_cast<size_t>(*known);
    }
    in_.go_to(start);
    return next;
  }

  /// `real`: what the schema says, `stored`: what a value of that type is stored as.
  Arg argument(const c10::Type& real, const c10::Type& stored) {
    Arg arg;
    if (in_.accept("None")) return arg;
    const c10::Type& type = needed_type(real);
    if (type.kind() == TypeKind::ListType) {
      list(arg, type, needed_type(stored));
    } else if (in_.sees("%") || in_.accept("undefined")) {
      arg.kind = Arg::Kind::Tensor;
      arg.tensors.push_back(in_.sees("%") ? tensor() : -1);
    } else {
      if (type.kind() == TypeKind::TensorType) arg.kind = Arg::Kind::WrappedNumber;
      arg.value = values_.value(type);
      if (in_.accept("is")) arg.syms = std::vector<Sym>{in_.sym()};
      if (in_.accept("from")) arg.tensors.push_back(tensor());
    }
    return arg;
  }

  void list(Arg& arg, const c10::Type& type, const c10::Type& stored) {
    in_.expect("[");
    const auto& element = *type.castRaw<c10::ListType>()->getElementType();
    if (needed_type(element).kind() == TypeKind::TensorType) {
      const bool optional = element.kind() == TypeKind::OptionalType;
      arg.kind = optional ? Arg::Kind::OptionalTensorList : Arg::Kind::TensorList;
      return elements([&] {
        const bool none = in_.accept(optional ? "None" : "undefined");
        arg.tensors.push_back(none ? -1 : tensor());
      });
    }
    c10::impl::GenericList values(stored.castRaw<c10::ListType>()->getElementType());
    std::vector<Sym> syms;
    bool symbolic = false;
    elements([&] {
      values.push_back(values_.value(needed_type(element)));
      const bool is = in_.accept("is");
      syms.push_back(is ? in_.sym() : own_number(values.get(values.size() - 1)));
      symbolic |= is;
    });
    arg.value = values;
    if (symbolic) arg.syms = std::move(syms);
  }
  template <class Element>
  void elements(Element element) {
    if (in_.accept("]")) return;
    do element();
    while (in_.accept(","));
    in_.expect("]");
  }

  /// Neighbours share a row of `locs`.
  int line() {
    const graph::Loc loc = graph::read_loc(in_);
    if (loc.line <= 0) return -1;
    const SourceLine line{loc.file, loc.function, loc.line};
    if (tape_.locs.empty() || !(tape_.locs.back() == line)) tape_.locs.push_back(line);
    return static_cast<int>(tape_.locs.size()) - 1;
  }

  TextReader in_;
  ValueReader values_;
  Tape tape_;
  TapeContext context_;
  std::vector<bool> known_;  // tensors that the text has named
  int storages_ = 0;
  bool grad_ = true, inference_ = false;
};

}  // namespace

ReadTape parse_tape(std::string_view text) { return Parser(text).run(); }

}  // namespace bolt::record
