// The last step of a weight gradient: sums of chunks of images, added in order.
#pragma once

#include <algorithm>
#include <cstdint>

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
  const double row_ns = static_cast<double>(chunks * filters) * 0.2 + 2.0;
  parallel_for(spec.groups * rows, 64, row_ns, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      T* const sum = partials + row * filters;
      for (int64_t chunk = 1; chunk < chunks; ++chunk) {
        const T* const partial = sum + chunk * size;
        for (int64_t f = 0; f < filters; ++f) sum[f] += partial[f];
      }
      T* const target = result + row / rows * filters * rows + row % rows;
      for (int64_t f = 0; f < filters; ++f) target[f * rows] = sum[f];
    }
  });
}

}  // namespace lucid::cpu
