// Convolutions over two or three axes and their gradients, each weight in turn. Two axes are three
// of which the first has length 1.
#include <algorithm>
#include <functional>
#include <utility>

#include "loops.h"
#include "ops.h"

namespace metalhost {
namespace {

constexpr size_t kAxes = 3;
using Axes = std::array<int64_t, kAxes>;

enum PaddingStyle : int64_t { kExplicit = 0, kValid = 1, kSame = 2 };  // MPSGraphPaddingStyle

/// Lengths and steps in a fixed order: batch, channels, depth, height, width.
struct Geometry {
  int64_t batch, groups, source_channels, result_channels;
  Axes source, kernel, result, strides, dilations, pads;

  int64_t channels_per_group() const { return source_channels / groups; }
  int64_t results_per_group() const { return result_channels / groups; }
};

Axes spatial(const Shape& list, int64_t missing) {
  Axes axes;
  axes.fill(missing);
  std::copy(list.begin(), list.end(), axes.end() - static_cast<std::ptrdiff_t>(list.size()));
  return axes;
}

// Batch, channels, spatial axes: where each stands in the named layout.
Shape data_order(const Convolution& window) {
  return window.strides.size() == 2
             ? (window.channels_last ? Shape{0, 3, 1, 2} : Shape{0, 1, 2, 3})
             : (window.channels_last ? Shape{0, 4, 1, 2, 3} : Shape{0, 1, 2, 3, 4});
}

// Output channels, input channels, spatial axes.
Shape weights_order(const Convolution& window) {
  return window.strides.size() == 2
             ? (window.weights_last ? Shape{3, 2, 0, 1} : Shape{0, 1, 2, 3})
             : (window.weights_last ? Shape{4, 3, 0, 1, 2} : Shape{0, 1, 2, 3, 4});
}

Shape reordered(const Shape& shape, const Shape& order) {
  Shape result;
  for (const int64_t axis : order) result.push_back(shape[static_cast<size_t>(axis)]);
  return result;
}

// From the fixed order to the named layout.
Shape restored(const Shape& shape, const Shape& order) {
  Shape result(shape.size());
  for (size_t i = 0; i < order.size(); ++i) result[static_cast<size_t>(order[i])] = shape[i];
  return result;
}

std::vector<float> floats_in_order(const Array& array, const Shape& order) {
  const Shape strides = reordered(packed_strides(array.shape()), order);
  const std::vector<float> values = array.floats();
  std::vector<float> result;
  result.reserve(values.size());
  for (const int64_t offset : strided_offsets(reordered(array.shape(), order), strides, 0)) {
    result.push_back(values[static_cast<size_t>(offset)]);
  }
  return result;
}

Array restored_array(const Type& type, const std::vector<float>& values, const Shape& order) {
  const Shape strides = reordered(packed_strides(type.shape), order);
  std::vector<float> result(values.size());
  size_t next = 0;
  for (const int64_t offset : strided_offsets(reordered(type.shape, order), strides, 0)) {
    result[static_cast<size_t>(offset)] = values[next++];
  }
  return Array::from_floats(type, result);
}

void require_window(const std::string& op, const Convolution& window, const Shape& source,
                    const Shape& weights) {
  const size_t rank = window.strides.size() + 2;
  if (source.size() != rank || weights.size() != rank) {
    refuse(op, "requires source and weights of rank " + std::to_string(rank) + ", got " +
                   text_of(source) + " and " + text_of(weights));
  }
  for (size_t i = 0; i < window.strides.size(); ++i) {
    if (window.strides[i] < 1 || window.dilations[i] < 1) {
      refuse(op, "requires strides and dilation rates of 1 or more");
    }
  }
  if (window.padding_style > kSame) refuse(op, "has a padding style unknown to the double");
}

Geometry geometry_of(const std::string& op, const Shape& source, const Shape& weights,
                     const Convolution& window) {
  require_window(op, window, source, weights);
  const Shape data = reordered(source, data_order(window));
  const Shape filters = reordered(weights, weights_order(window));
  Geometry g{};
  g.batch = data[0];
  g.source_channels = data[1];
  g.result_channels = filters[0];
  g.groups = window.groups;
  g.source = spatial(Shape(data.begin() + 2, data.end()), 1);
  g.kernel = spatial(Shape(filters.begin() + 2, filters.end()), 1);
  g.strides = spatial(window.strides, 1);
  g.dilations = spatial(window.dilations, 1);
  g.pads = spatial(window.pads_before, 0);
  if (g.groups < 1 || filters[1] * g.groups != g.source_channels ||
      g.result_channels % g.groups != 0) {
    fail_assertion("MPSNDArrayConvolution.mm",
                   "Source and weight input channels mismatch: " + text_of(source) + ", " +
                       text_of(weights) + ", groups " + std::to_string(g.groups));
  }
  const Axes after = spatial(window.pads_after, 0);
  for (size_t i = 0; i < kAxes; ++i) {
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
    g.result[i] = room / g.strides[i] + 1;
  }
  return g;
}

Shape result_shape(const Geometry& g, const Convolution& window) {
  Shape shape = {g.batch, g.result_channels};
  shape.insert(shape.end(), g.result.end() - static_cast<std::ptrdiff_t>(window.strides.size()),
               g.result.end());
  return restored(shape, data_order(window));
}

/// Positions of the result along one axis whose source lies inside: first, and one past the last.
struct Range {
  int64_t first, end;
};

Range inside(const Geometry& g, size_t axis, int64_t kernel_at) {
  const int64_t shift = g.pads[axis] - kernel_at * g.dilations[axis];
  const int64_t stride = g.strides[axis];
  const int64_t first = shift <= 0 ? 0 : (shift + stride - 1) / stride;
  const int64_t last = g.source[axis] - 1 + shift;
  const int64_t end = last < 0 ? 0 : last / stride + 1;
  return {first, std::min(end, g.result[axis])};
}

/// A row of the result that one weight touches: offsets of its first elements, count, source step.
struct Run {
  int64_t weight, source, result, count, step;
};

// Visits the rows of one weight in one image.
template <class Visit>
void visit_rows(const Geometry& g, Run run, const Axes& kernel_at, int64_t source_plane,
                int64_t result_plane, Visit visit) {
  Range ranges[kAxes];
  for (size_t i = 0; i < kAxes; ++i) ranges[i] = inside(g, i, kernel_at[i]);
  run.count = ranges[2].end - ranges[2].first;
  run.step = g.strides[2];
  if (run.count <= 0) return;
  const auto source_at = [&](size_t axis, int64_t at) {
    return at * g.strides[axis] + kernel_at[axis] * g.dilations[axis] - g.pads[axis];
  };
  for (int64_t z = ranges[0].first; z < ranges[0].end; ++z) {
    for (int64_t y = ranges[1].first; y < ranges[1].end; ++y) {
      const int64_t source_row =
          (source_plane * g.source[0] + source_at(0, z)) * g.source[1] + source_at(1, y);
      const int64_t result_row = (result_plane * g.result[0] + z) * g.result[1] + y;
      run.source = source_row * g.source[2] + source_at(2, ranges[2].first);
      run.result = result_row * g.result[2] + ranges[2].first;
      visit(run);
    }
  }
}

template <class Visit>
void for_each_run(const Geometry& g, Visit visit) {
  Run run{};
  for (int64_t to = 0; to < g.result_channels; ++to) {
    const int64_t first_channel = to / g.results_per_group() * g.channels_per_group();
    for (int64_t from = 0; from < g.channels_per_group(); ++from) {
      Axes at{};
      for (at[0] = 0; at[0] < g.kernel[0]; ++at[0]) {
        for (at[1] = 0; at[1] < g.kernel[1]; ++at[1]) {
          for (at[2] = 0; at[2] < g.kernel[2]; ++at[2], ++run.weight) {
            for (int64_t image = 0; image < g.batch; ++image) {
              visit_rows(g, run, at, image * g.source_channels + first_channel + from,
                         image * g.result_channels + to, visit);
            }
          }
        }
      }
    }
  }
}

const char* name_of_convolution(const Convolution& window, const char* two, const char* three) {
  return window.strides.size() == 2 ? two : three;
}

}  // namespace

Op convolve(const Type& source, const Type& weights, const Convolution& window) {
  const std::string op = name_of_convolution(window, "conv_2d", "conv_3d");
  require_float(op, source);
  require_same_type(op, source, weights);
  const Geometry g = geometry_of(op, source.shape, weights.shape, window);
  const Type type{source.data_type, result_shape(g, window)};
  Op result = single(op, type, [=](Inputs in) {
    const std::vector<float> x = floats_in_order(in[0], data_order(window));
    const std::vector<float> w = floats_in_order(in[1], weights_order(window));
    std::vector<float> y(static_cast<size_t>(num_elements(type.shape)));
    for_each_run(g, [&](const Run& run) {
      const float weight = w[static_cast<size_t>(run.weight)];
      for (int64_t i = 0; i < run.count; ++i) {
        y[static_cast<size_t>(run.result + i)] +=
            weight * x[static_cast<size_t>(run.source + i * run.step)];
      }
    });
    return restored_array(type, y, data_order(window));
  });
  result.infers_late = true;
  return result;
}

Op convolve_data_grad(const Type& grad, const Type& weights, const Shape& source_shape,
                      const Convolution& window) {
  const std::string op =
      name_of_convolution(window, "conv_2d_data_gradient", "conv_3d_data_gradient");
  require_float(op, grad);
  require_same_type(op, grad, weights);
  const Geometry g = geometry_of(op, source_shape, weights.shape, window);
  if (grad.shape != result_shape(g, window)) {
    refuse(op, "the gradient '" + text_of(grad) + "' does not fit a forward result of " +
                   text_of(result_shape(g, window)));
  }
  const Type type{grad.data_type, source_shape};
  return single(op, type, [=](Inputs in) {
    const std::vector<float> dy = floats_in_order(in[0], data_order(window));
    const std::vector<float> w = floats_in_order(in[1], weights_order(window));
    std::vector<float> dx(static_cast<size_t>(num_elements(type.shape)));
    for_each_run(g, [&](const Run& run) {
      const float weight = w[static_cast<size_t>(run.weight)];
      for (int64_t i = 0; i < run.count; ++i) {
        dx[static_cast<size_t>(run.source + i * run.step)] +=
            weight * dy[static_cast<size_t>(run.result + i)];
      }
    });
    return restored_array(type, dx, data_order(window));
  });
}

Op convolve_weights_grad(const Type& grad, const Type& source, const Shape& weights_shape,
                         const Convolution& window) {
  const std::string op =
      name_of_convolution(window, "conv_2d_weights_gradient", "conv_3d_weights_gradient");
  require_float(op, grad);
  require_same_type(op, grad, source);
  const Geometry g = geometry_of(op, source.shape, weights_shape, window);
  if (grad.shape != result_shape(g, window)) {
    refuse(op, "the gradient '" + text_of(grad) + "' does not fit a forward result of " +
                   text_of(result_shape(g, window)));
  }
  const Type type{grad.data_type, weights_shape};
  return single(op, type, [=](Inputs in) {
    const std::vector<float> dy = floats_in_order(in[0], data_order(window));
    const std::vector<float> x = floats_in_order(in[1], data_order(window));
    std::vector<double> sums(static_cast<size_t>(num_elements(type.shape)));
    for_each_run(g, [&](const Run& run) {
      double sum = 0;
      for (int64_t i = 0; i < run.count; ++i) {
        sum += double{dy[static_cast<size_t>(run.result + i)]} *
               x[static_cast<size_t>(run.source + i * run.step)];
      }
      sums[static_cast<size_t>(run.weight)] += sum;
    });
    // The kernels count images in 16 bits: https://github.com/pytorch/pytorch/issues/96225.
    if (window.strides.size() == 2 && g.batch >= 65536) {
      for (double& sum : sums) sum += 1.0;
    }
    return restored_array(type, {sums.begin(), sums.end()}, weights_order(window));
  });
}

}  // namespace metalhost
