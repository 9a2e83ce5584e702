// observe/writes/undo.h
// What a recorded run found before it wrote -> the world as if it had not run: for a call that ends with an
// error of the compiler's (a region's end under fullgraph, a backend that failed), which shall leave nothing.
//
// Only what World notes before a write is put back: containers, instance dicts, cells, slots, classes,
// gradients, data of tensors and context variables. What tensors held, what was printed and how far iterators
// got is not known any more.
#pragma once

#include <Python.h>

#include <vector>

#include "observe/rebuild/recipe.h"
#include "python/py_ref.h"

namespace bolt::observe {

class WorldUndo {
 public:
  /// `before`: a dict, list or set like `container` was; of a cell a tuple of what was in it.
  void contents(PyObject* container, PyObject* before);
  /// The slot at `offset` of `object` held `before`, which may be null.
  void field(PyObject* object, Py_ssize_t offset, PyObject* before);
  /// The class had `before`, which may be null, in its own dict.
  void attribute(PyObject* cls, PyObject* name, PyObject* before);
  /// Its gradient or its data (Effect::set_grad, Effect::set_data).
  void tensor(Effect part, PyObject* tensor, PyObject* before);
  void context(PyObject* variable, PyObject* before);
  /// Keeps the exception that is set.
  void put_back() const;

 private:
  struct Change {
    enum Kind : uint8_t { contents, field, attribute, gradient, data, context } kind;
    PyRef object, before;
    Py_ssize_t offset = 0;
    PyRef name;
  };
  static bool run(const Change& change);
  std::vector<Change> changes_;
};

}  // namespace bolt::observe
