// Shape of a dense row-major tensor: up to eight sizes, held in place.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace lucid {

inline constexpr int kMaxRank = 8;

/// Sizes of the axes, outermost first. Rank 0 is a scalar with one element.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> sizes) : Shape(std::span(sizes.begin(), sizes.size())) {}
  /// Throws UserError for more than kMaxRank axes, a negative size or 2^60 elements and more.
  explicit Shape(std::span<const int64_t> sizes);

  int rank() const { return rank_; }
  int64_t operator[](int axis) const { return sizes_[static_cast<size_t>(axis)]; }
  std::span<const int64_t> sizes() const { return {sizes_.data(), static_cast<size_t>(rank_)}; }
  int64_t num_elements() const { return num_elements_; }
  /// Same shape with one size changed.
  Shape with(int axis, int64_t size) const;
  /// Row-major distance in elements between neighbours along each axis.
  std::array<int64_t, kMaxRank> strides() const;

  bool operator==(const Shape& other) const;

 private:
  std::array<int64_t, kMaxRank> sizes_{};
  int64_t num_elements_ = 1;
  int rank_ = 0;
};

/// "(2, 3)", "(4,)", "()".
std::string to_string(const Shape& shape);

/// Product of the sizes.
int64_t product(std::span<const int64_t> sizes);

}  // namespace lucid
