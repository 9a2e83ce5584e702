// autograd/flow.cpp
#include "autograd/flow.h"

#include <algorithm>

#include "autograd/checkpoint.h"
#include "autograd/normalise_again.h"
#include "device/host/host.h"
#include "record/operator_facts.h"

namespace bolt::autograd {
namespace {

using record::Entry;
using record::TensorId;
using record::TensorInfo;

void add_once(std::vector<int>& list, int item) {
  if (std::ranges::find(list, item) == list.end()) list.push_back(item);
}

}  // namespace

Flow::Flow(const Joint& joint, const Prices& prices)
    : joint(joint), prices(prices), entries(joint.tape.entries.size()) {
  for (const TensorInfo& info : joint.tape.tensors) {
    if (info.storage < 0) continue;
    storages.resize(std::max(storages.size(), static_cast<size_t>(info.storage) + 1));
    int64_t& bytes = storages[info.storage].bytes;
    bytes = std::max(bytes, static_cast<int64_t>(bytes_reached(info)));
  }
  for (size_t i = 0; i < joint.tape.inputs.size(); ++i) {
    Storage& storage = storages[storage_of(joint.tape.inputs[i])];
    storage.given = true;
    storage.held |= i >= joint.passing.size() || !joint.passing[i];
    storage.keepable |= joint.keepable.empty() || (i < joint.keepable.size() && joint.keepable[i]);
  }
  for (const Inner& inner : joint.inner)
    if (!inner.is_given) storages[storage_of(joint.tape.inputs[joint.tangents + inner.tangent])].bytes = 0;
  for (TensorId id : joint.outputs)
    if (id >= 0) storages[storage_of(id)].output = true;
  find_checkpoints();
  for (size_t i = 0; i < entries.size(); ++i) read_entry(static_cast<int>(i));
  for (size_t i = 0; i < entries.size(); ++i) note_views(static_cast<int>(i));
  for (size_t i = 0; i < entries.size(); ++i) decide_work(static_cast<int>(i));
  note_demands();
  for (size_t i = 0; i < joint.backward; ++i) note_statistics(static_cast<int>(i));
  note_checkpoints();
  ask_policies();
  // In the order in which they are made: what one is made of must be there, or come again itself.
  for (size_t i = 0; i < joint.backward; ++i)
    for (const auto* touched : {&entries[i].makes, &entries[i].writes})
      for (int s : *touched) {
        Storage& storage = storages[s];
        storage.again = storage.last_write == static_cast<int>(i) && can_come_again(s);
        storage.cast_weight = storage.again && casts_weight(storage);
      }
}

void Flow::find_checkpoints() {
  int now = -1;
  for (size_t i = 0; i < joint.backward; ++i) {
    const int mark = checkpoint_mark(entry(static_cast<int>(i)));
    if (mark > 0) {
      outer_.push_back(now);
      now = static_cast<int>(outer_.size()) - 1;
    }
    entries[i].checkpoint = now;
    if (mark < 0 && now >= 0) now = outer_[now];
  }
}

/// Of two checkpoints the outer one computes again all that it does not keep itself.
void Flow::ask_policies() {
  std::vector<int64_t> open;
  for (size_t i = 0; i < joint.backward; ++i) {
    const Entry& it = entry(static_cast<int>(i));
    const int mark = checkpoint_mark(it);
    if (mark > 0) open.push_back(policy_of(it));
    if (mark < 0 && !open.empty()) open.pop_back();
    const EntryFlow& flow = entries[i];
    if (mark || open.empty() || flow.work == Work::View) continue;
    const bool saved = std::ranges::all_of(
        open, [&](int64_t policy) { return policy >= 0 && is_to_be_saved(policy, it, joint.tape); });
    if (saved)
      for (int s : flow.makes) storages[s].saved = true;
  }
}

/// Functions are called in their order, so of two the later one is not around the other.
int Flow::common_checkpoint(int a, int b) const {
  while (a != b) {
    int& later = a > b ? a : b;
    later = outer_[later];
  }
  return a;
}

void Flow::note_checkpoints() {
  if (outer_.empty()) return;
  std::vector<int> around(storages.size(), -1);  // all that has touched a storage
  for (size_t i = 0; i < joint.backward; ++i) {
    const EntryFlow& flow = entries[i];
    for (int s : flow.makes) around[s] = flow.checkpoint;
    for (int s : flow.reads) {
      int& all = around[s];
      const int common = common_checkpoint(all, flow.checkpoint);
      storages[s].passed |= common != flow.checkpoint;
      all = common;
    }
  }
  for (size_t s = 0; s < storages.size(); ++s)
    storages[s].checkpointed = around[s] >= 0 && !storages[s].given && !storages[s].output;
}

void Flow::read_entry(int i) {
  EntryFlow& flow = entries[i];
  const Entry& it = entry(i);
  for_each_tensor(it.args, [&](TensorId id) { add_once(flow.reads, storage_of(id)); });
  for_each_read_again(it, [&](TensorId id) { add_once(flow.reads_again, storage_of(id)); });
  for_each_written(it, [&](TensorId id) { add_once(flow.writes, storage_of(id)); });
  // What a collective gives is not there before somebody has waited for it.
  if (it.facts->waits) for_each_tensor(it.args, [&](TensorId id) { add_once(flow.writes, storage_of(id)); });
  for_each_tensor(it.results, [&](TensorId id) {
    const Storage& storage = storages[storage_of(id)];
    if (!storage.given && storage.makers.empty()) add_once(flow.makes, storage_of(id));
  });
  for (const auto* touched : {&flow.makes, &flow.writes})
    for (int s : *touched) {
      storages[s].makers.push_back(i);
      storages[s].last_write = i;
    }
}

/// Does it show memory that was there, and nothing else?
bool Flow::is_view(int i) const {
  const EntryFlow& flow = entries[i];
  const record::OperatorFacts& facts = *entry(i).facts;
  if (!flow.makes.empty() || !flow.writes.empty() || flow.reads.size() != 1) return false;
  if (facts.draws || facts.ends_region || facts.turns || entry(i).own_version) return false;
  bool plain = record::is_atens(entry(i).op) && facts.returns > 0;
  for (const record::Arg& arg : entry(i).args)
    plain &= arg.kind != record::Arg::Kind::Value || arg.tensors.empty();
  for_each_tensor(entry(i).results, [&](TensorId id) {
    plain &= info(id).plain && info(id).producer == i && storage_of(id) == flow.reads[0];
  });
  return plain;
}

void Flow::note_views(int i) {
  EntryFlow& flow = entries[i];
  if (is_view(i)) {
    flow.work = Work::View;
    return;
  }
  for_each_tensor(entry(i).results, [&](TensorId id) {
    const bool is_old = std::ranges::find(flow.makes, storage_of(id)) == flow.makes.end();
    if (is_old && info(id).producer == i) storages[storage_of(id)].odd = true;
  });
  if (entry(i).facts->turns)
    for (int s : flow.reads) storages[s].odd = true;
}

void Flow::decide_work(int i) {
  EntryFlow& flow = entries[i];
  auto is_odd = [&](int s) { return storages[s].odd; };
  if (flow.work == Work::View) {
    if (is_odd(flow.reads[0])) flow.work = Work::Never;
    return;
  }
  const bool one = flow.writes.empty() || flow.writes.size() + flow.makes.size() == 1;
  if ((!one && !counts_statistics(entry(i))) || std::ranges::any_of(flow.reads, is_odd)) return;
  flow.work = work_of(entry(i));
  const bool gives = !flow.makes.empty() || !flow.writes.empty();
  if (flow.work == Work::Never && flow.checkpoint >= 0 && gives && is_repeatable(entry(i)))
    flow.work = Work::Call;
  int64_t bytes = 0, elements = 0;
  for (int s : flow.reads) bytes += bytes_read_of(s);
  // Of what takes elements from several places, or each several times, the kernel that reads it knows less of
  // how it lies.
  if (fuses(flow.work) && flow.reads.size() == 1 && takes_each_once(entry(i)))
    for (int s : flow.makes) {
      Storage& made = storages[s];
      if (made.makers.size() == 1) made.bytes_behind = std::min(bytes, made.bytes);
    }
  for_each_tensor(entry(i).results, [&](TensorId id) { elements = std::max(elements, info(id).elements()); });
  flow.price = price_of(flow.work, bytes, elements, prices);
  if (takes_exponentials(entry(i)) && device::is_processor(info(entry(i).args[0].tensors[0]).device))
    flow.price += static_cast<double>(elements) * prices.exponential_on_host;
}

/// Does each element of its result come of one element of the one tensor that it reads?
bool Flow::takes_each_once(const Entry& it) const {
  int count = 0;
  bool equal = true;
  for_each_tensor(it.args, [&](TensorId id) {
    ++count;
    equal &= info(id).sizes == info(it.results[0].tensors[0]).sizes;
  });
  return count == 1 && equal;
}

int64_t Flow::bytes_read_of(int storage) const {
  const Storage& it = storages[storage];
  return it.bytes_behind >= 0 ? it.bytes_behind : it.bytes;
}

bool Flow::is_of_forward(TensorId id) const {
  if (info(id).input >= 0) return static_cast<size_t>(info(id).input) < joint.tangents;
  return is_forward(info(id).producer);
}

void Flow::note_demands() {
  for (size_t i = 0; i < entries.size(); ++i) {
    const EntryFlow& flow = entries[i];
    if (flow.work == Work::View) continue;  // whoever reads the view counts
    for_each_tensor(entry(static_cast<int>(i)).args, [&](TensorId id) {
      Storage& storage = storages[storage_of(id)];
      // A pass makes what comes of half as many bytes itself.
      const bool reads_less = flow.work == Work::Pass && bytes_read_of(storage_of(id)) < storage.bytes;
      if (is_forward(static_cast<int>(i)))
        storage.materialised |= !fuses(flow.work) && !reads_less;
      else if (is_of_forward(root(id)))
        storage.for_whole_calls |= !fuses(flow.work) && !entry(static_cast<int>(i)).facts->holds_rows;
    });
  }
  auto demand = [&](TensorId id) {
    if (is_of_forward(id)) storages[storage_of(id)].kept_by_eager = true;
  };
  for (size_t i = joint.backward; i < entries.size(); ++i)
    for_each_tensor(entry(static_cast<int>(i)).args, demand);
  for (TensorId id : joint.gradients)
    if (id >= 0) demand(id);
  for (Storage& storage : storages) storage.materialised |= storage.output;
}

/// A normalisation whose statistics are there (autograd/normalise_again.h) sums nothing up a second time.
void Flow::note_statistics(int i) {
  EntryFlow& flow = entries[i];
  flow.fuses_again = fuses(flow.work);
  if (flow.work != Work::Pass || entry(i).results.empty() || entry(i).results[0].tensors.empty()) return;
  const TensorId made = entry(i).results[0].tensors[0];
  const auto stays = [&](TensorId id) { return id != made && sums_up(storages[storage_of(id)]); };
  if (!may_be_normalised_again(joint.tape, entry(i), stays)) return;
  flow.fuses_again = true;
  flow.price = price_of(Work::Pointwise, 0, info(made).elements(), prices);
}

/// What eager keeps of a pass over far more: statistics. Whoever makes them again reads all of that again.
bool Flow::sums_up(const Storage& it) const {
  constexpr int64_t kFarSmaller = 64;
  if (!it.kept_by_eager || it.checkpointed || it.makers.size() != 1) return false;
  const EntryFlow& maker = entries[it.makers[0]];
  return maker.work == Work::Pass && std::ranges::any_of(maker.reads, [&](int read) {
           return storages[read].bytes / kFarSmaller >= it.bytes;
         });
}

/// Is whatever its makers read still the same, and do they write to nothing else?
bool Flow::can_come_again(int storage) const {
  const Storage& it = storages[storage];
  if (it.given || it.odd || it.saved || it.makers.empty() || sums_up(it)) return false;
  return std::ranges::all_of(it.makers, [&](int maker) {
    const EntryFlow& flow = entries[maker];
    if (!is_forward(maker) || flow.work == Work::Never || flow.work == Work::View) return false;
    return std::ranges::all_of(flow.reads_again, [&](int read) {
      const Storage& source = storages[read];
      return read == storage || (source.last_write < maker && (source.again || may_be_kept(read)));
    });
  });
}

bool Flow::casts_weight(const Storage& storage) const {
  if (storage.makers.size() != 1) return false;
  const Entry& maker = entry(storage.makers[0]);
  bool weight = maker.op.operator_name().name == "aten::_to_copy";
  for_each_tensor(maker.args, [&](TensorId id) {
    const int input = info(root(id)).input;
    weight &= input >= 0 && static_cast<size_t>(input) < joint.tangents && joint.gradients[input] >= 0 &&
              may_be_kept(storage_of(id));
  });
  return weight;
}

int Flow::shown_by(TensorId id) const {
  const int producer = info(id).input >= 0 ? -1 : info(id).producer;
  return producer >= 0 && entries[producer].work == Work::View ? producer : -1;
}

TensorId Flow::root(TensorId id) const {
  for (int view = shown_by(id); view >= 0; view = shown_by(id))
    for_each_tensor(entry(view).args, [&](TensorId shown) { id = shown; });
  return id;
}

bool Flow::may_be_kept(int storage) const {
  const Storage& it = storages[storage];
  if (it.again && (it.cast_weight || it.checkpointed)) return false;
  return it.kept_by_eager || it.passed || (it.given ? it.keepable && it.last_write < 0 : !it.output);
}

}  // namespace bolt::autograd
