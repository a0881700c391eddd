// The transforms of F(2x2, 3x3), compiled once for each instruction set: a register holds one
// element of neighbouring tiles.
#include "backends/cpu/engine/winograd_tiles.h"

#include <cstring>

#include "backends/cpu/engine/interleave.h"
#include "backends/cpu/engine/registers.h"

namespace lucid::cpu::LUCID_ISA {
namespace {

template <class T>
using Reg = typename Registers<T>::Reg;
template <class T>
using Mask = typename Registers<T>::Mask;

// Lanes [begin, end) of a register, loaded from and stored to memory whose first element would
// belong to lane 0.
#if defined(__AVX512F__)
template <class T>
using Lanes = Mask<T>;
template <class T>
Lanes<T> make_lanes(int64_t begin, int64_t end) {
  return static_cast<Lanes<T>>(Registers<T>::mask(end) & ~Registers<T>::mask(begin));
}
__m512 merge(__m512 rest, const float* from, __mmask16 lanes) {
  return _mm512_mask_loadu_ps(rest, lanes, from);
}
__m512d merge(__m512d rest, const double* from, __mmask8 lanes) {
  return _mm512_mask_loadu_pd(rest, lanes, from);
}
template <class T>
void store_lanes(T* to, Reg<T> x, Lanes<T> lanes) {
  Registers<T>::store(to, x, lanes);
}
#elif defined(__AVX2__) && defined(__FMA__)
template <class T>
using Lanes = Mask<T>;
template <class T>
Lanes<T> make_lanes(int64_t begin, int64_t end) {
  return _mm256_andnot_si256(Registers<T>::mask(begin), Registers<T>::mask(end));
}
__m256 merge(__m256 rest, const float* from, __m256i lanes) {
  return _mm256_blendv_ps(rest, _mm256_maskload_ps(from, lanes), _mm256_castsi256_ps(lanes));
}
__m256d merge(__m256d rest, const double* from, __m256i lanes) {
  return _mm256_blendv_pd(rest, _mm256_maskload_pd(from, lanes), _mm256_castsi256_pd(lanes));
}
template <class T>
void store_lanes(T* to, Reg<T> x, Lanes<T> lanes) {
  Registers<T>::store(to, x, lanes);
}
#else
struct LaneRange {
  int64_t begin;
  int64_t end;
};
template <class T>
using Lanes = LaneRange;
template <class T>
LaneRange make_lanes(int64_t begin, int64_t end) {
  return {begin, end};
}
template <class R, class T>
R merge(R rest, const T* from, LaneRange lanes) {
  for (int64_t i = lanes.begin; i < lanes.end; ++i) rest[i] = from[i];
  return rest;
}
template <class T>
void store_lanes(T* to, Reg<T> x, LaneRange lanes) {
  for (int64_t i = lanes.begin; i < lanes.end; ++i) to[i] = x[i];
}
#endif

/// The elements of two registers: of one line of a plane, or of lines two apart, which belong to
/// kRows neighbouring rows of tiles, where these are so short that kRows of them fill a register.
template <class T, int kRows>
struct LinePieces {
  static constexpr int kCount = Registers<T>::kCount;
  static constexpr int kPieces = kRows == 2 ? 1 : 2;  ///< different ones of them
  static constexpr int kLength = kRows == 4 ? kCount / 2 : kCount;
  Lanes<T> lanes[kPieces];

  LinePieces() = default;
  /// Lanes that hold elements of a line of `width`, of which the first one is element x.
  LinePieces(int64_t x, int64_t width) {
    for (int k = 0; k < kPieces; ++k) {
      const int64_t at = kRows == 1 ? x + k * kCount : x;
      const int64_t begin = smaller(at < 0 ? -at : 0, kLength);
      const int64_t end = width - at < begin ? begin : smaller(width - at, kLength);
      lanes[k] = make_lanes<T>(lane(k) + begin, lane(k) + end);
    }
  }
  /// The lane that piece k begins at.
  static constexpr int lane(int k) { return kRows == 4 ? k * kLength : 0; }

  /// Elements x, x + 1, ... of line y (and y + 2, ...), zero outside of the plane.
  Pair<T> load(const SourcePlane<T>& plane, int64_t y, int64_t x) const {
    Reg<T> regs[2] = {Registers<T>::fill(T{0}), Registers<T>::fill(T{0})};
    for (int p = 0; p < (kRows == 1 ? 2 : kRows); ++p) {
      const int64_t line = kRows == 1 ? y : y + p * kTileStep;
      if (line < 0 || line >= plane.height) continue;
      const int k = kRows == 2 ? 0 : p % 2;
      const T* const from =
          plane.first + line * plane.width + x + (kRows == 1 ? k * kCount : -lane(k));
      Reg<T>& reg = regs[kRows == 4 ? p / 2 : p];
      reg = merge(reg, from, lanes[k]);
    }
    return split<T>({regs[0], regs[1]});
  }

  /// Stores two registers at line y (and y + 2, ...), below `height`, from element x on.
  void store(const OutputPlane<T>& plane, int64_t y, int64_t height, int64_t x,
             const Pair<T>& pair) const {
    for (int p = 0; p < (kRows == 1 ? 2 : kRows); ++p) {
      const int64_t line = kRows == 1 ? y : y + p * kTileStep;
      if (line >= height) return;
      const int k = kRows == 2 ? 0 : p % 2;
      T* const to = plane.first + line * plane.width + x + (kRows == 1 ? k * kCount : -lane(k));
      store_lanes<T>(to, (kRows == 4 ? p / 2 : p) == 0 ? pair.first : pair.second, lanes[k]);
    }
  }
};

/// Lanes of a register that tiles fill, from a row and column of tiles on.
template <class T, int kRows>
Mask<T> filled_lanes(const TileRows<T>& tiles, int64_t row, int64_t column) {
  const int64_t left = kRows == 1 ? tiles.columns - column : (tiles.rows - row) * tiles.columns;
  return Registers<T>::mask(smaller(left, Registers<T>::kCount));
}

/// Calls the code for as many rows of tiles as fill a register.
template <class T, class Call>
void by_rows_of_register(int64_t columns, const Call& call) {
  constexpr int64_t kCount = Registers<T>::kCount;
  if (columns * 4 == kCount) return call.template operator()<4>();
  if (columns * 2 == kCount) return call.template operator()<2>();
  call.template operator()<1>();
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

template <class T, int kRows>
void input_tiles(const SourcePlane<T>& plane, const TileRows<T>& to) {
  for (int64_t column = 0; column < to.columns; column += Registers<T>::kCount) {
    const int64_t x = plane.left + column * kTileStep;
    const LinePieces<T, kRows> left(x, plane.width);
    const LinePieces<T, kRows> right(x + 2, plane.width);
    Reg<T> half[4][4];  // lines of the plane times B, by columns
    const auto read_line = [&](int64_t y, int i) {
      const Pair<T> near = left.load(plane, y, x);
      const Pair<T> far = right.load(plane, y, x + 2);
      const Reg<T> line[4] = {near.first, near.second, far.first, far.second};
      Reg<T> by_row[4];
      apply_input<T>(line, by_row);
      for (int j = 0; j < 4; ++j) half[j][i] = by_row[j];
    };
    for (int64_t row = 0; row < to.rows; row += kRows) {
      const int64_t y = plane.top + row * kTileStep;
      if (kRows == 1 && row > 0) {  // the last two lines of the tiles above
        for (int j = 0; j < 4; ++j) {
          half[j][0] = half[j][2];
          half[j][1] = half[j][3];
        }
      } else {
        read_line(y, 0);
        read_line(y + 1, 1);
      }
      read_line(y + 2, 2);
      read_line(y + 3, 3);
      Reg<T> tile[4][4];
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        Reg<T> by_column[4];
        apply_input<T>(half[j], by_column);
        for (int i = 0; i < 4; ++i) tile[i][j] = by_column[i];
      }
      store_tile<T>(tile, to.tiles + row * to.columns + column, to.step,
                    filled_lanes<T, kRows>(to, row, column));
    }
  }
}

template <class T>
void of_input(const SourcePlane<T>& plane, const TileRows<T>& to) {
  by_rows_of_register<T>(to.columns, [&]<int kRows>() { input_tiles<T, kRows>(plane, to); });
}

template <class T, int kRows>
void grad_tiles(const SourcePlane<T>& plane, const TileRows<T>& to) {
  for (int64_t column = 0; column < to.columns; column += Registers<T>::kCount) {
    const int64_t x = plane.left + column * kTileStep;
    const LinePieces<T, kRows> pieces(x, plane.width);
    for (int64_t row = 0; row < to.rows; row += kRows) {
      const int64_t y = plane.top + row * kTileStep;
      const Pair<T> upper = pieces.load(plane, y, x);
      const Pair<T> lower = pieces.load(plane, y + 1, x);
      Reg<T> above[4];
      Reg<T> below[4];
      apply_grad<T>(upper.first, upper.second, above);
      apply_grad<T>(lower.first, lower.second, below);
      Reg<T> tile[4][4];
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        Reg<T> by_column[4];
        apply_grad<T>(above[j], below[j], by_column);
        for (int i = 0; i < 4; ++i) tile[i][j] = by_column[i];
      }
      store_tile<T>(tile, to.tiles + row * to.columns + column, to.step,
                    filled_lanes<T, kRows>(to, row, column));
    }
  }
}

template <class T>
void of_grad(const SourcePlane<T>& plane, const TileRows<T>& to) {
  by_rows_of_register<T>(to.columns, [&]<int kRows>() { grad_tiles<T, kRows>(plane, to); });
}

template <class T, int kRows>
void output_tiles(const TileRows<T>& from, const OutputPlane<T>& to) {
  const Reg<T> bias = Registers<T>::fill(to.bias);
  const int64_t height = smaller(to.height, from.rows * kTileStep);
  for (int64_t column = 0; column < from.columns; column += Registers<T>::kCount) {
    const int64_t x = column * kTileStep;
    const LinePieces<T, kRows> pieces(0, to.width - x);
    for (int64_t row = 0; row < from.rows; row += kRows) {
      const Mask<T> lanes = filled_lanes<T, kRows>(from, row, column);
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
      const auto write_line = [&](int64_t y, const Reg<T>(&line)[4]) {
        const Reg<T> even = ((line[0] + line[1]) + line[2]) + bias;
        const Reg<T> odd = ((line[1] - line[2]) - line[3]) + bias;
        pieces.store(to, y, height, x, weave<T>({even, odd}));
      };
      write_line(row * kTileStep, upper);
      write_line(row * kTileStep + 1, lower);
    }
  }
}

template <class T>
void to_output(const TileRows<T>& from, const OutputPlane<T>& to) {
  by_rows_of_register<T>(from.columns, [&]<int kRows>() { output_tiles<T, kRows>(from, to); });
}

/// Three elements of a line times G.
template <class T>
void apply_weight(Reg<T> w0, Reg<T> w1, Reg<T> w2, Reg<T> (&to)[4]) {
  const Reg<T> half = Registers<T>::fill(T{0.5});
  to[0] = w0;
  to[1] = ((w0 + w1) + w2) * half;
  to[2] = ((w0 - w1) + w2) * half;
  to[3] = w2;
}

template <class T>
void of_weight(const T* taps, int64_t count, bool flipped, T* to, int64_t step) {
  using R = Registers<T>;
  for (int64_t first = 0; first < count; first += R::kCount) {
    const int64_t filters = smaller(count - first, R::kCount);
    const T* from = taps + first * kTaps;
    T last[R::kCount * kTaps] = {};
    if (filters < R::kCount) {
      std::memcpy(last, from, static_cast<size_t>(filters * kTaps) * sizeof(T));
      from = last;
    }
    alignas(64) T by_tap[kTaps * R::kCount];
    constexpr int kFirstTaps[3] = {0, 4, 5};  // four taps at a time
    for (const int tap : kFirstTaps) {
      R::transpose(from + tap, kTaps, by_tap + tap * R::kCount, R::kCount);
    }
    Reg<T> half[3][4];
    for (int i = 0; i < 3; ++i) {
      const T* const line = by_tap + 3 * i * R::kCount;
      apply_weight<T>(R::load(line), R::load(line + R::kCount), R::load(line + 2 * R::kCount),
                      half[i]);
    }
    for (int j = 0; j < 4; ++j) {
      Reg<T> column[4];
      apply_weight<T>(half[0][j], half[1][j], half[2][j], column);
      // Taps in reverse exchange the first and the last line.
      for (int i = 0; i < 4; ++i) {
        constexpr int kReverse[4] = {3, 1, 2, 0};
        const int at = flipped ? 4 * kReverse[i] + kReverse[j] : 4 * i + j;
        R::store(to + at * step + first, column[i], R::mask(filters));
      }
    }
  }
}

/// Four elements of a line times G^T.
template <class T>
void apply_weight_grad(const Reg<T> (&u)[4], Reg<T> (&to)[3]) {
  const Reg<T> half = Registers<T>::fill(T{0.5});
  to[0] = u[0] + (u[1] + u[2]) * half;
  to[1] = (u[1] - u[2]) * half;
  to[2] = (u[1] + u[2]) * half + u[3];
}

template <class T>
void to_weight_grad(const TransformedSums<T>& sums, T* taps) {
  using R = Registers<T>;
  for (int64_t first = 0; first < sums.count; first += R::kCount) {
    const int64_t filters = smaller(sums.count - first, R::kCount);
    const Mask<T> lanes = R::mask(filters);
    Reg<T> half[4][3];
    for (int i = 0; i < 4; ++i) {
      Reg<T> u[4];
      for (int j = 0; j < 4; ++j) {
        const T* from = sums.first + (4 * i + j) * sums.step + first;
        u[j] = R::load(from, lanes);
        for (int64_t part = 1; part < sums.parts; ++part) {
          from += sums.part_step;
          u[j] = u[j] + R::load(from, lanes);
        }
      }
      apply_weight_grad<T>(u, half[i]);
    }
    alignas(64) T by_tap[kTaps][R::kCount];
    for (int j = 0; j < 3; ++j) {
      const Reg<T> column[4] = {half[0][j], half[1][j], half[2][j], half[3][j]};
      Reg<T> tap[3];
      apply_weight_grad<T>(column, tap);
      for (int i = 0; i < 3; ++i) R::store(by_tap[3 * i + j], tap[i]);
    }
    T* to = taps + first * kTaps;
    for (int64_t filter = 0; filter < filters; ++filter) {
      for (int64_t tap = 0; tap < kTaps; ++tap) *to++ = by_tap[tap][filter];
    }
  }
}

template <class T>
constexpr WinogradKernels<T> kKernels = {of_input<T>, of_grad<T>, to_output<T>, of_weight<T>,
                                         to_weight_grad<T>};

}  // namespace

extern const WinogradKernels<float> kWinogradF32;
extern const WinogradKernels<double> kWinogradF64;
const WinogradKernels<float> kWinogradF32 = kKernels<float>;
const WinogradKernels<double> kWinogradF64 = kKernels<double>;

}  // namespace lucid::cpu::LUCID_ISA
