// Calc: arithmetic on the tensors of one MPSGraph, with types cast explicitly and axes checked.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "backends/metal/types.h"

namespace lucid::metal {

/// A method of MPSGraph of one or two tensors and a name.
using UnaryMethod = Tensor (*)(MPSGraph* graph, Tensor x);
using BinaryMethod = Tensor (*)(MPSGraph* graph, Tensor lhs, Tensor rhs);

/// MPSGraph aborts the process where operand types differ, so every method that takes two tensors
/// throws InternalError instead. Results are owned by the graph.
class Calc {
 public:
  explicit Calc(MPSGraph* graph) : graph_(graph) {}
  MPSGraph* graph() const { return graph_; }

  /// A number of that type, which broadcasts.
  Tensor number(double value, MPSDataType type) const;
  /// `value` in the type of `like`.
  Tensor number_like(double value, Tensor like) const { return number(value, [like dataType]); }
  Tensor filled(double value, const Shape& shape, MPSDataType type) const;
  /// Elements given as bytes.
  Tensor data(const void* bytes, int64_t size_bytes, const Shape& shape, DType dtype) const;
  /// 0, 1, 2 ... along an axis: int32.
  Tensor iota(const Shape& shape, int axis) const;

  Tensor cast(Tensor x, MPSDataType type) const;
  /// `x != 0`, for any type.
  Tensor truth(Tensor x) const;
  /// The bits as another type of the same size.
  Tensor reinterpret(Tensor x, MPSDataType type) const;

  Tensor add(Tensor a, Tensor b) const;
  Tensor sub(Tensor a, Tensor b) const;
  Tensor mul(Tensor a, Tensor b) const;
  Tensor div(Tensor a, Tensor b) const;
  Tensor maximum(Tensor a, Tensor b) const;  ///< nan if one is nan
  Tensor minimum(Tensor a, Tensor b) const;  ///< nan if one is nan
  Tensor equal(Tensor a, Tensor b) const;
  Tensor not_equal(Tensor a, Tensor b) const;
  Tensor less(Tensor a, Tensor b) const;
  Tensor less_equal(Tensor a, Tensor b) const;
  Tensor both(Tensor a, Tensor b) const;    ///< of bools
  Tensor either(Tensor a, Tensor b) const;  ///< of bools
  Tensor bit_and(Tensor a, Tensor b) const;
  Tensor bit_or(Tensor a, Tensor b) const;
  Tensor bit_xor(Tensor a, Tensor b) const;
  Tensor shift_left(Tensor x, int bits) const;
  Tensor shift_right(Tensor x, int bits) const;
  Tensor select(Tensor condition, Tensor if_true, Tensor if_false) const;
  Tensor is_nan(Tensor x) const;
  Tensor exp(Tensor x) const;
  Tensor log(Tensor x) const;
  Tensor sqrt(Tensor x) const;
  Tensor abs(Tensor x) const;
  Tensor negative(Tensor x) const;
  Tensor logical_not(Tensor x) const;

  Tensor reshape(Tensor x, const Shape& shape) const;
  Tensor permute(Tensor x, std::span<const int64_t> order) const;
  Tensor broadcast(Tensor x, const Shape& shape) const;
  /// [starts, ends) of each axis with steps of 1 and more.
  Tensor slice(Tensor x, std::span<const int64_t> starts, std::span<const int64_t> ends,
               std::span<const int64_t> steps) const;
  Tensor pad(Tensor x, std::span<const int64_t> low, std::span<const int64_t> high,
             double value) const;
  Tensor concat(const std::vector<Tensor>& parts, int axis) const;
  Tensor reverse(Tensor x, std::span<const int64_t> axes) const;

  /// Reductions keep the axes as size 1.
  Tensor sum(Tensor x, std::span<const int64_t> axes) const;
  Tensor product(Tensor x, std::span<const int64_t> axes) const;
  Tensor highest(Tensor x, std::span<const int64_t> axes) const;  ///< nan if one is nan
  Tensor lowest(Tensor x, std::span<const int64_t> axes) const;   ///< nan if one is nan

  Tensor matmul(Tensor a, Tensor b) const;

  /// Applies a method after the check of types.
  Tensor apply(const char* what, BinaryMethod method, Tensor a, Tensor b) const;
  Tensor apply(const char* what, UnaryMethod method, Tensor x) const;

 private:
  Tensor made(const char* what, Tensor result) const;

  MPSGraph* graph_;
};

/// True for the floating types.
bool is_floating_type(MPSDataType type);

}  // namespace lucid::metal
