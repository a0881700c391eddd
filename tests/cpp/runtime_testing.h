// What the tests of the runtime share: tensors of a few numbers, and calls by name.
#pragma once

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "backends/backend.h"
#include "compile/step.h"
#include "ops/registry.h"
#include "runtime/autograd/engine.h"
#include "runtime/dispatch/dispatch.h"
#include "runtime/process.h"
#include "runtime/tensor/tensor.h"
#include "runtime/trace/recorder.h"
#include "testing.h"

namespace lucid::testing {

using runtime::Operand;
using runtime::TensorRef;

template <class T>
TensorRef tensor_of(DType dtype, const Shape& shape, const std::vector<T>& elements) {
  runtime::Value value{.type = {dtype, shape}};
  value.buffer = backends::backend_for(Device::kCpu).allocate(value.type.size_bytes());
  if (!elements.empty()) {
    std::memcpy(value.buffer->data(), elements.data(), elements.size() * sizeof(T));
  }
  return runtime::make_tensor(std::move(value));
}

/// float32 along one axis.
inline TensorRef floats(const std::vector<float>& elements) {
  return tensor_of(DType::kFloat32, Shape{static_cast<int64_t>(elements.size())}, elements);
}
inline TensorRef indices(const std::vector<int64_t>& elements) {
  return tensor_of(DType::kInt64, Shape{static_cast<int64_t>(elements.size())}, elements);
}
/// A leaf that requires a gradient.
inline TensorRef parameter(const std::vector<float>& elements) {
  TensorRef leaf = floats(elements);
  leaf->set_requires_grad(true);
  return leaf;
}

inline std::vector<float> elements_of(const runtime::Value& value) {
  const auto* data = value.data<float>();
  return {data, data + value.type.num_elements()};
}
inline std::vector<float> elements_of(const TensorRef& tensor) {
  return tensor == nullptr ? std::vector<float>() : elements_of(tensor->value());
}
inline std::vector<float> grad_of(const TensorRef& tensor) { return elements_of(tensor->grad()); }

/// Calls an operation by name; its first output.
inline TensorRef call(std::string_view name, const std::vector<Operand>& operands,
                      ir::Attrs attrs = {}) {
  auto outputs = runtime::dispatch(ops::get(name), operands, std::move(attrs));
  return runtime::make_tensor(std::move(outputs.front()));
}

inline TensorRef view(std::string_view name, const TensorRef& base, ir::Attrs attrs) {
  return runtime::dispatch_view(ops::get(name), base, std::move(attrs));
}
inline TensorRef slice(const TensorRef& base, int64_t start, int64_t size) {
  return view("slice", base, {ir::Ints{start}, ir::Ints{size}, ir::Ints{1}});
}
inline TensorRef sum(const TensorRef& x) {
  ir::Ints dims;
  for (int axis = 0; axis < x->type().shape.rank(); ++axis) dims.push_back(axis);
  return call("sum", {x}, {dims, false});
}

inline void backward(const TensorRef& root, runtime::BackwardMode mode = {},
                     const TensorRef& seed = nullptr) {
  runtime::backward({{root}}, {{seed}}, mode, {});
}

using Floats = std::vector<float>;

/// Puts the value of `source`, with its history, into the cell of `target`.
inline void assign(const TensorRef& target, const TensorRef& source) {
  target->assign(source->operand());
}

}  // namespace lucid::testing
