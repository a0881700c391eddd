// Activations and the error functions.
#include <array>

#include "backends/cpu/simd/error_function.h"
#include "backends/cpu/simd/exponential.h"
#include "backends/cpu/simd/loops.h"
#include "backends/cpu/simd/tables.h"

namespace lucid::cpu::LUCID_ISA {
namespace {

struct Erf {
  template <class T>
  LUCID_INLINE T operator()(T x) const {
    return erf(x);
  }
};
struct Erfc {
  template <class T>
  LUCID_INLINE T operator()(T x) const {
    return erfc(x);
  }
};
struct Sigmoid {
  template <class T>
  LUCID_INLINE T operator()(T x) const {
    return sigmoid(x);
  }
};
struct Silu {
  template <class T>
  LUCID_INLINE T operator()(T x) const {
    return silu(x);
  }
};
struct Gelu {
  template <class T>
  LUCID_INLINE T operator()(T x) const {
    return gelu(x);
  }
};
struct GeluTanh {
  template <class T>
  LUCID_INLINE T operator()(T x) const {
    return gelu_tanh(x);
  }
};

struct GeluGrad {
  template <class T>
  LUCID_INLINE T operator()(T grad, T x) const {
    return grad * gelu_slope(x);
  }
};
struct GeluTanhGrad {
  template <class T>
  LUCID_INLINE T operator()(T grad, T x) const {
    return grad * gelu_tanh_slope(x);
  }
};

struct Softplus {
  explicit Softplus(const double* parameters) : beta(parameters[0]), threshold(parameters[1]) {}
  template <class T>
  LUCID_INLINE T operator()(T x) const {
    return softplus(x, static_cast<T>(beta), static_cast<T>(threshold));
  }
  double beta;
  double threshold;
};

/// The exact form, or the tanh form if the parameter is 1.
template <class T>
void gelu_tile(const void* const* inputs, void* output, int64_t count, const double* parameters) {
  const TileFn tile = parameters[0] == 1.0 ? unary<GeluTanh, T, T> : unary<Gelu, T, T>;
  tile(inputs, output, count, parameters);
}

template <class T>
void gelu_grad_tile(const void* const* inputs, void* output, int64_t count,
                    const double* parameters) {
  const TileFn tile = parameters[0] == 1.0 ? binary<GeluTanhGrad, T, T> : binary<GeluGrad, T, T>;
  tile(inputs, output, count, parameters);
}

template <TileFn kFloat, TileFn kDouble, int kArity>
constexpr TileRow gelu_row(std::string_view op) {
  TileRow row{op};
  row.by_dtype[place(DType::kFloat16)] = half_tile<Float16, kFloat, kArity, false>;
  row.by_dtype[place(DType::kBFloat16)] = half_tile<BFloat16, kFloat, kArity, false>;
  row.by_dtype[place(DType::kFloat32)] = kFloat;
  row.by_dtype[place(DType::kFloat64)] = kDouble;
  return row;
}

constexpr std::array kRows = {
    floating_row<Erf, 1>("erf"),
    floating_row<Erfc, 1>("erfc"),
    floating_row<Sigmoid, 1>("sigmoid"),
    floating_row<Silu, 1>("silu"),
    floating_row<Softplus, 1>("softplus"),
    gelu_row<gelu_tile<float>, gelu_tile<double>, 1>("gelu"),
    gelu_row<gelu_grad_tile<float>, gelu_grad_tile<double>, 2>("gelu_grad"),
};

}  // namespace

std::span<const TileRow> activation_tiles() { return kRows; }

}  // namespace lucid::cpu::LUCID_ISA
