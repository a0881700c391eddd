#include "support/shape.h"

#include <algorithm>
#include <vector>

#include "support/errors.h"

namespace lucid {
namespace {

constexpr int64_t kMaxElements = (int64_t{1} << 60) - 1;

}  // namespace

Shape::Shape(std::span<const int64_t> sizes) {
  if (sizes.size() > static_cast<size_t>(kMaxRank)) {
    throw Error(ErrorKind::kShape, "tensor of " + std::to_string(sizes.size()) +
                                       " axes: at most 8 are supported; merge axes with reshape");
  }
  bool empty = false;
  for (const int64_t size : sizes) {
    if (size < 0) {
      throw Error(ErrorKind::kShape, "negative size " + std::to_string(size) + " in a shape");
    }
    empty = empty || size == 0;
    sizes_[static_cast<size_t>(rank_++)] = size;
  }
  if (empty) {
    num_elements_ = 0;
    return;
  }
  for (const int64_t size : sizes) {
    if (num_elements_ > kMaxElements / size) {
      throw Error(ErrorKind::kShape, "shape " + to_string(*this) + " has 2^60 elements or more");
    }
    num_elements_ *= size;
  }
}

Shape Shape::with(int axis, int64_t size) const {
  std::array<int64_t, kMaxRank> sizes = sizes_;
  sizes[static_cast<size_t>(axis)] = size;
  return Shape(std::span<const int64_t>(sizes.data(), static_cast<size_t>(rank_)));
}

std::array<int64_t, kMaxRank> Shape::strides() const {
  std::array<int64_t, kMaxRank> result{};
  int64_t stride = 1;
  for (int axis = rank_ - 1; axis >= 0; --axis) {
    result[static_cast<size_t>(axis)] = stride;
    stride *= (*this)[axis];
  }
  return result;
}

bool Shape::operator==(const Shape& other) const {
  return std::ranges::equal(sizes(), other.sizes());
}

std::string to_string(const Shape& shape) {
  std::string text = "(";
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (axis > 0) text += ", ";
    text += std::to_string(shape[axis]);
  }
  return text + (shape.rank() == 1 ? ",)" : ")");
}

int64_t product(std::span<const int64_t> sizes) {
  int64_t result = 1;
  for (const int64_t size : sizes) result *= size;
  return result;
}

}  // namespace lucid
