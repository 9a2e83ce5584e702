// record/symint.cpp
#include "record/symint.h"

#include <ATen/ScalarOps.h>
#include <c10/core/SymNodeImpl.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/utils/python_symnode.h>

#include <bit>
#include <cmath>

#include "python/gil.h"
#include "record/parsed_floats.h"
#include "support/error.h"

namespace bolt::record {
namespace {

using Notes = std::shared_ptr<SizeNotes>;

/// The outcome of a comparison: a fact once somebody asks for it.
class Answer final : public c10::SymNodeImpl {
 public:
  Answer(std::vector<SizeFact> asked, bool yes, Notes notes)
      : asked_(std::move(asked)), yes_(yes), notes_(std::move(notes)) {}

  bool is_int() override { return false; }
  bool is_bool() override { return true; }
  bool is_float() override { return false; }
  bool has_hint() override { return true; }
  std::string str() override { return asked_.empty() ? (yes_ ? "True" : "False") : bolt::str(asked_[0]); }
  bool bool_() override { return guard_bool(__FILE__, __LINE__); }
  bool guard_bool(const char*, int64_t) override {
    for (const SizeFact& f : asked_) notes_->add(f.a, f.relation, f.b);
    return yes_;
  }
  // Of an operator's own checks: it makes them again in each call.
  bool expect_true(const char*, int64_t) override { return yes_; }
  bool statically_known_true(const char*, int64_t) override { return false; }
  bool guard_or_false(const char* file, int64_t line) override { return guard_bool(file, line); }
  bool guard_or_true(const char* file, int64_t line) override { return guard_bool(file, line); }
  bool guard_size_oblivious(const char* file, int64_t line) override { return guard_bool(file, line); }
  c10::SymNode wrap_bool(bool value) override {
    return c10::make_intrusive<Answer>(std::vector<SizeFact>{}, value, notes_);
  }
  c10::SymNode sym_and(const c10::SymNode& other) override {
    return with(other, [](bool a, bool b) { return a && b; });
  }
  c10::SymNode sym_or(const c10::SymNode& other) override {
    return with(other, [](bool a, bool b) { return a || b; });
  }
  c10::SymNode sym_not() override { return c10::make_intrusive<Answer>(asked_, !yes_, notes_); }

 private:
  template <class Join>
  c10::SymNode with(const c10::SymNode& other, Join join) {
    auto* right = dynamic_cast<Answer*>(other.get());
    const bool value = right ? right->yes_ : other->guard_bool(__FILE__, __LINE__);
    std::vector<SizeFact> both = asked_;
    if (right) both.insert(both.end(), right->asked_.begin(), right->asked_.end());
    return c10::make_intrusive<Answer>(std::move(both), join(yes_, value), notes_);
  }

  std::vector<SizeFact> asked_;  ///< they hold, and imply the answer
  bool yes_;
  Notes notes_;
};

class Number final : public c10::SymNodeImpl {
 public:
  Number(Sym size, int64_t value, Notes notes) : size(size), value(value), notes_(std::move(notes)) {}

  bool is_int() override { return true; }
  bool is_bool() override { return false; }
  bool is_float() override { return false; }
  bool has_hint() override { return true; }
  std::string str() override { return size.str(); }
  c10::SymNode clone() override { return c10::make_intrusive<Number>(size, value, notes_); }
  c10::SymNode wrap_int(int64_t number) override {
    return c10::make_intrusive<Number>(number, number, notes_);
  }
  c10::SymNode wrap_bool(bool answer) override {
    return c10::make_intrusive<Answer>(std::vector<SizeFact>{}, answer, notes_);
  }
  int64_t guard_int(const char*, int64_t) override {
    if (!size.is_const()) notes_->add(size, Relation::eq, value);
    return value;
  }
  int64_t int_() override { return guard_int(__FILE__, __LINE__); }
  std::optional<int64_t> maybe_as_int() override {
    return size.is_const() ? std::optional(value) : std::nullopt;
  }
  std::optional<int64_t> constant_int() override { return maybe_as_int(); }
  bool is_constant() override { return size.is_const(); }

  c10::SymNode add(const c10::SymNode& o) override { return make(size + of(o).size, value + of(o).value); }
  c10::SymNode sub(const c10::SymNode& o) override { return make(size - of(o).size, value - of(o).value); }
  c10::SymNode mul(const c10::SymNode& o) override { return make(size * of(o).size, value * of(o).value); }
  c10::SymNode neg() override { return make(Sym(0) - size, -value); }
  c10::SymNode sym_min(const c10::SymNode& o) override {
    return make(min(size, of(o).size), std::min(value, of(o).value));
  }
  c10::SymNode sym_max(const c10::SymNode& o) override {
    return make(max(size, of(o).size), std::max(value, of(o).value));
  }
  c10::SymNode floordiv(const c10::SymNode& o) override { return divided(o, false); }
  c10::SymNode int_floordiv(const c10::SymNode& o) override { return divided(o, false); }
  c10::SymNode mod(const c10::SymNode& o) override { return divided(o, true); }

  c10::SymNode eq(const c10::SymNode& o) override { return answer(*this, Relation::eq, of(o)); }
  c10::SymNode ne(const c10::SymNode& o) override { return answer(*this, Relation::ne, of(o)); }
  c10::SymNode lt(const c10::SymNode& o) override { return answer(*this, Relation::lt, of(o)); }
  c10::SymNode le(const c10::SymNode& o) override { return answer(*this, Relation::le, of(o)); }
  c10::SymNode gt(const c10::SymNode& o) override { return answer(of(o), Relation::lt, *this); }
  c10::SymNode ge(const c10::SymNode& o) override { return answer(of(o), Relation::le, *this); }

  const Sym size;
  const int64_t value;

 private:
  static Number& of(const c10::SymNode& node) {
    auto* number = dynamic_cast<Number*>(node.get());
    BOLT_CHECK(number, "a size met a symbol of somebody else's");
    return *number;
  }
  c10::SymNode make(Sym s, int64_t v) { return c10::make_intrusive<Number>(s, v, notes_); }
  c10::SymNode divided(const c10::SymNode& o, bool remainder) {
    Number& by = of(o);
    const int64_t d = by.value > 0 ? by.value : by.guard_int(__FILE__, __LINE__);
    if (!by.size.is_const()) notes_->add(0, Relation::lt, by.size);
    const int64_t quotient = value / d - (value % d != 0 && (value % d < 0) != (d < 0));
    return remainder ? make(bolt::mod(size, by.size), value - quotient * d)
                     : make(bolt::floordiv(size, by.size), quotient);
  }
  c10::SymNode answer(const Number& a, Relation relation, const Number& b) {
    SizeNotes one;
    const bool yes = holds(a.value, relation, b.value);
    if (!a.size.is_const() || !b.size.is_const()) one.answered(a.size, relation, b.size, yes);
    return c10::make_intrusive<Answer>(std::move(one.facts), yes, notes_);
  }

  Notes notes_;
};

/// Nothing is computed with it in torch's own code: there it is taken for the number it is.
class Float final : public c10::SymNodeImpl {
 public:
  Float(Sym symbol, double value, Notes notes) : symbol(symbol), value(value), notes_(std::move(notes)) {}

  bool is_int() override { return false; }
  bool is_bool() override { return false; }
  bool is_float() override { return true; }
  bool has_hint() override { return true; }
  std::string str() override { return std::to_string(value); }
  c10::SymNode clone() override { return c10::make_intrusive<Float>(symbol, value, notes_); }
  c10::SymNode wrap_float(double number) override { return constant(number); }
  c10::SymNode wrap_int(int64_t number) override { return constant(static_cast<double>(number)); }
  c10::SymNode wrap_bool(bool answer) override {
    return c10::make_intrusive<Answer>(std::vector<SizeFact>{}, answer, notes_);
  }
  double guard_float(const char* file, int64_t) override {
    return ParsedFloats::asked(file, symbol, value, notes_) ? value : known();
  }
  int64_t guard_int(const char*, int64_t) override { return static_cast<int64_t>(known()); }
  c10::SymNode sym_float() override { return clone(); }
  c10::SymNode add(const c10::SymNode& o) override { return constant(known() + of(o)); }
  c10::SymNode sub(const c10::SymNode& o) override { return constant(known() - of(o)); }
  c10::SymNode mul(const c10::SymNode& o) override { return constant(known() * of(o)); }
  c10::SymNode truediv(const c10::SymNode& o) override { return constant(known() / of(o)); }
  c10::SymNode pow(const c10::SymNode& o) override { return constant(std::pow(known(), of(o))); }
  c10::SymNode neg() override { return constant(-known()); }
  c10::SymNode eq(const c10::SymNode& o) override { return wrap_bool(known() == of(o)); }
  c10::SymNode ne(const c10::SymNode& o) override { return wrap_bool(known() != of(o)); }
  c10::SymNode lt(const c10::SymNode& o) override { return wrap_bool(known() < of(o)); }
  c10::SymNode le(const c10::SymNode& o) override { return wrap_bool(known() <= of(o)); }
  c10::SymNode gt(const c10::SymNode& o) override { return wrap_bool(known() > of(o)); }
  c10::SymNode ge(const c10::SymNode& o) override { return wrap_bool(known() >= of(o)); }

  const Sym symbol;
  const double value;

 private:
  double known() {
    if (!symbol.is_const()) notes_->add(symbol, Relation::eq, std::bit_cast<int64_t>(value));
    return value;
  }
  static double of(const c10::SymNode& node) {
    return node->is_float() ? node->guard_float(__FILE__, __LINE__)
                            : static_cast<double>(node->guard_int(__FILE__, __LINE__));
  }
  c10::SymNode constant(double number) {
    return c10::make_intrusive<Float>(std::bit_cast<int64_t>(number), number, notes_);
  }

  Notes notes_;
};

}  // namespace

c10::SymFloat make_symfloat(Sym symbol, double value, std::shared_ptr<SizeNotes> notes) {
  return c10::SymFloat(c10::SymNode(c10::make_intrusive<Float>(symbol, value, std::move(notes))));
}

namespace {

/// torch's argument parser wraps a float's node in one of Python's; an int's it takes out.
c10::SymNode unwrapped(c10::SymNode node) {
  auto* python = dynamic_cast<torch::impl::PythonSymNodeImpl*>(node.get());
  if (!python) return node;
  const WithGil gil;
  const pybind11::handle inner = python->getPyObj();
  return pybind11::isinstance<c10::SymNodeImpl>(inner) ? inner.cast<c10::SymNode>() : node;
}

}  // namespace

Real take_apart(const c10::SymFloat& number) {
  if (!number.is_symbolic()) {
    const double value = number.as_float_unchecked();
    return {std::bit_cast<int64_t>(value), value};
  }
  const c10::SymNode node = unwrapped(number.toSymNodeImpl());
  auto* ours = dynamic_cast<Float*>(node.get());
  if (ours) return {ours->symbol, ours->value};
  const double value = number.guard_float(__FILE__, __LINE__);
  return {std::bit_cast<int64_t>(value), value};
}

c10::SymInt make_symint(Sym size, int64_t value, std::shared_ptr<SizeNotes> notes) {
  return c10::SymInt(c10::SymNode(c10::make_intrusive<Number>(size, value, std::move(notes))));
}

Size take_apart(const c10::SymInt& number) {
  if (auto known = number.maybe_as_int()) return {*known, *known};
  auto* ours = dynamic_cast<Number*>(number.toSymNodeImplUnowned());
  if (ours) return {ours->size, ours->value};
  const int64_t value = number.guard_int(__FILE__, __LINE__);
  return {value, value};
}

namespace {

/// Scalar[] of a schema, whose elements may be of different kinds.
bool is_scalar_list(const c10::IValue& argument) {
  return argument.isList() && argument.toList().elementType()->kind() == c10::TypeKind::NumberType;
}

}  // namespace

std::vector<Sym> take_symbols(c10::IValue& argument) {
  std::vector<Sym> out;
  if (argument.isSymInt()) {
    const Size s = take_apart(argument.toSymInt());
    argument = s.value;
    out.push_back(s.size);
  } else if (argument.isSymFloat()) {
    const Real r = take_apart(argument.toSymFloat());
    argument = r.value;
    out.push_back(r.symbol);
  } else if (argument.isSymIntList() && !argument.isIntList()) {
    c10::List<int64_t> numbers;
    for (const c10::SymInt& each : argument.toSymIntVector()) {
      const Size s = take_apart(each);
      numbers.push_back(s.value);
      out.push_back(s.size);
    }
    argument = numbers;
  } else if (is_scalar_list(argument)) {
    c10::List<c10::IValue> numbers = argument.toList().copy();
    bool any = false;
    for (size_t i = 0; i < numbers.size(); ++i) {
      c10::IValue number = numbers.get(i);
      any |= number.isSymInt() || number.isSymFloat();
      const std::vector<Sym> taken = take_symbols(number);
      if (!taken.empty())
        out.push_back(taken[0]);
      else
        out.emplace_back(number.isInt()      ? number.toInt()
                         : number.isDouble() ? std::bit_cast<int64_t>(number.toDouble())
                                             : 0);
      numbers.set(i, number);
    }
    if (!any) return {};
    argument = numbers;
  }
  return out;
}

std::vector<Sym> take_wrapped_symbol(c10::IValue& argument) {
  if (!argument.isTensor()) return {};
  const at::Tensor& t = argument.toTensor();
  if (!t.defined() || !t.unsafeGetTensorImpl()->is_wrapped_number()) return {};
  const WithGil gil;
  pybind11::object object = pybind11::reinterpret_steal<pybind11::object>(THPVariable_Wrap(t));
  PyObject* found = PyObject_GetAttrString(object.ptr(), "_wrapped_number");
  if (!found) return PyErr_Clear(), std::vector<Sym>{};
  auto symbol = pybind11::reinterpret_steal<pybind11::object>(found);
  Sym taken;
  at::Tensor number;
  if (torch::is_symfloat(symbol)) {
    const Real real = take_apart(symbol.cast<c10::SymFloat>());
    taken = real.symbol, number = c10::scalar_to_tensor(real.value);
  } else {
    const Size size = take_apart(symbol.cast<c10::SymInt>());
    taken = size.size, number = c10::scalar_to_tensor(size.value);
  }
  number.unsafeGetTensorImpl()->set_wrapped_number(true);
  argument = number;
  return {taken};
}

}  // namespace bolt::record
