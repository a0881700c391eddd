"""One direction of a recurrent layer over all time steps; the modules of nn are made of these.

T time steps, N sequences, H units. PyTorch has no functions of these names.
"""

from __future__ import annotations

from lucid import _C
from lucid import functions as fn
from lucid._C import Tensor
from lucid.nn.functional.linear import linear


def _joined_bias(bias_ih: Tensor | None, bias_hh: Tensor | None) -> Tensor | None:
    """What is added to a sum that both biases go into."""
    if bias_ih is None or bias_hh is None:
        return bias_hh if bias_ih is None else bias_ih
    return bias_ih + bias_hh


def lstm_layer(
    input: Tensor,
    h0: Tensor,
    c0: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias_ih: Tensor | None = None,
    bias_hh: Tensor | None = None,
    reverse: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """i, f, o = sigmoid(s), g = tanh(s), s = W_ih x + W_hh h + b; c' = f c + i g; h' = o tanh(c').

    Args:
        input: (T, N, input_size). h0, c0: (N, H).
        weight_ih: (4 H, input_size). weight_hh: (4 H, H). Blocks of rows: i, f, g, o.
        bias_ih, bias_hh: (4 H,); both are added.
        reverse: from the last step to the first; the output keeps the input's order.

    Returns: the states (T, N, H) after each step; h and c (N, H) after the last one.
    Raises: ShapeError if the shapes do not fit, DtypeError if the dtypes differ.
    Source: Hochreiter and Schmidhuber 1997; Gers, Schmidhuber and Cummins 2000 (forget gate).
    """
    projected = linear(input, weight_ih, _joined_bias(bias_ih, bias_hh))
    _, output, h, c, _ = _C.emit("lstm_layer", projected, h0, c0, weight_hh, reverse=reverse)
    return output, h, c


def lstm_states(
    input: Tensor,
    h0: Tensor,
    c0: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias_ih: Tensor | None = None,
    bias_hh: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """As :func:`lstm_layer`, forwards: h and c (T, N, H) after each step."""
    projected = linear(input, weight_ih, _joined_bias(bias_ih, bias_hh))
    _, output, _, _, cells = _C.emit("lstm_layer", projected, h0, c0, weight_hh, reverse=False)
    return output, cells


def projected_lstm_states(
    input: Tensor,
    h0: Tensor,
    c0: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    weight_hr: Tensor,
    bias_ih: Tensor | None = None,
    bias_hh: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """An LSTM whose state h' = W_hr (o tanh(c')) has P units; step by step.

    Args:
        h0: (N, P). c0: (N, H). weight_hh: (4 H, P). weight_hr: (P, H). Others as
            :func:`lstm_layer`.

    Returns: h (T, N, P) and c (T, N, H) after each step.
    Source: Sak, Senior and Beaufays 2014, arXiv:1402.1128.
    """
    if input.shape[0] == 0:
        raise _C.ShapeError(
            f"LSTM: there are no time steps: input {tuple(input.shape)}; give at least one"
        )
    projected = linear(input, weight_ih, _joined_bias(bias_ih, bias_hh))
    h, c = h0, c0
    states, cells = [], []
    for t in range(input.shape[0]):
        i, f, g, o = (projected[t] + linear(h, weight_hh)).chunk(4, dim=-1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = linear(o.sigmoid() * c.tanh(), weight_hr)
        states.append(h)
        cells.append(c)
    return fn.stack(states), fn.stack(cells)


def gru_layer(
    input: Tensor,
    h0: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias_ih: Tensor | None = None,
    bias_hh: Tensor | None = None,
    reverse: bool = False,
) -> tuple[Tensor, Tensor]:
    """r, z = sigmoid(s), n = tanh(W_in x + b_in + r (W_hn h + b_hn)); h' = (1 - z) n + z h.

    Args:
        input: (T, N, input_size). h0: (N, H).
        weight_ih: (3 H, input_size). weight_hh: (3 H, H). Blocks of rows: r, z, n.
        bias_ih, bias_hh: (3 H,).
        reverse: from the last step to the first; the output keeps the input's order.

    Returns: the states (T, N, H) after each step; h (N, H) after the last one.
    Raises: ShapeError if the shapes do not fit, DtypeError if the dtypes differ.
    Source: Cho and others 2014, arXiv:1406.1078, with r behind the product as in PyTorch.
    """
    projected = linear(input, weight_ih, bias_ih)
    output, h, _ = _C.emit("gru_layer", projected, h0, weight_hh, bias_hh, reverse=reverse)
    return output, h


def rnn_layer(
    input: Tensor,
    h0: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias_ih: Tensor | None = None,
    bias_hh: Tensor | None = None,
    relu: bool = False,
    reverse: bool = False,
) -> tuple[Tensor, Tensor]:
    """h' = tanh(W_ih x + W_hh h + b), or relu in place of tanh.

    Args:
        input: (T, N, input_size). h0: (N, H).
        weight_ih: (H, input_size). weight_hh: (H, H). bias_ih, bias_hh: (H,); both are added.
        reverse: from the last step to the first; the output keeps the input's order.

    Returns: the states (T, N, H) after each step; h (N, H) after the last one.
    Raises: ShapeError if the shapes do not fit, DtypeError if the dtypes differ.
    Source: Elman 1990, "Finding structure in time".
    """
    projected = linear(input, weight_ih, _joined_bias(bias_ih, bias_hh))
    output, h = _C.emit("rnn_layer", projected, h0, weight_hh, relu=relu, reverse=reverse)
    return output, h
