// graph/parser.cpp
// Text -> Graph: a recursive-descent reader of what text.cpp prints.
//
// Comments start with ; and go to the end of the line; # gives the line of user code a node came from. The
// type of a node's result may be left out where the operation has a rule, so that tests can be written by
// hand; where it is given it must agree with the rule (its strides are taken as written).
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>

#include "graph/ir.h"
#include "graph/op_rules.h"
#include "graph/verify.h"
#include "support/error.h"
#include "support/text.h"

namespace bolt::graph {
namespace {

class Parser {
 public:
  explicit Parser(std::string_view text) : all_(text), rest_(text), graph_(std::make_unique<Graph>()) {}

  std::unique_ptr<Graph> run() {
    try {
      header();
      while (!accept("}")) statement();
      skip_blanks();
      if (!rest_.empty()) fail("text after the graph");
      graph_->renumber();
      verify(*graph_);
    } catch (const Error& e) {
      if (e.kind() == ErrorKind::User && starts_with(e.what(), "line ")) throw;
      fail(e.what());
    }
    return std::move(graph_);
  }

 private:
  // ---- characters ----

  [[noreturn]] void fail(std::string_view message) {
    size_t at = static_cast<size_t>(rest_.data() - all_.data());
    size_t line = 1 + static_cast<size_t>(
                          std::count(all_.begin(), all_.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
    std::string_view near = rest_.substr(0, std::min<size_t>(rest_.find('\n'), 40));
    throw_user("line ", line, ": ", message, near.empty() ? "" : " at '", near, near.empty() ? "" : "'");
  }
  void skip_blanks() {
    while (!rest_.empty()) {
      if (std::isspace(static_cast<unsigned char>(rest_[0]))) {
        rest_.remove_prefix(1);
      } else if (rest_[0] == ';') {
        rest_.remove_prefix(std::min(rest_.find('\n'), rest_.size()));
      } else {
        return;
      }
    }
  }
  bool accept(std::string_view token) {
    skip_blanks();
    if (!starts_with(rest_, token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }
  void expect(std::string_view token) {
    if (!accept(token)) fail("expected '" + std::string(token) + "'");
  }
  std::string_view word() {
    skip_blanks();
    size_t n = 0;
    while (n < rest_.size() &&
           (std::isalnum(static_cast<unsigned char>(rest_[n])) || rest_[n] == '_' || rest_[n] == '.'))
      ++n;
    std::string_view w = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return w;
  }
  bool accept_word(std::string_view expected) {
    skip_blanks();
    std::string_view saved = rest_;
    if (word() == expected) return true;
    rest_ = saved;
    return false;
  }
  std::string_view name_after(std::string_view sigil) {
    expect(sigil);
    std::string_view w = word();
    if (w.empty()) fail("expected a name");
    return w;
  }

  // ---- types ----

  Sym size() {
    skip_blanks();
    return parse_sym(rest_);
  }
  Syms size_list(std::string_view close) {
    Syms out;
    if (accept(close)) return out;
    do out.push_back(size());
    while (accept(","));
    expect(close);
    return out;
  }
  Device device() {
    Device d;
    if (accept_word("cuda")) {
      d.kind = DeviceKind::CUDA;
    } else if (accept_word("device")) {
      d.kind = DeviceKind::Other;
    } else {
      return d;
    }
    expect(":");
    d.index = static_cast<int>(integer(word()));
    return d;
  }
  Type type() {
    std::string_view name = word();
    std::optional<DType> dtype = dtype_from_name(name);
    if (!dtype) fail("'" + std::string(name) + "' is no element type");
    Type t;
    t.dtype = *dtype;
    expect("[");
    t.sizes = size_list("]");
    t.strides = accept("{") ? size_list("}") : contiguous_strides(t.sizes);
    t.device = device();
    return t;
  }

  // ---- attributes ----

  int64_t integer(std::string_view text) {
    int64_t v = 0;
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
    if (error != std::errc() || end != text.data() + text.size())
      fail("expected an integer, not '" + std::string(text) + "'");
    return v;
  }
  std::string string_literal() {
    std::string out;
    while (!rest_.empty() && rest_[0] != '"') {
      char c = rest_[0];
      rest_.remove_prefix(1);
      if (c == '\\' && !rest_.empty()) {
        c = rest_[0];
        rest_.remove_prefix(1);
        if (c == 'n') c = '\n';
        if (c == 'x' && rest_.size() >= 2) {
          c = static_cast<char>(std::strtol(std::string(rest_.substr(0, 2)).c_str(), nullptr, 16));
          rest_.remove_prefix(2);
        }
      }
      out += c;
    }
    expect("\"");
    return out;
  }
  // A decimal with '.', an exponent, inf or nan; nothing is consumed when it is something else.
  std::optional<double> real() {
    skip_blanks();
    size_t n = rest_.size() && rest_[0] == '-' ? 1 : 0;
    bool fraction = false;
    std::string_view tail = rest_.substr(n);
    if (starts_with(tail, "inf") || starts_with(tail, "nan")) {
      n += 3;
      fraction = true;
    } else {
      while (n < rest_.size()) {
        char c = rest_[n];
        bool exponent_sign = (c == '-' || c == '+') && n > 0 && rest_[n - 1] == 'e';
        bool exponent = c == 'e' && n > 0 &&
                        (std::isdigit(static_cast<unsigned char>(rest_[n - 1])) || rest_[n - 1] == '.');
        if (!std::isdigit(static_cast<unsigned char>(c)) && c != '.' && !exponent && !exponent_sign) break;
        fraction |= c == '.' || exponent;
        ++n;
      }
    }
    if (!fraction) return std::nullopt;
    std::string text(rest_.substr(0, n));
    rest_.remove_prefix(n);
    return std::strtod(text.c_str(), nullptr);
  }
  Attr list_value(const AttrSpec* spec) {
    if (spec && spec->type == AttrType::Floats) {
      std::vector<double> out;
      while (!accept("]")) {
        std::optional<double> v = real();
        out.push_back(v ? *v : static_cast<double>(size().value()));
        if (!accept(",") && !starts_with(rest_, "]")) fail("expected , or ]");
      }
      return out;
    }
    return size_list("]");
  }
  Attr attr_value(const AttrSpec* spec) {
    if (accept("\"")) return string_literal();
    if (accept("[")) return list_value(spec);
    if (accept_word("true")) return true;
    if (accept_word("false")) return false;
    if (spec && spec->type == AttrType::Dtype) {
      std::string_view name = word();
      std::optional<DType> t = dtype_from_name(name);
      if (!t) fail("'" + std::string(name) + "' is no element type");
      return *t;
    }
    if (std::optional<double> v = real()) return *v;
    Sym s = size();
    if (s.is_const()) return s.value();
    return Syms{s};
  }
  Attrs attributes(Op op) {
    Attrs out;
    if (!accept("{")) return out;
    while (!accept("}")) {
      std::string name(word());
      const AttrSpec* spec = nullptr;
      for (const AttrSpec& s : op_attrs(op))
        if (s.name == name) spec = &s;
      if (!spec && op != Op::extern_call)
        fail(std::string(op_info(op).name) + " has no attribute '" + name + "'");
      expect("=");
      out[name] = attr_value(spec);
      if (!accept(",") && !starts_with(rest_, "}")) fail("expected , or }");
    }
    return out;
  }

  // ---- statements ----

  void define(std::string_view name, Value* v) {
    if (!values_.emplace(name, v).second) fail("%" + std::string(name) + " is defined twice");
  }
  Value* value() {
    std::string_view name = name_after("%");
    auto it = values_.find(name);
    if (it == values_.end()) fail("%" + std::string(name) + " is not defined here");
    return it->second;
  }

  void header() {
    if (!accept_word("graph")) fail("expected 'graph'");
    graph_->name = std::string(name_after("@"));
    expect("(");
    if (!accept(")")) {
      do input();
      while (accept(","));
      expect(")");
    }
    expect("{");
  }
  void input() {
    std::string_view name = name_after("%");
    expect(":");
    Type t = type();
    InputKind kind = accept_word("param")   ? InputKind::Param
                     : accept_word("const") ? InputKind::Const
                                            : InputKind::Arg;
    define(name, graph_->add_input(std::move(t), kind, std::string(name)));
  }

  void statement() {
    skip_blanks();
    if (rest_.empty()) fail("the graph has no end");
    if (accept_word("return")) {
      do graph_->outputs.push_back({value(), -1});
      while (accept(","));
    } else if (accept_word("write")) {
      Value* to = value();
      if (to->def) fail("write to something that is no input");
      expect("<-");
      graph_->outputs.push_back({value(), to->index});
    } else {
      node();
    }
  }

  void node() {
    std::string_view start = rest_;
    std::vector<std::string_view> names;
    std::vector<std::optional<Type>> types;
    if (starts_with(rest_, "%")) {
      do {
        names.push_back(name_after("%"));
        types.push_back(accept(":") ? std::optional<Type>(type()) : std::nullopt);
      } while (accept(","));
      expect("=");
    }
    Op op = operation();
    expect("(");
    std::vector<Value*> operands;
    if (!accept(")")) {
      do operands.push_back(value());
      while (accept(","));
      expect(")");
    }
    Attrs attrs = attributes(op);
    Loc loc = location();
    std::string_view end = rest_;
    rest_ = start;  // faults of the whole node are reported at its first line
    Node* made = build(op, std::move(operands), std::move(attrs), std::move(types), std::move(loc));
    for (size_t i = 0; i < names.size(); ++i) define(names[i], made->out(static_cast<int>(i)));
    rest_ = end;
  }

  Op operation() {
    std::string_view name = word();
    const Op* op = op_from_name(name);
    if (op) return *op;
    std::vector<std::string_view> all;
    for (int i = 0; i < static_cast<int>(Op::kCount); ++i) all.push_back(op_info(static_cast<Op>(i)).name);
    std::string_view guess = nearest(name, all);
    fail("no operation '" + std::string(name) + "'" +
         (guess.empty() ? "" : "; did you mean '" + std::string(guess) + "'?"));
  }

  Node* build(Op op, std::vector<Value*> operands, Attrs attrs, std::vector<std::optional<Type>> types,
              Loc loc) {
    if (op == Op::extern_call) {
      std::vector<Type> given;
      for (std::optional<Type>& t : types) {
        if (!t) fail("extern_call needs the types of its results");
        given.push_back(std::move(*t));
      }
      return graph_->make_typed(op, std::move(operands), std::move(attrs), std::move(given), std::move(loc));
    }
    if (types.size() != 1) fail("this operation has one result");
    Node* made = graph_->make(op, std::move(operands), std::move(attrs), std::move(loc));
    if (!types[0]) return made;
    Type& result = made->out()->type;
    if (types[0]->sizes != result.sizes || types[0]->dtype != result.dtype)
      fail("the result is " + result.str() + ", not " + types[0]->str());
    result = *types[0];
    return made;
  }

  // # file:line in function
  Loc location() {
    Loc loc;
    if (!accept("#")) return loc;
    std::string_view text = rest_.substr(0, std::min(rest_.find('\n'), rest_.size()));
    rest_.remove_prefix(text.size());
    text = trim(text);
    if (size_t in = text.find(" in "); in != std::string_view::npos) {
      loc.function = Interned(text.substr(in + 4));
      text = text.substr(0, in);
    }
    size_t colon = text.rfind(':');
    if (colon == std::string_view::npos) fail("expected file:line after #");
    loc.file = Interned(text.substr(0, colon));
    loc.line = static_cast<int>(integer(text.substr(colon + 1)));
    return loc;
  }

  std::string_view all_, rest_;
  std::unique_ptr<Graph> graph_;
  std::unordered_map<std::string_view, Value*> values_;
};

}  // namespace

std::unique_ptr<Graph> parse(std::string_view text) { return Parser(text).run(); }

}  // namespace bolt::graph
