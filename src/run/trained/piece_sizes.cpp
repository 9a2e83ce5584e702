// run/trained/piece_sizes.cpp
#include "run/trained/piece_sizes.h"

#include <algorithm>

#include "support/nesting.h"

namespace bolt::run {

using record::Tape;
using record::TensorId;
using record::TensorInfo;

namespace {

const TensorInfo& told_of(const Tape& tape, TensorId id) { return tape.tensors[static_cast<size_t>(id)]; }

}  // namespace

/// With the bit that stands for it. Strides are told where they do not follow from sizes.
template <class Each>
void PieceSizes::for_each_size(TensorId id, Each each) const {
  const auto at = crossing_.find(id);
  if (at == crossing_.end()) return;
  const TensorInfo& info = told_of(run_, id);
  const auto nesting = nesting_of(info.sizes, info.strides);
  for (size_t d = 0; d < at->second.sizes.size() && d < kStrideBit; ++d) {
    each(d, at->second.sizes[d]);
    if (nesting && (nesting->gaps >> d & 1)) each(d + kStrideBit, at->second.strides[d]);
  }
}

lower::Sizes PieceSizes::begin(Tape& piece) {
  rename_arguments(piece);
  std::vector<uint64_t> dims;
  std::vector<SizeFact> facts;
  for (TensorId id : piece.inputs) {
    const int of_run = told_of(run_, id).input;
    uint64_t& bits = dims.emplace_back(of_run < 0 ? 0 : region_.dims()[static_cast<size_t>(of_run)]);
    for_each_size(id, [&](size_t d, Sym size) { bits |= uint64_t{!size.is_const()} << d; });
  }
  names(piece, &facts);
  lower::Sizes sizes(piece, dims, numbers(piece, facts), facts);
  sizes.not_guessed = sizes_.not_guessed;
  lower::settle_inputs(piece, sizes);
  return sizes;
}

/// What the piece calls each size: the name that the first of its inputs has for it.
std::unordered_map<Sym, Sym> PieceSizes::names(const Tape& piece, std::vector<SizeFact>* equal) const {
  std::unordered_map<Sym, Sym> here;
  for (TensorId id : piece.inputs) {
    auto name = [&](size_t d, Sym size) {
      if (d >= kStrideBit || size.is_const()) return;
      const Sym own = tape_symbol(id, static_cast<int>(d));
      const auto [first, is_new] = here.try_emplace(size, own);
      if (!is_new && equal) equal->push_back({own, Relation::eq, first->second, "the region's sizes are so"});
    };
    for_each_size(id, name);
    const TensorInfo& info = told_of(run_, id);
    if (info.input < 0) continue;
    for (size_t d = 0; d < info.sizes.size() && d < kStrideBit; ++d)
      if (region_.dims()[static_cast<size_t>(info.input)] >> d & 1)
        name(d, usual(tape_symbol(id, static_cast<int>(d))));
  }
  return here;
}

void PieceSizes::rename_arguments(Tape& piece) const {
  const std::unordered_map<Sym, Sym> here = names(piece, nullptr);
  auto renamed = [&](Sym symbol) {
    const int id = tensor_of_size(*symbol.node());
    const auto at = here.find(usual(symbol));
    if (id >= 0 && told_of(piece, id).input >= 0) return symbol;
    if (at != here.end()) return at->second;
    const int found = tensor_of_data_size(*symbol.node());  // by an earlier piece
    return found < 0 ? symbol : tape_symbol(found, symbol.node()->what.part);
  };
  for (record::Entry& entry : piece.entries) {
    const auto args = entry.args;
    entry.args = piece.args->take(args.size());
    std::ranges::copy(args, entry.args.begin());
    for (record::Arg& arg : entry.args)
      for (Sym& s : arg.syms) s = substitute(s, renamed);
  }
}

SymbolTable PieceSizes::numbers(const Tape& piece, const std::vector<SizeFact>& facts) const {
  SymbolTable out = region_.numbers();
  Syms used;
  for (const record::Entry& entry : piece.entries)
    for (const record::Arg& arg : entry.args)
      for (Sym s : arg.syms) collect_symbols(s, &used);
  for (const SizeFact& f : facts) collect_symbols(f.b, &used);
  for (Sym s : used) {
    const int id = tensor_of_size(*s.node());
    const bool known = id < 0 || told_of(piece, id).input >= 0 || place_in(out, *s.node()) < out.size();
    if (!known) out.push_back(SymbolRow::of_number(s, recorded(s), false));
  }
  return out;
}

int64_t PieceSizes::recorded(Sym name) const {
  const TensorInfo& info = told_of(run_, tensor_of_size(*name.node()));
  const auto d = static_cast<size_t>(name.node()->what.part);
  return d < kStrideBit ? info.sizes[d] : info.strides[d - kStrideBit];
}

Sym PieceSizes::over_region(Sym s, const lower::OverInputs& over, const lower::Sizes& sizes) const {
  return usual(substitute(over.over_inputs(s, sizes), [&](Sym name) {
    const auto at = known_.find(name);
    return at == known_.end() ? name : at->second;
  }));
}

Syms PieceSizes::end(const lower::OverInputs& over, const lower::Sizes& sizes, const Runnable& made,
                     const std::vector<Layout>& results) {
  for (SizeFact f : sizes.facts()) {
    f.a = over_region(f.a, over, sizes);
    f.b = over_region(f.b, over, sizes);
    if (f.a == f.b || (f.a.is_const() && f.b.is_const())) continue;
    if (std::ranges::find(facts_, f) == facts_.end()) facts_.push_back(f);
  }
  for (size_t i = 0; i < made.wanted().size(); ++i) {
    const TensorId id = made.wanted()[i];
    Layout layout = results[i];
    for (Sym& s : layout.sizes) s = over_region(s, over, sizes);
    for (Sym& s : layout.strides) s = over_region(s, over, sizes);
    crossing_[id] = std::move(layout);
    for_each_size(id, [&](size_t d, Sym size) { known_[tape_symbol(id, static_cast<int>(d))] = size; });
  }
  Syms numbers;
  for (const SymbolRow& row : made.symbols())
    if (row.from == SymbolRow::From::number) numbers.push_back(over_region(row.symbol, over, sizes));
  return numbers;
}

}  // namespace bolt::run
