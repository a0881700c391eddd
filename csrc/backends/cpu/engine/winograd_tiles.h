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
/// Inputs that neighbouring tiles share along one axis.
constexpr int64_t kTileOverlap = 2;
/// Elements that a row of a frame must have behind its last tile: whole registers are read.
constexpr int64_t kFrameSlack = 36;

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

/// The code of one instruction set. A frame is a plane with zeros around it, whose rows lie `pitch`
/// elements apart and have kFrameSlack elements to spare.
template <class T>
struct WinogradKernels {
  /// Tiles of inputs: B^T d B of every 4 x 4 elements.
  void (*of_input)(const T* frame, int64_t pitch, const TileRows<T>& to);
  /// Tiles of the gradient of outputs: A d A^T of every 2 x 2 elements.
  void (*of_grad)(const T* frame, int64_t pitch, const TileRows<T>& to);
  /// Outputs of tiles: A^T m A, plus the bias.
  void (*to_output)(const TileRows<T>& from, const OutputPlane<T>& to);
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
