// observe/writes/writes.h
// What the run is about to write to something from outside -> what was there before, and what it wrote.
//
// Before its first write a container is copied (shallow), and of a dict it is noted which keys are written:
// what the run put somewhere is its own doing and needs no guard. At the region's end what was written is the
// effect that later calls repeat (rebuild/), and the copies are what an error of the compiler's puts back
// (undo.h).
#pragma once

#include <string>
#include <vector>

#include "observe/known.h"
#include "observe/rebuild/recipe.h"
#include "observe/writes/undo.h"

namespace bolt::observe {

class World;

/// A context variable that the run set.
struct WrittenContext {
  PyRef variable, before;  ///< before: what it held, may be null
  bool restored = false;   ///< by its first token: it holds what every call finds there
  bool set_to_what_it_was = false;

  /// May `old`, what a token gives back, be what was there before? With a default, a variable that is not set
  /// holds something too.
  bool gives_back_before(PyObject* old) const;
};

/// A slot (`__slots__`, C member) of a known object that the run wrote.
struct WrittenField {
  PyRef object;
  Py_ssize_t offset;
  PyRef before;  ///< may be null
};

/// An attribute that the run gave to a class.
struct WrittenClass {
  PyRef cls, name;
  PyRef before;  ///< what its own dict held, may be null
};

/// What the run gave to a known tensor: a gradient, which may be None, or data, which are detached from where
/// they came from.
struct WrittenTensor {
  Effect part;  ///< set_grad or set_data
  PyRef tensor, value;
  PyRef before;  ///< null: it was not asked
};

class Writes {
 public:
  explicit Writes(World& world) : world_(world) {}
  Writes(const Writes&) = delete;

  /// `appends`: the write only adds at the end of a list, or of a deque.
  void about_to_write(PyObject* container, bool appends = false);
  /// One item of a dict is about to be written.
  void about_to_write_item(PyObject* dict, PyObject* key, bool removes = false);
  /// All items of `mapping`, a dict, are about to be put into `dict`.
  void about_to_update(PyObject* dict, PyObject* mapping);
  /// A slot of an object is about to be written, which can be.
  void about_to_write_field(PyObject* object, Py_ssize_t offset);
  /// cls.name is about to be written, of a class made by a class statement.
  void about_to_write_class(PyTypeObject* cls, PyObject* name);
  /// What was there before what has been written so far.
  WorldUndo undo() const;
  /// ContextVar.set.
  void about_to_set_context(PyObject* variable);
  /// tensor.grad = value. -1 with an exception.
  int set_grad(PyObject* tensor, PyObject* value);
  /// tensor.data = value, of a known tensor; `before`: another one on what it showed. -1 with an exception.
  int set_data(PyObject* tensor, PyObject* value, PyRef before);
  /// Did the run give the tensor that part?
  bool was_given(Effect part, PyObject* tensor) const;
  /// ContextVar.reset. False: what the token gives back cannot be told apart from what the run put there.
  bool about_to_reset_context(PyObject* variable, PyObject* token);
  /// What the run left that was not there before it, or that is not as it was; "": nothing.
  std::string trace() const;
  std::vector<PyObject*> written;  ///< known containers with `before`, in order of first write
  std::vector<WrittenField> written_fields;
  std::vector<WrittenClass> written_classes;
  std::vector<WrittenContext> written_context;
  std::vector<WrittenTensor> written_tensors;  ///< in order: a gradient must fit the data
  /// Is what the class has under that name what the run put there?
  bool is_written(PyTypeObject* type, PyObject* name);
  /// A container from outside, with what was in it before the run wrote to it; null: it is not one.
  Known* copied(PyObject* container);

 private:
  /// What lies at `written` is written to: showing.cpp says whether what is shown to the user goes by it.
  void note_showing(const Source* written);
  /// Does the container hold the very items it held before the run?
  bool is_as_before(PyObject* container) const;
  /// Of several writes in a row the last one counts.
  void wrote_tensor(Effect part, PyObject* tensor, PyObject* value, PyRef before);
  World& world_;
};

}  // namespace bolt::observe
