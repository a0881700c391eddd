// emit, view and decompose: the entries through which Python calls operations.
#include <string>
#include <unordered_map>
#include <vector>

#include "bindings/convert.h"
#include "ops/registry.h"
#include "runtime/autograd/decompose.h"
#include "runtime/dispatch/dispatch.h"
#include "runtime/process.h"
#include "support/errors.h"

namespace lucid::bindings {
namespace {

const char* name_of(ir::Autocast policy) {
  switch (policy) {
    case ir::Autocast::kLow:
      return "low";
    case ir::Autocast::kFloat32:
      return "float32";
    case ir::Autocast::kNone:
      break;
  }
  return "none";
}

using runtime::Operand;

// Operations by their interned Python names; the keys are kept alive. Guarded by the GIL.
const ir::Op& op_of(PyObject* name) {
  static std::unordered_map<PyObject*, const ir::Op*> known;
  const auto it = known.find(name);
  if (it != known.end()) return *it->second;
  if (!PyUnicode_Check(name)) {
    throw Error(ErrorKind::kType, "emit: the operation's name must be a string");
  }
  const char* text = PyUnicode_AsUTF8(name);
  if (text == nullptr) throw py::error_already_set();
  const ir::Op* op = ops::find(text);
  if (op == nullptr) {
    throw Error(ErrorKind::kUser, std::string("emit: no operation named ") + text);
  }
  if (known.size() < 4096) {
    Py_INCREF(name);
    known.emplace(name, op);
  }
  return *op;
}

// Attributes in the order of the schema from keyword arguments. `offset` is filled by dispatch.
ir::Attrs attributes(const ir::Op& op, PyObject* const* values, PyObject* names) {
  ir::Attrs attrs(op.attrs.size());
  std::vector<bool> given(op.attrs.size(), false);
  const Py_ssize_t count = names == nullptr ? 0 : PyTuple_GET_SIZE(names);
  for (Py_ssize_t i = 0; i < count; ++i) {
    Py_ssize_t size = 0;
    const char* text = PyUnicode_AsUTF8AndSize(PyTuple_GET_ITEM(names, i), &size);
    if (text == nullptr) throw py::error_already_set();
    const int place = op.attr_index({text, static_cast<size_t>(size)});
    if (place < 0) {
      throw Error(ErrorKind::kUser, std::string(op.name) + ": no attribute named " + text);
    }
    const auto slot = static_cast<size_t>(place);
    attrs[slot] = as_attribute(values[i], op.attrs[slot], op.name);
    given[slot] = true;
  }
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i]) continue;
    if (op.is(ir::kRandom) && op.attrs[i].name == "offset") {
      attrs[i] = int64_t{0};
      continue;
    }
    throw Error(ErrorKind::kUser, std::string(op.name) + ": attribute " +
                                      std::string(op.attrs[i].name) + " is missing");
  }
  return attrs;
}

// The inputs of a call: everything after the operation's name.
std::vector<Operand> operands_of(const ir::Op& op, PyObject* const* args, Py_ssize_t count) {
  std::vector<Operand> operands;
  operands.reserve(static_cast<size_t>(count));
  for (Py_ssize_t i = 1; i < count; ++i) operands.push_back(as_operand(args[i], op.name));
  return operands;
}

PyObject* tuple_of(std::vector<runtime::Variable> outputs) {
  py::tuple result(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    result[i] = py::cast(runtime::make_tensor(std::move(outputs[i])));
  }
  return result.release().ptr();
}

PyObject* emit(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  try {
    if (count < 1) throw Error(ErrorKind::kUser, "emit: needs the name of an operation");
    const ir::Op& op = op_of(args[0]);
    const std::vector<Operand> operands = operands_of(op, args, count);
    ir::Attrs attrs = attributes(op, args + count, names);
    std::vector<runtime::Variable> outputs = runtime::dispatch(op, operands, std::move(attrs));
    if (outputs.size() != 1) return tuple_of(std::move(outputs));
    return py::cast(runtime::make_tensor(std::move(outputs.front()))).release().ptr();
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}

PyObject* decompose(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  try {
    if (count < 1) throw Error(ErrorKind::kUser, "decompose: needs the name of an operation");
    const ir::Op& op = op_of(args[0]);
    const std::vector<Operand> operands = operands_of(op, args, count);
    return tuple_of(runtime::decompose(op, operands, attributes(op, args + count, names)));
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}

PyObject* view(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  try {
    if (count != 2) throw Error(ErrorKind::kUser, "view: takes an operation's name and a tensor");
    const ir::Op& op = op_of(args[0]);
    const TensorRef base = require_tensor(args[1], "view: the base");
    ir::Attrs attrs = attributes(op, args + count, names);
    return py::cast(runtime::dispatch_view(op, base, std::move(attrs))).release().ptr();
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}

constexpr int kFlags = METH_FASTCALL | METH_KEYWORDS;

PyMethodDef methods[] = {
    {"emit", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(emit)), kFlags,
     "emit(name, *inputs, **attributes): calls an operation of the registry."},
    {"view", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(view)), kFlags,
     "view(name, base, **attributes): a view of the base by reshape, permute or slice."},
    {"decompose", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(decompose)), kFlags,
     "decompose(name, *inputs, **attributes): the outputs by the operation's simpler nodes."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

void bind_emit(py::module_& m) {
  if (PyModule_AddFunctions(m.ptr(), methods) != 0) throw py::error_already_set();
  m.def("op_names", [] {
    py::list result;
    for (const ir::Op& op : ops::all()) result.append(std::string(op.name));
    return result;
  });
  m.def("op_info", [](const std::string& name) {
    const ir::Op* op = ops::find(name);
    if (op == nullptr) throw Error(ErrorKind::kUser, "op_info: no operation named " + name);
    py::list attrs;
    for (const ir::AttrSpec& spec : op->attrs) attrs.append(std::string(spec.name));
    py::dict info;
    info["name"] = std::string(op->name);
    info["doc"] = std::string(op->doc);
    info["attributes"] = attrs;
    info["has_vjp"] = op->vjp != nullptr;
    info["has_decompose"] = op->decompose != nullptr;
    info["autocast"] = name_of(op->autocast);
    info["is_elementwise"] = op->is(ir::kElementwise);
    return info;
  });
}

}  // namespace lucid::bindings
