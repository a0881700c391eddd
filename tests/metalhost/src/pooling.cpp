// Pooling over four axes and its gradients.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "loops.h"
#include "ops.h"

namespace metalhost {
namespace {

constexpr size_t kAxes = 4;
using Axes = std::array<int64_t, kAxes>;

enum PaddingStyle : int64_t { kExplicit = 0, kValid = 1, kSame = 2 };  // MPSGraphPaddingStyle

// MPSGraphPoolingReturnIndicesMode: 1..4 count inside the last axes of the source, 5..8 inside
// those of the window.
constexpr int64_t kFirstLocalMode = 5;
constexpr int64_t kLastMode = 8;

struct Geometry {
  Axes source, kernel, strides, dilations, pads, result;
};

Axes four(const std::string& op, const Shape& list) {
  if (list.size() != kAxes) refuse(op, "requires rank 4 and four entries, got " + text_of(list));
  Axes axes;
  std::copy(list.begin(), list.end(), axes.begin());
  return axes;
}

Geometry geometry_of(const std::string& op, const Shape& source, const Pooling& window) {
  Geometry g{four(op, source),           four(op, window.kernel),      four(op, window.strides),
             four(op, window.dilations), four(op, window.pads_before), {}};
  const Axes after = four(op, window.pads_after);
  if (window.padding_style > kSame) refuse(op, "has a padding style unknown to the double");
  if (window.indices_mode < 0 || window.indices_mode > kLastMode) {
    refuse(op, "has an unknown mode of indices");
  }
  for (size_t i = 0; i < kAxes; ++i) {
    if (g.kernel[i] < 1 || g.strides[i] < 1 || g.dilations[i] < 1) {
      refuse(op, "requires kernel sizes, strides and dilation rates of 1 or more");
    }
    const int64_t extent = (g.kernel[i] - 1) * g.dilations[i] + 1;
    int64_t padding = g.pads[i] + after[i];
    if (window.padding_style == kValid) padding = g.pads[i] = 0;
    if (window.padding_style == kSame) {
      const int64_t length = (g.source[i] + g.strides[i] - 1) / g.strides[i];
      padding = std::max<int64_t>(0, (length - 1) * g.strides[i] + extent - g.source[i]);
      g.pads[i] = padding / 2;
    }
    const int64_t room = g.source[i] + padding - extent;
    if (room < 0) refuse(op, "window is larger than the padded source " + text_of(source));
    const int64_t rounding = window.ceil_mode ? g.strides[i] - 1 : 0;
    g.result[i] = (room + rounding) / g.strides[i] + 1;
  }
  return g;
}

Shape result_shape(const Geometry& g) { return {g.result.begin(), g.result.end()}; }

/// One element of a window: its offsets in the source and in the window.
struct Tap {
  Axes at;      // in the source
  Axes inside;  // in the window
  int64_t offset;
};

template <class Visit>
void for_each_tap(const Geometry& g, const Axes& result_at, Visit visit) {
  Tap tap{};
  Axes& k = tap.inside;
  const auto place = [&](size_t axis) {
    tap.at[axis] = result_at[axis] * g.strides[axis] + k[axis] * g.dilations[axis] - g.pads[axis];
    return tap.at[axis] >= 0 && tap.at[axis] < g.source[axis];
  };
  for (k[0] = 0; k[0] < g.kernel[0]; ++k[0]) {
    if (!place(0)) continue;
    for (k[1] = 0; k[1] < g.kernel[1]; ++k[1]) {
      if (!place(1)) continue;
      for (k[2] = 0; k[2] < g.kernel[2]; ++k[2]) {
        if (!place(2)) continue;
        for (k[3] = 0; k[3] < g.kernel[3]; ++k[3]) {
          if (!place(3)) continue;
          tap.offset =
              ((tap.at[0] * g.source[1] + tap.at[1]) * g.source[2] + tap.at[2]) * g.source[3] +
              tap.at[3];
          visit(tap);
        }
      }
    }
  }
}

template <class Visit>
void for_each_window(const Geometry& g, Visit visit) {
  Axes at{};
  size_t position = 0;
  for (at[0] = 0; at[0] < g.result[0]; ++at[0]) {
    for (at[1] = 0; at[1] < g.result[1]; ++at[1]) {
      for (at[2] = 0; at[2] < g.result[2]; ++at[2]) {
        for (at[3] = 0; at[3] < g.result[3]; ++at[3]) visit(at, position++);
      }
    }
  }
}

int64_t flat_index(const Axes& at, const Axes& lengths, int64_t last_axes) {
  int64_t index = 0;
  for (size_t i = kAxes - static_cast<size_t>(last_axes); i < kAxes; ++i) {
    index = index * lengths[i] + at[i];
  }
  return index;
}

struct Winner {
  float value = -std::numeric_limits<float>::infinity();
  int64_t offset = -1;
  int64_t index = 0;
};

// The first of the largest; NaN is larger than all.
Winner winner_of(const Geometry& g, const Axes& at, const std::vector<float>& values,
                 int64_t indices_mode) {
  Winner best;
  for_each_tap(g, at, [&](const Tap& tap) {
    const float value = values[static_cast<size_t>(tap.offset)];
    const bool wins =
        best.offset < 0 || value > best.value || (std::isnan(value) && !std::isnan(best.value));
    if (!wins) return;
    best.value = value;
    best.offset = tap.offset;
    best.index = indices_mode >= kFirstLocalMode
                     ? flat_index(tap.inside, g.kernel, indices_mode - kFirstLocalMode + 1)
                     : flat_index(tap.at, g.source, indices_mode);
  });
  return best;
}

// How many elements an average divides by; ceilMode's overhang does not count.
int64_t divisor_of(const Geometry& g, const Axes& at, const Pooling& window) {
  int64_t divisor = 1;
  for (size_t i = 0; i < kAxes; ++i) {
    int64_t count = 0;
    for (int64_t k = 0; k < g.kernel[i]; ++k) {
      const int64_t source_at = at[i] * g.strides[i] + k * g.dilations[i] - g.pads[i];
      const int64_t after = window.includes_padding ? window.pads_after[i] : 0;
      const int64_t before = window.includes_padding ? g.pads[i] : 0;
      count += int64_t{source_at >= -before && source_at < g.source[i] + after};
    }
    divisor *= count;
  }
  return divisor;
}

void require_grad(const std::string& op, const Type& grad, const Geometry& g) {
  require_float(op, grad);
  if (grad.shape == result_shape(g)) return;
  refuse(op, "the gradient '" + text_of(grad) + "' does not fit a forward result of " +
                 text_of(result_shape(g)));
}

}  // namespace

Op max_pool_indices(const Type& source, const Pooling& window) {
  const std::string op = "pooling_max";
  require_float(op, source);
  const Geometry g = geometry_of(op, source.shape, window);
  const Type type{source.data_type, result_shape(g)};
  const Type indices{window.indices_type, type.shape};
  Op result{.name = op, .outputs = {type, indices}, .evaluate = [=](Inputs in) {
              const std::vector<float> values = in[0].floats();
              std::vector<float> best;
              std::vector<int64_t> where;
              for_each_window(g, [&](const Axes& at, size_t) {
                const Winner winner = winner_of(g, at, values, window.indices_mode);
                best.push_back(winner.value);
                where.push_back(winner.index);
              });
              return std::vector<Array>{Array::from_floats(type, best),
                                        Array::from_integers(indices, where)};
            }};
  result.infers_late = true;
  return result;
}

Op max_pool(const Type& source, const Pooling& window) {
  Op op = max_pool_indices(source, window);
  op.outputs.resize(1);
  op.evaluate = [inner = std::move(op.evaluate)](Inputs in) {
    return std::vector<Array>{inner(in)[0]};
  };
  return op;
}

Op max_pool_grad(const Type& grad, const Type& source, const Pooling& window) {
  const std::string op = "pooling_max_gradient";
  const Geometry g = geometry_of(op, source.shape, window);
  require_grad(op, grad, g);
  require_same_type(op, grad, source);
  return single(op, source, [=](Inputs in) {
    const std::vector<float> grads = in[0].floats();
    const std::vector<float> values = in[1].floats();
    std::vector<float> result(values.size());
    for_each_window(g, [&](const Axes& at, size_t position) {
      const Winner winner = winner_of(g, at, values, 0);
      if (winner.offset >= 0) result[static_cast<size_t>(winner.offset)] += grads[position];
    });
    return Array::from_floats(source, result);
  });
}

Op max_pool_grad_indices(const Type& grad, const Type& indices, const Shape& source_shape,
                         const Pooling& window) {
  const std::string op = "pooling_max_gradient";
  const Geometry g = geometry_of(op, source_shape, window);
  require_grad(op, grad, g);
  if (window.indices_mode < 1) refuse(op, "needs the index mode of the forward operation");
  if (indices.shape != grad.shape) refuse(op, "requires one index for each gradient");
  const Type type{grad.data_type, source_shape};
  return single(op, type, [=](Inputs in) {
    const std::vector<float> grads = in[0].floats();
    const std::vector<int64_t> chosen = in[1].integers();
    std::vector<float> result(static_cast<size_t>(num_elements(source_shape)));
    for_each_window(g, [&](const Axes& at, size_t position) {
      for_each_tap(g, at, [&](const Tap& tap) {
        const int64_t index =
            window.indices_mode >= kFirstLocalMode
                ? flat_index(tap.inside, g.kernel, window.indices_mode - kFirstLocalMode + 1)
                : flat_index(tap.at, g.source, window.indices_mode);
        if (index == chosen[position]) result[static_cast<size_t>(tap.offset)] += grads[position];
      });
    });
    return Array::from_floats(type, result);
  });
}

Op avg_pool(const Type& source, const Pooling& window) {
  const std::string op = "pooling_average";
  require_float(op, source);
  const Geometry g = geometry_of(op, source.shape, window);
  const Type type{source.data_type, result_shape(g)};
  Op result = single(op, type, [=](Inputs in) {
    const std::vector<float> values = in[0].floats();
    std::vector<float> means;
    for_each_window(g, [&](const Axes& at, size_t) {
      double sum = 0;
      for_each_tap(g, at, [&](const Tap& tap) { sum += values[static_cast<size_t>(tap.offset)]; });
      means.push_back(static_cast<float>(sum / static_cast<double>(divisor_of(g, at, window))));
    });
    return Array::from_floats(type, means);
  });
  result.infers_late = true;
  return result;
}

Op avg_pool_grad(const Type& grad, const Type& source, const Pooling& window) {
  const std::string op = "pooling_average_gradient";
  const Geometry g = geometry_of(op, source.shape, window);
  require_grad(op, grad, g);
  require_same_type(op, grad, source);
  return single(op, source, [=](Inputs in) {
    const std::vector<float> grads = in[0].floats();
    std::vector<float> result(static_cast<size_t>(num_elements(source.shape)));
    for_each_window(g, [&](const Axes& at, size_t position) {
      const float share = grads[position] / static_cast<float>(divisor_of(g, at, window));
      for_each_tap(g, at,
                   [&](const Tap& tap) { result[static_cast<size_t>(tap.offset)] += share; });
    });
    return Array::from_floats(source, result);
  });
}

}  // namespace metalhost
