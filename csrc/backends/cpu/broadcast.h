// Reading broadcast operands of element-wise work tile by tile.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ir/value.h"
#include "support/shape.h"

namespace lucid::cpu {

/// How the elements of a dense operand meet those of a dense output to which it broadcasts. A
/// tile is a range of output elements; `tile_elements` is its usual length, and tiles begin at
/// multiples of it.
class BroadcastPlan {
 public:
  /// Longest tile, in elements.
  static constexpr int64_t kMaxTile = 2048;

  /// Tiles have about `tile` elements, more where an operand repeats with a longer period.
  BroadcastPlan(const Shape& output, std::span<const ir::ValueType> operands,
                int64_t tile = kMaxTile);

  size_t num_operands() const { return sources_.size(); }
  int64_t tile_elements() const { return tile_elements_; }
  /// True if every operand has the output's shape: any range may be used as one tile.
  bool all_direct() const { return all_direct_; }

  /// Fills the buffer of an operand that looks the same in every tile. To be called once before
  /// the tiles of a range, with the length of the longest of them.
  void prepare(size_t operand, const void* data, int64_t longest, void* buffer) const;

  /// The operand's elements for output elements [begin, begin + count): inside `data`, or in
  /// `buffer`, which holds kMaxTile elements and was given to prepare.
  const void* tile(size_t operand, const void* data, int64_t begin, int64_t count,
                   void* buffer) const;

 private:
  enum class Mode : uint8_t {
    kDirect,   ///< has the output's shape
    kPattern,  ///< repeats with a period that divides the tile: a single element, a bias
    kGather,   ///< copied row by row
  };
  struct Source {
    Mode mode = Mode::kDirect;
    int64_t item_bytes = 0;
    int64_t period = 0;  ///< of kPattern, in elements
    /// Of kGather: output axes, merged, outermost first, and the operand's strides along them.
    int rank = 0;
    std::array<int64_t, kMaxRank> sizes{};
    std::array<int64_t, kMaxRank> strides{};
  };

  static Source make_source(const Shape& output, const ir::ValueType& operand);
  static const void* gather(const Source& source, const void* data, int64_t begin, int64_t count,
                            void* buffer);

  std::vector<Source> sources_;
  int64_t tile_elements_ = kMaxTile;
  bool all_direct_ = true;
};

}  // namespace lucid::cpu
