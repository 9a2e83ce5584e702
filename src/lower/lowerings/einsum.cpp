// lower/lowerings/einsum.cpp
// Rows for products over named dimensions: einsum of one or two tensors, tensordot, outer.
//
// Dimensions are of four kinds: in both tensors and the result (batch), in one and the result, in both alone
// (summed over: a matrix product), in one alone (summed first). Each tensor is brought to [batch, own,
// summed], which is a view, and the product back to the order that is asked for. Longer equations are
// contracted along a path of ATen's choice, and stay its own; so do diagonals and an ellipsis.
#include <algorithm>
#include <map>

#include "lower/families.h"
#include "lower/formula.h"

namespace bolt::lower {
namespace {

using Labels = std::vector<int>;

bool has_label(const Labels& labels, int label) {
  return std::find(labels.begin(), labels.end(), label) != labels.end();
}
bool is_distinct(Labels labels) {
  std::sort(labels.begin(), labels.end());
  return std::adjacent_find(labels.begin(), labels.end()) == labels.end();
}

/// A tensor whose dimensions have names.
struct Named {
  Term x;
  Labels labels;

  Sym size(int label) const {
    return x.sizes()[std::find(labels.begin(), labels.end(), label) - labels.begin()];
  }
  /// The dimensions in this order, which names all of them.
  Term ordered(const Labels& order) const {
    std::vector<int64_t> dims;
    for (int label : order) dims.push_back(std::find(labels.begin(), labels.end(), label) - labels.begin());
    return std::is_sorted(dims.begin(), dims.end()) ? x : permuted(x, dims);
  }
  /// Without what nobody else has.
  Named summed(const Labels& kept) const {
    Syms over;
    Labels rest;
    for (size_t d = 0; d < labels.size(); ++d) {
      if (has_label(kept, labels[d]))
        rest.push_back(labels[d]);
      else
        over.push_back(static_cast<int64_t>(d));
    }
    const DType t = x.dtype();
    return over.empty() ? *this : Named{x.as(compute_type(t)).sum(over, false).as(t), rest};
  }
};

Labels joined(Labels a, const Labels& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// [batch, left] by [batch, right], summed over what both have and the result has not.
std::optional<Term> contracted(Named a, Named b, const Labels& out) {
  a = a.summed(joined(b.labels, out));
  b = b.summed(joined(a.labels, out));
  Labels batch, left, right, inner;
  for (int label : a.labels) {
    const bool both = has_label(b.labels, label);
    if (both && a.size(label) != b.size(label)) return std::nullopt;  // one of them is broadcast
    (both ? has_label(out, label) ? batch : inner : left).push_back(label);
  }
  for (int label : b.labels)
    if (!has_label(a.labels, label)) right.push_back(label);
  auto sizes_of = [](const Named& of, const Labels& labels) {
    Syms sizes;
    for (int label : labels) sizes.push_back(of.size(label));
    return sizes;
  };
  const Syms many = sizes_of(a, batch), rows = sizes_of(a, left), columns = sizes_of(b, right),
             summed = sizes_of(a, inner);
  auto shape = [&](Sym first, Sym second) {
    Syms sizes{first, second};
    if (!batch.empty()) sizes.insert(sizes.begin(), product(many));
    return sizes;
  };
  const Term l =
      a.ordered(joined(joined(batch, left), inner)).reshaped(shape(product(rows), product(summed)));
  const Term r =
      b.ordered(joined(joined(batch, inner), right)).reshaped(shape(product(summed), product(columns)));
  const Term all = inner.empty() ? l * r : l.with(Op::matmul, r);
  Syms split = many;
  split.insert(split.end(), rows.begin(), rows.end());
  split.insert(split.end(), columns.begin(), columns.end());
  return Named{all.reshaped(split), joined(joined(batch, left), right)}.ordered(out);
}

/// The labels of each tensor and of the result; nothing for what this file does not take.
std::optional<std::vector<Labels>> parsed(std::string text) {
  std::erase(text, ' ');
  const size_t arrow = text.find("->");
  std::vector<Labels> all(1);
  std::map<int, int> seen;
  for (char letter : text.substr(0, arrow)) {
    if (letter == '.') return std::nullopt;
    if (letter == ',') {
      all.emplace_back();
    } else {
      all.back().push_back(letter);
      ++seen[letter];
    }
  }
  Labels out;
  if (arrow != std::string::npos) {
    for (char letter : text.substr(arrow + 2)) {
      if (letter == '.') return std::nullopt;
      out.push_back(letter);
    }
  } else {
    // What occurs once, capital letters first as in ATen.
    for (auto [label, times] : seen)
      if (times == 1) out.push_back(label);
  }
  all.push_back(out);
  for (const Labels& labels : all)
    if (!is_distinct(labels)) return std::nullopt;
  return all;
}

bool multiplies(Call& c, const std::vector<Value*>& tensors) {
  for (const Value* v : tensors)
    if (!is_float(v->type.dtype) || v->type.dtype != c.result_dtype() || v->type.numel().is_const(0))
      return false;
  return true;
}

Results einsum(Call& c) {
  const std::vector<Value*> tensors = c.tensors("tensors");
  const auto labels = parsed(c.text("equation"));
  if (!labels || tensors.empty() || tensors.size() > 2 || labels->size() != tensors.size() + 1) return {};
  if (!multiplies(c, tensors)) return {};
  std::vector<Named> named;
  for (size_t i = 0; i < tensors.size(); ++i) {
    named.push_back({{&c, tensors[i]}, (*labels)[i]});
    if (named[i].labels.size() != tensors[i]->type.sizes.size()) return {};
  }
  const Labels& out = labels->back();
  if (named.size() == 1) {
    const Named kept = named[0].summed(out);
    return kept.labels.size() == out.size() ? Results{kept.ordered(out).value} : Results{};
  }
  const auto product = contracted(named[0], named[1], out);
  return product ? Results{product->value} : Results{};
}

Results tensordot(Call& c) {
  Value *a = c.tensor("self"), *b = c.tensor("other");
  if (!multiplies(c, {a, b})) return {};
  const std::vector<int64_t> of_a = c.integers("dims_self"), of_b = c.integers("dims_other");
  Labels left, right, out;
  for (int d = 0; d < a->type.rank(); ++d) left.push_back(d);
  for (int d = 0; d < b->type.rank(); ++d) right.push_back(a->type.rank() + d);
  for (size_t i = 0; i < of_a.size(); ++i)
    right[Call::wrap(of_b[i], b->type.rank())] = left[Call::wrap(of_a[i], a->type.rank())];
  for (int label : left)
    if (!has_label(right, label)) out.push_back(label);
  for (int label : right)
    if (!has_label(left, label)) out.push_back(label);
  const auto product = contracted({{&c, a}, left}, {{&c, b}, right}, out);
  return product ? Results{product->value} : Results{};
}

/// The product of three tensors, each given as the dimensions that it has not, summed over some: what
/// bilinear() and its gradients are.
Results trilinear(Call& c) {
  Value* const tensors[] = {c.tensor("i1"), c.tensor("i2"), c.tensor("i3")};
  if (!multiplies(c, {std::begin(tensors), std::end(tensors)})) return {};
  const char* const lacking[] = {"expand1", "expand2", "expand3"};
  const auto rank = static_cast<int>(tensors[0]->type.sizes.size() + c.integers(lacking[0]).size());
  const std::vector<int64_t> sums = c.integers("sumdim");
  std::vector<Named> named;
  for (int i = 0; i < 3; ++i) {
    const std::vector<int64_t> missing = c.integers(lacking[i]);
    Named& one = named.emplace_back(Named{{&c, tensors[i]}, {}});
    for (int d = 0; d < rank; ++d)
      if (std::find(missing.begin(), missing.end(), d) == missing.end()) one.labels.push_back(d);
    if (one.labels.size() != tensors[i]->type.sizes.size()) return {};
  }
  Labels out, of_first;
  for (int d = 0; d < rank; ++d) {
    const bool is_summed = std::find(sums.begin(), sums.end(), d) != sums.end();
    if (!is_summed) out.push_back(d);
    if ((has_label(named[0].labels, d) || has_label(named[1].labels, d)) &&
        (!is_summed || has_label(named[2].labels, d)))
      of_first.push_back(d);
  }
  for (int d : out)
    if (!has_label(of_first, d) && !has_label(named[2].labels, d)) return {};
  const auto first = contracted(named[0], named[1], of_first);
  if (!first) return {};
  const auto all = contracted({*first, of_first}, named[2], out);
  return all ? Results{all->value} : Results{};
}

Results outer(Call& c) {
  Value *a = c.tensor("self"), *b = c.tensor("vec2");
  if (a->type.rank() != 1 || b->type.rank() != 1 || a->type.dtype != b->type.dtype) return {};
  return {(Term{&c, a}.reshaped({a->type.sizes[0], Sym(1)}) * Term{&c, b}).value};
}

}  // namespace

void add_named_products(Table& t) {
  const RowsByName row{t};
  row(einsum, {"einsum"});
  row(tensordot, {"tensordot"});
  row(trilinear, {"_trilinear"});
  row(outer, {"outer", "ger"});
}

}  // namespace bolt::lower
