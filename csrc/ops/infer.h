// Helpers of the infer functions: what they demand of inputs and attributes, each refusing through
// args.fail with real shapes and dtypes, and the infer functions that many operations share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "ir/op.h"

namespace lucid::ops {

/// Refuses inputs `a` and `b` of two dtypes.
void require_same_dtype(const ir::InferArgs& args, size_t a, size_t b);
/// Refuses an input whose dtype is not floating.
void require_floating(const ir::InferArgs& args, size_t input);
/// Refuses a bool input.
void require_number(const ir::InferArgs& args, size_t input);
/// Refuses an input of a floating dtype.
void require_integral(const ir::InferArgs& args, size_t input);
/// Refuses an index input that is neither int32 nor int64.
void require_index(const ir::InferArgs& args, size_t input);
/// Refuses a generator's state that is not int64[2] (seed, base offset).
void require_generator(const ir::InferArgs& args, size_t input);

/// Shape to which all inputs broadcast: sizes are equal or 1, aligned at the last axis.
Shape broadcast_shape(const ir::InferArgs& args);
/// The axis that the attribute names, refused unless 0 <= axis < rank.
int axis_attr(const ir::InferArgs& args, std::string_view attr, const Shape& shape);
/// The axes that the attribute lists, refused unless each is in range and stands once.
ir::Ints axes_attr(const ir::InferArgs& args, std::string_view attr, const Shape& shape);
/// The attribute as a shape, refused if it has more than eight axes or a negative size.
Shape shape_attr(const ir::InferArgs& args, std::string_view attr);
/// `shape` with the axes removed, or kept as size 1.
Shape reduced_shape(const Shape& shape, const ir::Ints& axes, bool keepdim);

/// Element-wise, all inputs of one dtype, which is also the output's.
ir::ValueTypes infer_elementwise(const ir::InferArgs& args);
/// As infer_elementwise, floating only.
ir::ValueTypes infer_floating(const ir::InferArgs& args);
/// As infer_elementwise, without bool.
ir::ValueTypes infer_number(const ir::InferArgs& args);
/// As infer_elementwise, integers and bool only.
ir::ValueTypes infer_integral(const ir::InferArgs& args);
/// Element-wise, all inputs of one dtype; the output is bool.
ir::ValueTypes infer_predicate(const ir::InferArgs& args);

}  // namespace lucid::ops
