#include "ops/recurrent_parts.h"

#include <optional>
#include <utility>

#include "ops/infer_window.h"

namespace lucid::ops {
namespace {

/// The order in which a layer visits its time steps, and the steps themselves.
class Steps {
 public:
  Steps(Builder& b, ValueId sequence, bool reverse)
      : b_(b), count_(b.shape(sequence)[0]), batch_(b.shape(sequence)[1]), reverse_(reverse) {}

  int64_t count() const { return count_; }
  /// Time of visit `index`.
  int64_t time(int64_t index) const { return reverse_ ? count_ - 1 - index : index; }

  /// (N, F): the slice of `sequence` (T, N, F) at visit `index`, in the dtype of the arithmetic.
  ValueId at(ValueId sequence, int64_t index) const {
    const int64_t features = b_.shape(sequence)[2];
    const ValueId part = b_.op("slice", {sequence},
                               {Ints{time(index), 0, 0}, Ints{1, batch_, features}, Ints{1, 1, 1}});
    const ValueId row = b_.reshape(part, Shape{batch_, features});
    return widened(b_, row);
  }

  /// The same of an input that may be absent.
  std::optional<ValueId> at(const Node& node, size_t input, int64_t index) const {
    if (!node.has(input)) return std::nullopt;
    return at(node.in(input), index);
  }

  /// (T, N, F) of dtype `dtype` from a value (N, F) for each visit.
  ValueId stack(const std::vector<ValueId>& visits, DType dtype) const {
    std::vector<std::optional<ValueId>> by_time(visits.size());
    for (int64_t index = 0; index < count_; ++index) {
      const ValueId value = visits[static_cast<size_t>(index)];
      by_time[static_cast<size_t>(time(index))] =
          b_.reshape(value, Shape{1, batch_, b_.shape(value)[1]});
    }
    const ValueId joined = b_.op("concat", std::move(by_time), {int64_t{0}});
    return b_.cast(joined, dtype);
  }

 private:
  Builder& b_;
  int64_t count_;
  int64_t batch_;
  bool reverse_;
};

/// Block `index` of `units` columns.
ValueId block(Builder& b, ValueId rows, int64_t index, int64_t units) {
  const int64_t batch = b.shape(rows)[0];
  return b.op("slice", {rows}, {Ints{0, index * units}, Ints{batch, units}, Ints{1, 1}});
}

/// Blocks side by side.
ValueId joined(Builder& b, std::vector<std::optional<ValueId>> blocks) {
  return b.op("concat", std::move(blocks), {int64_t{1}});
}

ValueId plus(Builder& b, ValueId sum, std::optional<ValueId> term) {
  return term ? b.add(sum, *term) : sum;
}

/// sum + block `index` of the columns of `term`, if there is a term.
ValueId plus_block(Builder& b, ValueId sum, std::optional<ValueId> term, int64_t index) {
  if (!term) return sum;
  const ValueId part = block(b, *term, index, b.shape(sum)[1]);
  return b.add(sum, part);
}

/// An input that may be absent, or zeros in the type of `like`.
ValueId or_zeros(Builder& b, const Node& node, size_t input, ValueId like) {
  if (!node.has(input)) return b.full_like(0, like);
  return widened(b, node.in(input));
}

/// grad y (1 - y): through a sigmoid with output y.
ValueId through_sigmoid(Builder& b, ValueId grad, ValueId y) {
  const ValueId one = b.number(1, y);
  const ValueId rest = b.sub(one, y);
  const ValueId slope = b.mul(y, rest);
  return b.mul(grad, slope);
}

/// grad (1 - y^2): through a tanh with output y.
ValueId through_tanh(Builder& b, ValueId grad, ValueId y) {
  const ValueId one = b.number(1, y);
  const ValueId square = b.mul(y, y);
  const ValueId slope = b.sub(one, square);
  return b.mul(grad, slope);
}

ValueId times_weight(Builder& b, ValueId rows, ValueId weight) {
  return b.op("matmul", {rows, weight}, {false, false});
}

}  // namespace

// i, f, o = sigmoid(.), g = tanh(.) of x + W_hh h; c' = f c + i g; h' = o tanh(c')
// (Hochreiter and Schmidhuber 1997, with the forget gate of Gers and others 2000).
std::vector<ValueId> lstm_decompose(Builder& b, const Node& node) {
  const Steps steps(b, node.in(0), node.flag("reverse"));
  const DType dtype = b.dtype(node.in(0));
  const ValueId weight = widened(b, node.in(3));
  ValueId h = widened(b, node.in(1));
  ValueId c = widened(b, node.in(2));
  const int64_t units = b.shape(h)[1];
  std::vector<ValueId> outputs;
  std::vector<ValueId> gates;
  std::vector<ValueId> cells;
  for (int64_t index = 0; index < steps.count(); ++index) {
    const ValueId x = steps.at(node.in(0), index);
    const ValueId recurrent = b.op("linear", {h, weight});
    const ValueId sums = b.add(x, recurrent);
    ValueId gate[4];
    for (int k = 0; k < 4; ++k) {
      const ValueId part = block(b, sums, k, units);
      gate[k] = b.op(k == 2 ? "tanh" : "sigmoid", {part});
    }
    const ValueId kept = b.mul(gate[1], c);
    const ValueId added = b.mul(gate[0], gate[2]);
    c = b.add(kept, added);
    const ValueId squashed = b.op("tanh", {c});
    h = b.mul(gate[3], squashed);
    outputs.push_back(h);
    cells.push_back(c);
    gates.push_back(joined(b, {gate[0], gate[1], gate[2], gate[3]}));
  }
  const ValueId output = steps.stack(outputs, dtype);
  const ValueId last_h = b.cast(h, dtype);
  const ValueId last_c = b.cast(c, dtype);
  const ValueId all_gates = steps.stack(gates, dtype);
  const ValueId all_cells = steps.stack(cells, dtype);
  return {all_gates, output, last_h, last_c, all_cells};
}

// Back through the steps, with dh and dc the gradients of the state after a step.
std::vector<ValueId> lstm_grad_decompose(Builder& b, const Node& node) {
  const Steps steps(b, node.in(0), node.flag("reverse"));
  const DType dtype = b.dtype(node.in(0));
  const ValueId weight = widened(b, node.in(3));
  const ValueId c0 = widened(b, node.in(2));
  const int64_t units = b.shape(c0)[1];
  ValueId dh = or_zeros(b, node, 5, c0);
  ValueId dc = or_zeros(b, node, 6, c0);
  std::vector<ValueId> d_x(static_cast<size_t>(steps.count()));
  for (int64_t index = steps.count() - 1; index >= 0; --index) {
    const ValueId gates = steps.at(node.in(0), index);
    const ValueId i = block(b, gates, 0, units);
    const ValueId f = block(b, gates, 1, units);
    const ValueId g = block(b, gates, 2, units);
    const ValueId o = block(b, gates, 3, units);
    const ValueId c = steps.at(node.in(1), index);
    const ValueId c_before = index == 0 ? c0 : steps.at(node.in(1), index - 1);
    const auto d_output = steps.at(node, 4, index);
    dh = plus(b, dh, d_output);
    const ValueId squashed = b.op("tanh", {c});
    const ValueId d_squashed = b.mul(dh, o);
    const ValueId through = through_tanh(b, d_squashed, squashed);
    dc = b.add(dc, through);
    const auto d_cells = steps.at(node, 8, index);
    dc = plus(b, dc, d_cells);
    const auto d_gates = steps.at(node, 7, index);
    const std::pair<ValueId, ValueId> factors[4] = {
        {dc, g}, {dc, c_before}, {dc, i}, {dh, squashed}};
    const ValueId outputs[4] = {i, f, g, o};
    std::vector<std::optional<ValueId>> sums;
    for (int k = 0; k < 4; ++k) {
      const ValueId product = b.mul(factors[k].first, factors[k].second);
      const ValueId d_gate = plus_block(b, product, d_gates, k);
      sums.emplace_back(k == 2 ? through_tanh(b, d_gate, outputs[k])
                               : through_sigmoid(b, d_gate, outputs[k]));
    }
    const ValueId d_sums = joined(b, std::move(sums));
    d_x[static_cast<size_t>(index)] = d_sums;
    dc = b.mul(dc, f);
    dh = times_weight(b, d_sums, weight);
  }
  const ValueId stacked = steps.stack(d_x, dtype);
  const ValueId d_h0 = b.cast(dh, dtype);
  const ValueId d_c0 = b.cast(dc, dtype);
  return {stacked, d_h0, d_c0};
}

// With (a_r, a_z, a_n) = W_hh h + b_hh: r, z = sigmoid(x + a), n = tanh(x_n + r a_n),
// h' = n + z (h - n) (Cho and others 2014, arXiv:1406.1078, with r after the product as in cuDNN).
std::vector<ValueId> gru_decompose(Builder& b, const Node& node) {
  const Steps steps(b, node.in(0), node.flag("reverse"));
  const DType dtype = b.dtype(node.in(0));
  const ValueId weight = widened(b, node.in(2));
  std::optional<ValueId> bias;
  if (node.has(3)) bias = widened(b, node.in(3));
  ValueId h = widened(b, node.in(1));
  const int64_t units = b.shape(h)[1];
  std::vector<ValueId> outputs;
  std::vector<ValueId> gates;
  for (int64_t index = 0; index < steps.count(); ++index) {
    const ValueId x = steps.at(node.in(0), index);
    const ValueId recurrent = b.op("linear", {h, weight, bias});
    const ValueId sums = b.add(x, recurrent);
    const ValueId sum_r = block(b, sums, 0, units);
    const ValueId sum_z = block(b, sums, 1, units);
    const ValueId r = b.op("sigmoid", {sum_r});
    const ValueId z = b.op("sigmoid", {sum_z});
    const ValueId a_n = block(b, recurrent, 2, units);
    const ValueId x_n = block(b, x, 2, units);
    const ValueId reset = b.mul(r, a_n);
    const ValueId sum_n = b.add(x_n, reset);
    const ValueId n = b.op("tanh", {sum_n});
    const ValueId difference = b.sub(h, n);
    const ValueId kept = b.mul(z, difference);
    h = b.add(n, kept);
    outputs.push_back(h);
    gates.push_back(joined(b, {r, z, n, a_n}));
  }
  const ValueId output = steps.stack(outputs, dtype);
  const ValueId last = b.cast(h, dtype);
  const ValueId all_gates = steps.stack(gates, dtype);
  return {output, last, all_gates};
}

std::vector<ValueId> gru_grad_decompose(Builder& b, const Node& node) {
  const Steps steps(b, node.in(0), node.flag("reverse"));
  const DType dtype = b.dtype(node.in(0));
  const ValueId weight = widened(b, node.in(3));
  const ValueId h0 = widened(b, node.in(2));
  const int64_t units = b.shape(h0)[1];
  ValueId dh = or_zeros(b, node, 5, h0);
  std::vector<ValueId> d_x(static_cast<size_t>(steps.count()));
  std::vector<ValueId> d_projected(static_cast<size_t>(steps.count()));
  for (int64_t index = steps.count() - 1; index >= 0; --index) {
    const ValueId gates = steps.at(node.in(0), index);
    const ValueId r = block(b, gates, 0, units);
    const ValueId z = block(b, gates, 1, units);
    const ValueId n = block(b, gates, 2, units);
    const ValueId a_n = block(b, gates, 3, units);
    const ValueId h_before = index == 0 ? h0 : steps.at(node.in(1), index - 1);
    const auto d_output = steps.at(node, 4, index);
    const auto d_gates = steps.at(node, 6, index);
    dh = plus(b, dh, d_output);
    const ValueId kept = b.mul(dh, z);
    const ValueId new_share = b.sub(dh, kept);
    const ValueId d_n = plus_block(b, new_share, d_gates, 2);
    const ValueId sum_n = through_tanh(b, d_n, n);
    const ValueId difference = b.sub(h_before, n);
    const ValueId z_share = b.mul(dh, difference);
    const ValueId d_z = plus_block(b, z_share, d_gates, 1);
    const ValueId sum_z = through_sigmoid(b, d_z, z);
    const ValueId r_share = b.mul(sum_n, a_n);
    const ValueId d_r = plus_block(b, r_share, d_gates, 0);
    const ValueId sum_r = through_sigmoid(b, d_r, r);
    const ValueId a_share = b.mul(sum_n, r);
    const ValueId d_a_n = plus_block(b, a_share, d_gates, 3);
    const ValueId d_state = joined(b, {sum_r, sum_z, d_a_n});
    d_x[static_cast<size_t>(index)] = joined(b, {sum_r, sum_z, sum_n});
    d_projected[static_cast<size_t>(index)] = d_state;
    const ValueId through = times_weight(b, d_state, weight);
    dh = b.add(through, kept);
  }
  const ValueId stacked = steps.stack(d_x, dtype);
  const ValueId projected = steps.stack(d_projected, dtype);
  const ValueId d_h0 = b.cast(dh, dtype);
  return {stacked, projected, d_h0};
}

std::vector<ValueId> rnn_decompose(Builder& b, const Node& node) {
  const Steps steps(b, node.in(0), node.flag("reverse"));
  const DType dtype = b.dtype(node.in(0));
  const ValueId weight = widened(b, node.in(2));
  ValueId h = widened(b, node.in(1));
  std::vector<ValueId> outputs;
  for (int64_t index = 0; index < steps.count(); ++index) {
    const ValueId x = steps.at(node.in(0), index);
    const ValueId recurrent = b.op("linear", {h, weight});
    const ValueId sum = b.add(x, recurrent);
    h = b.op(node.flag("relu") ? "relu" : "tanh", {sum});
    outputs.push_back(h);
  }
  const ValueId output = steps.stack(outputs, dtype);
  const ValueId last = b.cast(h, dtype);
  return {output, last};
}

std::vector<ValueId> rnn_grad_decompose(Builder& b, const Node& node) {
  const Steps steps(b, node.in(0), node.flag("reverse"));
  const DType dtype = b.dtype(node.in(0));
  const ValueId weight = widened(b, node.in(1));
  const ValueId last = steps.at(node.in(0), steps.count() - 1);
  ValueId dh = or_zeros(b, node, 3, last);
  std::vector<ValueId> d_x(static_cast<size_t>(steps.count()));
  for (int64_t index = steps.count() - 1; index >= 0; --index) {
    const ValueId y = steps.at(node.in(0), index);
    const auto d_output = steps.at(node, 2, index);
    dh = plus(b, dh, d_output);
    ValueId d_sum;
    if (node.flag("relu")) {
      const ValueId zero = b.number(0, y);
      const ValueId passes = b.op("gt", {y, zero});
      d_sum = b.where(passes, dh, zero);
    } else {
      d_sum = through_tanh(b, dh, y);
    }
    d_x[static_cast<size_t>(index)] = d_sum;
    dh = times_weight(b, d_sum, weight);
  }
  const ValueId stacked = steps.stack(d_x, dtype);
  const ValueId d_h0 = b.cast(dh, dtype);
  return {stacked, d_h0};
}

}  // namespace lucid::ops
