"""Recurrent layers: RNN, LSTM and GRU over sequences, and their single steps."""

from __future__ import annotations

import math
import warnings
from typing import Any

from lucid import _C
from lucid import functions as fn
from lucid._C import Tensor
from lucid.nn import functional as F
from lucid.nn import init
from lucid.nn.functional._arguments import require_tensors
from lucid.nn.functional.recurrent import (
    gru_layer,
    lstm_layer,
    lstm_states,
    projected_lstm_states,
    rnn_layer,
)
from lucid.nn.modules.module import Module
from lucid.nn.packed import PackedSequence, Ragged
from lucid.nn.parameter import Parameter

DeviceLike = _C.device | str | None


def draw_parameters(module: Module, hidden_size: int) -> None:
    """All parameters uniform in +-1 / sqrt(hidden_size)."""
    bound = 1.0 / math.sqrt(hidden_size) if hidden_size > 0 else 0.0
    for parameter in module.parameters():
        init.uniform_(parameter, -bound, bound)


def check_sizes(op: str, **sizes: int) -> None:
    """Refuse a size that is no positive int."""
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, int):
            raise _C.ArgumentTypeError(f"{op}: {name} must be an int: got {type(size).__name__}")
        if size <= 0:
            raise _C.UserError(f"{op}: {name} must be positive: got {size}")


def is_relu(op: str, nonlinearity: str) -> bool:
    """Whether the nonlinearity is relu; it must be that or tanh."""
    if nonlinearity not in ("tanh", "relu"):
        raise _C.UserError(f"{op}: nonlinearity must be tanh or relu: got {nonlinearity!r}")
    return nonlinearity == "relu"


def check_state(op: str, name: str, state: object, expected: tuple[int, ...]) -> Tensor:
    """Return a start state, refused unless it is a tensor of that shape."""
    require_tensors(op, **{name: state})
    assert isinstance(state, Tensor)
    if tuple(state.shape) != expected:
        raise _C.ShapeError(
            f"{op}: {name} does not fit the input: got shape {tuple(state.shape)}; "
            f"it must be {expected}"
        )
    return state


def pair_of_states(op: str, hx: Any) -> tuple[Tensor, Tensor]:
    """The states of an LSTM: two tensors."""
    if not isinstance(hx, (tuple, list)) or len(hx) != 2:
        found = f"{type(hx).__name__} of {len(hx)}" if hasattr(hx, "__len__") else type(hx).__name__
        raise _C.ArgumentTypeError(f"{op}: hx must be a pair of tensors (h, c): got {found}")
    require_tensors(op, h_0=hx[0], c_0=hx[1])
    return hx[0], hx[1]


class RNNBase(Module):
    """What RNN, LSTM and GRU share: parameters, and the way through layers and directions.

    Parameters of layer k: ``weight_ih_lk`` (gates H, input_size or the width of the layer below),
    ``weight_hh_lk`` (gates H, H), ``bias_ih_lk`` and ``bias_hh_lk`` (gates H,); names of the
    reverse direction end in ``_reverse``. All start uniform in +-1 / sqrt(H).
    """

    gates = 1

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: DeviceLike = None,
        dtype: _C.dtype | None = None,
    ) -> None:
        super().__init__()
        op = type(self).__name__
        check_sizes(op, input_size=input_size, hidden_size=hidden_size, num_layers=num_layers)
        if not 0 <= dropout <= 1:
            raise _C.UserError(f"{op}: dropout must be from 0 to 1: got {dropout}")
        if isinstance(proj_size, bool) or not isinstance(proj_size, int):
            raise _C.ArgumentTypeError(
                f"{op}: proj_size must be an int: got {type(proj_size).__name__}"
            )
        if not 0 <= proj_size < hidden_size:
            raise _C.UserError(
                f"{op}: proj_size must be from 0 to hidden_size - 1 = {hidden_size - 1}: got "
                f"{proj_size}"
            )
        if dropout > 0 and num_layers == 1:
            warnings.warn(
                "dropout option adds dropout after all but last recurrent layer, so non-zero "
                f"dropout expects num_layers greater than 1, but got dropout={dropout} and "
                f"num_layers={num_layers}",
                UserWarning,
                stacklevel=3,
            )
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        self._make_parameters(device, dtype)
        self.reset_parameters()

    def _suffixes(self) -> list[list[str]]:
        """Endings of the parameters' names, by layer and direction."""
        directions = ("", "_reverse") if self.bidirectional else ("",)
        return [[f"l{k}{direction}" for direction in directions] for k in range(self.num_layers)]

    def _make_parameters(self, device: DeviceLike, dtype: _C.dtype | None) -> None:
        rows = self.gates * self.hidden_size
        width = self.input_size
        for layer in self._suffixes():
            for suffix in layer:
                shapes = {"weight_ih": (rows, width), "weight_hh": (rows, self._state_size)}
                biases = {"bias_ih": (rows,), "bias_hh": (rows,)} if self.bias else {}
                last = {"weight_hr": (self.proj_size, self.hidden_size)} if self.proj_size else {}
                for name, shape in {**shapes, **biases, **last}.items():
                    empty = fn.empty(shape, device=device, dtype=dtype)
                    self.register_parameter(f"{name}_{suffix}", Parameter(empty))
            width = self._state_size * len(layer)

    @property
    def _state_size(self) -> int:
        """Units of the state h."""
        return self.proj_size or self.hidden_size

    def reset_parameters(self) -> None:
        """Draw new parameters from the default generator."""
        draw_parameters(self, self.hidden_size)

    def flatten_parameters(self) -> None:
        """Does nothing: the weights need no common memory here."""

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The parameters of each layer and direction."""
        found = []
        for suffix in (suffix for layer in self._suffixes() for suffix in layer):
            weights = [parameter for parameter in self._weights(suffix) if parameter is not None]
            if self.proj_size:
                weights.append(getattr(self, f"weight_hr_{suffix}"))
            found.append(weights)
        return found

    def _weights(self, suffix: str) -> tuple[Any, Any, Any, Any]:
        weights = getattr(self, f"weight_ih_{suffix}"), getattr(self, f"weight_hh_{suffix}")
        if not self.bias:
            return (*weights, None, None)
        return (*weights, getattr(self, f"bias_ih_{suffix}"), getattr(self, f"bias_hh_{suffix}"))

    def _direction(
        self, input: Tensor, states: tuple[Tensor, ...], suffix: str, reverse: bool
    ) -> tuple[Tensor, ...]:
        """Output and last states of one layer in one direction; the states are (N, H)."""
        raise _C.UnsupportedError(
            f"{type(self).__name__}: one direction is not defined; use RNN, LSTM or GRU"
        )

    def _states(self, input: Tensor, states: tuple[Tensor, ...], suffix: str) -> tuple[Tensor, ...]:
        """The states (T, N, H) after each step of one layer, forwards; the first is the output."""
        return self._direction(input, states, suffix, False)[:1]

    def _ragged_direction(
        self, input: Tensor, begin: tuple[Tensor, ...], suffix: str, reverse: bool, ragged: Ragged
    ) -> tuple[Tensor, ...]:
        """As ``_direction`` for sequences that end before the padding does."""
        x = ragged.flipped(input) if reverse else input
        output, *others = self._states(x, begin, suffix)
        lasts = [ragged.last(state) for state in (output, *others)]
        return (ragged.flipped(output) if reverse else output, *lasts)

    def _as_sequence(self, input: Tensor) -> tuple[Tensor, bool]:
        """The input as (T, N, input_size), and whether it is a batch."""
        op = type(self).__name__
        require_tensors(op, input=input)
        if input.ndim not in (2, 3):
            raise _C.ShapeError(
                f"{op}: input must have 2 or 3 axes: got shape {tuple(input.shape)}"
            )
        if input.shape[-1] != self.input_size:
            raise _C.ShapeError(
                f"{op}: the last axis of input must have size {self.input_size}: "
                f"got shape {tuple(input.shape)}"
            )
        if input.ndim == 2:
            return input.unsqueeze(1), False
        return (input.transpose(0, 1) if self.batch_first else input), True

    def _start_state(self, name: str, state: Any, input: Tensor, is_batched: bool) -> Tensor:
        """A start state (layers and directions, N, H), zeros if none is given."""
        count = self.num_layers * (2 if self.bidirectional else 1)
        batch = int(input.shape[1])
        size = self.hidden_size if name == "c_0" else self._state_size
        if state is None:
            shape = (count, batch, size)
            return fn.zeros(shape, dtype=input.dtype, device=input.device)
        middle = (batch,) if is_batched else ()
        expected = (count, *middle, size)
        given = check_state(type(self).__name__, name, state, expected)
        return given if is_batched else given.unsqueeze(1)

    def _run(
        self, input: Tensor, starts: tuple[tuple[str, Any], ...]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """All layers: the output, and the last states stacked over layers and directions.

        starts: name and value of each start state; the value may be None.
        """
        x, is_batched = self._as_sequence(input)
        states = [self._start_state(name, state, x, is_batched) for name, state in starts]
        x, stacked = self._through_layers(x, states, None)
        if not is_batched:
            return x.squeeze(1), tuple(state.squeeze(1) for state in stacked)
        return (x.transpose(0, 1) if self.batch_first else x), stacked

    def _run_packed(
        self, packed: PackedSequence, starts: tuple[tuple[str, Any], ...]
    ) -> tuple[PackedSequence, tuple[Tensor, ...]]:
        """As ``_run``; start and last states are in the order of the sequences before sorting."""
        ragged = Ragged.of(packed)
        if packed.data.ndim != 2 or packed.data.shape[-1] != self.input_size:
            raise _C.ShapeError(
                f"{type(self).__name__}: the data of a PackedSequence must be (elements, "
                f"{self.input_size}): got shape {tuple(packed.data.shape)}"
            )
        x = ragged.pad(packed.data)
        states = [self._start_state(name, state, x, True) for name, state in starts]
        if packed.sorted_indices is not None:
            states = [fn.index_select(state, 1, packed.sorted_indices) for state in states]
        x, stacked = self._through_layers(x, states, ragged)
        if packed.unsorted_indices is not None:
            back = packed.unsorted_indices
            stacked = tuple(fn.index_select(state, 1, back) for state in stacked)
        return packed._replace(data=ragged.pack(x)), stacked

    def _through_layers(
        self, x: Tensor, states: list[Tensor], ragged: Ragged | None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The output (T, N, *), and the last states stacked over layers and directions."""
        lasts: list[list[Tensor]] = [[] for _ in states]
        place = 0
        for k, layer in enumerate(self._suffixes()):
            if k > 0 and self.dropout > 0:
                x = F.dropout(x, self.dropout, self.training)
            outputs = []
            for direction, suffix in enumerate(layer):
                begin = tuple(state[place] for state in states)
                output, *last = (
                    self._direction(x, begin, suffix, direction == 1)
                    if ragged is None
                    else self._ragged_direction(x, begin, suffix, direction == 1, ragged)
                )
                outputs.append(output)
                for kept, state in zip(lasts, last, strict=True):
                    kept.append(state)
                place += 1
            x = outputs[0] if len(outputs) == 1 else fn.cat(outputs, dim=-1)
        return x, tuple(fn.stack(kept) for kept in lasts)

    def extra_repr(self) -> str:
        """Shows the sizes, and what is not the default."""
        text = f"{self.input_size}, {self.hidden_size}"
        defaults = {
            "num_layers": 1,
            "bias": True,
            "batch_first": False,
            "dropout": 0.0,
            "bidirectional": False,
            "proj_size": 0,
        }
        for name, default in defaults.items():
            value = getattr(self, name)
            if value != default:
                text += f", {name}={value}"
        return text


class RNN(RNNBase):
    """h' = tanh(W_ih x + b_ih + W_hh h + b_hh), layer on layer.

    Input: (T, N, input_size), (N, T, input_size) with ``batch_first``, or (T, input_size); and the
    start state (layers * directions, N, H), without N for a single sequence, zeros if not given.
    Output: the last layer's states, both directions side by side, and each layer's last state.

    Args:
        input_size, hidden_size, num_layers: sizes. nonlinearity: "tanh" or "relu".
        bias: False leaves out both biases. dropout: between layers, while training.
        bidirectional: a second direction, from the last step to the first.

    Raises: UserError for a size or a nonlinearity, ShapeError if the shapes do not fit.
    Source: Elman 1990, "Finding structure in time".
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: DeviceLike = None,
        dtype: _C.dtype | None = None,
    ) -> None:
        relu = is_relu("RNN", nonlinearity)
        super().__init__(
            "RNN_RELU" if relu else "RNN_TANH",
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            device=device,
            dtype=dtype,
        )
        self.nonlinearity = nonlinearity

    def _direction(
        self, input: Tensor, states: tuple[Tensor, ...], suffix: str, reverse: bool
    ) -> tuple[Tensor, ...]:
        relu = is_relu("RNN", self.nonlinearity)
        return rnn_layer(input, states[0], *self._weights(suffix), relu=relu, reverse=reverse)

    def forward(self, input: Any, hx: Tensor | None = None) -> tuple[Any, Tensor]:
        """Output and last state; ``hx`` is the start state. A PackedSequence gives one."""
        run: Any = self._run_packed if isinstance(input, PackedSequence) else self._run
        output, (h,) = run(input, (("hx", hx),))
        return output, h


class GRU(RNNBase):
    """A gated recurrent unit, layer on layer: see :func:`gru_layer` for the equations.

    Input, output and arguments as in :class:`RNN`.

    Raises: UserError for a size, ShapeError if the shapes do not fit.
    Source: Cho and others 2014, arXiv:1406.1078.
    """

    gates = 3

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: DeviceLike = None,
        dtype: _C.dtype | None = None,
    ) -> None:
        super().__init__(
            "GRU",
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            device=device,
            dtype=dtype,
        )

    def _direction(
        self, input: Tensor, states: tuple[Tensor, ...], suffix: str, reverse: bool
    ) -> tuple[Tensor, ...]:
        return gru_layer(input, states[0], *self._weights(suffix), reverse=reverse)

    def forward(self, input: Any, hx: Tensor | None = None) -> tuple[Any, Tensor]:
        """Output and last state; ``hx`` is the start state. A PackedSequence gives one."""
        run: Any = self._run_packed if isinstance(input, PackedSequence) else self._run
        output, (h,) = run(input, (("hx", hx),))
        return output, h


class LSTM(RNNBase):
    """A long short-term memory, layer on layer: see :func:`lstm_layer` for the equations.

    Input, output and arguments as in :class:`RNN`, but the state is a pair (h, c).
    With ``proj_size`` P below H the state h is a product of P units with ``weight_hr_lk`` (P, H);
    such a layer runs step by step.

    Raises: UserError for a size, ShapeError if the shapes do not fit.
    Source: Hochreiter and Schmidhuber 1997; Gers, Schmidhuber and Cummins 2000 (forget gate).
    """

    gates = 4

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: DeviceLike = None,
        dtype: _C.dtype | None = None,
    ) -> None:
        super().__init__(
            "LSTM",
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            proj_size,
            device,
            dtype,
        )

    def _direction(
        self, input: Tensor, states: tuple[Tensor, ...], suffix: str, reverse: bool
    ) -> tuple[Tensor, ...]:
        if self.proj_size:
            x = input.flip(0) if reverse else input
            output, cells = self._states(x, states, suffix)
            return (output.flip(0) if reverse else output), output[-1], cells[-1]
        h, c = states
        return lstm_layer(input, h, c, *self._weights(suffix), reverse=reverse)

    def _states(self, input: Tensor, states: tuple[Tensor, ...], suffix: str) -> tuple[Tensor, ...]:
        h, c = states
        w_ih, w_hh, b_ih, b_hh = self._weights(suffix)
        if not self.proj_size:
            return lstm_states(input, h, c, w_ih, w_hh, b_ih, b_hh)
        w_hr = getattr(self, f"weight_hr_{suffix}")
        return projected_lstm_states(input, h, c, w_ih, w_hh, w_hr, b_ih, b_hh)

    def forward(
        self, input: Any, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Any, tuple[Tensor, Tensor]]:
        """Output and the pair of last states; ``hx`` is the pair of start states.

        A PackedSequence gives one.
        """
        h0, c0 = (None, None) if hx is None else pair_of_states("LSTM", hx)
        run: Any = self._run_packed if isinstance(input, PackedSequence) else self._run
        output, (h, c) = run(input, (("h_0", h0), ("c_0", c0)))
        return output, (h, c)
