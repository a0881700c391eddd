// The transforms of Winograd's minimal filtering F(2x2, 3x3): Lavin and Gray 2016,
// arXiv:1509.09308, section 4.1.
#pragma once

#include <cstdint>

#include "backends/cpu/simd/isa.h"

namespace lucid::cpu {

/// Elements of a transformed tile: four by four.
constexpr int64_t kTileElements = 16;
/// Outputs of a tile along one axis, and from one tile to the next.
constexpr int64_t kTileStep = 2;
/// Taps of a filter.
constexpr int64_t kTaps = 9;

/// Rows and columns of tiles of one plane. Tile (i, j) reads or writes the plane from (2 i, 2 j)
/// on; its transformed element t lies at tiles[t * step + i * columns + j].
template <class T>
struct TileRows {
  T* tiles;
  int64_t step;
  int64_t rows;
  int64_t columns;
};

/// Outputs of a plane: elements beyond its height and width are not written.
template <class T>
struct OutputPlane {
  T* first;
  int64_t height;
  int64_t width;
  T bias;
};

/// A plane that tiles are read from: tile (i, j) begins at element (top + 2 i, left + 2 j), which
/// may lie outside, where all is zero.
template <class T>
struct SourcePlane {
  const T* first;
  int64_t height;
  int64_t width;
  int64_t top;
  int64_t left;
};

/// Transformed sums of `count` neighbouring filters and channels, in parts: element t of part p
/// lies at first[p * part_step + t * step].
template <class T>
struct TransformedSums {
  const T* first;
  int64_t step;
  int64_t parts;
  int64_t part_step;
  int64_t count;
};

/// The code of one instruction set.
template <class T>
struct WinogradKernels {
  /// Tiles of inputs: B^T d B of every 4 x 4 elements.
  void (*of_input)(const SourcePlane<T>& plane, const TileRows<T>& to);
  /// Tiles of the gradient of outputs: A d A^T of every 2 x 2 elements.
  void (*of_grad)(const SourcePlane<T>& plane, const TileRows<T>& to);
  /// Outputs of tiles: A^T m A, plus the bias.
  void (*to_output)(const TileRows<T>& from, const OutputPlane<T>& to);
  /// to[t * step + i] = G g G^T of the taps of `count` filters; `flipped`: of taps in reverse.
  void (*of_weight)(const T* taps, int64_t count, bool flipped, T* to, int64_t step);
  /// taps = G^T u G of the parts added in order.
  void (*to_weight_grad)(const TransformedSums<T>& sums, T* taps);
};

/// The best code for this processor.
template <class T>
const WinogradKernels<T>& winograd_kernels();
template <>
const WinogradKernels<float>& winograd_kernels<float>();
template <>
const WinogradKernels<double>& winograd_kernels<double>();

}  // namespace lucid::cpu

LUCID_ISA_DECLARE(extern const WinogradKernels<float> kWinogradF32;
                  extern const WinogradKernels<double> kWinogradF64;)
