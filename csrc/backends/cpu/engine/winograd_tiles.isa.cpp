// The transforms of F(2x2, 3x3), compiled once for each instruction set: a register holds one
// element of neighbouring tiles.
#include "backends/cpu/engine/winograd_tiles.h"
#include "backends/cpu/engine/registers.h"

namespace lucid::cpu::LUCID_ISA {
namespace {

template <class T>
using Reg = typename Registers<T>::Reg;
template <class T>
using Mask = typename Registers<T>::Mask;

template <class T>
struct Pair {
  Reg<T> even;
  Reg<T> odd;
};

/// Elements 0, 2, ... and 1, 3, ... of two registers' worth of memory.
template <class T>
Pair<T> split(const T* from) {
  constexpr int kCount = Registers<T>::kCount;
  T even[kCount];
  T odd[kCount];
  for (int i = 0; i < kCount; ++i) {
    even[i] = from[2 * i];
    odd[i] = from[2 * i + 1];
  }
  return {Registers<T>::load(even), Registers<T>::load(odd)};
}

/// The first and the second half of even[0], odd[0], even[1], odd[1], ...
template <class T>
Pair<T> weave(Reg<T> even, Reg<T> odd) {
  constexpr int kCount = Registers<T>::kCount;
  T parts[2 * kCount];
  T woven[2 * kCount];
  Registers<T>::store(parts, even);
  Registers<T>::store(parts + kCount, odd);
  for (int i = 0; i < kCount; ++i) {
    woven[2 * i] = parts[i];
    woven[2 * i + 1] = parts[kCount + i];
  }
  return {Registers<T>::load(woven), Registers<T>::load(woven + kCount)};
}

#if defined(__AVX512F__)
template <>
Pair<float> split<float>(const float* from) {
  const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  const __m512i odd = _mm512_set_epi32(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
  const __m512 low = _mm512_loadu_ps(from);
  const __m512 high = _mm512_loadu_ps(from + 16);
  return {_mm512_permutex2var_ps(low, even, high), _mm512_permutex2var_ps(low, odd, high)};
}

template <>
Pair<float> weave<float>(__m512 even, __m512 odd) {
  const __m512i low = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  const __m512i high =
      _mm512_set_epi32(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8);
  return {_mm512_permutex2var_ps(even, low, odd), _mm512_permutex2var_ps(even, high, odd)};
}
#endif

/// Lanes of a register that a row of tiles fills from its column on.
template <class T>
Mask<T> lanes_from(int64_t column, int64_t columns) {
  return Registers<T>::mask(smaller(columns - column, Registers<T>::kCount));
}

/// Four elements of a line times B^T.
template <class T>
void apply_input(const Reg<T> (&d)[4], Reg<T> (&to)[4]) {
  to[0] = d[0] - d[2];
  to[1] = d[1] + d[2];
  to[2] = d[2] - d[1];
  to[3] = d[1] - d[3];
}

/// Two elements of a line times A.
template <class T>
void apply_grad(Reg<T> d0, Reg<T> d1, Reg<T> (&to)[4]) {
  to[0] = d0;
  to[1] = d0 + d1;
  to[2] = d0 - d1;
  to[3] = Registers<T>::fill(T{0}) - d1;
}

template <class T>
void store_tile(const Reg<T> (&tile)[4][4], T* to, int64_t step, Mask<T> lanes) {
#pragma GCC unroll 16
  for (int t = 0; t < 16; ++t) Registers<T>::store(to + t * step, tile[t / 4][t % 4], lanes);
}

template <class T>
void of_input(const T* frame, int64_t pitch, const TileRows<T>& to) {
  for (int64_t row = 0; row < to.rows; ++row) {
    for (int64_t column = 0; column < to.columns; column += Registers<T>::kCount) {
      const T* const from = frame + row * kTileStep * pitch + column * kTileStep;
      Reg<T> half[4][4];  // lines of the frame times B, by columns
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const Pair<T> left = split(from + i * pitch);
        const Pair<T> right = split(from + i * pitch + 2);
        const Reg<T> line[4] = {left.even, left.odd, right.even, right.odd};
        Reg<T> by_row[4];
        apply_input<T>(line, by_row);
        for (int j = 0; j < 4; ++j) half[j][i] = by_row[j];
      }
      Reg<T> tile[4][4];
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        Reg<T> by_column[4];
        apply_input<T>(half[j], by_column);
        for (int i = 0; i < 4; ++i) tile[i][j] = by_column[i];
      }
      store_tile<T>(tile, to.tiles + row * to.columns + column, to.step,
                    lanes_from<T>(column, to.columns));
    }
  }
}

template <class T>
void of_grad(const T* frame, int64_t pitch, const TileRows<T>& to) {
  for (int64_t row = 0; row < to.rows; ++row) {
    for (int64_t column = 0; column < to.columns; column += Registers<T>::kCount) {
      const T* const from = frame + row * kTileStep * pitch + column * kTileStep;
      const Pair<T> upper = split(from);
      const Pair<T> lower = split(from + pitch);
      Reg<T> above[4];
      Reg<T> below[4];
      apply_grad<T>(upper.even, upper.odd, above);
      apply_grad<T>(lower.even, lower.odd, below);
      Reg<T> tile[4][4];
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        Reg<T> by_column[4];
        apply_grad<T>(above[j], below[j], by_column);
        for (int i = 0; i < 4; ++i) tile[i][j] = by_column[i];
      }
      store_tile<T>(tile, to.tiles + row * to.columns + column, to.step,
                    lanes_from<T>(column, to.columns));
    }
  }
}

/// Stores at most `count` elements of two registers.
template <class T>
void store_some(T* to, const Pair<T>& x, int64_t count) {
  constexpr int64_t kCount = Registers<T>::kCount;
  Registers<T>::store(to, x.even, Registers<T>::mask(smaller(count, kCount)));
  if (count > kCount) {
    Registers<T>::store(to + kCount, x.odd, Registers<T>::mask(smaller(count - kCount, kCount)));
  }
}

template <class T>
void to_output(const TileRows<T>& from, const OutputPlane<T>& to) {
  const Reg<T> bias = Registers<T>::fill(to.bias);
  for (int64_t row = 0; row < from.rows; ++row) {
    for (int64_t column = 0; column < from.columns; column += Registers<T>::kCount) {
      const Mask<T> lanes = lanes_from<T>(column, from.columns);
      const T* const tile = from.tiles + row * from.columns + column;
      Reg<T> upper[4];
      Reg<T> lower[4];
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        Reg<T> m[4];
        for (int i = 0; i < 4; ++i)
          m[i] = Registers<T>::load(tile + (4 * i + j) * from.step, lanes);
        upper[j] = (m[0] + m[1]) + m[2];
        lower[j] = (m[1] - m[2]) - m[3];
      }
      const int64_t y = row * kTileStep;
      const int64_t count = smaller(to.width - column * kTileStep, 2 * Registers<T>::kCount);
      T* const line = to.first + y * to.width + column * kTileStep;
      store_some(line,
                 weave<T>(((upper[0] + upper[1]) + upper[2]) + bias,
                          ((upper[1] - upper[2]) - upper[3]) + bias),
                 count);
      if (y + 1 == to.height) continue;
      store_some(line + to.width,
                 weave<T>(((lower[0] + lower[1]) + lower[2]) + bias,
                          ((lower[1] - lower[2]) - lower[3]) + bias),
                 count);
    }
  }
}

}  // namespace

extern const WinogradKernels<float> kWinogradF32;
extern const WinogradKernels<double> kWinogradF64;
const WinogradKernels<float> kWinogradF32 = {of_input<float>, of_grad<float>, to_output<float>};
const WinogradKernels<double> kWinogradF64 = {of_input<double>, of_grad<double>, to_output<double>};

}  // namespace lucid::cpu::LUCID_ISA
