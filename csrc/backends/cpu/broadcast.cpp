#include "backends/cpu/broadcast.h"

#include <algorithm>
#include <cstring>

namespace lucid::cpu {
namespace {

template <class T>
void fill_items(void* to, const void* value, int64_t count) {
  std::fill_n(static_cast<T*>(to), count, *static_cast<const T*>(value));
}

/// Puts `count` copies of one element.
void fill(void* to, const void* value, int64_t count, int64_t item_bytes) {
  switch (item_bytes) {
    case 1:
      return fill_items<uint8_t>(to, value, count);
    case 2:
      return fill_items<uint16_t>(to, value, count);
    case 4:
      return fill_items<uint32_t>(to, value, count);
    default:
      return fill_items<uint64_t>(to, value, count);
  }
}

/// Repeats the first `period` of `count` bytes, doubling what is there.
void repeat(void* to, int64_t period, int64_t count) {
  char* bytes = static_cast<char*>(to);
  for (int64_t done = period; done < count;) {
    const int64_t more = std::min(done, count - done);
    std::memcpy(bytes + done, bytes, static_cast<size_t>(more));
    done += more;
  }
}

const char* at(const void* data, int64_t element, int64_t item_bytes) {
  return static_cast<const char*>(data) + element * item_bytes;
}

}  // namespace

BroadcastPlan::Source BroadcastPlan::make_source(const Shape& output,
                                                 const ir::ValueType& operand) {
  Source source{.item_bytes = size_bytes(operand.dtype)};
  if (output.num_elements() == operand.shape.num_elements() || output.num_elements() == 0) {
    return source;
  }
  const std::array<int64_t, kMaxRank> strides = operand.shape.strides();
  const int missing = output.rank() - operand.shape.rank();
  for (int axis = 0; axis < output.rank(); ++axis) {
    const int64_t size = output[axis];
    if (size == 1) continue;
    const bool present = axis >= missing && operand.shape[axis - missing] != 1;
    const int64_t stride = present ? strides[static_cast<size_t>(axis - missing)] : 0;
    const size_t last = static_cast<size_t>(source.rank) - 1;
    // An axis continues the one before if a step there is a whole run here.
    if (source.rank > 0 && source.strides[last] == stride * size) {
      source.sizes[last] *= size;
      source.strides[last] = stride;
      continue;
    }
    source.sizes[last + 1] = size;
    source.strides[last + 1] = stride;
    ++source.rank;
  }
  const bool splat = source.rank == 1;
  const bool repeats = source.rank == 2 && source.strides[0] == 0 && source.strides[1] == 1;
  source.period = splat ? 1 : source.sizes[static_cast<size_t>(source.rank) - 1];
  source.mode = splat || (repeats && source.period <= kMaxTile) ? Mode::kPattern : Mode::kGather;
  return source;
}

BroadcastPlan::BroadcastPlan(const Shape& output, std::span<const ir::ValueType> operands,
                             int64_t tile) {
  int64_t longest = 1;
  for (const ir::ValueType& operand : operands) {
    sources_.push_back(make_source(output, operand));
    const Source& source = sources_.back();
    all_direct_ = all_direct_ && source.mode == Mode::kDirect;
    if (source.mode == Mode::kPattern) longest = std::max(longest, source.period);
  }
  tile_elements_ = std::max(tile, longest) / longest * longest;
  for (Source& source : sources_) {
    const bool divides = source.mode != Mode::kPattern || tile_elements_ % source.period == 0;
    if (!divides) source.mode = Mode::kGather;
  }
}

void BroadcastPlan::prepare(size_t operand, const void* data, int64_t longest, void* buffer) const {
  const Source& source = sources_[operand];
  if (source.mode != Mode::kPattern) return;
  if (source.period == 1) return fill(buffer, data, longest, source.item_bytes);
  const int64_t period_bytes = source.period * source.item_bytes;
  const int64_t longest_bytes = longest * source.item_bytes;
  std::memcpy(buffer, data, static_cast<size_t>(std::min(period_bytes, longest_bytes)));
  repeat(buffer, period_bytes, longest_bytes);
}

const void* BroadcastPlan::gather(const Source& source, const void* data, int64_t begin,
                                  int64_t count, void* buffer) {
  const int inner = source.rank - 1;
  const int64_t row = source.sizes[static_cast<size_t>(inner)];
  const bool contiguous = source.strides[static_cast<size_t>(inner)] == 1;
  std::array<int64_t, kMaxRank> index{};
  int64_t rest = begin;
  int64_t offset = 0;
  for (int axis = inner; axis >= 0; --axis) {
    const size_t a = static_cast<size_t>(axis);
    index[a] = rest % source.sizes[a];
    rest /= source.sizes[a];
    offset += index[a] * source.strides[a];
  }
  int64_t column = index[static_cast<size_t>(inner)];
  if (contiguous && count <= row - column) return at(data, offset, source.item_bytes);
  if (contiguous) offset -= column;  // of the row's first element from here on
  char* to = static_cast<char*>(buffer);
  for (int64_t done = 0; done < count;) {
    const int64_t length = std::min(row - column, count - done);
    if (contiguous) {
      std::memcpy(to, at(data, offset + column, source.item_bytes),
                  static_cast<size_t>(length * source.item_bytes));
    } else {
      fill(to, at(data, offset, source.item_bytes), length, source.item_bytes);
    }
    done += length;
    to += length * source.item_bytes;
    column = 0;
    for (int axis = inner - 1; axis >= 0; --axis) {
      const size_t a = static_cast<size_t>(axis);
      offset += source.strides[a];
      if (++index[a] < source.sizes[a]) break;
      offset -= source.strides[a] * source.sizes[a];
      index[a] = 0;
    }
  }
  return buffer;
}

const void* BroadcastPlan::tile(size_t operand, const void* data, int64_t begin, int64_t count,
                                void* buffer) const {
  const Source& source = sources_[operand];
  if (source.mode == Mode::kDirect) return at(data, begin, source.item_bytes);
  if (source.mode == Mode::kPattern) return buffer;
  return gather(source, data, begin, count, buffer);
}

}  // namespace lucid::cpu
