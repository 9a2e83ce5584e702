// guard/saved.cpp
// Program -> ArchiveWriter -> Program, in another process: the tree of sources with its assumptions, what is
// known of the tensors, the thread's state, and the numbers.
//
// Offsets of fields and the bits of key sets are those of this build of torch and Python, and of the user's
// classes as they were: whoever reads has made sure of these. What the compilation of the program adds
// (symbols, facts about sizes, what is written) is told anew by the compilation of what is read.
#include <Python.h>

#include <algorithm>

#include "guard/program.h"
#include "python/archive.h"

namespace bolt::guard {
namespace {

constexpr int64_t kNoParent = -1;

/// `reg`: the register, unless the constructor gives it one again.
void write_source(ArchiveWriter& out, const Source& source, int reg) {
  out.number(source.parent ? source.parent->number : kNoParent);
  out.number(static_cast<int64_t>(source.access));
  out.object(source.key.get());
  out.number(source.index);
  out.object(source.start);
  out.number(reg);
  out.number(source.is_whole);
}

/// Does a check compare an address, which is another one in another process?
bool is_address(Check check) { return check == Check::method; }

void write_assumption(ArchiveWriter& out, const Assumption& a) {
  if (is_address(a.check) && !a.value)
    throw Error(ErrorKind::User, "a guard is about a method of C's that no class has under its name");
  out.number(static_cast<int64_t>(a.check));
  out.object(a.value.get());
  out.number(a.other ? a.other->number : kNoParent);
  out.number(is_address(a.check) ? 0 : a.number);
}

class ReadSources {
 public:
  explicit ReadSources(ArchiveReader& in) : in_(in), tree_(std::make_unique<SourceTree>()) {}

  std::unique_ptr<SourceTree> run() {
    in_.list([&] { source(); });
    in_.list([&] { assumption(); });
    // In the order in which they were given.
    std::sort(kept_.begin(), kept_.end());
    for (const auto& [reg, source] : kept_)
      if (tree_->keep(source) != reg) ArchiveReader::fail();
    in_.list([&] { tree_->root_names.push_back(in_.text()); });
    in_.list([&] {
      Apart apart;
      apart.each = places();
      apart.others = places();
      tree_->apart.push_back(std::move(apart));
    });
    return std::move(tree_);
  }

 private:
  Source* known() { return sources_[in_.below(sources_.size())]; }
  std::vector<Source*> places() {
    std::vector<Source*> out;
    in_.list([&] { out.push_back(known()); });
    return out;
  }

  void source() {
    const int64_t parent = in_.number();
    const auto access = static_cast<Access>(in_.below(static_cast<size_t>(Access::chosen) + 1));
    const PyRef key = in_.object();
    const auto index = static_cast<Py_ssize_t>(in_.number());
    const PyRef start = in_.object();
    const int64_t reg = in_.number();
    const bool is_whole = in_.number() != 0;
    if (parent >= static_cast<int64_t>(sources_.size())) ArchiveReader::fail();
    Source* made = nullptr;
    if (access == Access::root)
      made = tree_->root(index);
    else if (access == Access::constant && key)
      made = tree_->constant(key.get());
    else if (access == Access::chosen)
      made = tree_->chosen(static_cast<int>(index), key.get(), start.get());
    else if (parent >= 0)
      made = tree_->child(sources_[parent], access, key.get(), index, start.get());
    else
      ArchiveReader::fail();
    made->is_whole = is_whole;
    sources_.push_back(made);
    if (reg >= 0) kept_.emplace_back(static_cast<int>(reg), made);
  }

  void assumption() {
    Source* source = known();
    const auto check = static_cast<Check>(in_.below(static_cast<size_t>(Check::unbound) + 1));
    const PyRef value = in_.object();
    const int64_t other = in_.number();
    auto number = static_cast<Py_ssize_t>(in_.number());
    if (other >= static_cast<int64_t>(sources_.size())) ArchiveReader::fail();
    if (is_address(check)) {
      if (!value || !Py_IS_TYPE(value.get(), &PyMethodDescr_Type)) ArchiveReader::fail();
      number = reinterpret_cast<Py_ssize_t>(reinterpret_cast<PyMethodDescrObject*>(value.get())->d_method);
    }
    source->assume(check, value.get(), number, other < 0 ? nullptr : sources_[other]);
  }

  ArchiveReader& in_;
  std::unique_ptr<SourceTree> tree_;
  std::vector<Source*> sources_;
  std::vector<std::pair<int, Source*>> kept_;
};

void write_numbers(ArchiveWriter& out, const Numbers& numbers) {
  out.number(numbers.early_may_raise);
  out.list(numbers.steps, [&](const NumberStep& step) {
    out.number(static_cast<int64_t>(step.op));
    out.number(step.kind);
    out.object(step.object.get());
    out.integers(step.args);
    out.number(step.element);
    out.number(static_cast<int64_t>(step.phase));
    out.object(reinterpret_cast<PyObject*>(step.type));
  });
  out.list(numbers.facts, [&](const NumberFact& fact) {
    out.number(fact.step);
    out.object(fact.value.get());
    out.text(fact.where);
  });
}

Numbers read_numbers(ArchiveReader& in) {
  Numbers numbers;
  numbers.early_may_raise = in.number() != 0;
  in.list([&] {
    NumberStep step{};
    step.op = static_cast<NumberOp>(in.below(static_cast<size_t>(NumberOp::call) + 1));
    step.kind = in.as<int>();
    step.object = in.object();
    step.args = in.integers<std::vector<int>>();
    step.element = in.number();
    step.phase = static_cast<Phase>(in.below(static_cast<size_t>(Phase::late) + 1));
    if (const PyRef type = in.object()) {
      if (!PyType_Check(type.get())) ArchiveReader::fail();
      step.type = reinterpret_cast<PyTypeObject*>(type.get());  // int or float, which stay
    }
    for (int arg : step.args)
      if (arg >= static_cast<int>(numbers.steps.size())) ArchiveReader::fail();
    numbers.steps.push_back(std::move(step));
  });
  in.list([&] {
    const auto step = static_cast<int>(in.below(numbers.steps.size()));
    PyRef value = in.object();
    numbers.facts.push_back({step, std::move(value), in.text()});
  });
  return numbers;
}

}  // namespace

void Program::write(ArchiveWriter& out) const {
  auto place_numbers = [&](const std::vector<Source*>& sources) {
    out.list(sources, [&](const Source* s) { out.number(s->number); });
  };
  size_t assumptions = 0;
  out.list(tree_->all(), [&](const Source* source) {
    assumptions += source->assumptions.size();
    const bool given = source->reg >= 0 && static_cast<size_t>(source->reg) < given_;
    write_source(out, *source, given ? source->reg : -1);
  });
  out.number(static_cast<int64_t>(assumptions));
  for (const Source* source : tree_->all())
    for (const Assumption& assumption : source->assumptions) {
      out.number(source->number);
      write_assumption(out, assumption);
    }
  out.list(tree_->root_names, [&](const std::string& name) { out.text(name); });
  out.list(tree_->apart, [&](const Apart& apart) { place_numbers(apart.each), place_numbers(apart.others); });
  tensors_.write(out);
  for (uint64_t bits : {thread_.flags, thread_.types, thread_.modes}) out.number(static_cast<int64_t>(bits));
  out.number(thread_.threads);
  write_numbers(out, numbers_);
}

std::unique_ptr<Program> Program::read(ArchiveReader& in) {
  std::unique_ptr<SourceTree> tree = ReadSources(in).run();
  TensorTable tensors = TensorTable::read(in);
  ThreadState thread;
  for (uint64_t* bits : {&thread.flags, &thread.types, &thread.modes}) *bits = in.as<uint64_t>();
  thread.threads = in.as<int>();
  for (const Source* source : tree->all())
    for (const Assumption& a : source->assumptions)
      if (a.check == Check::tensor && (a.number < 0 || a.number >= static_cast<Py_ssize_t>(tensors.size())))
        ArchiveReader::fail();
  auto program = std::make_unique<Program>(std::move(tree), std::move(tensors), thread);
  program->follow_numbers(read_numbers(in));
  return program;
}

}  // namespace bolt::guard
