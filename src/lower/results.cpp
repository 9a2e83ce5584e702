// lower/results.cpp
#include "lower/results.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <unordered_map>
#include <utility>

#include "record/operator_facts.h"
#include "support/error.h"

namespace bolt::lower {
namespace {

using graph::Type;
using record::TensorId;
using record::TensorInfo;

/// Does it, or what it is a view of, count the writes to it by itself (t.data)?
bool counts_apart(const record::Tape& tape, TensorId id) {
  while (id >= 0) {
    const TensorInfo& info = tape.tensors[id];
    if (info.producer < 0) return false;
    const record::Entry& e = tape.entries[info.producer];
    if (e.own_version) return true;
    TensorId shown = -1;
    for_each_tensor(e.args, [&](TensorId t) {
      if (t < id && tape.tensors[t].storage == info.storage) shown = t;
    });
    id = shown;
  }
  return false;
}

/// By storage: how often versions count that it is written to; not what turns a tensor (announce_reshaped).
std::unordered_map<int, int> counted_writes(const record::Tape& tape) {
  std::unordered_map<int, int> counted;
  for (const record::Entry& e : tape.entries)
    if (!e.facts->turns && !record::counts_no_write(e))
      for_each_written(e, [&](TensorId id) {
        if (!counts_apart(tape, id)) ++counted[tape.tensors[id].storage];
      });
  return counted;
}

void demand_same_type(const TensorInfo& view, const TensorInfo& base) {
  if (view.dtype != base.dtype)
    throw_unsupported("a result that shows its memory as numbers of another type");
}

/// Right behind what makes it: in a graph of layers, within its layer.
Value* copied(Windows& w, Value* v, const Type& want) {
  graph::Node* next = nullptr;
  if (v->def)
    if (auto at = std::next(v->def->position); at != w.out.graph->nodes.end()) next = at->get();
  const graph::Loc& loc = v->def ? v->def->loc : w.loc;
  return w.out.graph->make_typed(Op::cast, {v}, {{"dtype", want.dtype}}, {want}, loc, next)->out();
}

/// Of these sizes and strides; what it is yet to be said.
TensorOut shown(const Windows& w, TensorId id) {
  TensorOut o;
  const Type type = w.type_of(id);
  o.sizes = type.sizes;
  o.strides = type.strides;
  return o;
}

/// A tensor that the graph makes.
TensorOut fresh_output(Windows& w, TensorId id, TensorOut o) {
  auto& outputs = w.out.graph->outputs;
  o.kind = TensorOut::Kind::Fresh;
  o.index = static_cast<int>(outputs.size());
  Value* v = w.read(id);
  Type want = w.type_of(id);
  // A value that is an input, a view or already an output with other strides needs memory of its own.
  bool own = v->def && graph::op_info(v->def->op).kind != graph::OpKind::View && v->type == want;
  for (const auto& existing : outputs) own = own && existing.value != v;
  if (!own) v = copied(w, v, want);
  outputs.push_back({v, -1});
  return o;
}

/// A view of the input or output `index`, which is tensor `base`.
TensorOut view_of(const Windows& w, TensorId id, TensorId base, TensorOut::Kind kind, int index,
                  TensorOut o) {
  o.kind = kind;
  o.index = index;
  o.offset = w.offset_in(id, base);
  return o;
}

}  // namespace

void give_outputs(Windows& w, const std::vector<TensorId>& wanted) {
  const record::Tape& tape = w.tape;
  std::map<int, std::set<TensorId>> users;
  for (TensorId id : wanted) users[tape.tensors[id].storage].insert(id);
  auto& outputs = w.out.outputs;
  outputs.resize(wanted.size());
  std::map<int, int> roots;  // storage -> its TensorOut
  for (size_t i = 0; i < wanted.size(); ++i) {
    const TensorId id = wanted[i];
    const TensorInfo& info = tape.tensors[id];
    TensorOut o = shown(w, id);
    if (info.input >= 0 && !w.is_constant(id)) {
      o.kind = TensorOut::Kind::Input;
      o.index = info.input;
    } else if (const int input = w.input_of(id); input >= 0) {
      demand_same_type(info, tape.tensors[tape.inputs[input]]);
      o = view_of(w, id, tape.inputs[input], TensorOut::Kind::InputView, input, std::move(o));
      o.detached = w.is_detached(id);
    } else if (users[info.storage].size() == 1 && !record::elements_share_memory(info.sizes, info.strides)) {
      auto [it, first] = roots.try_emplace(info.storage, static_cast<int>(i));
      o = first ? fresh_output(w, id, std::move(o)) : outputs[it->second];
    } else {
      const TensorId root = w.root_of(id);
      auto [it, first] = roots.try_emplace(info.storage, static_cast<int>(outputs.size()));
      if (first) {
        const auto itself = std::find(wanted.begin(), wanted.end(), root);
        if (itself == wanted.end())
          outputs.emplace_back();
        else
          it->second = static_cast<int>(itself - wanted.begin());
        outputs[it->second] = fresh_output(w, root, shown(w, root));
      }
      if (it->second == static_cast<int>(i)) continue;
      demand_same_type(info, tape.tensors[root]);
      o = view_of(w, id, root, TensorOut::Kind::OutputView, it->second, std::move(o));
    }
    outputs[i] = std::move(o);
  }
}

void write_back(Windows& w) {
  const auto counted = counted_writes(w.tape);
  for (TensorId id : w.tape.inputs) {
    if (!w.is_written(id) || w.root_of(id) != id || w.is_constant(id)) continue;
    int graph_input = -1;
    for (size_t i = 0; i < w.out.inputs.size(); ++i)
      if (w.out.inputs[i] == w.tape.tensors[id].input) graph_input = static_cast<int>(i);
    w.out.graph->inputs[graph_input].kind = graph::InputKind::Arg;  // changes from call to call by itself
    w.out.graph->outputs.push_back({w.read(id), graph_input});
    const auto writes = counted.find(w.tape.tensors[id].storage);
    w.out.counted_writes.resize(w.out.inputs.size());
    w.out.counted_writes[graph_input] = writes == counted.end() ? 0 : writes->second;
  }
}

void give_reshaped(Windows& w, const std::map<TensorId, TensorId>& turned) {
  for (const auto& [object, now] : turned) {
    const TensorInfo &first = w.tape.tensors[object], &last = w.tape.tensors[now];
    if (first.input < 0 || w.is_constant(object)) continue;  // a constant is nobody's argument
    if (first.sizes == last.sizes && first.strides == last.strides && first.offset == last.offset) continue;
    w.out.reshaped.push_back(view_of(w, now, object, TensorOut::Kind::InputView, first.input, shown(w, now)));
  }
}

}  // namespace bolt::lower
