// observe/calls/special_flags.cpp
// See special_calls.h. Flags of cuDNN, which torch keeps for the whole
// process.
//
// Where torch was built without CUDA nothing goes by them but who asks, so a region may set them. What they
// were when the first of them is set is guarded, of all of them, since some are set along with others; what
// the run finds afterwards is its own doing. A region that would leave them changed ends before it sets one.
#include <algorithm>

#include "guard/assumption.h"
#include "observe/calls/special_calls.h"

namespace bolt::observe {
namespace {

/// How to ask for them; whether cuDNN tries algorithms out is part of ThreadState.
struct Getter {
  const char* name;
  std::vector<const char*> asked;
};

const std::vector<Getter>& getters() {
  static const std::vector<Getter> all = {
      {"_get_cudnn_enabled", {}},
      {"_get_cudnn_deterministic", {}},
      {"_get_cudnn_allow_tf32", {}},
      {"_get_cudnn_depthwise_kernel", {}},
      {"_get_fp32_precision_getter", {"cuda", "all"}},
  };
  return all;
}

PyObject* module_of_torch() {
  static PyObject* const module = import_module("torch._C");
  return module;
}

bool has_cuda() {
  static const bool has = [] {
    PyRef answer = PyRef::steal(PyObject_GetAttrString(module_of_torch(), "_has_cuda"));
    return !answer || answer.get() != Py_False;
  }();
  return has;
}

PyRef texts(const std::vector<const char*>& asked) {
  PyRef made = PyRef::steal(PyTuple_New(static_cast<Py_ssize_t>(asked.size())));
  for (size_t i = 0; made && i < asked.size(); ++i)
    PyTuple_SET_ITEM(made.get(), static_cast<Py_ssize_t>(i), PyUnicode_InternFromString(asked[i]));
  return made;
}

/// Of those that are asked about a backend only CUDA's are meant: the CPU has some, too.
bool is_of_cuda(const SpecialCall& c) {
  return c.nargs == 1 || (c.nargs == 3 && PyUnicode_Check(c.args[0]) &&
                          PyUnicode_CompareWithASCIIString(c.args[0], "cuda") == 0);
}

PyObject* set_flag(const SpecialCall& c) {
  for (size_t i = 0; i < c.nargs; ++i) c.recording.world.use(c.args[i]);
  if (has_cuda() || !is_of_cuda(c) || !c.recording.flags.may_be_set(c.recording))
    c.recording.end_here(c.frame, Why::flag_set);
  return nullptr;
}

}  // namespace

bool ProcessFlags::may_be_set(Recording& recording) {
  if (recording.ends.leaves_thread_changed) return false;
  if (!flags_.empty()) return true;
  for (const Getter& each : getters()) {
    PyRef getter = PyRef::steal(PyObject_GetAttrString(module_of_torch(), each.name));
    PyRef question = texts(each.asked);
    if (!getter || !question) return PyErr_Clear(), false;
    PyObject* const* args = &PyTuple_GET_ITEM(question.get(), 0);
    PyRef answer = PyRef::steal(recording.ask(getter.get(), args, each.asked.size()));
    if (!answer) return PyErr_Clear(), flags_.clear(), false;
    flags_.push_back({std::move(getter), std::move(question), std::move(answer)});
  }
  return true;
}

bool ProcessFlags::are_set(PyObject* getter, PyObject* question) const {
  return std::any_of(flags_.begin(), flags_.end(), [&](const Flag& each) {
    return each.getter.get() == getter && PyObject_RichCompareBool(each.question.get(), question, Py_EQ) == 1;
  });
}

bool ProcessFlags::are_as_before() const {
  return std::all_of(flags_.begin(), flags_.end(), [](const Flag& each) {
    PyRef now = PyRef::steal(guard::ask(each.getter.get(), each.question.get()));
    if (!now) PyErr_Clear();
    return now && PyObject_RichCompareBool(now.get(), each.before.get(), Py_EQ) == 1;
  });
}

void add_flag_calls(SpecialCalls& table) {
  table.insert({
      {"torch._C._set_cudnn_enabled", set_flag},
      {"torch._C._set_cudnn_benchmark", set_flag},
      {"torch._C._set_cudnn_deterministic", set_flag},
      {"torch._C._set_cudnn_allow_tf32", set_flag},
      {"torch._C._set_cudnn_depthwise_kernel", set_flag},
      {"torch._C._set_fp32_precision_setter", set_flag},
  });
}

}  // namespace bolt::observe
