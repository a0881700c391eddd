// What the operations of neural networks share: checks of their inputs, sizes of sliding windows,
// and small steps of their gradient rules and decompositions.
#pragma once

#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "ir/op.h"
#include "ops/builder.h"

namespace lucid::ops {

/// An input of an operation by its place and the name that messages use.
struct InputName {
  size_t index;
  std::string_view name;
};

/// "weight (64, 12)".
std::string described(const ir::InferArgs& args, InputName input);

/// Refuses unless all present inputs have the dtype of the first one, which must be floating.
void require_floating(const ir::InferArgs& args, std::initializer_list<InputName> inputs);
/// Refuses an input of another dtype.
void require_dtype(const ir::InferArgs& args, InputName input, DType expected);
/// Refuses an input that is neither int32 nor int64.
void require_index(const ir::InferArgs& args, InputName input);
/// Refuses an input of another shape; `reference` is the input that the expectation follows from.
void require_shape(const ir::InferArgs& args, InputName input, const Shape& expected,
                   InputName reference);
/// Refuses an `eps` attribute that is negative or nan.
void require_eps(const ir::InferArgs& args);
/// Largest kernel, stride, padding and dilation: their products stay within 64 bits.
inline constexpr int64_t kMaxWindow = std::numeric_limits<int32_t>::max();
/// Refuses an attribute unless it holds `count` numbers from `low` to kMaxWindow.
void require_window(const ir::InferArgs& args, std::string_view attr, int count, int64_t low);

/// Dtype in which an operation sums and stores its statistics: float32 for the half types.
constexpr DType statistics_dtype(DType dtype) { return is_half(dtype) ? DType::kFloat32 : dtype; }

/// A window that slides along one axis.
struct Window {
  int64_t kernel = 1;
  int64_t stride = 1;
  int64_t padding_low = 0;
  int64_t padding_high = 0;
  int64_t dilation = 1;
  bool ceil_mode = false;

  /// Elements from the first to the last tap.
  int64_t extent() const { return dilation * (kernel - 1) + 1; }
  /// Number of places along an axis of `size` elements; 0 if the window is longer than the padded
  /// axis. In ceil mode the last window starts inside the input or the low padding.
  /// Source: PyTorch, torch.nn.MaxPool2d, notes on ceil_mode.
  int64_t count(int64_t size) const;
};

/// Sizes as an attribute value.
inline Ints to_ints(const Shape& shape) { return {shape.sizes().begin(), shape.sizes().end()}; }

/// The value of an input in `statistics_dtype`, in which decompositions compute.
ValueId widened(Builder& b, ValueId value);
/// Identity that passes no gradient.
ValueId detached(Builder& b, ValueId value);
/// Has the value of `given` and the derivatives of `computed`: a saved statistic seen as the
/// function of the input that it is.
ValueId anchored(Builder& b, ValueId computed, ValueId given);

}  // namespace lucid::ops
