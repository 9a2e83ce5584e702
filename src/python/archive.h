// python/archive.h
// Plain data and Python objects in a row -> three Python lists (numbers, texts, objects), and back.
//
// Who writes a part of an archive also reads it, in the same order, so nothing says which is which. Objects
// stand once each, whoever names them; how they are found again in another process is for those who keep the
// lists (torchbolt/saved.py).
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "python/py_ref.h"
#include "support/error.h"

namespace bolt {

class ArchiveWriter {
 public:
  void number(int64_t n) { numbers_.push_back(n); }
  void text(const std::string& text) { texts_.push_back(text); }
  /// Null stays null.
  void object(PyObject* object) {
    if (!object) return number(-1);
    const auto [at, fresh] = places_.try_emplace(object, static_cast<int64_t>(objects_.size()));
    if (fresh) objects_.push_back(PyRef::share(object));
    number(at->second);
  }
  template <class Items, class Each>
  void list(const Items& items, const Each& each) {
    number(static_cast<int64_t>(items.size()));
    for (const auto& item : items) each(item);
  }
  template <class Items>
  void integers(const Items& items) {
    list(items, [&](auto item) { number(static_cast<int64_t>(item)); });
  }

  /// (numbers, texts, objects), new; null with an exception.
  PyObject* lists() const {
    PyRef numbers = PyRef::steal(PyList_New(0)), texts = PyRef::steal(PyList_New(0)),
          objects = PyRef::steal(PyList_New(0));
    if (!numbers || !texts || !objects) return nullptr;
    for (int64_t n : numbers_)
      if (!append(numbers, PyRef::steal(PyLong_FromLongLong(n)))) return nullptr;
    for (const std::string& t : texts_)
      if (!append(texts, PyRef::steal(PyUnicode_DecodeUTF8(t.data(), static_cast<Py_ssize_t>(t.size()),
                                                           "surrogateescape"))))
        return nullptr;
    for (const PyRef& object : objects_)
      if (!append(objects, object)) return nullptr;
    return PyTuple_Pack(3, numbers.get(), texts.get(), objects.get());
  }

 private:
  static bool append(const PyRef& list, const PyRef& item) {
    return item && PyList_Append(list.get(), item.get()) == 0;
  }
  std::vector<int64_t> numbers_;
  std::vector<std::string> texts_;
  std::vector<PyRef> objects_;
  std::unordered_map<PyObject*, int64_t> places_;
};

class ArchiveReader {
 public:
  /// Of three lists as ArchiveWriter::lists gives them. Throws Error for others, as all below.
  ArchiveReader(PyObject* numbers, PyObject* texts, PyObject* objects) {
    if (!PyList_Check(numbers) || !PyList_Check(texts) || !PyList_Check(objects)) fail();
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(numbers); ++i) {
      numbers_.push_back(PyLong_AsLongLong(PyList_GET_ITEM(numbers, i)));
      if (numbers_.back() == -1 && PyErr_Occurred()) PyErr_Clear(), fail();
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(texts); ++i) {
      PyRef bytes =
          PyRef::steal(PyUnicode_AsEncodedString(PyList_GET_ITEM(texts, i), "utf-8", "surrogateescape"));
      if (!bytes) PyErr_Clear(), fail();
      texts_.emplace_back(PyBytes_AS_STRING(bytes.get()), static_cast<size_t>(PyBytes_GET_SIZE(bytes.get())));
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(objects); ++i)
      objects_.push_back(PyRef::share(PyList_GET_ITEM(objects, i)));
  }

  int64_t number() {
    if (number_ == numbers_.size()) fail();
    return numbers_[number_++];
  }
  template <class T>
  T as() {
    return static_cast<T>(number());
  }
  /// A number of this range: an index, or a member of an enum that has so many.
  int64_t below(size_t end) {
    const int64_t n = number();
    if (n < 0 || n >= static_cast<int64_t>(end)) fail();
    return n;
  }
  const std::string& text() {
    if (text_ == texts_.size()) fail();
    return texts_[text_++];
  }
  PyRef object() {
    const int64_t at = number();
    if (at == -1) return {};
    if (at < 0 || at >= static_cast<int64_t>(objects_.size())) fail();
    return objects_[at];
  }
  template <class Each>
  void list(const Each& each) {
    for (int64_t left = below(numbers_.size() + texts_.size() + 1); left > 0; --left) each();
  }
  template <class Items>
  Items integers() {
    Items items;
    list([&] { items.push_back(as<std::decay_t<decltype(items[0])>>()); });
    return items;
  }
  [[noreturn]] static void fail() { throw Error(ErrorKind::User, "what was saved is not whole"); }

 private:
  std::vector<int64_t> numbers_;
  std::vector<std::string> texts_;
  std::vector<PyRef> objects_;
  size_t number_ = 0, text_ = 0;
};

}  // namespace bolt
