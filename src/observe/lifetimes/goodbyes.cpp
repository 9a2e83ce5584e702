// observe/lifetimes/goodbyes.cpp
#include "observe/lifetimes/goodbyes.h"

#include <algorithm>

#include "observe/lifetimes/noticed.h"
#include "observe/world.h"

namespace bolt::observe {
namespace {

/// Objects that are held by more are not looked at: few are held by one alone.
constexpr Py_ssize_t kFew = 4;

bool has_holder(const Source& source) {
  switch (source.access) {
    case Access::instance_dict:
    case Access::dict_item:
    case Access::list_item:
    case Access::tuple_item:
    case Access::type_attr: return true;
    default: return false;
  }
}

template <class Visit>
void for_each_inside(PyObject* object, Visit visit) {
  auto call = [](PyObject* inside, void* f) { return (*static_cast<Visit*>(f))(inside), 0; };
  if (auto traverse = Py_TYPE(object)->tp_traverse) traverse(object, call, &visit);
}

}  // namespace

std::vector<PyObject*> inside_of(PyObject* object) {
  std::vector<PyObject*> inside;
  for_each_inside(object, [&](PyObject* each) { inside.push_back(each); });
  return inside;
}

void Goodbyes::met(const Known& known) {
  PyObject* object = known.object.get();
  if (Py_REFCNT(object) > kFew) return;
  if (!has_holder(*known.source))
    may_go(object);
  else if (!ends_are_noticed_)
    notice_ends(ends_noticed(object, 0));
}

void Goodbyes::may_go(PyObject* object) {
  if (Py_REFCNT(object) > kFew || !end_matters(object)) return;
  may_go_.push_back(object);
  if (!ends_are_noticed_) notice_ends(ends_noticed(object, 2));
}

void Goodbyes::also_held(PyObject* object) { ++also_held_[object]; }

void Goodbyes::note_copy(const Known& known) {
  for_each_inside(known.before.get(), [&](PyObject* inside) { also_held(inside); });
}

void Goodbyes::may_lose(Known& known) {
  if (std::exchange(known.loses, true)) return;
  for_each_inside(known.before.get(), [&](PyObject* inside) { may_go(inside); });
}

void Goodbyes::referred_weakly(PyObject* object) { notice_ends(end_matters(object)); }

bool Goodbyes::is_gone(PyObject* object) const {
  const Known* known = world_.find(object);
  const Py_ssize_t* others = also_held_.find(object);
  const Py_ssize_t ours = (known && known->object ? 1 : 0) + (others ? *others : 0);
  if (!guard::is_tensor(object)) return Py_REFCNT(object) == ours;
  const Py_ssize_t recorders = guard::references_to(object) - ours;
  return recorders == 0 || (recorders <= kFew && recorders == hooks_.references_to(object));
}

// What it held is held by nobody else now, or may not be in a while.
void Goodbyes::goes(PyObject* object) {
  gone_.push_back(object);
  for_each_inside(object, [&](PyObject* inside) {
    also_held(inside);
    if (end_matters(inside)) may_go_.push_back(inside);
  });
}

PyObject* Goodbyes::find_gone() {
  PyObject* noticed = nullptr;
  for (size_t i = 0; i < may_go_.size();) {
    PyObject* object = may_go_[i];
    if (!is_gone(object)) {
      ++i;
      continue;
    }
    may_go_[i] = may_go_.back();
    may_go_.pop_back();
    if (!is_gone_.insert(object).second) continue;
    goes(object);
    if (!noticed && ends_noticed(object, 0)) noticed = object;
  }
  return noticed;
}

Gone Goodbyes::close() {
  find_gone();
  Gone gone;
  for (PyObject* object : gone_) gone.held.push_back(PyRef::share(object));
  gone.all = std::move(is_gone_);
  may_go_.clear(), gone_.clear(), is_gone_.clear();
  ends_are_noticed_ = false;
  return gone;
}

}  // namespace bolt::observe
