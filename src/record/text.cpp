// record/text.cpp
// Tape -> text, for logs: one operator a line, as `%5 = aten::add.Tensor(%3, %4, alpha=1)  # model.py:12`.
#include <sstream>

#include "record/recorder.h"

namespace bolt::record {
namespace {

void names(std::ostream& out, const TensorIds& ids) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i) out << ", ";
    ids[i] < 0 ? out << "None" : out << "%" << ids[i];
  }
}

void argument(std::ostream& out, const Arg& arg) {
  switch (arg.kind) {
    case Arg::Kind::Value:
    case Arg::Kind::WrappedNumber: out << arg.value; break;
    case Arg::Kind::Tensor: names(out, arg.tensors); break;
    case Arg::Kind::TensorList:
    case Arg::Kind::OptionalTensorList:
      out << "[";
      names(out, arg.tensors);
      out << "]";
      break;
  }
}

void form(std::ostream& out, const TensorInfo& info) {
  out << c10::toString(info.dtype) << at::IntArrayRef(info.sizes);
  if (info.requires_grad) out << " requires_grad";
}

}  // namespace

std::string print(const Tape& tape) {
  std::ostringstream out;
  for (TensorId id : tape.inputs) {
    out << "%" << id << " = input ";
    form(out, tape.tensors[id]);
    out << "\n";
  }
  for (const Entry& e : tape.entries) {
    for (size_t r = 0; r < e.results.size(); ++r) {
      if (r) out << ", ";
      e.results[r].kind == Arg::Kind::Value ? out << "_" : (names(out, e.results[r].tensors), out);
    }
    out << " = " << c10::toString(e.op.operator_name()) << "(";
    const auto& arguments = e.op.schema().arguments();
    for (size_t i = 0; i < e.args.size(); ++i) {
      if (i) out << ", ";
      if (arguments[i].kwarg_only()) out << arguments[i].name() << "=";
      argument(out, e.args[i]);
    }
    out << ")" << (e.own_version ? " counting writes apart" : "");
    if (e.loc >= 0) out << "  # " << tape.locs[e.loc].file << ":" << tape.locs[e.loc].line;
    out << "\n";
  }
  return out.str();
}

}  // namespace bolt::record
