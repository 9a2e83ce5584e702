// loops/space.h
// A group of graph nodes -> one iteration space that all of its stored values and reductions agree on.
//
// The space is a list of atoms: loop variables, each with its size. It starts as the dimensions of the
// group's largest value (the operand of a reduction where there is one); walking the group's edges up and
// down gives every value on the way its index in the atoms. Where a reshape cuts a dimension, its atom is
// split in two, in every index found so far, and the division is gone:
//
//   x [2, 64, 768] -> reshape [2, 64, 12, 64]      a2 of 768 becomes a3*64 + a4: x[a0, a1, 64*a3 + a4], y[a0,
//   a1, a3, a4]
//
// So group_norm's reduction over [N, G, C/G*H*W] and its weight over C meet in one space [N, G, C/G, H, W].
// What is contiguous in every access is put together again at the end (build.cpp).
//
// A scan runs along one atom, which grows as its dimension does. A scatter is done at every place of its
// indices, so these cover the space; what it makes has no place there.
//
// Alignment fails, and the group must not be one kernel, when a stored value or a reduction cannot be given
// an index that covers it once, or when two reductions or scans run over different atoms.
#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include "graph/ir.h"
#include "loops/views.h"

namespace bolt::loops {

/// What becomes of a node.
enum class Role : uint8_t {
  Free,     // repeated in each kernel that uses it: views, constants, cheap pointwise work
  Fused,    // belongs to one kernel
  Library,  // a call: contraction, composite, extern
};

/// Facts about the graph that every decision needs; value ids are the graph's numbers after renumber().
struct Usage {
  std::vector<std::vector<const graph::Node*>> users;  // by value id
  std::vector<Role> role;                              // by id of the node's first output
  std::vector<char> materialized;                      // by value id: stored somewhere, kernels load it

  const std::vector<const graph::Node*>& users_of(const graph::Value* v) const { return users[v->id]; }
  Role role_of(const graph::Node* n) const { return n->outputs.empty() ? Role::Library : role[n->out()->id]; }
};

struct Group {
  std::vector<const graph::Node*> nodes;    // Fused ones, in execution order
  std::vector<const graph::Value*> stored;  // what libraries, other kernels or the caller need of it
};

struct Atom {
  Sym symbol, size;
  bool locked = false;  // the dimension of an argmax, whose position is a result, or of a scan: neither split
                        // nor merged
};

struct Space {
  std::vector<Atom> atoms;
  uint32_t reduced = 0;                  // bit per atom
  std::unordered_map<int, Index> index;  // by value id
  std::vector<const graph::Node*> reductions, scans, scatters;

  const Index* find(const graph::Value* v) const {
    auto it = index.find(v->id);
    return it == index.end() ? nullptr : &it->second;
  }
  uint32_t mask(Sym s) const;  // which atoms occur in s
  uint32_t mask(const Index& index) const;
  uint32_t all() const { return atoms.size() >= 32 ? ~0u : (1u << atoms.size()) - 1; }
  /// A division left in `s` that splitting an atom removes: the atom and the size of its inner part.
  struct Split {
    int atom;
    int64_t inner;
  };
  std::optional<Split> find_split(Sym s) const;
  /// atom = outer * inner + inner part, in every index; `reduced` follows.
  void split(Split s);
  /// Turns atoms round where the index of `v` falls as they grow. False: it does not grow with all of them.
  bool run_along(const graph::Value* v);
};

std::optional<Space> align(const Usage& usage, const Group& group);

/// A size with every symbol taken as 64: for cost estimates and for choosing, never for correctness.
BOLT_API int64_t estimate(Sym s);

}  // namespace bolt::loops
