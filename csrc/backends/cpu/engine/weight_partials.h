// The last step of a weight gradient: sums of chunks of images, added in order.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backends/cpu/engine/block_product.h"
#include "backends/cpu/engine/convolution.h"
#include "backends/cpu/engine/sizes.h"
#include "backends/cpu/threads/team.h"

namespace lucid::cpu {

inline constexpr int64_t kMaxChunks = 16;

/// Units of images (at most `most_elements` partial sums, or one chunk) that share one chain of
/// sums: by the shape alone, for the bits depend on it.
inline int64_t choose_chunk(const ConvolutionSpec& spec, int64_t units, int64_t most_elements) {
  const int64_t weight =
      std::max<int64_t>(spec.filters * spec.group_channels() * spec.kernel_size(), 1);
  const int64_t chunks = std::clamp<int64_t>(most_elements / weight, 1, kMaxChunks);
  return std::max<int64_t>(divide_up(units, chunks), 1);
}

/// to[j][i] = from[i][j]; the `_row` arguments are elements between rows.
inline void transpose(const float* from, int64_t from_row, int64_t rows, int64_t columns, float* to,
                      int64_t to_row) {
  block_product_kernels().transpose(from, from_row, rows, columns, to, to_row);
}

inline void transpose(const double* from, int64_t from_row, int64_t rows, int64_t columns,
                      double* to, int64_t to_row) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) to[j * to_row + i] = from[i * from_row + j];
  }
}

/// Adds `chunks` partial sums (group, channel and tap, filter) in order into the first one, and
/// turns it into the weight's (group, filter, channel and tap).
template <class T>
void add_partials(const ConvolutionSpec& spec, int64_t chunks, T* partials, T* result) {
  const int64_t rows = spec.group_channels() * spec.kernel_size();
  const int64_t filters = spec.group_filters();
  const int64_t size = spec.groups * rows * filters;
  if (chunks == 0) {
    std::fill_n(result, size, T{0});
    return;
  }
  constexpr int64_t kBlockRows = 64;  // turned together: whole lines of the result are written
  const double row_ns = static_cast<double>(chunks * filters) * 0.2 + 2.0;
  const int64_t blocks = divide_up(rows, kBlockRows);
  parallel_for(spec.groups * blocks, 1, row_ns * kBlockRows, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t group = block / blocks;
      const int64_t row = block % blocks * kBlockRows;
      const int64_t count = std::min(kBlockRows, rows - row);
      T* const sum = partials + (group * rows + row) * filters;
      for (int64_t chunk = 1; chunk < chunks; ++chunk) {
        const T* const partial = sum + chunk * size;
        for (int64_t i = 0; i < count * filters; ++i) sum[i] += partial[i];
      }
      transpose(sum, filters, count, filters, result + group * filters * rows + row, rows);
    }
  });
}

}  // namespace lucid::cpu
