"""What recurrent layers refuse: the operations, the modules and the cells."""

from __future__ import annotations

from typing import Any

import lucid
from lucid import nn
from lucid.nn.utils import rnn

from errors.case import ErrorCase, emit, f32, f64, i64


def lstm(x: Any, h: Any, c: Any, w: Any) -> Any:
    return emit("lstm_layer", x, h, c, w, reverse=False)


PACKED = rnn.pack_padded_sequence(f32(4, 2, 3), [4, 2])


@lucid.compile(fallback="error")
def read_in_a_trace(data: lucid.Tensor, batch_sizes: lucid.Tensor) -> Any:
    return rnn.pad_packed_sequence(rnn.PackedSequence(data, batch_sizes))[0]


CASES = [
    ErrorCase(
        "lstm_layer: weight",
        lambda: lstm(f32(2, 3, 8), f32(3, 2), f32(3, 2), f32(6, 2)),
        lucid.ShapeError,
        "lstm_layer: weight must have 4 rows for each column: w_hh (6, 2); give (4 * hidden, "
        "hidden)",
    ),
    ErrorCase(
        "rnn_layer: weight's axes",
        lambda: emit("rnn_layer", f32(2, 3, 2), f32(3, 2), f32(2), relu=False, reverse=False),
        lucid.ShapeError,
        "rnn_layer: weight must have 1 rows for each column: w_hh (2,); give (1 * hidden, hidden)",
    ),
    ErrorCase(
        "lstm_layer: axes",
        lambda: lstm(f32(3, 8), f32(3, 2), f32(3, 2), f32(8, 2)),
        lucid.ShapeError,
        "lstm_layer: x needs 3 axes: x (3, 8); give (time, batch, features)",
    ),
    ErrorCase(
        "lstm_layer: no steps",
        lambda: lstm(f32(0, 3, 8), f32(3, 2), f32(3, 2), f32(8, 2)),
        lucid.ShapeError,
        "lstm_layer: there are no time steps: x (0, 3, 8); give at least one",
    ),
    ErrorCase(
        "lstm_layer: features",
        lambda: lstm(f32(2, 3, 6), f32(3, 2), f32(3, 2), f32(8, 2)),
        lucid.ShapeError,
        "lstm_layer: x does not fit w_hh: x (2, 3, 6), w_hh (8, 2); give x the shape (2, 3, 8)",
    ),
    ErrorCase(
        "lstm_layer: state",
        lambda: lstm(f32(2, 3, 8), f32(3, 2), f32(2, 2), f32(8, 2)),
        lucid.ShapeError,
        "lstm_layer: c0 does not fit x: c0 (2, 2), x (2, 3, 8); give c0 the shape (3, 2)",
    ),
    ErrorCase(
        "gru_layer: dtypes",
        lambda: emit("gru_layer", f32(2, 3, 6), f32(3, 2), f64(6, 2), reverse=False),
        lucid.DtypeError,
        "gru_layer: dtypes differ: x float32, w_hh float64; cast one of them",
    ),
    ErrorCase(
        "gru_layer: bias",
        lambda: emit("gru_layer", f32(2, 3, 6), f32(3, 2), f32(6, 2), f32(2), reverse=False),
        lucid.ShapeError,
        "gru_layer: b_hh does not fit w_hh: b_hh (2,), w_hh (6, 2); give b_hh the shape (6,)",
    ),
    ErrorCase(
        "rnn_layer: integers",
        lambda: emit("rnn_layer", i64(2, 3, 2), f32(3, 2), f32(2, 2), relu=False, reverse=False),
        lucid.DtypeError,
        "rnn_layer: x must be floating point: got int64; cast it to float32 first",
    ),
    ErrorCase(
        "LSTM: size",
        lambda: nn.LSTM(3, 0),
        lucid.UserError,
        "LSTM: hidden_size must be positive: got 0",
    ),
    ErrorCase(
        "GRU: size's type",
        lambda: nn.GRU(3, 2.5),
        lucid.ArgumentTypeError,
        "GRU: hidden_size must be an int: got float",
    ),
    ErrorCase(
        "LSTMCell: size",
        lambda: nn.LSTMCell(-1, 2),
        lucid.UserError,
        "LSTMCell: input_size must be positive: got -1",
    ),
    ErrorCase(
        "LSTM: dropout",
        lambda: nn.LSTM(3, 2, 2, dropout=1.5),
        lucid.UserError,
        "LSTM: dropout must be from 0 to 1: got 1.5",
    ),
    ErrorCase(
        "LSTM: proj_size",
        lambda: nn.LSTM(3, 2, proj_size=2),
        lucid.UserError,
        "LSTM: proj_size must be from 0 to hidden_size - 1 = 1: got 2",
    ),
    ErrorCase(
        "RNN: nonlinearity",
        lambda: nn.RNN(3, 2, nonlinearity="gelu"),
        lucid.UserError,
        "RNN: nonlinearity must be tanh or relu: got 'gelu'",
    ),
    ErrorCase(
        "RNNBase: direction",
        lambda: nn.RNNBase("RNN_TANH", 3, 2)._run(f32(4, 3), (("hx", None),)),
        lucid.UnsupportedError,
        "RNNBase: one direction is not defined; use RNN, LSTM or GRU",
    ),
    ErrorCase(
        "LSTM: list",
        lambda: nn.LSTM(3, 2)([f32(4, 3)]),
        lucid.ArgumentTypeError,
        "LSTM: input must be a Tensor: got list; make one with lucid.tensor",
    ),
    ErrorCase(
        "LSTM: axes",
        lambda: nn.LSTM(3, 2)(f32(3)),
        lucid.ShapeError,
        "LSTM: input must have 2 or 3 axes: got shape (3,)",
    ),
    ErrorCase(
        "LSTM: features",
        lambda: nn.LSTM(3, 2)(f32(4, 1, 2)),
        lucid.ShapeError,
        "LSTM: the last axis of input must have size 3: got shape (4, 1, 2)",
    ),
    ErrorCase(
        "GRU: state",
        lambda: nn.GRU(3, 2, 2)(f32(4, 5, 3), f32(1, 5, 2)),
        lucid.ShapeError,
        "GRU: hx does not fit the input: got shape (1, 5, 2); it must be (2, 5, 2)",
    ),
    ErrorCase(
        "LSTM: pair",
        lambda: nn.LSTM(3, 2)(f32(4, 5, 3), f32(1, 5, 2)),
        lucid.ArgumentTypeError,
        "LSTM: hx must be a pair of tensors (h, c): got Tensor of 1",
    ),
    ErrorCase(
        "LSTM: one state",
        lambda: nn.LSTM(3, 2)(f32(4, 5, 3), (f32(1, 5, 2), None)),
        lucid.ArgumentTypeError,
        "LSTM: c_0 must be a Tensor: got NoneType; make one with lucid.tensor",
    ),
    ErrorCase(
        "GRUCell: axes",
        lambda: nn.GRUCell(3, 2)(f32(4, 5, 3)),
        lucid.ShapeError,
        "GRUCell: input must have 1 or 2 axes: got shape (4, 5, 3)",
    ),
    ErrorCase(
        "RNNCell: features",
        lambda: nn.RNNCell(3, 2)(f32(4, 2)),
        lucid.ShapeError,
        "RNNCell: the last axis of input must have size 3: got shape (4, 2)",
    ),
    ErrorCase(
        "LSTMCell: state",
        lambda: nn.LSTMCell(3, 2)(f32(4, 3), (f32(4, 2), f32(3, 2))),
        lucid.ShapeError,
        "LSTMCell: c_0 does not fit the input: got shape (3, 2); it must be (4, 2)",
    ),
    ErrorCase(
        "pack_padded_sequence: axes",
        lambda: rnn.pack_padded_sequence(f32(4), [4]),
        lucid.ShapeError,
        "pack_padded_sequence: input must be (T, N, *): got shape (4,)",
    ),
    ErrorCase(
        "pack_padded_sequence: rising lengths",
        lambda: rnn.pack_padded_sequence(f32(4, 2, 3), [2, 4]),
        lucid.UserError,
        "pack_padded_sequence: lengths rise: got [2, 4]; pass enforce_sorted=False",
    ),
    ErrorCase(
        "pack_padded_sequence: lengths",
        lambda: rnn.pack_padded_sequence(f32(4, 2, 3), [5, 0]),
        lucid.UserError,
        "pack_padded_sequence: lengths must be 2 numbers from 1 to 4: got [5, 0]",
    ),
    ErrorCase(
        "pack_padded_sequence: kind of lengths",
        lambda: rnn.pack_padded_sequence(f32(4, 2, 3), [4, 2.5]),
        lucid.ArgumentTypeError,
        "pack_padded_sequence: lengths must be ints, or a tensor (N,) of them: got [4, 2.5]",
    ),
    ErrorCase(
        "pack_padded_sequence: no sequence",
        lambda: rnn.pack_padded_sequence(f32(4, 0, 3), []),
        lucid.ShapeError,
        "pack_padded_sequence: expected at least one sequence: got none",
    ),
    ErrorCase(
        "PackedSequence: data",
        lambda: rnn.pad_packed_sequence(PACKED._replace(data=f32(7, 3))),
        lucid.ShapeError,
        "PackedSequence: data must have 6 elements, the sum of batch_sizes: got shape (7, 3)",
    ),
    ErrorCase(
        "LSTM: kind of proj_size",
        lambda: nn.LSTM(3, 4, proj_size=1.5),
        lucid.ArgumentTypeError,
        "LSTM: proj_size must be an int: got float",
    ),
    ErrorCase(
        "LSTM: no steps to project",
        lambda: nn.LSTM(3, 4, proj_size=2)(f32(0, 2, 3)),
        lucid.ShapeError,
        "LSTM: there are no time steps: input (0, 2, 3); give at least one",
    ),
    ErrorCase(
        "pad_packed_sequence: length",
        lambda: rnn.pad_packed_sequence(PACKED, total_length=3),
        lucid.UserError,
        "pad_packed_sequence: total_length is below the longest sequence: got 3 for 4",
    ),
    ErrorCase(
        "pad_sequence: no axes",
        lambda: rnn.pad_sequence([f32(2), f32()]),
        lucid.ShapeError,
        "pad_sequence: sequence 1 must have at least one axis: got shape (); use .reshape(1)",
    ),
    ErrorCase(
        "pad_sequence: type",
        lambda: rnn.pad_sequence([f32(2), [1.0]]),  # type: ignore[list-item]
        lucid.ArgumentTypeError,
        "pad_sequence: sequence 1 must be a Tensor: got list; make one with lucid.tensor",
    ),
    ErrorCase(
        "pack_sequence: no axes",
        lambda: rnn.pack_sequence([f32()]),
        lucid.ShapeError,
        "pack_sequence: sequence 0 must have at least one axis: got shape (); use .reshape(1)",
    ),
    ErrorCase(
        "pack_sequence: type",
        lambda: rnn.pack_sequence([3.0]),  # type: ignore[list-item]
        lucid.ArgumentTypeError,
        "pack_sequence: sequence 0 must be a Tensor: got float; make one with lucid.tensor",
    ),
    ErrorCase(
        "pad_packed_sequence: type",
        lambda: rnn.pad_packed_sequence(f32(4, 2, 3)),
        lucid.ArgumentTypeError,
        "pad_packed_sequence: expected a PackedSequence: got Tensor; make one with "
        "pack_padded_sequence",
    ),
    ErrorCase(
        "PackedSequence: sizes in a trace",
        lambda: read_in_a_trace(PACKED.data, PACKED.batch_sizes),
        lucid.TraceError,
        "PackedSequence: a compiled step cannot read batch_sizes from a tensor; pass the packed "
        "sequence as an argument of the step, or make it inside from lengths that are a list",
    ),
    ErrorCase(
        "PackedSequence: sizes",
        lambda: rnn.pad_packed_sequence(rnn.PackedSequence(f32(4, 3), lucid.tensor([1, 3]))),
        lucid.UserError,
        "PackedSequence: batch_sizes must be positive and never rise: got [1, 3]",
    ),
    ErrorCase(
        "PackedSequence: dtype of sizes",
        lambda: rnn.pad_packed_sequence(rnn.PackedSequence(f32(3, 3), lucid.tensor([2.5, 1.0]))),
        lucid.DtypeError,
        "PackedSequence: batch_sizes must be integers: got float32; convert them with "
        ".to(lucid.int64)",
    ),
    ErrorCase(
        "PackedSequence: sizes are no tensor",
        lambda: nn.GRU(3, 2)(rnn.PackedSequence(f32(3, 3), [2, 1])),  # type: ignore[arg-type]
        lucid.ArgumentTypeError,
        "PackedSequence: batch_sizes must be a Tensor: got list; make one with lucid.tensor",
    ),
    ErrorCase(
        "LSTM: data of a packed sequence",
        lambda: nn.LSTM(2, 2)(PACKED),
        lucid.ShapeError,
        "LSTM: the data of a PackedSequence must be (elements, 2): got shape (6, 3)",
    ),
]
