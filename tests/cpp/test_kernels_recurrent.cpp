// Kernels of the recurrent layers: bits for every number of threads, scratch, and float32 against
// float64. What the values must be, the table of operations in tests/python says.
#include "kernel_testing.h"

namespace lucid::testing {
namespace {

/// Steps, sequences and units: cut by sequences, by units, by neither; with rests of panels and
/// tiles, and a single step, whose weight is not packed.
struct Sizes {
  int64_t steps, batch, units;
};
const Sizes kSizes[] = {{3, 34, 70}, {3, 5, 300}, {2, 3, 5}, {1, 40, 33}, {2, 8, 32}};

struct Call {
  std::string_view name;
  Inputs inputs;
  ir::Attrs attrs;
};

std::vector<Call> calls(const Sizes& sizes, DType dtype, bool reverse) {
  const auto sequence = [&](int64_t blocks) {
    return normal(dtype, {sizes.steps, sizes.batch, blocks * sizes.units});
  };
  const auto weight = [&](int64_t blocks) {
    Value value = normal(dtype, {blocks * sizes.units, sizes.units});
    for (int64_t i = 0; i < value.size(); ++i) value.set(i, 0.1 * value.at(i));
    return value;
  };
  const Value state = normal(dtype, {sizes.batch, sizes.units});
  const Value bias = normal(dtype, {3 * sizes.units});
  return {
      {"lstm_layer", {sequence(4), state, state, weight(4)}, {reverse}},
      {"lstm_layer_grad",
       {sequence(4), sequence(1), state, weight(4), sequence(1), state, state, sequence(4),
        sequence(1)},
       {reverse}},
      {"lstm_layer_grad", {sequence(4), sequence(1), state, weight(4), {}, state}, {reverse}},
      {"gru_layer", {sequence(3), state, weight(3), bias}, {reverse}},
      {"gru_layer", {sequence(3), state, weight(3)}, {reverse}},
      {"gru_layer_grad",
       {sequence(4), sequence(1), state, weight(3), sequence(1), state, sequence(4)},
       {reverse}},
      {"rnn_layer", {sequence(1), state, weight(1)}, {false, reverse}},
      {"rnn_layer", {sequence(1), state, weight(1)}, {true, reverse}},
      {"rnn_layer_grad", {sequence(1), weight(1), sequence(1), state}, {false, reverse}},
      {"rnn_layer_grad", {sequence(1), weight(1), {}, state}, {true, reverse}},
  };
}

/// Largest |a - b| over the largest |b|, which is at least 1.
double difference(const Value& a, const Value& b) {
  double scale = 1;
  double largest = 0;
  for (int64_t i = 0; i < b.size(); ++i) scale = std::max(scale, std::abs(b.at(i)));
  for (int64_t i = 0; i < b.size(); ++i) {
    const double gap = std::abs(a.at(i) - b.at(i));
    largest = std::isnan(gap) ? INFINITY : std::max(largest, gap);
  }
  return largest / scale;
}

void check(const Sizes& sizes, bool reverse) {
  std::vector<Call> narrow = calls(sizes, DType::kFloat32, reverse);
  std::vector<Call> wide = calls(sizes, DType::kFloat64, reverse);
  for (size_t i = 0; i < narrow.size(); ++i) {
    const auto made_for_one = run(narrow[i].name, narrow[i].inputs, narrow[i].attrs, 1);
    const auto made_for_four = run(narrow[i].name, narrow[i].inputs, narrow[i].attrs, 4);
    const auto exact = run(wide[i].name, wide[i].inputs, wide[i].attrs, 4);
    for (size_t k = 0; k < exact.size(); ++k) {
      CHECK(made_for_one[k].same_bits(made_for_four[k]));
      CHECK(difference(made_for_one[k], exact[k]) < 1e-5);
    }
  }
}

}  // namespace

TEST(recurrent_layers_forward_in_time) {
  for (const Sizes& sizes : kSizes) check(sizes, false);
}

TEST(recurrent_layers_backward_in_time) {
  for (const Sizes& sizes : kSizes) check(sizes, true);
}

}  // namespace lucid::testing
