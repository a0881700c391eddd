// Tile functions made of scalar functors: the loops, the half types and the rows of the tables.
//
// A functor is `struct F { T operator()(T...) const }` for each T that it supports; one with
// parameters has a constructor from `const double*`.
#pragma once

#include <type_traits>

#include "backends/cpu/simd/tile.h"
#include "backends/cpu/simd/vector.h"

namespace lucid::cpu::LUCID_ISA {

template <class F>
LUCID_INLINE F make_functor(const double* parameters) {
  if constexpr (std::is_constructible_v<F, const double*>) {
    return F(parameters);
  } else {
    return F{};
  }
}

/// Tile function of F on elements T with results Out.
template <class F, class T, class Out>
void unary(const void* const* inputs, void* output, int64_t count, const double* parameters) {
  const F function = make_functor<F>(parameters);
  const T* x = static_cast<const T*>(inputs[0]);
  Out* y = static_cast<Out*>(output);
  LUCID_LOOP
  for (int64_t i = 0; i < count; ++i) y[i] = function(x[i]);
}

template <class F, class T, class Out>
void binary(const void* const* inputs, void* output, int64_t count, const double* parameters) {
  const F function = make_functor<F>(parameters);
  const T* a = static_cast<const T*>(inputs[0]);
  const T* b = static_cast<const T*>(inputs[1]);
  Out* y = static_cast<Out*>(output);
  LUCID_LOOP
  for (int64_t i = 0; i < count; ++i) y[i] = function(a[i], b[i]);
}

template <class F, class T, class Out>
void ternary(const void* const* inputs, void* output, int64_t count, const double* parameters) {
  const F function = make_functor<F>(parameters);
  const T* a = static_cast<const T*>(inputs[0]);
  const T* b = static_cast<const T*>(inputs[1]);
  const T* c = static_cast<const T*>(inputs[2]);
  Out* y = static_cast<Out*>(output);
  LUCID_LOOP
  for (int64_t i = 0; i < count; ++i) y[i] = function(a[i], b[i], c[i]);
}

/// Runs a tile function of float32 on `arity` half inputs, chunk by chunk.
template <class Half>
void through_float(TileFn tile, int arity, bool bool_output, const void* const* inputs,
                   void* output, int64_t count, const double* parameters) {
  constexpr int64_t kChunk = 512;
  alignas(64) float operands[3][kChunk];
  alignas(64) float result[kChunk];
  for (int64_t begin = 0; begin < count; begin += kChunk) {
    const int64_t size = count - begin < kChunk ? count - begin : kChunk;
    const void* pointers[3] = {};
    for (int k = 0; k < arity; ++k) {
      const Half* from = static_cast<const Half*>(inputs[k]) + begin;
      float* to = operands[k];
      for (int64_t i = 0; i < size; ++i) to[i] = widen(from[i]);
      pointers[k] = to;
    }
    if (bool_output) {
      tile(pointers, static_cast<bool*>(output) + begin, size, parameters);
      continue;
    }
    tile(pointers, result, size, parameters);
    Half* to = static_cast<Half*>(output) + begin;
    for (int64_t i = 0; i < size; ++i) to[i] = narrow<Half>(result[i]);
  }
}

template <class Half, TileFn kTile, int kArity, bool kBoolOutput>
void half_tile(const void* const* inputs, void* output, int64_t count, const double* parameters) {
  through_float<Half>(kTile, kArity, kBoolOutput, inputs, output, count, parameters);
}

/// Which loop a row uses.
template <class F, class T, class Out, int kArity>
constexpr TileFn loop_of() {
  if constexpr (kArity == 1) return unary<F, T, Out>;
  if constexpr (kArity == 2) return binary<F, T, Out>;
  if constexpr (kArity == 3) return ternary<F, T, Out>;
}

constexpr size_t place(DType dtype) { return static_cast<size_t>(dtype); }

/// Puts F for the four floating dtypes into the row.
template <class F, int kArity, bool kPredicate>
constexpr void add_floating(TileRow& row) {
  constexpr TileFn kFloat =
      loop_of<F, float, std::conditional_t<kPredicate, bool, float>, kArity>();
  row.by_dtype[place(DType::kFloat16)] = half_tile<Float16, kFloat, kArity, kPredicate>;
  row.by_dtype[place(DType::kBFloat16)] = half_tile<BFloat16, kFloat, kArity, kPredicate>;
  row.by_dtype[place(DType::kFloat32)] = kFloat;
  row.by_dtype[place(DType::kFloat64)] =
      loop_of<F, double, std::conditional_t<kPredicate, bool, double>, kArity>();
}

template <class F, int kArity, bool kPredicate>
constexpr void add_integers(TileRow& row) {
  const auto add = [&row]<class T>(DType dtype, T) {
    row.by_dtype[place(dtype)] = loop_of<F, T, std::conditional_t<kPredicate, bool, T>, kArity>();
  };
  add(DType::kUInt8, uint8_t{});
  add(DType::kInt8, int8_t{});
  add(DType::kInt16, int16_t{});
  add(DType::kInt32, int32_t{});
  add(DType::kInt64, int64_t{});
}

/// Rows for: floating dtypes; those and integers; those and bool; integers and bool.
template <class F, int kArity>
constexpr TileRow floating_row(std::string_view op) {
  TileRow row{op};
  add_floating<F, kArity, false>(row);
  return row;
}
template <class F, int kArity>
constexpr TileRow number_row(std::string_view op) {
  TileRow row = floating_row<F, kArity>(op);
  add_integers<F, kArity, false>(row);
  return row;
}
template <class F, int kArity>
constexpr TileRow any_row(std::string_view op) {
  TileRow row = number_row<F, kArity>(op);
  row.by_dtype[place(DType::kBool)] = loop_of<F, bool, bool, kArity>();
  return row;
}
template <class F, int kArity>
constexpr TileRow integral_row(std::string_view op) {
  TileRow row{op};
  add_integers<F, kArity, false>(row);
  row.by_dtype[place(DType::kBool)] = loop_of<F, bool, bool, kArity>();
  return row;
}
/// Row of every dtype with bool results.
template <class F, int kArity>
constexpr TileRow predicate_row(std::string_view op) {
  TileRow row{op};
  add_floating<F, kArity, true>(row);
  add_integers<F, kArity, true>(row);
  row.by_dtype[place(DType::kBool)] = loop_of<F, bool, bool, kArity>();
  return row;
}

}  // namespace lucid::cpu::LUCID_ISA
