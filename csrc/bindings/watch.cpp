// Watched entries of dictionaries: are they still the objects that were put there?
#include <utility>
#include <vector>

#include "bindings/convert.h"

namespace lucid::bindings {
namespace {

class Watch {
 public:
  /// `items` are tuples (dict, key, value).
  explicit Watch(const py::list& items) {
    for (const py::handle item : items) {
      const auto entry = py::cast<py::tuple>(item);
      entries_.push_back({py::cast<py::dict>(entry[0]), entry[1], entry[2]});
    }
  }

  /// True while every dict has just that object under its key.
  bool holds() const {
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
  std::vector<Entry> entries_;
};

}  // namespace

void bind_watch(py::module_& m) {
  py::class_<Watch>(m, "Watch")
      .def(py::init<const py::list&>())
      .def("holds", &Watch::holds)
      .def("put", &Watch::put);
}

}  // namespace lucid::bindings
