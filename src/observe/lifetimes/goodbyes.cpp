// observe/lifetimes/goodbyes.cpp
// What the run lets go of -> the region ends where somebody would notice.
//
// World holds what it knows, and copies of what is written, so in a recorded run nothing of that goes. Where
// it has an end of its own (`__del__`, a weak reference, a generator within try) the region must end there,
// since later calls end it there, too. So references are counted as a garbage collector does: an object is
// gone when all that are left are World's and those of objects that are gone. Looked at is only what can be
// the first to go: what was found in frames (what lies in something known goes with that, or is written
// over), and what was written over; and only from where something is known whose end would be noticed.
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

void World::met(const Known& known) {
  PyObject* object = known.object.get();
  if (Py_REFCNT(object) > kFew) return;
  if (!has_holder(*known.source))
    may_go(object);
  else if (!ends_are_noticed_)
    notice_ends(ends_noticed(object, 0));
}

void World::may_go(PyObject* object) {
  if (Py_REFCNT(object) > kFew || !end_matters(object)) return;
  may_go_.push_back(object);
  if (!ends_are_noticed_) notice_ends(ends_noticed(object, 2));
}

void World::also_held(PyObject* object) { ++also_held_[object]; }

void World::note_copy(const Known& known) {
  for_each_inside(known.before.get(), [&](PyObject* inside) { also_held(inside); });
}

void World::may_lose(Known& known) {
  if (std::exchange(known.loses, true)) return;
  for_each_inside(known.before.get(), [&](PyObject* inside) { may_go(inside); });
}

void World::referred_weakly(PyObject* object) { notice_ends(end_matters(object)); }

bool World::is_gone(PyObject* object) const {
  Known* const* known = known_.find(object);
  const Py_ssize_t* others = also_held_.find(object);
  const Py_ssize_t ours = (known && *known && (*known)->object ? 1 : 0) + (others ? *others : 0);
  if (!guard::is_tensor(object)) return Py_REFCNT(object) == ours;
  const Py_ssize_t recorders = guard::references_to(object) - ours;
  return recorders == 0 || (recorders <= kFew && recorders == hooks_.references_to(object));
}

// What it held is held by nobody else now, or may not be in a while.
void World::goes(PyObject* object) {
  gone_.push_back(object);
  for_each_inside(object, [&](PyObject* inside) {
    also_held(inside);
    if (end_matters(inside)) may_go_.push_back(inside);
  });
}

PyObject* World::find_gone() {
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

void World::let_go() {
  find_gone();
  std::vector<PyRef> last;
  for (PyObject* object : gone_) last.push_back(PyRef::share(object));
  auto goes_with = [&](PyObject* object) { return object && is_gone_.count(object); };
  // What was written in them is not put back then.
  std::vector<PyRef> copies;
  std::erase_if(written, [&](PyObject* container) {
    PyRef& before = find(container)->before;
    bool any = goes_with(container);
    for_each_inside(before.get(), [&](PyObject* inside) { any |= goes_with(inside); });
    if (any) copies.push_back(std::move(before));
    return any;
  });
  std::erase_if(written_fields, [&](const WrittenField& each) {
    return goes_with(each.object.get()) || goes_with(each.before.get());
  });
  std::erase_if(written_classes, [&](const WrittenClass& each) { return goes_with(each.before.get()); });
  std::erase_if(advanced, [&](const Advanced& each) { return goes_with(each.iterator.get()); });
  may_go_.clear(), gone_.clear(), is_gone_.clear();
  ends_are_noticed_ = false;
  const std::unordered_set<PyObject*> stays(written.begin(), written.end());
  std::vector<PyRef> rest;
  for (Known& known : store_)
    if (!stays.count(known.object.get())) rest.push_back(std::move(known.object));
  made_of_.clear(), copies.clear(), rest.clear();
  while (!last.empty()) last.pop_back();
}

}  // namespace bolt::observe
