// observe/values/number_calls.h
// A call of a function of C or of torch's, or an index, with numbers that differ between calls -> its result
// (number_calls.cpp). Null without an exception: it is not done here.
#pragma once

#include "observe/recording.h"

namespace bolt::observe {

/// Arguments, some of which others stand for.
class StandIns {
 public:
  StandIns(PyObject* const* given, size_t total) : given_(given), total_(total) {}
  void put(size_t i, PyRef item) {
    if (args_.empty()) args_.assign(given_, given_ + total_);
    args_[i] = item.get();
    held_.push_back(std::move(item));
  }
  PyObject* const* args() const { return args_.empty() ? given_ : args_.data(); }

 private:
  PyObject* const* given_;
  size_t total_;
  std::vector<PyObject*> args_;
  std::vector<PyRef> held_;
};

/// range(self.n), F.layer_norm(x, shape, eps=self.eps), x.view(torch.div(n, 2), 2): C code takes the numbers
/// out of tensors, which `number_of` gives (new; null: none); its flag says that it is taken for a size.
StandIns numbers_taken(const Native& native, PyObject* const* args, size_t nargs, size_t total,
                       const std::function<PyObject*(PyObject*, bool)>& number_of);

void note_slices(Recording& recording, PyObject* tensor, PyObject* key);
bool select_followed(Recording& recording, Frame& frame, PyRef& tensor, PyRef& key);
/// A tensor made of lists that differ between calls.
PyObject* list_tensor_call(Recording& recording, Frame& frame, const Native& native, PyObject* const* args,
                           size_t nargs, PyObject* kwnames);
/// A tensor that is or copies the memory of an array from outside.
PyObject* array_tensor_call(Recording& recording, Frame& frame, const Native& native, PyObject* const* args,
                            size_t nargs, PyObject* kwnames);
/// `all`: what it is given, with the object that it is bound to in front. Null without an exception: nothing
/// of it is done here.
PyObject* size_call(Recording& recording, Frame& frame, const Native& native,
                    const std::vector<PyObject*>& all, PyObject* kwnames);
void sizes_seen(World& world, const CFunction& row, const std::vector<PyObject*>& all, PyObject* result);

}  // namespace bolt::observe
