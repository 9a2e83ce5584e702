// run/trained/chain.cpp
#include "run/trained/chain.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <set>

#include "run/evaluate.h"

namespace bolt::run {

using record::TensorId;

// ---- made once ----

Chain::Chain(record::Tape tape, std::vector<TensorId> wanted, std::vector<Piece> pieces,
             std::unordered_map<int, at::Tensor> constants, SymbolTable symbols)
    : Runnable(std::move(tape), std::move(wanted), std::move(symbols)), constants_(std::move(constants)) {
  Facts made = pieces[0].region->facts;
  for (size_t i = 1; i < pieces.size(); ++i) made.add(pieces[i].region->facts);
  made.ops = facts.ops;
  facts = std::move(made);
  find_places(std::move(pieces));
  find_last_readers();
  find_early_writes();
  find_data_sizes();
}

void Chain::find_places(std::vector<Piece> pieces) {
  places_ = tape_.inputs.size();
  std::unordered_map<TensorId, size_t> place;
  for (size_t i = 0; i < tape_.inputs.size(); ++i) place[tape_.inputs[i]] = i;
  for (Piece& piece : pieces) {
    Link& link = links_.emplace_back();
    for (TensorId id : piece.region->tape().inputs) link.inputs.push_back(place.at(id));
    for (TensorId id : piece.region->wanted()) link.results.push_back(place[id] = places_++);
    link.piece = std::move(piece.region);
    link.numbers = std::move(piece.numbers);
  }
  for (TensorId id : wanted_) outputs_.push_back(id < 0 ? -1 : static_cast<int>(place.at(id)));
}

void Chain::find_last_readers() {
  std::set<size_t> needed;
  for (int place : outputs_)
    if (place >= 0) needed.insert(static_cast<size_t>(place));
  for (size_t i = links_.size(); i-- > 0;)
    for (const auto* read : {&links_[i].inputs, &links_[i].results})
      for (size_t place : *read)
        if (needed.insert(place).second) links_[i].last.push_back(place);
}

void Chain::find_early_writes() {
  size_t behind = links_.size();  // of the last piece that may fail
  while (behind > 0 && !links_[behind - 1].piece->forward_can_fail()) --behind;
  auto add = [&](std::vector<size_t>& places, const Link& link, const std::vector<size_t>& inputs) {
    for (size_t input : inputs) {
      const size_t place = link.inputs[input];
      const bool is_callers = place < tape_.inputs.size() && !constants_.contains(static_cast<int>(place));
      if (is_callers && std::ranges::find(places, place) == places.end()) places.push_back(place);
    }
  };
  for (size_t i = 0; i + 1 < behind; ++i) {
    add(written_early_, links_[i], VisibleWrites(links_[i].piece->tape()).inputs);
    add(rewritten_early_, links_[i], links_[i].piece->rewritten());
  }
}

/// Those that are data are sizes of what a piece gives.
void Chain::find_data_sizes() {
  for (size_t symbol = 0; symbol < symbols_.size(); ++symbol) {
    if (symbols_[symbol].from != SymbolRow::From::data) continue;
    const SymNode& what = *symbols_[symbol].symbol.node();
    for (Link& link : links_) {
      const std::vector<TensorId>& given = link.piece->wanted();
      const auto found = std::ranges::find(given, tensor_of_data_size(what));
      if (found == given.end()) continue;
      link.found.push_back(
          {link.results[static_cast<size_t>(found - given.begin())], what.what.part, symbol});
    }
  }
}

void Chain::check_data_sizes(const std::vector<SizeFact>& taken_for_granted) {
  for (const SizeFact& fact : taken_for_granted) {
    Syms asked;
    collect_symbols(fact.a, &asked);
    collect_symbols(fact.b, &asked);
    const auto finds_one = [&](const Link& link) {
      return std::ranges::any_of(link.found, [&](const Found& found) {
        return std::ranges::find(asked, symbols_[found.symbol].symbol) != asked.end();
      });
    };
    const auto last = std::find_if(links_.rbegin(), links_.rend(), finds_one);
    BOLT_CHECK(last != links_.rend(), "a size that is data is never found out");
    last->facts.push_back(fact);
  }
}

std::vector<int> Chain::written_inputs() const {
  std::set<int> out;
  for (const Link& link : links_)
    for (int input : link.piece->written_inputs()) {
      const auto place = static_cast<int>(link.inputs[static_cast<size_t>(input)]);
      if (static_cast<size_t>(place) < tape_.inputs.size() && !constants_.contains(place)) out.insert(place);
    }
  return {out.begin(), out.end()};
}

std::vector<StepFacts> Chain::costs() const {
  std::vector<StepFacts> all;
  for (const Link& link : links_)
    for (StepFacts& step : link.piece->costs()) all.push_back(std::move(step));
  return all;
}

void Chain::launch_at_once(const std::string& name) {
  for (size_t i = 0; i < links_.size(); ++i) {
    links_[i].piece->launch_at_once(name + ", piece " + std::to_string(i + 1));
    if (facts.why_no_graph.empty()) facts.why_no_graph = links_[i].piece->facts.why_no_graph;
  }
}

/// One for all: gradients of gradients go through each that leads to what they are of.
void Chain::note_passes_in(const std::shared_ptr<DoubleBackward>& noted) {
  for (const Link& link : links_) link.piece->note_passes_in(noted);
}

Runnable::Texts Chain::texts() const {
  Texts all;
  for (size_t i = 0; i < links_.size(); ++i) {
    const std::string head = "# piece " + std::to_string(i + 1) + "\n";
    const auto [graph, plan] = links_[i].piece->texts();
    all.graph += head + graph;
    all.plan += head + plan;
  }
  return all;
}

// ---- a call ----

namespace {

/// Contents of tensors alike, which lie one behind the other: three statistics of each normalisation are many
/// small tensors, and a device with lists copies those of a kind in one launch.
Tensors copies_of(const Tensors& tensors) {
  int64_t all = 0;
  for (const at::Tensor& t : tensors) all += t.numel();
  const at::Tensor together = at::empty({all}, tensors[0].options());
  Tensors copies;
  int64_t at = 0;
  for (const at::Tensor& t : tensors) {
    // What narrow() and view() come to, without the dispatcher, for each of what may be hundreds: nothing is
    // launched before this is done.
    at::Tensor part = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(together.storage()),
                                                               together.key_set(), together.dtype());
    part.unsafeGetTensorImpl()->set_storage_offset(at);
    part.unsafeGetTensorImpl()->set_sizes_contiguous(t.sizes());
    copies.push_back(std::move(part));
    at += t.numel();
  }
  at::_foreach_copy_(copies, tensors);
  return copies;
}

}  // namespace

/// What was in inputs that are written to, and what autograd knew of them.
class Chain::Before {
 public:
  Before(const std::vector<size_t>& written, const std::vector<size_t>& rewritten, const Tensors& inputs) {
    for (size_t place : rewritten) histories_.keep(inputs[place]);
    const at::AutoDispatchBelowADInplaceOrView unseen;
    std::vector<Tensors> alike;
    for (size_t place : written) {
      const at::Tensor& t = inputs[place];
      if (!t.defined()) continue;  // a number of the recorded run, which each call has anew
      auto of_kind = [&](const Tensors& list) {
        return list[0].scalar_type() == t.scalar_type() && list[0].device() == t.device();
      };
      auto list = std::ranges::find_if(alike, of_kind);
      if (list == alike.end()) list = alike.emplace(alike.end());
      list->push_back(t);
    }
    for (const Tensors& list : alike) {
      Tensors copies = copies_of(list);
      for (size_t i = 0; i < list.size(); ++i)
        kept_.push_back({list[i], std::move(copies[i]), list[i].is_inference() ? -1 : list[i]._version()});
    }
  }

  void put_back() const {
    const at::AutoDispatchBelowADInplaceOrView unseen;
    for (const Kept& kept : kept_) {
      kept.tensor.copy_(kept.contents);
      if (kept.version < 0) continue;
      c10::VariableVersion counter = kept.tensor.unsafeGetTensorImpl()->version_counter();  // shared
      counter.set_version(kept.version);
    }
    histories_.put_back();
  }

 private:
  struct Kept {
    at::Tensor tensor, contents;
    int64_t version;  ///< -1: none is counted
  };
  std::vector<Kept> kept_;
  Histories histories_;
};

Tensors Chain::call(const Tensors& inputs, const std::vector<int64_t>& values,
                    record::CallGenerators generators) {
  const Before before(written_early_, rewritten_early_, inputs);
  auto run = [&] {
    try {
      return run_links(inputs, values, generators);
    } catch (const RunEagerly&) {
      before.put_back();
      throw;
    }
  };
  return attempt_(generators, run, [] { return false; });
}

void Chain::learn(const Link& link, const Tensors& at, std::vector<int64_t>& values) {
  for (const Found& found : link.found) values[found.symbol] = at[found.place].size(found.dim);
}

Tensors Chain::run_links(const Tensors& inputs, std::vector<int64_t> values,
                         const record::CallGenerators& generators) const {
  const Evaluate value{symbols_, values};
  Tensors at = inputs;
  at.resize(places_);
  for (const auto& [input, value] : constants_) at[static_cast<size_t>(input)] = value.clone();
  for (const Link& link : links_) {
    Tensors given;
    given.reserve(link.inputs.size());
    for (size_t place : link.inputs) given.push_back(at[place]);
    Tensors results = link.piece->run(given, value(link.numbers), generators);
    for (size_t i = 0; i < results.size(); ++i) at[link.results[i]] = std::move(results[i]);
    learn(link, at, values);
    for (const SizeFact& fact : link.facts)
      if (!holds(value(fact.a), fact.relation, value(fact.b)))
        throw unfit(link.piece->tape().entries.back().op.operator_name().name, fact);
    for (size_t place : link.last) at[place].reset();
  }
  Tensors out;
  out.reserve(outputs_.size());
  for (int place : outputs_) out.push_back(place < 0 ? at::Tensor() : at[static_cast<size_t>(place)]);
  return out;
}

}  // namespace bolt::run
