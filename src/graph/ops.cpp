// graph/ops.cpp
// The table of operations, read from ops.def, and the check of a node's attributes against its
// row.
#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>

#include "graph/op_rules.h"
#include "graph/pointwise.h"
#include "support/error.h"
#include "support/text.h"

namespace bolt::graph {
namespace {

constexpr size_t kOps = static_cast<size_t>(Op::kCount);

enum class LibraryResult : uint8_t { Fresh, Shared };

constexpr std::array<OpInfo, kOps> kInfo = {{
#define BOLT_OP(name, kind, lo, hi, shape, dtype, attrs) {#name, OpKind::kind, lo, hi, false},
#define BOLT_LIBRARY(name, lo, hi, shape, dtype, result, attrs) \
  {#name, OpKind::Library, lo, hi, LibraryResult::result == LibraryResult::Fresh},
#include "graph/ops.def"
#undef BOLT_LIBRARY
#undef BOLT_OP
}};
constexpr std::array<OpRules, kOps> kRules = {{
#define BOLT_OP(name, kind, lo, hi, shape, dtype, attrs) {ShapeRule::shape, DTypeRule::dtype},
#include "graph/ops.def"
#undef BOLT_OP
}};
constexpr std::array<std::string_view, kOps> kAttrText = {{
#define BOLT_OP(name, kind, lo, hi, shape, dtype, attrs) attrs,
#include "graph/ops.def"
#undef BOLT_OP
}};

constexpr PointwiseRow kPointwise[] = {
#define BOLT_POINTWISE(name, operands, dtype, cost, form, promotion, aten, attrs) \
  {#name, Op::name, operands, Cost::cost, Form::form, Promotion::promotion, aten},
#include "graph/pointwise.def"
#undef BOLT_POINTWISE
};
static_assert(static_cast<size_t>(kPointwise[0].op) == 0, "pointwise_row counts from the first operation");

AttrType attr_type(std::string_view text) {
  constexpr std::pair<std::string_view, AttrType> names[] = {
      {"int", AttrType::Int},   {"float", AttrType::Float},   {"bool", AttrType::Bool},
      {"str", AttrType::Str},   {"dtype", AttrType::Dtype},   {"number", AttrType::Number},
      {"ints", AttrType::Ints}, {"floats", AttrType::Floats}, {"sym", AttrType::Sym}};
  for (auto [name, type] : names)
    if (name == text) return type;
  throw_unsupported("unknown attribute type '", text, "' in ops.def");
}

Attr default_value(AttrType type, std::string_view text) {
  switch (type) {
    case AttrType::Bool: return text == "true";
    case AttrType::Str: return std::string(text);
    case AttrType::Float: return std::strtod(std::string(text).c_str(), nullptr);
    default: break;
  }
  int64_t v = 0;
  std::from_chars(text.data(), text.data() + text.size(), v);
  if (type == AttrType::Sym) return Syms{v};
  return v;
}

// "dim: int, step: int = 1, scale: float?"
std::vector<AttrSpec> parse_row(std::string_view row) {
  std::vector<AttrSpec> out;
  for (std::string_view item : split(row, ',')) {
    size_t colon = item.find(':'), equals = item.find('=');
    std::string_view type =
        trim(item.substr(colon + 1, equals == std::string_view::npos ? equals : equals - colon - 1));
    bool optional = type.back() == '?';
    if (optional) type.remove_suffix(1);
    AttrSpec spec{std::string(trim(item.substr(0, colon))), attr_type(type), !optional, std::nullopt};
    if (equals != std::string_view::npos) {
      spec.fallback = default_value(spec.type, trim(item.substr(equals + 1)));
      spec.required = false;
    }
    out.push_back(std::move(spec));
  }
  return out;
}

// Brings `a` to the type of the row; false when it cannot be that type.
bool adapt(AttrType type, Attr& a) {
  const int64_t* integer = std::get_if<int64_t>(&a);
  switch (type) {
    case AttrType::Int: return integer;
    case AttrType::Float:
      if (integer) a = static_cast<double>(*integer);
      return std::holds_alternative<double>(a);
    case AttrType::Bool: return std::holds_alternative<bool>(a);
    case AttrType::Str: return std::holds_alternative<std::string>(a);
    case AttrType::Dtype: return std::holds_alternative<DType>(a);
    case AttrType::Number: {
      if (const auto* size = std::get_if<Syms>(&a)) {
        if (size->size() != 1) return false;
        if (size->front().is_const()) a = size->front().value();
        return true;
      }
      return integer || std::holds_alternative<double>(a) || std::holds_alternative<bool>(a);
    }
    case AttrType::Ints: return std::holds_alternative<Syms>(a);
    case AttrType::Floats: return std::holds_alternative<std::vector<double>>(a);
    case AttrType::Sym: {
      if (integer) a = Syms{*integer};
      const auto* list = std::get_if<Syms>(&a);
      return list && list->size() == 1;
    }
  }
  return false;
}

}  // namespace

const OpInfo& op_info(Op op) { return kInfo[static_cast<size_t>(op)]; }
const OpRules& op_rules(Op op) { return kRules[static_cast<size_t>(op)]; }

std::span<const PointwiseRow> pointwise_rows() { return kPointwise; }
const PointwiseRow& pointwise_row(Op op) {
  const auto place = static_cast<size_t>(op);
  BOLT_CHECK(place < std::size(kPointwise), op_info(op).name, " does not work element by element");
  return kPointwise[place];
}

const Op* op_from_name(std::string_view name) {
  static const auto* index = [] {
    auto* m = new std::unordered_map<std::string_view, Op>;
    for (size_t i = 0; i < kOps; ++i) m->emplace(kInfo[i].name, static_cast<Op>(i));
    return m;
  }();
  auto it = index->find(name);
  return it == index->end() ? nullptr : &it->second;
}

const std::vector<AttrSpec>& op_attrs(Op op) {
  static const auto* specs = [] {
    auto* all = new std::array<std::vector<AttrSpec>, kOps>;
    for (size_t i = 0; i < kOps; ++i) (*all)[i] = parse_row(kAttrText[i]);
    return all;
  }();
  return (*specs)[static_cast<size_t>(op)];
}

void normalize_attrs(Op op, Attrs& attrs) {
  size_t known = 0;
  for (const AttrSpec& spec : op_attrs(op)) {
    auto it = attrs.find(spec.name);
    if (it == attrs.end()) {
      BOLT_CHECK(!spec.required, op_info(op).name, " needs the attribute ", spec.name);
      if (!spec.fallback) continue;
      it = attrs.emplace(spec.name, *spec.fallback).first;
    }
    BOLT_CHECK(adapt(spec.type, it->second), "attribute ", spec.name, " of ", op_info(op).name,
               " has the wrong type");
    ++known;
  }
  // What the extension notes on its own calls is its business.
  if (known == attrs.size() || op == Op::extern_call) return;
  for (const auto& [name, value] : attrs) {
    bool found = false;
    for (const AttrSpec& spec : op_attrs(op)) found |= spec.name == name;
    BOLT_CHECK(found, op_info(op).name, " has no attribute ", name);
  }
}

}  // namespace bolt::graph
