// guard/dict_clock.cpp
#include "guard/dict_clock.h"

namespace bolt::guard {

#if PY_VERSION_HEX >= 0x030C0000

namespace {

uint64_t changes = 0;

int on_change(PyDict_WatchEvent /*event*/, PyObject* /*dict*/, PyObject* /*key*/, PyObject* /*value*/) {
  ++changes;
  return 0;
}

/// Negative: others have taken all there are.
int watcher() {
  static const int id = [] {
    const int made = PyDict_AddWatcher(on_change);
    if (made < 0) PyErr_Clear();
    return made;
  }();
  return id;
}

}  // namespace

void watch_dict(PyObject* dict) {
  if (watcher() >= 0 && PyDict_Watch(watcher(), dict) < 0) PyErr_Clear();
}

uint64_t dict_time() { return watcher() >= 0 ? changes : ++changes; }

#else

namespace {

/// A dict that changes when it is asked to.
struct Probe {
  PyObject* dict = PyDict_New();
  PyObject* key = PyUnicode_InternFromString("changed");
  bool value = false;

  /// The number that a change now gets; 0: there was none.
  uint64_t next() {
    value = !value;
    if (!dict || !key || PyDict_SetItem(dict, key, value ? Py_True : Py_False) < 0) {
      PyErr_Clear();
      return 0;
    }
    return reinterpret_cast<PyDictObject*>(dict)->ma_version_tag;
  }
};

}  // namespace

void watch_dict(PyObject* /*dict*/) {}

uint64_t dict_time() {
  static Probe probe;
  static uint64_t last = 0, time = 0;
  const uint64_t number = probe.next();
  if (!number || number != last + 1) ++time;
  last = number;
  return time;
}

#endif

}  // namespace bolt::guard
