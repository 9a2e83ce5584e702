// session/failures.cpp
#include "session/failures.h"

#include <algorithm>
#include <utility>

#include "session/exceptions.h"
#include "session/settings.h"
#include "support/knobs.h"
#include "support/log.h"
#include "support/stats.h"

namespace bolt::session {
namespace {

/// A region could not be compiled, and the user already has eager's result: loud once.
void fall_back(Callable* self, const std::string& what, const char* advice = "") {
  note_eager_call(self, {Why::not_compiled, what});
  if (!std::exchange(self->state->warned_failure, true))
    warn("torchbolt could not compile a region and runs it eagerly: " + what + advice);
}

}  // namespace

std::string name_of(Callable* self) {
  if (!self->options->name.empty()) return self->options->name;
  PyRef name = PyRef::steal(PyObject_GetAttrString(self->target, "__qualname__"));
  const char* text = name ? PyUnicode_AsUTF8(name.get()) : nullptr;
  if (!text) PyErr_Clear();
  return text ? text : "a function";
}

bool strict() { return knob_bool("TORCHBOLT_STRICT") || !Settings::get().suppress_errors; }

void warn(const std::string& text) {
  PyRef logging = PyRef::steal(import_module("logging"));
  PyRef logger =
      PyRef::steal(logging ? PyObject_CallMethod(logging.get(), "getLogger", "s", "torchbolt") : nullptr);
  PyRef done =
      PyRef::steal(logger ? PyObject_CallMethod(logger.get(), "warning", "ss", "%s", text.c_str()) : nullptr);
  if (done) return;
  if (PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) return forget_error();
  PyErr_WriteUnraisable(nullptr);
}

void note_eager_call(Callable* self, const Reason& why) {
  constexpr size_t kKept = 64;
  ++Stats::get().eager_fallbacks;
  if (log_wanted("perf_hints")) log("perf_hints", name_of(self) + " is run by eager: " + why.text());
  auto& kept = self->state->eager_calls;
  auto same = [&](const auto& each) { return each.first.why == why.why && each.first.said == why.said; };
  auto known = std::find_if(kept.begin(), kept.end(), same);
  if (known != kept.end())
    ++known->second;
  else if (kept.size() < kKept)
    kept.emplace_back(why, 1);
}

void end_earlier(Callable* self, EndsEarlier where, const std::string& why) {
  if (where == EndsEarlier::at_selected_rows && !self->state->ends_at_selected_rows) {
    self->state->ends_at_selected_rows = true;
    log("dynamic", name_of(self) + ": regions end where masks select of what is differentiated: " + why);
  } else if (where == EndsEarlier::at_data_sizes || where == EndsEarlier::at_selected_rows) {
    self->state->ends_at_data_sizes = true;
    log("dynamic", name_of(self) + ": regions end where sizes are data: " + why);
  } else if (where == EndsEarlier::before_backward) {
    self->state->ends_before_backward = true;
    log("perf_hints", name_of(self) + ": regions end before backward passes: " + why);
  }
}

bool report_failure(Callable* self, const std::string& what, bool is_users) {
  if (strict()) {
    note_eager_call(self, {Why::not_compiled, what});
    set_exception("InternalError", "torchbolt: " + what);
    return false;
  }
  fall_back(self, what, is_users ? "" : "\nPlease report this, with the output of TORCHBOLT_LOGS=+all.");
  return true;
}

bool suppress_backends_failure(Callable* self) {
  if (knob_bool("TORCHBOLT_STRICT") || Settings::get().suppress_errors != 1) return false;
  PyRef failure = PyRef::steal(take_raised());
  PyRef exc = PyRef::steal(import_module("torchbolt.exc"));
  PyRef type = PyRef::steal(exc ? PyObject_GetAttrString(exc.get(), "BackendCompilerFailed") : nullptr);
  if (!type || !PyErr_GivenExceptionMatches(failure.get(), type.get()))
    return set_raised(failure.release()), false;
  PyRef text = PyRef::steal(PyObject_Str(failure.get()));
  const char* what = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  if (what) fall_back(self, what);
  return what != nullptr;
}

}  // namespace bolt::session
