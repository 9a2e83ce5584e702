// guard/program.h
// SourceTree -> Program: "does everything the recording rested on still hold?", in microseconds.
//
// The slow way walks the tree from the roots, re-reading everything. While it does so it notes the machine
// words that prove the same result again as long as they keep their values (memory.h). The fast way compares
// those words, and nothing else. At the first difference the slow way runs and renews the words.
//
// Words are remembered per instance of a root (80 equal layers share a program and have 80 memories) and
// apart for what hangs below constants.
//
// Tensors are compared in one packed pass afterwards (tensors.h).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "guard/numbers.h"
#include "guard/relations.h"
#include "guard/source.h"
#include "guard/tensors.h"
#include "guard/thread_state.h"
#include "support/size_fact.h"

namespace bolt::guard {

struct Memory;

/// What a successful check found.
struct Found {
  std::vector<PyRef> objects;             ///< by register: what recipes re-read
  std::vector<c10::TensorImpl*> tensors;  ///< by input slot; borrowed from the roots
  std::vector<PyRef> numbers;             ///< by step of Numbers
};

/// By the place a tensor was found at ("x", "self.cache[0]"): a bit for each of its sizes and strides.
using DynamicDims = std::map<std::string, uint64_t>;

/// What differed between calls that were alike otherwise, by the place it was found at.
struct Differences {
  DynamicDims sizes;
  std::set<std::string> numbers;  ///< exact ints and floats
  /// In how many recordings a number was another one than in an earlier one.
  std::map<std::string, int> times;
  bool empty() const { return sizes.empty() && numbers.empty(); }
  bool operator==(const Differences&) const = default;
};

class Program {
 public:
  /// Takes over what a recording assumed.
  Program(std::unique_ptr<SourceTree> tree, TensorTable tensors, ThreadState thread);
  ~Program();

  /// True if everything holds for these roots. Never raises; needs the GIL.
  bool check(PyObject* const* roots, size_t nroots, Found& found);

  /// Why check says no: "self.training == True (now False)". Walks everything; empty if it would say yes.
  std::string explain_failure(PyObject* const* roots, size_t nroots);

  /// Does it say no because of an object of another class?
  bool differs_in_class(PyObject* const* roots, size_t nroots);

  /// The program writes into these inputs: from now on no other input may share memory with them unless it
  /// did in the recorded run.
  void forbid_new_overlap(const std::vector<int>& written_slots);

  /// What the recorded run computed from numbers that differ between calls.
  void follow_numbers(Numbers numbers) { numbers_ = std::move(numbers); }
  /// Sizes that may differ from the recorded ones, and what must hold of them. `sizes`: by step of the
  /// numbers that is a size, in order. The rows of inputs have slots for them.
  void free_sizes(SymbolTable symbols, std::vector<SizeFact> facts, const Syms& sizes);

  /// Asks `keep` which guards to keep: it is called with a list of (name, has a value, value, kind, is
  /// global, classes on the way to it) and gives a list of bools. False: it raised.
  bool filter(PyObject* keep);

  /// "self.cache[0]": where the tensor of a slot was found.
  std::string place_of(int slot) const;
  const Numbers& numbers() const { return numbers_; }

  /// If sizes of tensors and numbers are all that differs from what was recorded: adds which. Numbers of an
  /// object that was recorded itself, and what the arguments beside it differ in, in any case.
  void add_differences(PyObject* const* roots, size_t nroots, Differences& into);
  /// What was recorded, by address: it may be gone by now.
  void recorded_with(std::vector<PyObject*> roots) { recorded_ = std::move(roots); }

  /// Every guard as a line of text, for `explain` and the tests.
  std::vector<std::string> describe() const;

  /// For another process, without what the program's compilation tells (saved.cpp).
  void write(ArchiveWriter& out) const;
  static std::unique_ptr<Program> read(ArchiveReader& in);

  size_t tensor_count() const { return tensors_.size(); }
  /// What the last check that held found there, by address: it may be gone by now.
  const c10::TensorImpl* last_found(int slot) const { return impls_[slot]; }
  /// May it be found there?
  bool takes(int slot, PyObject* tensor) const { return tensors_.size_differences(slot, tensor) == 0; }
  /// How often a check had to take the slow way, for tests.
  size_t walks() const { return walks_; }
  const SourceTree& tree() const { return *tree_; }

 private:
  struct Group;
  bool check_group(Group& group, PyObject* top, std::vector<PyRef>& gone);
  bool walk_group(const Group& group, PyObject* top, Memory& memory, std::string* why,
                  std::set<std::string>* numbers = nullptr, bool goes_on = false,
                  std::vector<PyRef>* gone = nullptr) const;
  void add_arguments(PyObject* const* roots, size_t nroots, Differences& into) const;
  void use(Group& group, Memory& memory);
  void choose_anew(std::vector<PyRef>& gone);
  bool choose(const std::vector<PyRef>& numbers, std::string* why);
  bool are_chosen() const;
  bool check_relations();
  void forget_alias(const Source* a, const Source* b);
  std::optional<int64_t> value_of(Sym size, c10::TensorImpl* const* tensors,
                                  const std::vector<PyRef>& numbers) const;
  bool compute_numbers(std::vector<PyRef>& numbers, std::string* why);
  bool check_numbers(std::vector<PyRef>& numbers, std::string* why);
  bool check_sizes(c10::TensorImpl* const* tensors, const std::vector<PyRef>& numbers,
                   std::string* why) const;
  std::string text_of(int step) const;
  std::string text_of(const SymbolRow& row) const;
  bool walk_all(PyObject* const* roots, size_t nroots, std::vector<PyRef>& made, std::string* why,
                std::set<std::string>* numbers = nullptr, bool* other_class = nullptr);

  std::unique_ptr<SourceTree> tree_;
  TensorTable tensors_;
  ThreadState thread_;
  SymbolTable symbols_;
  std::vector<SizeFact> facts_;
  Numbers numbers_;
  std::vector<PyObject*> recorded_;  ///< by root; never looked into
  std::vector<std::unique_ptr<Group>> groups_;
  std::vector<std::unique_ptr<Group>> chosen_;  ///< each of one object that the numbers choose
  Relations across_;                            ///< of places in different groups
  std::vector<uint64_t> across_held_for_;       ///< the memories, by id, for which those held last
  size_t walks_ = 0;
  size_t given_ = 0;                       ///< registers that recipes read
  std::vector<PyObject*> tensor_objects_;  ///< by slot, of the memories last used
  std::vector<c10::TensorImpl*> impls_;    ///< theirs
  std::vector<PyObject*> objects_;         ///< by register, of the memories last used
};

}  // namespace bolt::guard
