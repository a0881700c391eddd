// Reductions, scans, softmax and normalization.
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "loops.h"
#include "ops.h"

namespace metalhost {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

Shape checked_axes(const std::string& op, const Type& operand, const Shape& axes) {
  Shape reduced = operand.shape;
  if (axes.empty()) refuse(op, "requires at least one axis");
  std::vector<bool> seen(operand.shape.size(), false);
  for (const int64_t axis : axes) {
    require_axis(op, axis, operand.rank());
    if (seen[static_cast<size_t>(axis)]) refuse(op, "axes must be unique");
    seen[static_cast<size_t>(axis)] = true;
    reduced[static_cast<size_t>(axis)] = 1;
  }
  return reduced;
}

const char* name_of_reduction(Reduction kind) {
  switch (kind) {
    case Reduction::kSum:
      return "reduction_sum";
    case Reduction::kProduct:
      return "reduction_prod";
    case Reduction::kMax:
    case Reduction::kMaxNan:
      return "reduction_max";
    case Reduction::kMin:
    case Reduction::kMinNan:
      return "reduction_min";
    case Reduction::kMean:
      return "mean";
    case Reduction::kAnd:
      return "reduction_and";
    default:
      return "reduction_or";
  }
}

// The sums are kept in float64 and rounded once.
double combine(Reduction kind, double sum, double value) {
  switch (kind) {
    case Reduction::kProduct:
      return sum * value;
    case Reduction::kMax:
      return std::fmax(sum, value);
    case Reduction::kMin:
      return std::fmin(sum, value);
    case Reduction::kMaxNan:
      return std::isnan(sum) || std::isnan(value) ? sum + value : std::fmax(sum, value);
    case Reduction::kMinNan:
      return std::isnan(sum) || std::isnan(value) ? sum + value : std::fmin(sum, value);
    default:
      return sum + value;
  }
}

int64_t combine(Reduction kind, int64_t sum, int64_t value) {
  switch (kind) {
    case Reduction::kProduct:
      return static_cast<int64_t>(uint64_t(sum) * uint64_t(value));
    case Reduction::kMax:
    case Reduction::kMaxNan:
      return sum > value ? sum : value;
    case Reduction::kMin:
    case Reduction::kMinNan:
      return sum < value ? sum : value;
    case Reduction::kAnd:
      return int64_t{sum != 0 && value != 0};
    case Reduction::kOr:
      return int64_t{sum != 0 || value != 0};
    default:
      return static_cast<int64_t>(uint64_t(sum) + uint64_t(value));
  }
}

// Reduces onto `reduced`; each result starts from the first of its elements.
template <class T, class Values>
std::vector<T> fold(Reduction kind, const Values& values, const Shape& shape,
                    const Shape& reduced) {
  const std::vector<int64_t> offsets = broadcast_offsets(reduced, shape);
  const auto count = static_cast<size_t>(num_elements(reduced));
  std::vector<T> sums(count, T{0});
  std::vector<bool> started(count, false);
  for (size_t i = 0; i < values.size(); ++i) {
    const auto target = static_cast<size_t>(offsets[i]);
    const auto value = static_cast<T>(values[i]);
    sums[target] = started[target] ? combine(kind, sums[target], value) : value;
    started[target] = true;
  }
  return sums;
}

std::vector<float> rounded(const std::vector<double>& values) {
  return {values.begin(), values.end()};
}

std::vector<double> mean_of(const std::vector<float>& values, const Shape& shape,
                            const Shape& reduced) {
  std::vector<double> sums = fold<double>(Reduction::kSum, values, shape, reduced);
  const auto count = static_cast<double>(num_elements(shape) / num_elements(reduced));
  for (double& sum : sums) sum /= count;
  return sums;
}

// Mean of (x - mean)^2, biased.
std::vector<float> spread_around(const std::vector<float>& values, const std::vector<float>& mean,
                                 const Shape& mean_shape, const Shape& shape,
                                 const Shape& reduced) {
  const std::vector<int64_t> offsets = broadcast_offsets(mean_shape, shape);
  std::vector<float> squares(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const float difference = values[i] - mean[static_cast<size_t>(offsets[i])];
    squares[i] = difference * difference;
  }
  return rounded(mean_of(squares, shape, reduced));
}

}  // namespace

Op reduce(Reduction kind, const Type& operand, const Shape& axes) {
  const std::string op = name_of_reduction(kind);
  const Type type{operand.data_type, checked_axes(op, operand, axes)};
  const bool is_logical = kind == Reduction::kAnd || kind == Reduction::kOr;
  if (is_logical && is_float(operand.data_type)) {
    refuse(op, "operand #0 must be tensor of integer values, but got '" + text_of(operand) + "'");
  }
  if (!is_logical && operand.data_type == DataType::kBool) {
    refuse(op, "operand #0 must be tensor of numbers, but got '" + text_of(operand) + "'");
  }
  if (kind == Reduction::kMean) {
    require_float(op, operand);
    return single(op, type, [=](Inputs in) {
      return Array::from_floats(type, rounded(mean_of(in[0].floats(), operand.shape, type.shape)));
    });
  }
  return single(op, type, [=](Inputs in) {
    if (!is_float(operand.data_type)) {
      return Array::from_integers(type,
                                  fold<int64_t>(kind, in[0].integers(), operand.shape, type.shape));
    }
    const std::vector<float> values = in[0].floats();
    return Array::from_floats(type, rounded(fold<double>(kind, values, operand.shape, type.shape)));
  });
}

Op arg_reduce(bool largest, const Type& operand, int64_t axis) {
  const std::string op = largest ? "reduction_argMax" : "reduction_argMin";
  require_axis(op, axis, operand.rank());
  if (operand.data_type == DataType::kBool) refuse(op, "operand #0 must be tensor of numbers");
  Type type{DataType::kInt32, operand.shape};
  type.shape[static_cast<size_t>(axis)] = 1;
  return single(op, type, [=](Inputs in) {
    const AxisView view(operand.shape, axis);
    std::vector<int64_t> winners;
    const auto search = [&](const auto& values) {
      for (int64_t before = 0; before < view.outer; ++before) {
        for (int64_t after = 0; after < view.inner; ++after) {
          int64_t best = 0;
          for (int64_t i = 1; i < view.length; ++i) {
            const auto value = values[static_cast<size_t>(view.at(before, i, after))];
            const auto held = values[static_cast<size_t>(view.at(before, best, after))];
            if (largest ? value > held : value < held) best = i;
          }
          winners.push_back(best);
        }
      }
    };
    if (is_float(operand.data_type)) {
      search(in[0].floats());
    } else {
      search(in[0].integers());
    }
    return Array::from_integers(type, winners);
  });
}

Op variance(const Type& operand, const Shape& axes) {
  require_float("variance", operand);
  const Type type{operand.data_type, checked_axes("variance", operand, axes)};
  return single("variance", type, [=](Inputs in) {
    const std::vector<float> values = in[0].floats();
    const std::vector<float> mean = rounded(mean_of(values, operand.shape, type.shape));
    return Array::from_floats(type,
                              spread_around(values, mean, type.shape, operand.shape, type.shape));
  });
}

Op variance_around(const Type& operand, const Type& mean, const Shape& axes) {
  require_float("variance", operand);
  require_same_type("variance", operand, mean);
  const Type type{operand.data_type, checked_axes("variance", operand, axes)};
  if (broadcast_shape("variance", operand.shape, mean.shape) != operand.shape) {
    refuse("variance", "requires a mean that broadcasts to the operand");
  }
  return single("variance", type, [=](Inputs in) {
    return Array::from_floats(
        type, spread_around(in[0].floats(), in[1].floats(), mean.shape, operand.shape, type.shape));
  });
}

namespace {

// Applies `row` to each line along the axis, gathered into a packed vector.
using RowFunction = std::function<void(std::vector<float>&)>;

std::vector<float> along(std::vector<float> values, const Shape& shape, int64_t axis,
                         const RowFunction& row) {
  const AxisView view(shape, axis);
  std::vector<float> line(static_cast<size_t>(view.length));
  for (int64_t before = 0; before < view.outer; ++before) {
    for (int64_t after = 0; after < view.inner; ++after) {
      for (int64_t i = 0; i < view.length; ++i) {
        line[static_cast<size_t>(i)] = values[static_cast<size_t>(view.at(before, i, after))];
      }
      row(line);
      for (int64_t i = 0; i < view.length; ++i) {
        values[static_cast<size_t>(view.at(before, i, after))] = line[static_cast<size_t>(i)];
      }
    }
  }
  return values;
}

void softmax_row(std::vector<float>& line) {
  float largest = -kInfinity;
  for (const float value : line) largest = std::fmax(largest, value);
  double sum = 0;
  for (float& value : line) {
    value = std::exp(value - largest);
    sum += value;
  }
  for (float& value : line) value = static_cast<float>(value / sum);
}

int64_t wrapped_axis(const std::string& op, int64_t axis, int64_t rank) {
  if (axis < 0) axis += rank;
  require_axis(op, axis, rank);
  return axis;
}

}  // namespace

Op softmax(const Type& operand, int64_t axis) {
  require_float("softmax", operand);
  axis = wrapped_axis("softmax", axis, operand.rank());
  return single("softmax", operand, [=](Inputs in) {
    return Array::from_floats(operand, along(in[0].floats(), operand.shape, axis, softmax_row));
  });
}

// `source` is taken as softmax's input.
Op softmax_grad(const Type& grad, const Type& source, int64_t axis) {
  require_float("softmax_grad", grad);
  require_same_type("softmax_grad", grad, source);
  if (grad.shape != source.shape) refuse("softmax_grad", "requires operands of one shape");
  axis = wrapped_axis("softmax_grad", axis, source.rank());
  return single("softmax_grad", source, [=](Inputs in) {
    const std::vector<float> grads = in[0].floats();
    const std::vector<float> y = along(in[1].floats(), source.shape, axis, softmax_row);
    Shape reduced = source.shape;
    reduced[static_cast<size_t>(axis)] = 1;
    std::vector<float> products(y.size());
    for (size_t i = 0; i < y.size(); ++i) products[i] = grads[i] * y[i];
    const std::vector<double> sums = fold<double>(Reduction::kSum, products, source.shape, reduced);
    const std::vector<int64_t> offsets = broadcast_offsets(reduced, source.shape);
    for (size_t i = 0; i < y.size(); ++i) {
      products[i] = y[i] * (grads[i] - static_cast<float>(sums[static_cast<size_t>(offsets[i])]));
    }
    return Array::from_floats(source, products);
  });
}

namespace {

template <class T, class Step>
void scan_line(std::vector<T>& line, bool exclusive, bool reverse, T neutral, Step step) {
  T sum = neutral;
  for (size_t i = 0; i < line.size(); ++i) {
    T& value = line[reverse ? line.size() - 1 - i : i];
    const T next = step(sum, value);
    value = exclusive ? sum : next;
    sum = next;
  }
}

template <class T>
void scan(Scan kind, std::vector<T>& line, bool exclusive, bool reverse) {
  using Limits = std::numeric_limits<T>;
  const T low = Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
  const T high = Limits::has_infinity ? Limits::infinity() : Limits::max();
  switch (kind) {
    case Scan::kSum:
      return scan_line(line, exclusive, reverse, T{0}, [](T a, T b) { return a + b; });
    case Scan::kProduct:
      return scan_line(line, exclusive, reverse, T{1}, [](T a, T b) { return a * b; });
    case Scan::kMin:
      return scan_line(line, exclusive, reverse, high, [](T a, T b) { return b < a ? b : a; });
    case Scan::kMax:
      return scan_line(line, exclusive, reverse, low, [](T a, T b) { return b > a ? b : a; });
  }
}

}  // namespace

Op cumulative(Scan kind, const Type& operand, int64_t axis, bool exclusive, bool reverse) {
  const std::string op = "cumulative";
  require_inner_axis(op, axis, operand.rank());
  if (operand.data_type == DataType::kBool) {
    refuse(op, "operand #0 must be tensor of numbers, but got '" + text_of(operand) + "'");
  }
  return single(op, operand, [=](Inputs in) {
    if (is_float(operand.data_type)) {
      return Array::from_floats(
          operand, along(in[0].floats(), operand.shape, axis,
                         [=](std::vector<float>& line) { scan(kind, line, exclusive, reverse); }));
    }
    std::vector<int64_t> values = in[0].integers();
    const AxisView view(operand.shape, axis);
    std::vector<int64_t> line(static_cast<size_t>(view.length));
    for (int64_t before = 0; before < view.outer; ++before) {
      for (int64_t after = 0; after < view.inner; ++after) {
        for (size_t i = 0; i < line.size(); ++i) {
          line[i] = values[static_cast<size_t>(view.at(before, static_cast<int64_t>(i), after))];
        }
        scan(kind, line, exclusive, reverse);
        for (size_t i = 0; i < line.size(); ++i) {
          values[static_cast<size_t>(view.at(before, static_cast<int64_t>(i), after))] = line[i];
        }
      }
    }
    return Array::from_integers(operand, values);
  });
}

Op normalization(const std::vector<Type>& operands, bool has_gamma, bool has_beta, float epsilon) {
  const std::string op = "normalization";
  const Type& x = operands[0];
  require_float(op, x);
  for (const Type& operand : operands) {
    require_same_type(op, x, operand);
    if (broadcast_shape(op, x.shape, operand.shape) != x.shape) {
      refuse(op, "requires operands that broadcast to '" + text_of(x) + "'");
    }
  }
  return single(op, x, [=](Inputs in) {
    std::vector<std::vector<float>> values;
    for (const Array& array : in) {
      const std::vector<float> packed = array.floats();
      std::vector<float> spread;
      for (const int64_t offset : broadcast_offsets(array.shape(), x.shape)) {
        spread.push_back(packed[static_cast<size_t>(offset)]);
      }
      values.push_back(std::move(spread));
    }
    std::vector<float>& result = values[0];
    for (size_t i = 0; i < result.size(); ++i) {
      float y = (result[i] - values[1][i]) / std::sqrt(values[2][i] + epsilon);
      if (has_gamma) y *= values[3][i];
      if (has_beta) y += values.back()[i];
      result[i] = y;
    }
    return Array::from_floats(x, result);
  });
}

}  // namespace metalhost
