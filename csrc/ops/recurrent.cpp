// One direction of a recurrent layer over all time steps as one node: LSTM, GRU and the plain RNN,
// and their gradients. The projection of the input is an ordinary product in front.
//
// T steps, N sequences, H units. Rows of w_hh, and columns of x, are blocks of H, one for each
// gate: i f g o for the LSTM, r z n for the GRU. With `reverse` the steps run from the last to the
// first; everything indexed by time stays in the order of the input.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ops/cost.h"
#include "ops/families.h"
#include "ops/infer.h"
#include "ops/infer_window.h"
#include "ops/recurrent_parts.h"
#include "ops/vjp.h"

namespace lucid::ops {
namespace {

using ir::AttrType;
using ir::InferArgs;
using ir::Op;
using ir::ValueTypes;

constexpr InputName kX{0, "x"};
constexpr InputName kH0{1, "h0"};

/// Sizes of a layer, of which `units` is the number of columns of w_hh.
struct Sizes {
  int64_t steps;
  int64_t batch;
  int64_t units;

  Shape sequence(int64_t blocks) const { return Shape{steps, batch, blocks * units}; }
  Shape state() const { return Shape{batch, units}; }
};

int64_t require_weight(const InferArgs& args, InputName weight, int64_t blocks) {
  const Shape& shape = args.shape(weight.index);
  if (shape.rank() != 2 || shape[0] != blocks * shape[1]) {
    args.fail("weight must have " + std::to_string(blocks) + " rows for each column: " +
              described(args, weight) + "; give (" + std::to_string(blocks) + " * hidden, hidden)");
  }
  return shape[1];
}

/// Sizes from `sequence` (T, N, blocks * H) and w_hh, which has `rows` rows for each unit.
Sizes sizes_from(const InferArgs& args, InputName sequence, int64_t blocks, InputName weight,
                 int64_t rows) {
  const int64_t units = require_weight(args, weight, rows);
  const Shape& shape = args.shape(sequence.index);
  if (shape.rank() != 3) {
    args.fail(std::string(sequence.name) + " needs 3 axes: " + described(args, sequence) +
              "; give (time, batch, features)");
  }
  if (shape[0] == 0) {
    args.fail("there are no time steps: " + described(args, sequence) + "; give at least one");
  }
  const Sizes sizes{shape[0], shape[1], units};
  require_shape(args, sequence, sizes.sequence(blocks), weight);
  return sizes;
}

ValueTypes infer_lstm(const InferArgs& args) {
  constexpr InputName kC0{2, "c0"};
  constexpr InputName kWeight{3, "w_hh"};
  require_floating(args, {kX, kH0, kC0, kWeight});
  const Sizes sizes = sizes_from(args, kX, 4, kWeight, 4);
  require_shape(args, kH0, sizes.state(), kX);
  require_shape(args, kC0, sizes.state(), kX);
  const DType dtype = args.dtype(0);
  const ir::ValueType state{dtype, sizes.state()};
  const ir::ValueType states{dtype, sizes.sequence(1)};
  return {args.input(0), states, state, state, states};
}

ValueTypes infer_lstm_grad(const InferArgs& args) {
  constexpr InputName kGates{0, "gates"};
  constexpr InputName kCells{1, "cells"};
  constexpr InputName kC0{2, "c0"};
  constexpr InputName kWeight{3, "w_hh"};
  constexpr InputName kGrad{4, "grad"};
  constexpr InputName kGradH{5, "grad_h"};
  constexpr InputName kGradC{6, "grad_c"};
  constexpr InputName kGradGates{7, "grad_gates"};
  constexpr InputName kGradCells{8, "grad_cells"};
  require_floating(args,
                   {kGates, kCells, kC0, kWeight, kGrad, kGradH, kGradC, kGradGates, kGradCells});
  const Sizes sizes = sizes_from(args, kGates, 4, kWeight, 4);
  for (const InputName input : {kCells, kGrad, kGradCells}) {
    require_shape(args, input, sizes.sequence(1), kGates);
  }
  for (const InputName input : {kC0, kGradH, kGradC}) {
    require_shape(args, input, sizes.state(), kGates);
  }
  require_shape(args, kGradGates, sizes.sequence(4), kGates);
  const ir::ValueType state{args.dtype(0), sizes.state()};
  return {args.input(0), state, state};
}

ValueTypes infer_gru(const InferArgs& args) {
  constexpr InputName kWeight{2, "w_hh"};
  constexpr InputName kBias{3, "b_hh"};
  require_floating(args, {kX, kH0, kWeight, kBias});
  const Sizes sizes = sizes_from(args, kX, 3, kWeight, 3);
  require_shape(args, kH0, sizes.state(), kX);
  require_shape(args, kBias, Shape{3 * sizes.units}, kWeight);
  const DType dtype = args.dtype(0);
  return {{dtype, sizes.sequence(1)}, {dtype, sizes.state()}, {dtype, sizes.sequence(4)}};
}

ValueTypes infer_gru_grad(const InferArgs& args) {
  constexpr InputName kGates{0, "gates"};
  constexpr InputName kOutput{1, "output"};
  constexpr InputName kFirst{2, "h0"};
  constexpr InputName kWeight{3, "w_hh"};
  constexpr InputName kGrad{4, "grad"};
  constexpr InputName kGradH{5, "grad_h"};
  constexpr InputName kGradGates{6, "grad_gates"};
  require_floating(args, {kGates, kOutput, kFirst, kWeight, kGrad, kGradH, kGradGates});
  const Sizes sizes = sizes_from(args, kGates, 4, kWeight, 3);
  require_shape(args, kOutput, sizes.sequence(1), kGates);
  require_shape(args, kGrad, sizes.sequence(1), kGates);
  require_shape(args, kFirst, sizes.state(), kGates);
  require_shape(args, kGradH, sizes.state(), kGates);
  require_shape(args, kGradGates, sizes.sequence(4), kGates);
  const DType dtype = args.dtype(0);
  const ir::ValueType projected{dtype, sizes.sequence(3)};
  return {projected, projected, {dtype, sizes.state()}};
}

ValueTypes infer_rnn(const InferArgs& args) {
  constexpr InputName kWeight{2, "w_hh"};
  require_floating(args, {kX, kH0, kWeight});
  const Sizes sizes = sizes_from(args, kX, 1, kWeight, 1);
  require_shape(args, kH0, sizes.state(), kX);
  return {args.input(0), {args.dtype(0), sizes.state()}};
}

ValueTypes infer_rnn_grad(const InferArgs& args) {
  constexpr InputName kOutput{0, "output"};
  constexpr InputName kWeight{1, "w_hh"};
  constexpr InputName kGrad{2, "grad"};
  constexpr InputName kGradH{3, "grad_h"};
  require_floating(args, {kOutput, kWeight, kGrad, kGradH});
  const Sizes sizes = sizes_from(args, kOutput, 1, kWeight, 1);
  require_shape(args, kGrad, sizes.sequence(1), kOutput);
  require_shape(args, kGradH, sizes.state(), kOutput);
  return {args.input(0), {args.dtype(0), sizes.state()}};
}

/// The state before each step: h0 and all outputs but the last one.
ValueId states_before(Builder& b, ValueId output, ValueId h0, bool reverse) {
  const Shape shape = b.shape(output);
  const ValueId first = b.reshape(h0, Shape{1, shape[1], shape[2]});
  if (shape[0] == 1) return first;
  const int64_t begin = reverse ? 1 : 0;
  const ValueId rest =
      b.op("slice", {output},
           {Ints{begin, 0, 0}, Ints{shape[0] - 1, shape[1], shape[2]}, Ints{1, 1, 1}});
  if (reverse) return b.op("concat", {rest, first}, {int64_t{0}});
  return b.op("concat", {first, rest}, {int64_t{0}});
}

// d w_hh = sum over steps of d_t^T h_(t-1): one product over all steps and sequences.
ValueId weight_grad(Builder& b, const Node& node, ValueId output, ValueId d_projected) {
  const ValueId before = states_before(b, output, node.in(1), node.flag("reverse"));
  const Shape shape = b.shape(d_projected);
  const int64_t rows = shape[0] * shape[1];
  const ValueId d = b.reshape(d_projected, Shape{rows, shape[2]});
  const ValueId states = b.reshape(before, Shape{rows, b.shape(before)[2]});
  return b.op("matmul", {d, states}, {true, false});
}

bool wants_any(const Builder& b, const Node& node, const std::vector<bool>& wanted) {
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (wants(b, node, wanted, i)) return true;
  }
  return false;
}

Grads lstm_vjp(Builder& b, const Node& node, const Grads& grads, const std::vector<bool>& wanted) {
  Grads result = absent(node);
  if (!wants_any(b, node, wanted)) return result;
  const std::vector<ValueId> made = b.ops("lstm_layer_grad",
                                          {node.outputs[0], node.outputs[4], node.in(2), node.in(3),
                                           grads[1], grads[2], grads[3], grads[0], grads[4]},
                                          {node.attr("reverse")});
  for (size_t i = 0; i < made.size(); ++i) {
    if (wants(b, node, wanted, i)) result[i] = made[i];
  }
  if (wants(b, node, wanted, 3)) result[3] = weight_grad(b, node, node.outputs[1], made[0]);
  return result;
}

Grads gru_vjp(Builder& b, const Node& node, const Grads& grads, const std::vector<bool>& wanted) {
  Grads result = absent(node);
  if (!wants_any(b, node, wanted)) return result;
  const std::vector<ValueId> made = b.ops(
      "gru_layer_grad",
      {node.outputs[2], node.outputs[0], node.in(1), node.in(2), grads[0], grads[1], grads[2]},
      {node.attr("reverse")});
  if (wants(b, node, wanted, 0)) result[0] = made[0];
  if (wants(b, node, wanted, 1)) result[1] = made[2];
  if (wants(b, node, wanted, 2)) result[2] = weight_grad(b, node, node.outputs[0], made[1]);
  if (wants(b, node, wanted, 3)) result[3] = b.sum(made[1], {0, 1}, false);
  return result;
}

Grads rnn_vjp(Builder& b, const Node& node, const Grads& grads, const std::vector<bool>& wanted) {
  Grads result = absent(node);
  if (!wants_any(b, node, wanted)) return result;
  const std::vector<ValueId> made =
      b.ops("rnn_layer_grad", {node.outputs[0], node.in(2), grads[0], grads[1]},
            {node.attr("relu"), node.attr("reverse")});
  if (wants(b, node, wanted, 0)) result[0] = made[0];
  if (wants(b, node, wanted, 1)) result[1] = made[1];
  if (wants(b, node, wanted, 2)) result[2] = weight_grad(b, node, node.outputs[0], made[0]);
  return result;
}

constexpr double kGateFlops = 24;  // a function like exp and the arithmetic around it

/// Products with w_hh (input `weight`) and the functions of `gates` blocks, for every step of the
/// sequence that is input 0.
template <size_t weight, int gates>
double layer_flops(const ir::Graph& graph, const Node& node) {
  const Shape& sequence = graph.type(node.in(0)).shape;
  const Shape& w_hh = graph.type(node.in(weight)).shape;
  const auto rows = static_cast<double>(sequence[0] * sequence[1]);
  const double functions = gates * kGateFlops * static_cast<double>(w_hh[1]);
  return rows * (2 * static_cast<double>(w_hh.num_elements()) + functions);
}

std::vector<Op> forward_ops() {
  return {
      {.name = "lstm_layer",
       .doc = "an LSTM over the steps of projected inputs x: gates, output, last h and c, cells",
       .min_inputs = 4,
       .max_inputs = 4,
       .attrs = {{"reverse", AttrType::kBool}},
       .traits = ir::kPure | ir::kInPlace,
       .infer = infer_lstm,
       .vjp = lstm_vjp,
       .decompose = lstm_decompose,
       .flops = layer_flops<3, 5>,
       .vjp_reads_inputs = 0b1110,
       .vjp_reads_outputs = 0b10011,
       .autocast = ir::Autocast::kLow},
      {.name = "gru_layer",
       .doc = "a GRU over the steps of projected inputs x: output, last h, gates and W_hn h + b_hn",
       .min_inputs = 3,
       .max_inputs = 4,
       .attrs = {{"reverse", AttrType::kBool}},
       .traits = ir::kPure,
       .infer = infer_gru,
       .vjp = gru_vjp,
       .decompose = gru_decompose,
       .flops = layer_flops<2, 3>,
       .vjp_reads_inputs = 0b0110,
       .vjp_reads_outputs = 0b101,
       .autocast = ir::Autocast::kLow},
      {.name = "rnn_layer",
       .doc = "h = tanh(x + W_hh h), or relu, over the steps of projected inputs x: output, last h",
       .min_inputs = 3,
       .max_inputs = 3,
       .attrs = {{"relu", AttrType::kBool}, {"reverse", AttrType::kBool}},
       .traits = ir::kPure,
       .infer = infer_rnn,
       .vjp = rnn_vjp,
       .decompose = rnn_decompose,
       .flops = layer_flops<2, 1>,
       .vjp_reads_inputs = 0b110,
       .vjp_reads_outputs = 0b01,
       .autocast = ir::Autocast::kLow},
  };
}

std::vector<Op> gradient_ops() {
  return {
      {.name = "lstm_layer_grad",
       .doc = "gradients of lstm_layer by x, h0 and c0",
       .min_inputs = 4,
       .max_inputs = 9,
       .attrs = {{"reverse", AttrType::kBool}},
       .traits = ir::kPure | ir::kInPlace,
       .infer = infer_lstm_grad,
       .decompose = lstm_grad_decompose,
       .flops = layer_flops<3, 2>},
      {.name = "gru_layer_grad",
       .doc = "gradients of gru_layer by x, by the projected state and by h0",
       .min_inputs = 4,
       .max_inputs = 7,
       .attrs = {{"reverse", AttrType::kBool}},
       .traits = ir::kPure,
       .infer = infer_gru_grad,
       .decompose = gru_grad_decompose,
       .flops = layer_flops<3, 1>},
      {.name = "rnn_layer_grad",
       .doc = "gradients of rnn_layer by x and h0",
       .min_inputs = 2,
       .max_inputs = 4,
       .attrs = {{"relu", AttrType::kBool}, {"reverse", AttrType::kBool}},
       .traits = ir::kPure,
       .infer = infer_rnn_grad,
       .decompose = rnn_grad_decompose,
       .flops = layer_flops<1, 1>},
  };
}

}  // namespace

std::vector<Op> recurrent_ops() {
  std::vector<Op> rows = forward_ops();
  for (Op& op : gradient_ops()) rows.push_back(std::move(op));
  return rows;
}

}  // namespace lucid::ops
