// Draws. Words come from Philox-4x32-10 in 32-bit integers, bit-equal to the cpu's: word i of a
// node is word i % 4 of block i / 4. Normal numbers and integers of a range are drawn by the host.
#include <cmath>

#include "backends/metal/lower/families.h"

namespace lucid::metal {
namespace {

constexpr int kRounds = 10;
constexpr uint32_t kMultiplier[2] = {0xD2511F53u, 0xCD9E8D57u};

struct Wide {
  Tensor high;
  Tensor low;
};

/// The 64-bit product of 32-bit words and a factor, from products of 16-bit halves: none overflows.
Wide product(const Calc& c, Tensor x, uint32_t factor) {
  const auto number = [&](uint32_t value) { return c.number(value, MPSDataTypeUInt32); };
  Tensor mask = number(0xffffu);
  Tensor factor_low = number(factor & 0xffffu);
  Tensor factor_high = number(factor >> 16);
  Tensor x_low = c.bit_and(x, mask);
  Tensor x_high = c.shift_right(x, 16);
  Tensor low_low = c.mul(x_low, factor_low);
  Tensor high_low = c.mul(x_high, factor_low);
  Tensor low_high = c.mul(x_low, factor_high);
  Tensor middle = c.add(c.shift_right(low_low, 16),
                        c.add(c.bit_and(high_low, mask), c.bit_and(low_high, mask)));
  Tensor carried = c.add(c.shift_right(high_low, 16),
                         c.add(c.shift_right(low_high, 16), c.shift_right(middle, 16)));
  Tensor high = c.add(c.mul(x_high, factor_high), carried);
  Tensor low = c.bit_or(c.shift_left(c.bit_and(middle, mask), 16), c.bit_and(low_low, mask));
  return {high, low};
}

/// Word `place` of the feed, uint32[1].
Tensor word_of(const Calc& c, Tensor feed, int64_t place) {
  return c.slice(feed, Ints{place}, Ints{place + 1}, Ints{1});
}

/// The node's words, one an element: uint32, flat.
Tensor words(Lowering& b, const Node& node, size_t state) {
  const Calc& c = b.calc();
  const int64_t count = b.out_type(node).num_elements();
  const int64_t blocks = (count + 3) / 4;
  Tensor feed = b.host_feed(node, state, HostFeed::Kind::kPhiloxKeys);
  Tensor first = word_of(c, feed, 2 * kRounds);
  Tensor block = c.cast(c.iota(Shape{blocks}, 0), MPSDataTypeUInt32);
  Tensor x0 = c.add(block, first);
  Tensor carry = c.cast(c.cast(c.less(x0, first), MPSDataTypeInt32), MPSDataTypeUInt32);
  Tensor x1 = c.add(carry, word_of(c, feed, 2 * kRounds + 1));
  Tensor x2 = c.filled(0, Shape{blocks}, MPSDataTypeUInt32);
  Tensor x3 = x2;
  for (int round = 0; round < kRounds; ++round) {
    const Wide p0 = product(c, x0, kMultiplier[0]);
    const Wide p1 = product(c, x2, kMultiplier[1]);
    x0 = c.bit_xor(c.bit_xor(p1.high, x1), word_of(c, feed, 2 * round));
    x1 = p1.low;
    x2 = c.bit_xor(c.bit_xor(p0.high, x3), word_of(c, feed, 2 * round + 1));
    x3 = p0.low;
  }
  std::vector<Tensor> columns;
  for (Tensor x : {x0, x1, x2, x3}) columns.push_back(c.reshape(x, Shape{blocks, 1}));
  Tensor flat = c.reshape(c.concat(columns, 1), Shape{4 * blocks});
  return c.slice(flat, Ints{0}, Ints{count}, Ints{1});
}

/// The upper bits of each word as int32, in the node's shape.
Tensor upper_bits(Lowering& b, const Node& node, size_t state, int bits) {
  const Calc& c = b.calc();
  Tensor upper = c.shift_right(words(b, node, state), 32 - bits);
  return c.reshape(c.cast(upper, MPSDataTypeInt32), b.out_type(node).shape);
}

// The upper bits times 2^-bits: as many as the dtype holds without rounding up to 1.
Tensors lower_uniform(Lowering& b, const Node& node) {
  const Calc& c = b.calc();
  const DType dtype = b.out_type(node).dtype;
  const int bits = dtype == DType::kFloat16 ? 11 : dtype == DType::kBFloat16 ? 8 : 24;
  Tensor whole = c.cast(upper_bits(b, node, 0, bits), MPSDataTypeFloat32);
  Tensor scaled = c.mul(whole, c.number_like(std::ldexp(1.0, -bits), whole));
  return {c.cast(scaled, mps_type(dtype))};
}

Tensors lower_host_draw(Lowering& b, const Node& node) {
  return {b.host_feed(node, 0, HostFeed::Kind::kNumbers)};
}

Tensors lower_dropout(Lowering& b, const Node& node) {
  const Calc& c = b.calc();
  const double probability = node.real("p");
  Tensor x = b.in(node, 0);
  Tensor bits = upper_bits(b, node, 1, 24);
  Tensor threshold = c.number_like(std::ceil(probability * 0x1p24), bits);
  Tensor keep = c.less_equal(threshold, bits);
  const double scale = probability < 1.0 ? 1.0 / (1.0 - probability) : 0.0;
  Tensor scaled = c.mul(x, c.number_like(scale, x));
  return {c.select(keep, scaled, c.number_like(0, x)), keep};
}

const LoweringRow kRows[] = {
    {"uniform", lower_uniform},
    {"normal", lower_host_draw},
    {"random_int", lower_host_draw},
    {"dropout", lower_dropout},
};

}  // namespace

std::span<const LoweringRow> random_lowerings() { return kRows; }

}  // namespace lucid::metal
