// Reading int32 and int64 indices.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "support/dtype.h"
#include "support/errors.h"

namespace lucid::cpu {

/// Elements of an index tensor as int64.
class IndexReader {
 public:
  IndexReader(const void* data, DType dtype) : data_(data), is_wide_(dtype == DType::kInt64) {}

  int64_t operator[](int64_t place) const {
    if (is_wide_) return static_cast<const int64_t*>(data_)[place];
    return static_cast<const int32_t*>(data_)[place];
  }

 private:
  const void* data_;
  bool is_wide_;
};

/// The place from the front that an index in [-size, size) names.
inline int64_t wrap(int64_t index, int64_t size) { return index < 0 ? index + size : index; }

/// Throws OutOfRangeError unless all `count` indices lie in [least, size).
inline void check_indices(std::string_view op, IndexReader indices, int64_t count, int64_t least,
                          int64_t size) {
  for (int64_t i = 0; i < count; ++i) {
    const int64_t index = indices[i];
    if (index >= least && index < size) continue;
    throw Error(ErrorKind::kIndex, std::string(op) + ": index out of range: " +
                                       std::to_string(index) + " for size " + std::to_string(size));
  }
}

}  // namespace lucid::cpu
