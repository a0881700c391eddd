// How planes are cut into tiles and blocks of tiles for F(2x2, 3x3).
#pragma once

#include <algorithm>
#include <cstdint>

#include "backends/cpu/engine/sizes.h"
#include "backends/cpu/engine/winograd_tiles.h"

namespace lucid::cpu {

constexpr int64_t kTileTasksPerThread = 2;

/// Planes of some channels and images, and the tiles of outputs that lie on them. A block's
/// transformed tiles take about `block_bytes`.
struct TilePlan {
  int64_t batch = 0;
  int64_t channels = 0;  ///< and filters, whose transformed tiles a block keeps
  int64_t height = 0;    ///< of outputs
  int64_t width = 0;
  int64_t tile_rows = 0;
  int64_t tile_columns = 0;
  int64_t images = 1;  ///< of a block; more than one only where rows are all
  int64_t rows = 1;    ///< of tiles of a block

  TilePlan() = default;
  TilePlan(int64_t num_images, int64_t num_channels, int64_t output_height, int64_t output_width,
           int64_t element_bytes, int64_t block_bytes)
      : batch(num_images),
        channels(num_channels),
        height(output_height),
        width(output_width),
        tile_rows(divide_up(output_height, kTileStep)),
        tile_columns(divide_up(output_width, kTileStep)) {
    constexpr int64_t kLeastTiles = 32;  // columns of a product
    constexpr int64_t kMostTiles = 128;
    const int64_t wanted = std::clamp(block_bytes / (kTileElements * channels * element_bytes),
                                      kLeastTiles, kMostTiles);
    rows = std::clamp<int64_t>(wanted / tile_columns, 1, tile_rows);
    rows = divide_up(tile_rows, divide_up(tile_rows, rows));
    if (rows == tile_rows) {
      images =
          std::clamp<int64_t>(wanted / (tile_rows * tile_columns), 1, std::max<int64_t>(batch, 1));
    }
  }

  int64_t strips() const { return divide_up(tile_rows, rows); }
  int64_t num_blocks() const { return divide_up(batch, images) * strips(); }
  int64_t block_tiles() const { return images * rows * tile_columns; }
  /// Elements from one transformed element of a block to the next: not a power of two, which would
  /// put all of a tile's elements into the same lines of a cache.
  static int64_t step(int64_t channels_of_block, int64_t tiles) {
    return channels_of_block * tiles + kTileElements;
  }
};

/// One block of a plan.
struct TileBlock {
  int64_t image;
  int64_t images;
  int64_t row;  ///< first row of tiles
  int64_t rows;
  int64_t tiles;  ///< of all images

  TileBlock(const TilePlan& plan, int64_t index)
      : image(index / plan.strips() * plan.images),
        images(std::min(plan.images, plan.batch - image)),
        row(index % plan.strips() * plan.rows),
        rows(std::min(plan.rows, plan.tile_rows - row)),
        tiles(images * rows * plan.tile_columns) {}
};

/// Planes [first, first + count) of every image, of `total` planes an image. The first tile of a
/// plane begins at element (-lead_rows, -lead_columns).
template <class T>
struct PlaneRange {
  const T* data;
  int64_t height;
  int64_t width;
  int64_t lead_rows;
  int64_t lead_columns;
  int64_t total;
  int64_t first;
  int64_t count;
};

/// Transforms a block's tiles of some planes: those of plane i of the range begin at
/// to.tiles + i * block.tiles, one image behind the other.
template <class T>
void read_tiles(const PlaneRange<T>& planes, const TileBlock& block,
                void (*transform)(const SourcePlane<T>&, const TileRows<T>&), TileRows<T> to) {
  SourcePlane<T> plane{nullptr, planes.height, planes.width,
                       block.row * kTileStep - planes.lead_rows, -planes.lead_columns};
  T* const tiles = to.tiles;
  for (int64_t i = 0; i < planes.count; ++i) {
    to.tiles = tiles + i * block.tiles;
    for (int64_t image = block.image; image < block.image + block.images; ++image) {
      plane.first =
          planes.data + (image * planes.total + planes.first + i) * planes.height * planes.width;
      transform(plane, to);
      to.tiles += to.rows * to.columns;
    }
  }
}

}  // namespace lucid::cpu
