// How planes are cut into tiles and blocks of tiles for F(2x2, 3x3), and the frame that a block's
// tiles are read from.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "backends/cpu/engine/sizes.h"
#include "backends/cpu/engine/winograd_tiles.h"

namespace lucid::cpu {

constexpr int64_t kTaps = 9;
constexpr int64_t kTileTasksPerThread = 2;

/// Planes of some channels and images, and the tiles of outputs that lie on them.
struct TilePlan {
  int64_t batch = 0;
  int64_t channels = 0;  ///< that are transformed together
  int64_t height = 0;    ///< of outputs
  int64_t width = 0;
  int64_t tile_rows = 0;
  int64_t tile_columns = 0;
  int64_t images = 1;  ///< of a block; more than one only where rows are all
  int64_t rows = 1;    ///< of tiles of a block

  TilePlan() = default;
  TilePlan(int64_t num_images, int64_t num_channels, int64_t output_height, int64_t output_width,
           int64_t element_bytes)
      : batch(num_images),
        channels(num_channels),
        height(output_height),
        width(output_width),
        tile_rows(divide_up(output_height, kTileStep)),
        tile_columns(divide_up(output_width, kTileStep)) {
    constexpr int64_t kBlockBytes = 1024 * 1024;  // of transformed inputs: part of a cache
    constexpr int64_t kLeastTiles = 32;           // columns of a product
    constexpr int64_t kMostTiles = 128;
    const int64_t wanted = std::clamp(kBlockBytes / (kTileElements * channels * element_bytes),
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

/// The rows of one plane that a block's tiles read, with zeros around them.
template <class T>
class TileFrame {
 public:
  TileFrame() = default;
  /// Tiles of 2 + `overlap` elements an axis begin at element (-lead_rows, -lead_columns) of a
  /// plane of `height` rows and `width` columns.
  TileFrame(const TilePlan& plan, int64_t overlap, int64_t height, int64_t width, int64_t lead_rows,
            int64_t lead_columns)
      : height_(height),
        width_(width),
        lead_rows_(lead_rows),
        lead_columns_(lead_columns),
        overlap_(overlap),
        pitch_(plan.tile_columns * kTileStep + overlap + kFrameSlack),
        size_((plan.rows * kTileStep + overlap) * pitch_) {}

  int64_t size() const { return size_; }
  int64_t pitch() const { return pitch_; }

  /// Zeros everywhere: to be called once before the planes of a block.
  void clear(T* frame) const { std::fill_n(frame, size_, T{0}); }

  /// Copies the rows of a plane that a block reads.
  void fill(const T* plane, const TileBlock& block, T* frame) const {
    const int64_t top = block.row * kTileStep - lead_rows_;
    const int64_t begin = std::max<int64_t>(top, 0);
    const int64_t end = std::min(height_, top + block.rows * kTileStep + overlap_);
    const int64_t skipped = std::max<int64_t>(-lead_columns_, 0);
    const int64_t at = std::max<int64_t>(lead_columns_, 0);
    const int64_t length = std::min(width_ - skipped, pitch_ - kFrameSlack - at);
    if (length <= 0) return;
    for (int64_t row = begin; row < end; ++row) {
      std::memcpy(frame + (row - top) * pitch_ + at, plane + row * width_ + skipped,
                  static_cast<size_t>(length) * sizeof(T));
    }
  }

 private:
  int64_t height_ = 0;
  int64_t width_ = 0;
  int64_t lead_rows_ = 0;
  int64_t lead_columns_ = 0;
  int64_t overlap_ = 0;
  int64_t pitch_ = 0;
  int64_t size_ = 0;
};

/// Planes [first, first + count) of every image, of `total` planes an image.
template <class T>
struct PlaneRange {
  const T* data;
  int64_t plane_size;
  int64_t total;
  int64_t first;
  int64_t count;
};

/// Transforms a block's tiles of some planes: those of plane i of the range begin at
/// to.tiles + i * block.tiles, one image behind the other.
template <class T>
void read_tiles(const PlaneRange<T>& planes, const TileBlock& block, const TileFrame<T>& frame,
                T* frame_memory, void (*transform)(const T*, int64_t, const TileRows<T>&),
                TileRows<T> to) {
  frame.clear(frame_memory);
  T* const tiles = to.tiles;
  for (int64_t i = 0; i < planes.count; ++i) {
    to.tiles = tiles + i * block.tiles;
    for (int64_t image = block.image; image < block.image + block.images; ++image) {
      const int64_t plane = image * planes.total + planes.first + i;
      frame.fill(planes.data + plane * planes.plane_size, block, frame_memory);
      transform(frame_memory, frame.pitch(), to);
      to.tiles += to.rows * to.columns;
    }
  }
}

}  // namespace lucid::cpu
