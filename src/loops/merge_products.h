// loops/merge_products.h
// Products of one operand by several weights -> one call, and what each of them was, a part of its result
//
//   %q = linear(%x, %wq, %bq)       %w = joined(%wq, %wk, %wv)                 weights that lie side by side
//   %k = linear(%x, %wk, %bk)       %p: [..., N] = linear(%x, %w, cat(%bq, %bk, %bv))
//   %v = linear(%x, %wv, %bv)   ->  %q = slice(%p, ...), %k = slice(%p, ...), %v = slice(%p, ...)
//
//   %g = linear(%x, %wg)            %p: [2, ..., N] = linears(%x, %wg, %wu)    weights of one size, anywhere
//   %u = linear(%x, %wu)        ->  %g = reshape(slice(%p, 0)), %u = reshape(slice(%p, 1))
//
// So do queries, keys and values of an attention, and the gate of a layer beside what it lets through. Of few
// rows each such product is too little work for a large device, and a call of a library costs the same for
// three. No weight is copied where it can be helped, since nobody would have room for a model twice: those
// that were made one after another often lie side by side, and are read as one matrix; of others whose sizes
// are the same a library reads a batch where they lie (run/products.h). Of products of one kind, as each
// layer has them, most lie alike; the few whose weights do not lie side by side, where most do, have a copy
// of theirs that is made once.
//
// What is returned has to have memory of its own, and is computed by itself; what rests on parameters alone
// is computed once anyway. Parts of a joined product are rows of a wider matrix, which kernels and attentions
// read as they are and others might copy.
//
// Before layouts are chosen, since calls come to be.
#pragma once

#include "graph/ir.h"
#include "loops/plan.h"

namespace bolt::loops {

/// Where PlanOptions::merges says so. The graph must be numbered; true: something changed, and it is not
/// any more.
bool merge_products(graph::Graph& graph, const PlanOptions& options);

}  // namespace bolt::loops
