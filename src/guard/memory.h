// guard/memory.h
// What one slow walk through the sources found, as machine words that prove the same result again as long as
// they keep their values: the version of every dict that was read, the type and dict pointer of every object,
// the items of lists, the version tags of classes.
//
// Words are compared in the order of the walk: a parent's come before its children's, so memory is only
// touched through objects that are known to be alive. While no dict changed (dict_clock.h) the versions of
// dicts are as good as compared, and the others are all there is to do.
//
// Dict versions are unique in the process, so one proves the dict, not only its state. A pointer found in a
// list or tuple proves less (the object may have died and another taken its place): what is below it is
// compared word by word again, and leaves are kept alive by the memory.
//
// A step to the .grad of a tensor is taken again each time, which costs as little as comparing a word:
// backward makes another gradient for each call, and a memory that held one would keep what it takes.
//
// Numbers in tensors are compared with the memory they were read from (tensor_numbers.h), and read again only
// where that has changed: what was read is kept from one walk to the next.
//
// A module that counts its calls is another one at each of them: where a word has changed, all is walked
// again. So that this costs little, large subtrees that branch off (a layer) have a memory of their own, a
// part, whose words are compared when the walk comes there, and which is walked only where they differ.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "guard/source.h"
#include "guard/tensor_numbers.h"
#include "guard/tensors.h"

namespace bolt::guard {

struct Word {
  const uint64_t* at;
  uint64_t expected;
};
struct HalfWord {
  const uint32_t* at;
  uint32_t expected;
};

/// A step that leaves no word to compare: it is taken again. What was found is held, since words may point
/// into it.
struct Reread {
  const Source* step;
  PyObject* parent;
  PyRef found;
};

/// A step to .grad, below which everything is walked each time, and leaves no words: another gradient takes
/// the place of the one that was found, wherever the guards hold for it.
struct GradStep {
  const Source* step;
  PyObject* tensor;
  PyObject* found;  ///< borrowed, and perhaps gone: only compared; null: there was none
  size_t tensors, tensor_count, objects, object_count;  ///< what the lists of the memory have of it
};

/// A number that was read out of a tensor.
struct NumberInTensor {
  PyObject* tensor;
  const TensorNumber* number;
};

struct Memory {
  std::vector<Word> words;   ///< all
  std::vector<Word> others;  ///< all but the versions of dicts
  uint64_t compared = 0;     ///< dict_time() when the versions of dicts last were
  std::vector<HalfWord> type_tags;
  std::vector<std::pair<const Source*, PyObject*>> always;  ///< places no word can vouch for
  std::vector<std::pair<int, PyObject*>> tensors, objects;  ///< by slot, by register
  std::vector<PyRef> held;                                  ///< leaves whose address is a word's value
  std::vector<Reread> rereads;
  std::vector<Reread> made;  ///< tensors of lists and arrays: made anew each time, and then found
  std::vector<GradStep> grads;
  std::vector<NumberInTensor> numbers;                            ///< of this walk
  std::unordered_map<const Source*, TensorNumber> known_numbers;  ///< of all walks so far
  uint64_t id = 0;
  bool valid = false;
  bool related = false;      ///< the relations (relations.h) of what it found hold
  bool other_class = false;  ///< an object of another class is why not
  std::unordered_map<const Source*, std::unique_ptr<Memory>> parts;
  PyObject* top = nullptr;  ///< of a part: what was found there

  /// Forgets everything but its parts; the objects it held are the caller's to let go of.
  void forget(std::vector<PyRef>& gone);
  void forget_all(std::vector<PyRef>& gone);
  bool unchanged();
  /// Takes over the words of a part, which holds what they point into.
  void append(const Memory& part);
  /// Makes again what the walk made, and finds gradients again, where nothing else has changed.
  bool find_again(const std::vector<std::string>& root_names, const TensorTable& table,
                  std::vector<PyRef>& gone);
  /// `below`: what a walk from the gradient of `tensor` found.
  void add_grad(const Source& step, PyObject* tensor, PyObject* grad, Memory& below);
  /// Its contents are others now: what is remembered of them elsewhere is out of date.
  void renew();

 private:
  bool words_unchanged();
  bool find_lists(std::vector<PyRef>& gone);
  void replace_grad(GradStep& grad, PyObject* now, const Memory& below);
};

/// One slow walk: checks, and fills a memory.
struct Walk {
  Memory& memory;
  const std::vector<std::string>& root_names;
  const TensorTable& table;
  std::string* why;                ///< not null: the first guard that failed
  std::set<std::string>* numbers;  ///< not null: numbers may differ, and this is where those do
  bool goes_on = false;  ///< where a guard fails, past what it is about: only numbers are looked for
  std::vector<PyRef>* gone = nullptr;  ///< what parts held; null: they are not used
  const Source* part_of = nullptr;     ///< of the walk through a part: its top

  bool visit(const Source& source, PyObject* object);

 private:
  bool visit_part(const Source& source, PyObject* object);
  bool visit_whole(const Source& source, PyObject* object);
  PyObject* read(const Source& child, PyObject* parent);
  PyObject* read_number(const Source& child, PyObject* tensor);
  bool is_other_number(const Source& source, const Assumption& assumption, PyObject* object);
  bool visit_absent(const Source& source);
  bool visit_grad(const Source& step, PyObject* tensor, PyObject* grad);
  bool fail(const Source& source, const Assumption& assumption, PyObject* object);
  void word(const void* at, const void* expected);
  template <typename T>
  void word_now(const T* at);
  void dict_word(PyDictObject* dict);
  void remember(const Source& source, PyObject* object);
  void remember_type(PyTypeObject* type);
  void remember_assumption(const Assumption& assumption, PyObject* object, bool proven);
  void remember_step(const Source& child, PyObject* parent, PyObject* found);
};

}  // namespace bolt::guard
