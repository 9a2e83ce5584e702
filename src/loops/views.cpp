// loops/views.cpp
#include "loops/views.h"

#include "support/error.h"

namespace bolt::loops {
namespace {

using graph::Node;
using graph::Op;

Index reshape_index(const Syms& from, const Syms& to, const Index& index) {
  if (from == to) return index;
  Index out(to.size(), Sym(0));
  for (const ReshapeGroup& g : reshape_groups(from, to)) {
    // Sizes of 1 take no part: their index is 0.
    Syms sizes_in, sizes_out;
    Index in;
    std::vector<int> places;
    for (int i = g.from_begin; i < g.from_end; ++i)
      if (!from[i].is_const(1)) sizes_in.push_back(from[i]), in.push_back(index[i]);
    for (int i = g.to_begin; i < g.to_end; ++i)
      if (!to[i].is_const(1)) sizes_out.push_back(to[i]), places.push_back(i);
    Index cut = sizes_in == sizes_out ? in : delinearize(sizes_out, linearize(sizes_in, in));
    for (size_t i = 0; i < places.size(); ++i) out[places[i]] = cut[i];
  }
  return out;
}

std::optional<StridedView> reshape_strides(const Syms& from, const Syms& to, const StridedView& operand) {
  StridedView out{Syms(to.size(), Sym(1)), operand.offset};
  for (const ReshapeGroup& g : reshape_groups(from, to)) {
    // Cut the group's dimensions from the inside: a run of them that is contiguous among itself may be cut
    // anew.
    int i = g.from_end - 1, o = g.to_end - 1;
    Sym stride = 1;
    while (i >= g.from_begin || o >= g.to_begin) {
      while (i >= g.from_begin && from[i].is_const(1)) --i;
      if (i < g.from_begin) {  // only sizes of 1 are left
        for (; o >= g.to_begin; --o) {
          if (!to[o].is_const(1)) return std::nullopt;
          out.strides[o] = stride;
        }
        break;
      }
      Sym base = operand.strides[i], run = from[i];
      stride = base;
      int k = i - 1;
      for (; k >= g.from_begin; --k) {
        if (from[k].is_const(1)) continue;
        if (operand.strides[k] != base * run) break;
        run *= from[k];
      }
      Sym done = 1;
      for (; o >= g.to_begin && done != run; --o) {
        out.strides[o] = base * done;
        done *= to[o];
      }
      if (done != run) return std::nullopt;
      stride = base * run;
      i = k;
      if (i < g.from_begin)
        for (; o >= g.to_begin; --o) out.strides[o] = stride;
    }
  }
  return out;
}

Index as_strided_up(const Node& node, const Index& result) {
  Sym at = sym_attr(node, "offset");
  const auto& strides = node.attr<Syms>("strides");
  for (size_t i = 0; i < result.size(); ++i) at += strides[i] * result[i];
  return delinearize(node.operands[0]->type.sizes, at);
}

bool is_whole_slice(const Node& node) {
  int dim = static_cast<int>(sym_attr(node, "dim").value());
  return sym_attr(node, "step", 1).is_const(1) && sym_attr(node, "start").is_const(0) &&
         node.out()->type.sizes[dim] == node.operands[0]->type.sizes[dim];
}

}  // namespace

Sym sym_attr(const Node& node, std::string_view name, Sym fallback) {
  auto it = node.attrs.find(name);
  if (it == node.attrs.end()) return fallback;
  if (const int64_t* v = std::get_if<int64_t>(&it->second)) return *v;
  const auto* list = std::get_if<Syms>(&it->second);
  BOLT_CHECK(list && list->size() == 1, "attribute ", name, " of ", graph::op_info(node.op).name,
             " is no integer");
  return (*list)[0];
}

std::vector<int> int_list(const Node& node, std::string_view name) {
  std::vector<int> out;
  for (Sym s : node.attr<Syms>(name)) out.push_back(static_cast<int>(s.value()));
  return out;
}

std::vector<ReshapeGroup> reshape_groups(const Syms& from, const Syms& to) {
  std::vector<ReshapeGroup> groups;
  int i = 0, o = 0, n = static_cast<int>(from.size()), m = static_cast<int>(to.size());
  while (i < n || o < m) {
    ReshapeGroup g{i, i, o, o};
    if (i < n && o < m && from[i] == to[o]) {
      g.from_end = ++i, g.to_end = ++o;
    } else if (i < n && from[i].is_const(1)) {
      g.from_end = ++i;
    } else if (o < m && to[o].is_const(1)) {
      g.to_end = ++o;
    } else {
      // Grow the side whose product is smaller; unknown products grow both until they agree or all is taken.
      Sym a = i < n ? from[i++] : Sym(1), b = o < m ? to[o++] : Sym(1);
      while (a != b && (i < n || o < m)) {
        bool known = a.is_const() && b.is_const();
        bool grow_from =
            i < n && (o >= m || (known ? a.value() < b.value() : i - g.from_begin <= o - g.to_begin));
        if (grow_from)
          a *= from[i++];
        else
          b *= to[o++];
      }
      g.from_end = i, g.to_end = o;
    }
    groups.push_back(g);
  }
  return groups;
}

Sym linearize(const Syms& sizes, const Index& index) {
  Sym at = 0, stride = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    if (!index[i].is_const(0)) at += index[i] * stride;
    stride *= sizes[i];
  }
  return at;
}

Index delinearize(const Syms& sizes, Sym position) {
  Index out(sizes.size(), Sym(0));
  for (size_t i = sizes.size(); i-- > 0;) {
    if (i == 0) {
      out[0] = position;  // in bounds by construction
    } else if (!sizes[i].is_const(1) && !sizes[i].is_const(0)) {
      out[i] = mod(position, sizes[i]);
      position = floordiv(position, sizes[i]);
    }
  }
  return out;
}

Index broadcast_up(const graph::Type& operand, const Index& result) {
  Index out(operand.rank(), Sym(0));
  size_t skip = result.size() - out.size();
  for (size_t i = 0; i < out.size(); ++i)
    if (!operand.sizes[i].is_const(1)) out[i] = result[i + skip];
  return out;
}

Index view_up(const Node& node, const Index& result) {
  const graph::Type& operand = node.operands[0]->type;
  switch (node.op) {
    case Op::reshape: return reshape_index(node.out()->type.sizes, operand.sizes, result);
    case Op::expand: return broadcast_up(operand, result);
    case Op::as_strided: return as_strided_up(node, result);
    case Op::permute: {
      Index out(result.size(), Sym(0));
      std::vector<int> dims = int_list(node, "dims");
      for (size_t i = 0; i < dims.size(); ++i) out[dims[i]] = result[i];
      return out;
    }
    case Op::slice: {
      Index out = result;
      int dim = static_cast<int>(sym_attr(node, "dim").value());
      out[dim] = sym_attr(node, "start") + result[dim] * sym_attr(node, "step", 1);
      return out;
    }
    case Op::keep: return result;
    case Op::flip: {
      Index out = result;
      for (int d : int_list(node, "dims")) out[d] = operand.sizes[d] - 1 - result[d];
      return out;
    }
    default: BOLT_CHECK(false, graph::op_info(node.op).name, " is no view");
  }
  return {};
}

std::optional<Index> view_down(const Node& node, const Index& operand) {
  const graph::Type& from = node.operands[0]->type;
  const graph::Type& to = node.out()->type;
  switch (node.op) {
    case Op::reshape: return reshape_index(from.sizes, to.sizes, operand);
    case Op::permute: {
      Index out;
      for (int d : int_list(node, "dims")) out.push_back(operand[d]);
      return out;
    }
    case Op::keep: return operand;
    case Op::flip: {
      Index out = operand;
      for (int d : int_list(node, "dims")) out[d] = from.sizes[d] - 1 - operand[d];
      return out;
    }
    case Op::slice:
      if (is_whole_slice(node)) return operand;
      return std::nullopt;
    case Op::expand: {
      if (from.rank() > to.rank()) return std::nullopt;
      int skip = to.rank() - from.rank();
      Index out(to.rank(), Sym(0));
      for (int i = 0; i < to.rank(); ++i) {
        Sym old_size = i < skip ? Sym(1) : from.sizes[i - skip];
        if (old_size != to.sizes[i]) return std::nullopt;
        if (i >= skip) out[i] = operand[i - skip];
      }
      return out;
    }
    default: return std::nullopt;
  }
}

std::optional<StridedView> view_strides(const Node& node, const StridedView& operand) {
  const graph::Type& from = node.operands[0]->type;
  const graph::Type& to = node.out()->type;
  StridedView out = operand;
  switch (node.op) {
    case Op::reshape: return reshape_strides(from.sizes, to.sizes, operand);
    case Op::permute: {
      std::vector<int> dims = int_list(node, "dims");
      for (size_t i = 0; i < dims.size(); ++i) out.strides[i] = operand.strides[dims[i]];
      return out;
    }
    case Op::slice: {
      int dim = static_cast<int>(sym_attr(node, "dim").value());
      out.offset += sym_attr(node, "start") * operand.strides[dim];
      out.strides[dim] = operand.strides[dim] * sym_attr(node, "step", 1);
      return out;
    }
    case Op::expand: {
      int skip = to.rank() - from.rank();
      out.strides.assign(to.rank(), Sym(0));
      for (int i = skip; i < to.rank(); ++i)
        if (from.sizes[i - skip] == to.sizes[i]) out.strides[i] = operand.strides[i - skip];
      return out;
    }
    case Op::as_strided: {
      // Over the contiguous elements of the operand: a plain view of its memory only if that is contiguous.
      if (operand.strides != graph::contiguous_strides(from.sizes)) return std::nullopt;
      return StridedView{node.attr<Syms>("strides"), operand.offset + sym_attr(node, "offset")};
    }
    case Op::keep: return operand;
    default: return std::nullopt;  // of flip, too: there are no negative strides
  }
}

}  // namespace bolt::loops
