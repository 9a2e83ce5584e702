// lower/substitute.cpp
// A lowered program for sizes that are known by now.
#include "lower/functionalize.h"

namespace bolt::lower {

Lowered without_graph(const Lowered& lowered) {
  Lowered rest;
  rest.calls = lowered.calls;
  rest.inputs = lowered.inputs;
  rest.counted_writes = lowered.counted_writes;
  rest.outputs = lowered.outputs;
  rest.reshaped = lowered.reshaped;
  rest.constants = lowered.constants;
  return rest;
}

Lowered substituted(const graph::Graph& general, const Lowered& rest, const std::function<Sym(Sym)>& value) {
  Lowered one = without_graph(rest);
  one.graph = graph::clone(general);
  graph::substitute(*one.graph, value);
  for (ExternCall& call : one.calls)
    for (record::Arg& arg : call.args)
      for (Sym& s : arg.syms) s = bolt::substitute(s, value);
  for (auto* list : {&one.outputs, &one.reshaped})
    for (TensorOut& o : *list) {
      for (auto* sizes : {&o.sizes, &o.strides})
        for (Sym& s : *sizes) s = bolt::substitute(s, value);
      o.offset = bolt::substitute(o.offset, value);
    }
  return one;
}

}  // namespace bolt::lower
