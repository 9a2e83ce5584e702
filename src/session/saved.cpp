// session/saved.cpp
#include "session/saved.h"

#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>

#include "observe/rebuild/saved_recipe.h"
#include "python/archive.h"
#include "session/compile_entry.h"
#include "session/exceptions.h"
#include "session/failures.h"
#include "support/error.h"
#include "support/stats.h"

namespace bolt::session {
namespace {

// ---- parts of an entry

/// The words of a place that are no addresses, for each frame.
constexpr size_t kWordsOfFrame = 4;

void write_place(ArchiveWriter& out, const observe::Place& place) {
  out.list(place.code, [&](const PyRef& code) { out.object(code.get()); });
  for (size_t i = 0; i < place.key.size(); ++i)
    if (i % kWordsOfFrame) out.number(static_cast<int64_t>(place.key[i]));
}
observe::Place read_place(ArchiveReader& in) {
  observe::Place place;
  in.list([&] {
    place.code.push_back(in.object());
    if (!place.code.back() || !PyCode_Check(place.code.back().get())) ArchiveReader::fail();
  });
  for (const PyRef& code : place.code) {
    place.key.push_back(reinterpret_cast<uintptr_t>(code.get()));
    for (size_t i = 1; i < kWordsOfFrame; ++i) place.key.push_back(in.as<uintptr_t>());
  }
  return place;
}

void write_reason(ArchiveWriter& out, const Reason& reason) {
  out.number(static_cast<int64_t>(reason.why));
  out.list(reason.said, [&](const std::string& s) { out.text(s); });
  out.number(reason.within);
  out.number(reason.end != nullptr);
  if (reason.end) write_reason(out, *reason.end);
}
Reason read_reason(ArchiveReader& in) {
  Reason reason(in.as<Why>());
  in.list([&] { reason.said.push_back(in.text()); });
  reason.within = in.number() != 0;
  if (in.number()) reason.end = std::make_shared<const Reason>(read_reason(in));
  return reason;
}

void write_ends(ArchiveWriter& out, const std::vector<observe::RegionEnd>& ends) {
  out.list(ends, [&](const observe::RegionEnd& end) {
    write_reason(out, end.reason);
    out.number(end.is_error);
    out.list(end.stack, [&](const observe::StackLine& line) {
      out.text(line.file);
      out.text(line.function);
      for (int n : {line.line, line.column, line.end_line, line.end_column}) out.number(n);
    });
  });
}
std::vector<observe::RegionEnd> read_ends(ArchiveReader& in) {
  std::vector<observe::RegionEnd> ends;
  in.list([&] {
    observe::RegionEnd end{read_reason(in), {}};
    end.is_error = in.number() != 0;
    in.list([&] {
      observe::StackLine line;
      line.file = in.text();
      line.function = in.text();
      for (int* n : {&line.line, &line.column, &line.end_line, &line.end_column}) *n = in.as<int>();
      end.stack.push_back(std::move(line));
    });
    ends.push_back(std::move(end));
  });
  return ends;
}

/// The tape as the compiler was given it. Throws for one that no text can hold.
std::string tape_text(const CallEntry& entry) {
  const CompiledFrom& from = entry.from;
  std::string text = from.text.empty() ? record::print(entry.region->tape(), from.context) : from.text;
  std::string again;
  try {
    const record::ReadTape read = record::parse_tape(text);
    again = record::print(read.tape, read.context);
  } catch (const Error& error) {
    throw Error(ErrorKind::User, std::string("an operator is given what no text can hold (") + error.what() +
                                     "); call it in a function that is not compiled (torchbolt.disable)");
  }
  if (again != text) throw Error(ErrorKind::User, "an operator is given what a text does not hold exactly");
  return text;
}

void write_compiled_from(ArchiveWriter& out, const CallEntry& entry) {
  out.text(tape_text(entry));
  out.list(entry.from.number_sizes, [&](const SymbolRow& row) {
    out.text(row.symbol.str());
    out.number(row.hint);
  });
  out.list(entry.from.not_guessed, [&](const std::string& name) { out.text(name); });
  out.text(entry.from.obstacle);
}
void read_compiled_from(ArchiveReader& in, CompiledFrom& from) {
  from.text = in.text();
  in.list([&] {
    std::string_view expression = in.text();
    const Sym symbol = parse_sym(expression);
    from.number_sizes.push_back(SymbolRow::of_computed(symbol, in.number()));
  });
  in.list([&] { from.not_guessed.insert(in.text()); });
  from.obstacle = in.text();
}

// ---- what calls find used beforehand

using Weights = std::unordered_map<const c10::TensorImpl*, PyObject*>;

/// Of those that regions have used. The last call's is the one of `weights` that lies at its address.
void write_weights(ArchiveWriter& out, const CallEntry& entry, const Weights& weights) {
  out.list(entry.region->weights(), [&](int input) {
    const int slot = entry.tape_input_slot[input];
    const auto found = slot < 0 ? weights.end() : weights.find(entry.guards->last_found(slot));
    out.object(found == weights.end() ? nullptr : found->second);
  });
}

/// By place among the region's weights; null where there is none.
std::vector<PyRef> read_weights(ArchiveReader& in) {
  std::vector<PyRef> weights;
  in.list([&] { weights.push_back(in.object()); });
  return weights;
}

/// Where `weights` are all that its calls need. Others than are found then are used when they are.
void prepare(const CallEntry& entry, const std::vector<PyRef>& weights) {
  const std::vector<int> places = entry.region->weights();
  if (places.empty() || places.size() != weights.size()) return;
  std::vector<at::Tensor> inputs(entry.tape_input_slot.size());
  for (size_t i = 0; i < places.size(); ++i) {
    const auto input = static_cast<size_t>(places[i]);
    const int slot = entry.tape_input_slot[input];
    PyObject* weight = weights[i].get();
    if (slot < 0 || !weight || !guard::is_tensor(weight) || !entry.guards->takes(slot, weight)) return;
    inputs[input] = THPVariable_Unpack(weight);
  }
  entry.region->prepare(inputs);
}

// ---- entries

void write_entry(ArchiveWriter& out, const CallEntry& entry, const Weights& weights) {
  if (!entry.region) throw Error(ErrorKind::User, "a region is still being compiled; save it later");
  if (!entry.generators.empty())
    throw Error(ErrorKind::User,
                "a region draws from a torch.Generator, which another process lacks; "
                "let it draw from torch's own");
  entry.guards->write(out);
  observe::write_recipe(out, entry.recipe);
  for (uint64_t bits : {entry.after.flags, entry.after.types, entry.after.modes})
    out.number(static_cast<int64_t>(bits));
  out.number(entry.after.threads);
  out.number(entry.autocast_levels);
  out.number(entry.changes_thread);
  out.number(entry.instructions);
  out.number(entry.idle);
  out.number(entry.has_other_sizes);
  out.number(static_cast<int64_t>(entry.nargs));
  out.object(entry.kwnames.get());
  out.integers(entry.tape_input_slot);
  write_ends(out, entry.breaks);
  out.list(entry.marked, [&](const auto& mark) {
    out.number(mark.first);
    out.number(static_cast<int64_t>(mark.second));
  });
  write_compiled_from(out, entry);
  write_weights(out, entry, weights);
}

/// An entry to be compiled, and its weights.
struct ReadEntry {
  std::shared_ptr<CallEntry> entry = std::make_shared<CallEntry>();
  std::vector<PyRef> weights;
};

ReadEntry read_entry(ArchiveReader& in) {
  ReadEntry read;
  const auto& entry = read.entry;
  entry->guards = guard::Program::read(in);
  entry->recipe = observe::read_recipe(in);
  for (uint64_t* bits : {&entry->after.flags, &entry->after.types, &entry->after.modes})
    *bits = in.as<uint64_t>();
  entry->after.threads = in.as<int>();
  entry->autocast_levels = in.as<int>();
  entry->changes_thread = in.number() != 0;
  entry->instructions = in.number();
  entry->idle = in.number() != 0;
  entry->has_other_sizes = in.number() != 0;
  entry->nargs = in.as<size_t>();
  entry->kwnames = in.object();
  entry->tape_input_slot = in.integers<std::vector<int>>();
  for (int slot : entry->tape_input_slot)
    if (slot >= static_cast<int>(entry->guards->tensor_count())) ArchiveReader::fail();
  entry->breaks = read_ends(in);
  in.list([&] {
    const auto slot = in.as<int>();
    entry->marked.emplace_back(slot, in.as<uint64_t>());
  });
  read_compiled_from(in, entry->from);
  read.weights = read_weights(in);
  return read;
}

// ---- sites

void write_site(ArchiveWriter& out, const Site& site, const Weights& weights) {
  out.list(site.entries, [&](const auto& entry) { write_entry(out, *entry, weights); });
  out.list(site.changed.sizes, [&](const auto& row) {
    out.text(row.first);
    out.number(static_cast<int64_t>(row.second));
  });
  out.list(site.changed.numbers, [&](const std::string& name) { out.text(name); });
  out.list(site.changed.times, [&](const auto& row) { out.text(row.first), out.number(row.second); });
  out.number(site.plain_instructions);
  write_place(out, site.plain_end);
  out.number(site.never_plain);
  write_ends(out, site.plain_breaks);
  out.number(site.advanced);
  out.number(site.ends_each_turn);
}

/// Its entries are in the order of their site.
void read_site(ArchiveReader& in, Site& site, std::vector<ReadEntry>& entries) {
  in.list([&] { site.entries.push_back(entries.emplace_back(read_entry(in)).entry); });
  in.list([&] {
    const std::string place = in.text();
    site.changed.sizes[place] = in.as<uint64_t>();
  });
  in.list([&] { site.changed.numbers.insert(in.text()); });
  in.list([&] {
    const std::string place = in.text();
    site.changed.times[place] = in.as<int>();
  });
  site.plain_instructions = in.number();
  site.plain_end = read_place(in);
  site.never_plain = in.number() != 0;
  site.plain_breaks = read_ends(in);
  site.plain_serial = next_serial();
  site.advanced = in.as<int>();
  site.ends_each_turn = in.number() != 0;
}

using Sites = std::vector<std::pair<observe::Place, std::shared_ptr<Site>>>;

/// Of each site as they were recorded: the batches of kernels that the first ones bring are those of then.
void compile_all(Callable* self, const std::vector<std::vector<ReadEntry>>& sites) {
  for (const auto& entries : sites)
    for (auto at = entries.rbegin(); at != entries.rend(); ++at) {
      compile_again(self, *at->entry);
      prepare(*at->entry, at->weights);
    }
}

/// What was not there before goes behind what was.
int64_t take_over(Site& into, Site& read) {
  const auto count = static_cast<int64_t>(read.entries.size());
  if (into.entries.empty() && !into.plain_instructions) {
    into = std::move(read);
  } else {
    into.entries.insert(into.entries.end(), read.entries.begin(), read.entries.end());
  }
  return count;
}

/// `what()`; null with an exception of torchbolt/exc.py where it throws.
template <class What>
PyObject* or_exception(Callable* self, const char* doing, const What& what) {
  try {
    return what();
  } catch (const std::exception& error) {
    set_exception("ArtifactError", name_of(self) + " cannot be " + doing + ": " + error.what());
    return nullptr;
  }
}

}  // namespace

PyObject* save(Callable* self, PyObject* weights) {
  if (!PyList_Check(weights)) return PyErr_SetString(PyExc_TypeError, "weights are a list"), nullptr;
  return or_exception(self, "saved", [&] {
    const auto settled = [&](Site& site) {
      for (const auto& entry : std::vector(site.entries))
        if (!compile_waiting(self, site, entry) || !settle(self, site, entry))
          throw Error(ErrorKind::User, "a region could not be compiled; torchbolt.explain() says why");
    };
    if (self->options->backend || self->options->road != run::Road::compile)
      throw Error(ErrorKind::User, "another backend compiled it, and only Torchbolt's own writes");
    if (self->options->guard_filter)
      throw Error(ErrorKind::User, "a function chose its guards; compile it without guard_filter_fn");
    settled(self->state->start);
    Sites sites(self->state->sites.begin(), self->state->sites.end());
    for (const auto& [place, site] : sites) settled(*site);
    Weights known;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(weights); ++i)
      if (PyObject* weight = PyList_GET_ITEM(weights, i); guard::is_tensor(weight))
        known.emplace(guard::tensor_impl(weight), weight);
    ArchiveWriter out;
    write_site(out, self->state->start, known);
    out.list(sites,
             [&](const auto& each) { write_place(out, each.first), write_site(out, *each.second, known); });
    return out.lists();
  });
}

PyObject* restore(Callable* self, PyObject* const* lists) {
  return or_exception(self, "loaded", [&] {
    ArchiveReader in(lists[0], lists[1], lists[2]);
    std::vector<std::shared_ptr<Site>> read = {std::make_shared<Site>()};
    std::vector<std::vector<ReadEntry>> entries(1);
    read_site(in, *read[0], entries[0]);
    std::vector<observe::Place> places;
    in.list([&] {
      places.push_back(read_place(in));
      read_site(in, *read.emplace_back(std::make_shared<Site>()), entries.emplace_back());
    });
    compile_all(self, entries);
    int64_t count = take_over(self->state->start, *read[0]);
    for (size_t i = 0; i < places.size(); ++i) {
      std::shared_ptr<Site>& site = self->state->sites[places[i]];
      if (!site) site = std::make_shared<Site>();
      count += take_over(*site, *read[i + 1]);
    }
    Stats::get().regions += count;
    return PyLong_FromLongLong(count);
  });
}

}  // namespace bolt::session
