// Watched entries of dictionaries and lists: are they still the objects that were put there?
#include <utility>
#include <vector>

#include "bindings/convert.h"

namespace lucid::bindings {
namespace {

class Watch {
 public:
  /// `items` are tuples (dict, key, value); `lists` are watched with all that they hold now.
  Watch(const py::list& items, const py::list& lists) {
    for (const py::handle item : items) {
      const auto entry = py::cast<py::tuple>(item);
      entries_.push_back({py::cast<py::dict>(entry[0]), entry[1], entry[2]});
    }
    for (const py::handle item : lists) {
      const auto list = py::cast<py::list>(item);
      lists_.push_back({list, py::tuple(list)});
    }
  }

  /// True while every dict has just that object under its key, and every list its items.
  bool holds() const {
    for (const Items& watched : lists_) {
      const auto size = static_cast<Py_ssize_t>(watched.items.size());
      if (PyList_GET_SIZE(watched.list.ptr()) != size) return false;
      for (Py_ssize_t i = 0; i < size; ++i) {
        PyObject* const now = PyList_GET_ITEM(watched.list.ptr(), i);
        if (now != PyTuple_GET_ITEM(watched.items.ptr(), i)) return false;
      }
    }
    for (const Entry& entry : entries_) {
      PyObject* found = PyDict_GetItemWithError(entry.dict.ptr(), entry.key.ptr());
      if (found == entry.value.ptr()) continue;
      if (PyErr_Occurred() != nullptr) throw py::error_already_set();
      return false;
    }
    return true;
  }

  /// Puts a value under a key of every dict that is watched for it.
  void put(const py::object& key, const py::object& value) {
    for (Entry& entry : entries_) {
      if (!entry.key.is(key)) continue;
      if (PyDict_SetItem(entry.dict.ptr(), key.ptr(), value.ptr()) != 0) {
        throw py::error_already_set();
      }
      entry.value = value;
    }
  }

 private:
  struct Entry {
    py::dict dict;
    py::object key;
    py::object value;
  };
  struct Items {
    py::list list;
    py::tuple items;
  };
  std::vector<Entry> entries_;
  std::vector<Items> lists_;
};

}  // namespace

void bind_watch(py::module_& m) {
  py::class_<Watch>(m, "Watch")
      .def(py::init<const py::list&, const py::list&>(), py::arg("items"),
           py::arg("lists") = py::list())
      .def("holds", &Watch::holds)
      .def("put", &Watch::put);
}

}  // namespace lucid::bindings
