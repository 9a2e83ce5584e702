// session/functions.cpp
#include "session/functions.h"

#include <string>

#include "cache/disk_cache.h"
#include "cache/redis.h"
#include "device/cpu_results.h"
#include "interp/semantics.h"
#include "python/gil.h"
#include "python/py_ref.h"
#include "run/make_compiled.h"
#include "run/step_times.h"
#include "session/report.h"
#include "session/settings.h"
#include "session/stance.h"
#include "support/background.h"
#include "support/log.h"
#include "support/stats.h"

namespace bolt::session {
namespace {

PyObject* reset_stats(PyObject*, PyObject*) {
  Stats::get().reset();
  interp::stops() = 0;
  Py_RETURN_NONE;
}
PyObject* give_back_results(PyObject*, PyObject*) {
  device::give_back_cpu_results();
  Py_RETURN_NONE;
}
PyObject* wait(PyObject*, PyObject*) {
  {
    const WithoutGil others_go_on;
    wait_for_background();
  }
  Py_RETURN_NONE;
}
PyObject* stop(PyObject*, PyObject*) {
  {
    const WithoutGil others_go_on;
    stop_background();
  }
  Py_RETURN_NONE;
}

PyObject* time_steps(PyObject*, PyObject* on) {
  run::steps_are_timed() = PyObject_IsTrue(on) == 1;
  Py_RETURN_NONE;
}

PyObject* let_code_wait(PyObject*, PyObject* on) {
  run::code_waits() = PyObject_IsTrue(on) == 1;
  Py_RETURN_NONE;
}

PyObject* replace_logs(PyObject*, PyObject* text) {
  const char* wanted = PyUnicode_AsUTF8(text);
  if (!wanted) return nullptr;
  set_logs(wanted);
  Py_RETURN_NONE;
}
PyObject* table_of_logs(PyObject*, PyObject*) {
  PyObject* names = PyDict_New();
  for (const LogName& row : log_names()) {
    PyRef text = PyRef::steal(PyUnicode_FromString(std::string(row.meaning).c_str()));
    PyDict_SetItemString(names, std::string(row.name).c_str(), text.get());
  }
  return names;
}

PyObject* cache_folder(PyObject*, PyObject*) {
  return PyUnicode_DecodeFSDefault(cache::default_folder().c_str());
}

PyObject* redis_client(PyObject*, PyObject*) { return PyUnicode_FromString(cache::redis_client().c_str()); }

}  // namespace

PyMethodDef functions[] = {
    {"_cache_folder", cache_folder, METH_NOARGS, "Where the disk cache lies; \"\": there is none."},
    {"_redis_client", redis_client, METH_NOARGS,
     "What speaks to a Redis server; \"\": nothing in this build."},
    {"_configure", configure, METH_VARARGS, "_configure(name, number): a setting of session/settings.h."},
    {"_set_logs", replace_logs, METH_O, "What to log from now on, as in TORCHBOLT_LOGS."},
    {"_log_names", table_of_logs, METH_NOARGS, "Names that can be logged, and what they mean."},
    {"_set_stance", set_stance, METH_O, "Sets the process's stance (its number); the one before."},
    {"_set_thread_stance", set_thread_stance, METH_O, "The same of this thread, which goes first."},
    {"stats", stats_dict, METH_NOARGS, "Counters of this process."},
    {"reset_stats", reset_stats, METH_NOARGS, "Sets all counters to zero."},
    {"_give_back_results", give_back_results, METH_NOARGS,
     "The system gets the memory that is kept for large results."},
    {"_time_steps", time_steps, METH_O, "Whether calls measure their steps from now on."},
    {"_let_code_wait", let_code_wait, METH_O,
     "Whether plans made from now on get code when they are run first."},
    {"wait", wait, METH_NOARGS, "Returns when no compilation is running."},
    {"_stop", stop, METH_NOARGS, "Drops compilations that wait and returns when none is running."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace bolt::session
