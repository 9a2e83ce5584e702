// graph/text.cpp
// Graph -> text, in the form shown at the head of ir.h. parse() reads it back.
#include <algorithm>
#include <cctype>
#include <charconv>
#include <set>

#include "graph/text.h"
#include "support/text.h"

namespace bolt::graph {
namespace {

void write_list(const Syms& xs, std::string& out) {
  for (size_t i = 0; i < xs.size(); ++i) {
    if (i) out += ", ";
    out += xs[i].str();
  }
}

bool plain(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.'; }

std::string attr_text(const AttrSpec* spec, const Attr& a) {
  if (const auto* v = std::get_if<int64_t>(&a)) return std::to_string(*v);
  if (const auto* v = std::get_if<double>(&a)) return number(*v);
  if (const auto* v = std::get_if<bool>(&a)) return *v ? "true" : "false";
  if (const auto* v = std::get_if<std::string>(&a)) return bolt::quoted(*v);
  if (const auto* v = std::get_if<DType>(&a)) return std::string(dtype_name(*v));
  std::string out = "[";
  if (const auto* v = std::get_if<Syms>(&a)) {
    if (spec && spec->type != AttrType::Ints && v->size() == 1) return (*v)[0].str();
    write_list(*v, out);
  } else {
    const auto& list = std::get<std::vector<double>>(a);
    for (size_t i = 0; i < list.size(); ++i) out += (i ? ", " : "") + number(list[i]);
  }
  return out + "]";
}

class Printer {
 public:
  explicit Printer(const Graph& g) : g_(g) { name_values(); }

  std::string run() {
    out_ = "graph @" + (identifier(g_.name).empty() ? "region" : identifier(g_.name)) + "(";
    for (size_t i = 0; i < g_.inputs.size(); ++i) {
      const Input& in = g_.inputs[i];
      if (i) out_ += ", ";
      write_typed(in.value.get());
      out_ += kind_text(in.kind);
    }
    out_ += ") {\n";
    for (const auto& node : g_.nodes) write_node(*node);
    write_outputs();
    return out_ + "}\n";
  }

 private:
  void name_values() {
    std::set<std::string> taken;
    for (const Input& in : g_.inputs) {
      std::string base = identifier(in.value->name);
      if (base.empty()) base = "in" + std::to_string(in.value->index);
      std::string name = base;
      for (int n = 1; !taken.insert(name).second; ++n) name = base + "_" + std::to_string(n);
      names_[in.value.get()] = name;
    }
    int id = 0;
    for (const auto& node : g_.nodes)
      for (const auto& v : node->outputs) names_[v.get()] = std::to_string(id++);
  }
  void write_name(const Value* v) {
    auto it = names_.find(v);
    out_ += "%" + (it == names_.end() ? "undefined" : it->second);
  }
  void write_typed(const Value* v) {
    write_name(v);
    out_ += ": " + v->type.str();
  }

  void write_node(const Node& node) {
    size_t start = out_.size();
    out_ += "  ";
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (i) out_ += ", ";
      write_typed(node.out(static_cast<int>(i)));
    }
    out_ += (node.outputs.empty() ? "" : " = ") + std::string(op_info(node.op).name) + "(";
    for (size_t i = 0; i < node.operands.size(); ++i) {
      if (i) out_ += ", ";
      write_name(node.operands[i]);
    }
    out_ += ")";
    out_ += attrs_text(node);
    std::string line = out_.substr(start);
    append_loc(line, node.loc);
    out_.replace(start, std::string::npos, line + "\n");
  }

  void write_outputs() {
    bool returning = false;  // neighbours share one line
    for (const Output& o : g_.outputs) {
      if (o.write_to >= 0) {
        out_ += returning ? "\n  write " : "  write ";
        write_name(g_.inputs.at(o.write_to).value.get());
        out_ += " <- ";
        write_name(o.value);
        out_ += "\n";
      } else {
        out_ += returning ? ", " : "  return ";
        if (o.may_be_part) out_ += "part ";
        write_name(o.value);
      }
      returning = o.write_to < 0;
    }
    if (returning) out_ += "\n";
  }

  const Graph& g_;
  std::unordered_map<const Value*, std::string> names_;
  std::string out_;
};

}  // namespace

// Users' names may hold anything.
std::string identifier(std::string_view name) {
  std::string out;
  for (char c : name) {
    if (plain(c)) {
      out += c;
    } else if (!out.empty() && out.back() != '_') {
      out += '_';
    }
  }
  while (!out.empty() && out.back() == '_') out.pop_back();
  if (!out.empty() && std::isdigit(static_cast<unsigned char>(out[0]))) out.insert(0, 1, '_');
  return out;
}

std::string attrs_text(const Node& node) {
  if (node.attrs.empty()) return "";
  const std::vector<AttrSpec>& specs = op_attrs(node.op);
  std::string out;
  for (const auto& [name, value] : node.attrs) {
    auto spec = std::find_if(specs.begin(), specs.end(),
                             [&, key = &name](const AttrSpec& s) { return s.name == *key; });
    out +=
        (out.empty() ? " {" : ", ") + name + "=" + attr_text(spec == specs.end() ? nullptr : &*spec, value);
  }
  return out + "}";
}

void append_loc(std::string& line, const Loc& loc) {
  constexpr size_t kColumn = 64;
  if (loc.line <= 0) return;
  line.append(line.size() < kColumn ? kColumn - line.size() : 1, ' ');
  line.append("# ").append(loc.file).append(":").append(std::to_string(loc.line));
  if (!loc.function.empty()) line.append(" in ").append(loc.function);
}

std::string_view kind_text(InputKind kind) {
  switch (kind) {
    case InputKind::Arg: return "";
    case InputKind::Param: return " param";
    case InputKind::Const: return " const";
  }
  return "";
}

std::string Type::str() const {
  std::string out(dtype_name(dtype));
  out += "[";
  write_list(sizes, out);
  out += "]";
  if (strides != contiguous_strides(sizes)) {
    out += "{";
    write_list(strides, out);
    out += "}";
  }
  if (device.kind != DeviceKind::CPU) out += " " + graph::str(device);
  return out;
}

std::string str(const Device& device) {
  if (device.kind == DeviceKind::CPU) return "cpu";
  return (device.kind == DeviceKind::CUDA ? "cuda:" : "device:") + std::to_string(device.index);
}

Device parse_device(std::string_view text) {
  for (DeviceKind kind : {DeviceKind::CPU, DeviceKind::CUDA, DeviceKind::Other}) {
    const std::string first = str(Device{kind, 0});
    const std::string_view name = std::string_view(first).substr(0, first.find(':'));
    if (!text.starts_with(name)) continue;
    const std::string_view index = text.substr(name.size());
    if (index.empty()) return {kind, 0};
    int n = 0;
    const char* end = index.data() + index.size();
    if (index[0] == ':' && std::from_chars(index.data() + 1, end, n).ptr == end) return {kind, n};
  }
  throw_user("'", text, "' is no device");
}

std::string print(const Graph& g) { return Printer(g).run(); }

}  // namespace bolt::graph
