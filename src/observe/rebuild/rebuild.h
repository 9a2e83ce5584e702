// observe/rebuild/rebuild.h
// Live Python objects at the end of a region -> a Recipe that makes them again.
//
// Known objects are re-read from their source, leaves and pinned objects are constants, tensors made by the
// region are outputs, and what the run built around them is built again, each object once. How, is a row of
// Rebuilder::kinds for each kind of object.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "interp/frame.h"
#include "observe/world.h"

namespace bolt::observe {

inline PyObject* class_of(PyObject* object) { return reinterpret_cast<PyObject*>(Py_TYPE(object)); }
bool is_instance_of_named(PyObject* object, const char* type_name);
/// What a Python class is derived from where its instances are immutable values; null.
PyTypeObject* immutable_base(PyTypeObject* type);

class Rebuilder {
 public:
  Rebuilder(World& world, RecorderHooks& hooks) : world_(world), hooks_(hooks) {}

  /// The value that makes `object` (null: -1). On failure `failure` is set and -1 returned.
  int value(PyObject* object);
  /// Everything the run changed outside.
  void effects();
  /// The frames where the region ends, oldest first, without the locals that nobody misses.
  void frames(const std::vector<const interp::Frame*>& frames);

  Recipe recipe;
  std::optional<Reason> failure;
  PyObject* failed_on = nullptr;                ///< borrowed
  const interp::Frame* failed_below = nullptr;  ///< the frame that called the one it was met in

 private:
  struct Kind {
    bool (*is)(PyObject* object);
    int (Rebuilder::*make)(PyObject* object);
  };
  static const Kind kinds[];

  int add(Make make, PyObject* object = nullptr, Py_ssize_t number = 0, std::vector<int> parts = {});
  void fill(FillStep step);
  int fail(PyObject* object, const char* why = "made by the region cannot be made again");
  std::vector<int> items(PyObject* sequence);
  int known_value(PyObject* object, Known& known);
  int late_value(const Late& late);
  int fresh_value(PyObject* object);
  int value_of_new(PyObject* object);
  int tensor_value(PyObject* object);
  void frame(const interp::Frame& frame);

  // rebuild_containers.cpp
  int tuple_value(PyObject* object);
  int list_value(PyObject* object);
  int joined_value(PyObject* object, const Known& known);
  int dict_value(PyObject* object);
  int set_value(PyObject* object);
  int deque_value(PyObject* object);
  int slice_value(PyObject* object);
  int bytearray_value(PyObject* object);
  int view_value(PyObject* object);

  // rebuild_objects.cpp
  int function_value(PyObject* object);
  int cell_value(PyObject* object);
  int method_value(PyObject* object);
  int builtin_method_value(PyObject* object);
  int method_wrapper_value(PyObject* object);
  int partial_value(PyObject* object);
  int reference_value(PyObject* object);
  int namespace_value(PyObject* object);
  int described_value(PyObject* object);
  int iterator_value(PyObject* object);
  bool keeps_order(PyObject* set);
  int instance_value(PyObject* object);
  int immutable_value(PyObject* object);
  int exception_value(PyObject* object);
  int traceback_value(PyObject* object);
  int token_value(PyObject* object);
  int attribute_of(int owner, PyObject* name);
  void fill_cell(PyObject* cell);
  void fill_own(int made, PyObject* object);
  void fill_members(int made, PyObject* object, bool native);
  void fill_attributes(int made, PyObject* object);

  // rebuild_generators.cpp
  int generator_value(PyObject* object);
  Py_ssize_t generator_state(PyObject* generator);
  int awaitable_value(PyObject* object);
  int item_value(PyObject* object);

  // rebuild_effects.cpp
  void dict_effect(int target, const Known& known, PyObject* now);
  void set_effect(int target, const Known& known);
  bool ends_effect(int target, const Known& known, bool is_noticed);
  void effect_on(PyObject* container, Known& known);

  World& world_;
  RecorderHooks& hooks_;
  std::unordered_map<PyObject*, int> made_;
  int depth_ = 0;  ///< how many objects lie around the one at hand
  std::unordered_map<PyObject*, const interp::Frame*> bodies_;  ///< frames of running generators
  const interp::Frame* innermost_ = nullptr;
  std::unordered_set<PyObject*> tokens_;  ///< context variables whose token is made
  std::vector<PyRef> held_;               ///< objects in made_: addresses must not be reused meanwhile
};

}  // namespace bolt::observe
