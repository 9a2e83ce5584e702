// loops/units.h
// Graph -> what becomes one kernel or one call, while that is being decided.
//
// Each node that computes something begins as a part of its own. The parts stand in an order that runs, and
// merging takes two of them for one (fuse.cpp). Who reads what is asked past views and other free nodes,
// which belong to no part: each of their readers does them again.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "loops/fuse.h"
#include "loops/plan.h"
#include "loops/roles.h"

namespace bolt::loops {

struct Units {
  struct Part {
    std::vector<const graph::Node*> nodes;  ///< behind a call: its epilogue
    const graph::Node* call = nullptr;
    bool fold = false, alive = true;
    bool reduces = false;
    int piece = 0;            ///< of the program, which is cut where a value is kept so (Op::keep)
    graph::Device device;     ///< of its results: one kernel runs on one device
    double alone = 0;         ///< instructions of its nodes, each a kernel by itself
    double instructions = 0;  ///< of its kernel
    std::optional<int64_t> packed;
    /// What must come after a call although it reads nothing of it: of those with effects the next one (what
    /// draws random numbers), and what has a size that the call finds out.
    std::vector<int> next;
  };

  Units(const graph::Graph& graph, const PlanOptions& options);

  int unit(const graph::Node* n) const { return n->outputs.empty() ? -1 : unit_of[n->out()->id]; }
  const std::vector<const graph::Value*>& sources(const graph::Node* n) const {
    return read_by[n->out()->id];
  }
  /// The nodes of unit `u`, and what a kernel of them reads and stores.
  Group group(int u) const;
  /// What nodes compute for readers in units that are not `inside`, or for the caller.
  template <typename Inside>
  std::vector<const graph::Value*> stored_of(const std::vector<const graph::Node*>& nodes,
                                             Inside inside) const {
    std::vector<const graph::Value*> stored;
    for (const graph::Node* n : nodes) {
      const graph::Value* v = n->out();
      bool outside = wanted[v->id] != 0;
      for (const graph::Node* r : readers_of[v->id]) outside |= !inside(unit(r));
      if (outside) stored.push_back(v);
    }
    return stored;
  }
  /// What a kernel reads of others.
  std::vector<const graph::Value*> sources_of(const Group& group) const;
  size_t operand_count(const Group& group) const { return sources_of(group).size() + group.stored.size(); }
  static double elements(const graph::Value* v) { return static_cast<double>(estimate(v->type.numel())); }
  static double bytes_of(const graph::Value* v) { return elements(v) * dtype_bytes(v->type.dtype); }
  /// Of what it reads and stores, each once.
  double bytes_of(const Group& group) const;

  /// Does `n` belong to a later part of the program than what makes `v`? In one kernel the later work would
  /// be done before that part begins, and wait for it in memory.
  bool is_only_kept(const graph::Value* v, const graph::Node* n) const;
  /// Is `from` a view of `v`, or made of it by other free nodes? `within_part`: of the same part of the
  /// program.
  bool reaches(const graph::Value* from, const graph::Value* v, bool within_part = false) const;
  /// The values in memory, or that units compute, which `v` is made of; each once.
  void trace(const graph::Value* v, std::vector<const graph::Value*>* found) const;

  template <typename F>
  void each_successor(int u, F&& f) const {
    const Part& p = parts[u];
    auto visit = [&](const graph::Node* n) {
      for (const auto& v : n->outputs)
        for (const graph::Node* r : readers_of[v->id]) f(unit(r));
    };
    if (p.call) visit(p.call);
    for (int next : p.next) f(next);
    for (const graph::Node* n : p.nodes) visit(n);
  }

  /// Who reads whom, anew.
  void link();
  /// Each node of the kernel is a part of its own again, at its place in the order.
  void take_apart(int u);

  const graph::Graph& source;
  const PlanOptions& options;
  Fusion fusion;
  std::vector<char> wanted;    ///< by value id: as Roles has it
  std::vector<char> returned;  ///< by value id: whose memory is a result's, or is copied into one
  bool keeps = false;          ///< values are handed on to a later part of the program
  std::vector<Part> parts;
  std::vector<const graph::Node*> nodes;  ///< of each part as it began, in execution order
  std::vector<int> unit_of;               ///< by value id: its part; -1: free or an input
  std::vector<int> order, place;          ///< parts in a topological order, and where each stands
  std::vector<std::vector<const graph::Node*>> readers_of;  ///< by value id
  std::vector<std::vector<const graph::Value*>> read_by;    ///< by id of a node's first output

 private:
  void make_parts();
  Part part_of(const graph::Node& n, int piece) const;
  std::vector<Sym> data_sizes_of(const graph::Node& n) const;
};

inline void add_once(std::vector<int>& units, int u) {
  if (std::find(units.begin(), units.end(), u) == units.end()) units.push_back(u);
}

/// Limits of one kernel: its operands live in registers as addresses, and its expressions in one function:
/// past these the code spills and compiling takes longer than it saves.
constexpr size_t kMaxNodes = 96;
constexpr size_t kMaxOperands = 24;
/// Bytes that may wait longer in memory for a start less.
constexpr double kWaits = 1 << 16;

}  // namespace bolt::loops
