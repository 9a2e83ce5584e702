// graph/parser.cpp
// Text -> Graph: a recursive-descent reader of what text.cpp prints.
//
// # gives the line of user code a node came from. The type of a node's result may be left out where the
// operation has a rule, so that tests can be written by hand; where it is given it must agree with the rule
// (its strides are taken as written).
#include <charconv>

#include "graph/text.h"
#include "graph/verify.h"
#include "support/text.h"

namespace bolt::graph {
namespace {

Attr read_list(TextReader& in, const AttrSpec* spec) {
  if (!spec || spec->type != AttrType::Floats) return in.syms("]");
  std::vector<double> out;
  if (in.accept("]")) return out;
  do out.push_back(in.number());
  while (in.accept(","));
  in.expect("]");
  return out;
}

Attr read_attr(TextReader& in, const AttrSpec* spec) {
  if (in.sees("\"")) return in.string();
  if (in.accept("[")) return read_list(in, spec);
  if (in.accept("true")) return true;
  if (in.accept("false")) return false;
  if (spec && spec->type == AttrType::Dtype) return in.dtype();
  if (std::optional<double> v = in.real()) return *v;
  Sym s = in.sym();
  if (s.is_const()) return s.value();
  return Syms{s};
}

class Parser {
 public:
  explicit Parser(std::string_view text) : in_(text), graph_(std::make_unique<Graph>()) {}

  std::unique_ptr<Graph> run() {
    try {
      header();
      while (!in_.accept("}")) statement();
      if (!in_.at_end()) in_.fail("text after the graph");
      graph_->renumber();
      verify(*graph_);
    } catch (const Error& e) {
      in_.rethrow(e);
    }
    return std::move(graph_);
  }

 private:
  // ---- statements ----

  void define(std::string_view name, Value* v) {
    if (!values_.emplace(name, v).second) in_.fail("%" + std::string(name) + " is defined twice");
  }
  Value* value() {
    std::string_view name = in_.name_after("%");
    auto it = values_.find(name);
    if (it == values_.end()) in_.fail("%" + std::string(name) + " is not defined here");
    return it->second;
  }

  void header() {
    in_.expect("graph");
    graph_->name = std::string(in_.name_after("@"));
    in_.expect("(");
    if (!in_.accept(")")) {
      do input();
      while (in_.accept(","));
      in_.expect(")");
    }
    in_.expect("{");
  }
  void input() {
    std::string_view name = in_.name_after("%");
    in_.expect(":");
    Type t = read_type(in_);
    const InputKind kind = read_kind(in_);
    define(name, graph_->add_input(std::move(t), kind, std::string(name)));
  }

  void statement() {
    if (in_.at_end()) in_.fail("the graph has no end");
    if (in_.accept("return")) {
      do {
        const bool may_be_part = in_.accept("part");
        graph_->outputs.push_back({value(), -1, may_be_part});
      } while (in_.accept(","));
    } else if (in_.accept("write")) {
      Value* to = value();
      if (to->def) in_.fail("write to something that is no input");
      in_.expect("<-");
      graph_->outputs.push_back({value(), to->index});
    } else {
      node();
    }
  }

  void node() {
    const std::string_view start = in_.place();
    std::vector<std::string_view> names;
    std::vector<std::optional<Type>> types;
    if (in_.sees("%")) {
      do {
        names.push_back(in_.name_after("%"));
        types.push_back(in_.accept(":") ? std::optional<Type>(read_type(in_)) : std::nullopt);
      } while (in_.accept(","));
      in_.expect("=");
    }
    Op op = read_op(in_);
    in_.expect("(");
    std::vector<Value*> operands;
    if (!in_.accept(")")) {
      do operands.push_back(value());
      while (in_.accept(","));
      in_.expect(")");
    }
    Attrs attrs = read_attrs(in_, op);
    Loc loc = read_loc(in_);
    const std::string_view end = in_.place();
    in_.go_to(start);  // faults of the whole node are reported at its first line
    Node* made = build(op, std::move(operands), std::move(attrs), std::move(types), std::move(loc));
    for (size_t i = 0; i < names.size(); ++i) define(names[i], made->out(static_cast<int>(i)));
    in_.go_to(end);
  }

  Node* build(Op op, std::vector<Value*> operands, Attrs attrs, std::vector<std::optional<Type>> types,
              Loc loc) {
    if (op == Op::extern_call) {
      std::vector<Type> given;
      for (std::optional<Type>& t : types) {
        if (!t) in_.fail("extern_call needs the types of its results");
        given.push_back(std::move(*t));
      }
      return graph_->make_typed(op, std::move(operands), std::move(attrs), std::move(given), std::move(loc));
    }
    if (types.size() != 1) in_.fail("this operation has one result");
    Node* made = graph_->make(op, std::move(operands), std::move(attrs), std::move(loc));
    if (!types[0]) return made;
    Type& result = made->out()->type;
    if (types[0]->sizes != result.sizes || types[0]->dtype != result.dtype)
      in_.fail("the result is " + result.str() + ", not " + types[0]->str());
    result = *types[0];
    return made;
  }

  TextReader in_;
  std::unique_ptr<Graph> graph_;
  std::unordered_map<std::string_view, Value*> values_;
};

}  // namespace

Device read_device(TextReader& in) {
  Device d;
  if (in.accept("cuda"))
    d.kind = DeviceKind::CUDA;
  else if (in.accept("device"))
    d.kind = DeviceKind::Other;
  else
    return d;
  d.index = in.number_after(":");
  return d;
}

Type read_type(TextReader& in) {
  Type t;
  t.dtype = in.dtype();
  in.expect("[");
  t.sizes = in.syms("]");
  t.strides = in.accept("{") ? in.syms("}") : contiguous_strides(t.sizes);
  t.device = read_device(in);
  return t;
}

Op read_op(TextReader& in) {
  std::string_view name = in.word();
  if (const Op* op = op_from_name(name)) return *op;
  std::vector<std::string_view> all;
  for (int i = 0; i < static_cast<int>(Op::kCount); ++i) all.push_back(op_info(static_cast<Op>(i)).name);
  std::string_view guess = nearest(name, all);
  in.fail("no operation '" + std::string(name) + "'" +
          (guess.empty() ? "" : "; did you mean '" + std::string(guess) + "'?"));
}

Attrs read_attrs(TextReader& in, Op op) {
  Attrs out;
  if (!in.accept("{") || in.accept("}")) return out;
  do {
    const std::string name(in.name());
    const AttrSpec* spec = nullptr;
    for (const AttrSpec& s : op_attrs(op))
      if (s.name == name) spec = &s;
    if (!spec && op != Op::extern_call)
      in.fail(std::string(op_info(op).name) + " has no attribute '" + name + "'");
    in.expect("=");
    out[name] = read_attr(in, spec);
  } while (in.accept(","));
  in.expect("}");
  return out;
}

// Names of files may hold anything, so the line is looked for from the end.
Loc read_loc(TextReader& in) {
  Loc loc;
  if (!in.accept("#")) return loc;
  const std::string_view text = in.rest_of_line();
  const char* const end = text.data() + text.size();
  for (size_t colon = text.rfind(':'); colon != text.npos && colon > 0; colon = text.rfind(':', colon - 1)) {
    const auto [rest, error] = std::from_chars(text.data() + colon + 1, end, loc.line);
    const std::string_view behind(rest, static_cast<size_t>(end - rest));
    if (error != std::errc() || !(behind.empty() || starts_with(behind, " in "))) continue;
    loc.file = Interned(text.substr(0, colon));
    if (!behind.empty()) loc.function = Interned(behind.substr(4));
    return loc;
  }
  in.fail("expected file:line after #");
}

InputKind read_kind(TextReader& in) {
  if (in.accept("param")) return InputKind::Param;
  return in.accept("const") ? InputKind::Const : InputKind::Arg;
}

std::unique_ptr<Graph> parse(std::string_view text) { return Parser(text).run(); }

}  // namespace bolt::graph
