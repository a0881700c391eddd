"""One step of a recurrent layer as a module: RNNCell, LSTMCell, GRUCell."""

from __future__ import annotations

from typing import Any

from lucid import _C
from lucid import functions as fn
from lucid._C import Tensor
from lucid.nn.functional._arguments import require_tensors
from lucid.nn.functional.recurrent import gru_layer, lstm_layer, rnn_layer
from lucid.nn.modules.module import Module
from lucid.nn.modules.recurrent import (
    DeviceLike,
    check_sizes,
    check_state,
    draw_parameters,
    is_relu,
    pair_of_states,
)
from lucid.nn.parameter import Parameter


class RNNCellBase(Module):
    """What the cells share: ``weight_ih`` (gates H, input_size), ``weight_hh`` (gates H, H),
    ``bias_ih`` and ``bias_hh`` (gates H,), all uniform in +-1 / sqrt(H) at the start.
    """

    gates = 1
    weight_ih: Parameter
    weight_hh: Parameter
    bias_ih: Parameter | None
    bias_hh: Parameter | None

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: DeviceLike = None,
        dtype: _C.dtype | None = None,
    ) -> None:
        super().__init__()
        check_sizes(type(self).__name__, input_size=input_size, hidden_size=hidden_size)
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        rows = self.gates * hidden_size
        self.weight_ih = Parameter(fn.empty((rows, input_size), device=device, dtype=dtype))
        self.weight_hh = Parameter(fn.empty((rows, hidden_size), device=device, dtype=dtype))
        for name in ("bias_ih", "bias_hh"):
            empty = Parameter(fn.empty((rows,), device=device, dtype=dtype)) if bias else None
            self.register_parameter(name, empty)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new parameters from the default generator."""
        draw_parameters(self, self.hidden_size)

    def _weights(self) -> tuple[Any, Any, Any, Any]:
        return self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh

    def _as_step(self, input: Tensor) -> tuple[Tensor, bool]:
        """The input as one time step (1, N, input_size), and whether it is a batch."""
        op = type(self).__name__
        require_tensors(op, input=input)
        if input.ndim not in (1, 2):
            raise _C.ShapeError(
                f"{op}: input must have 1 or 2 axes: got shape {tuple(input.shape)}"
            )
        if input.shape[-1] != self.input_size:
            raise _C.ShapeError(
                f"{op}: the last axis of input must have size {self.input_size}: "
                f"got shape {tuple(input.shape)}"
            )
        return input.reshape(1, -1, self.input_size), input.ndim == 2

    def _start_state(self, name: str, state: Any, step: Tensor, is_batched: bool) -> Tensor:
        """A start state (N, H), zeros if none is given."""
        shape = (int(step.shape[1]), self.hidden_size)
        if state is None:
            return fn.zeros(shape, dtype=step.dtype, device=step.device)
        expected = shape if is_batched else shape[1:]
        given = check_state(type(self).__name__, name, state, expected)
        return given if is_batched else given.unsqueeze(0)

    def extra_repr(self) -> str:
        """Shows the sizes, and what is not the default."""
        text = f"{self.input_size}, {self.hidden_size}"
        return text if self.bias else f"{text}, bias={self.bias}"


class RNNCell(RNNCellBase):
    """h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu in place of tanh.

    Input: (N, input_size) and the state (N, H), or both without N; zeros if no state is given.
    Output: the next state.

    Raises: UserError for a size or a nonlinearity, ShapeError if the shapes do not fit.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: DeviceLike = None,
        dtype: _C.dtype | None = None,
    ) -> None:
        is_relu("RNNCell", nonlinearity)
        super().__init__(input_size, hidden_size, bias, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """The next state."""
        step, is_batched = self._as_step(input)
        h = self._start_state("hx", hx, step, is_batched)
        relu = is_relu("RNNCell", self.nonlinearity)
        _, h = rnn_layer(step, h, *self._weights(), relu=relu)
        return h if is_batched else h.squeeze(0)

    def extra_repr(self) -> str:
        """Shows the sizes, and what is not the default."""
        text = super().extra_repr()
        return text if self.nonlinearity == "tanh" else f"{text}, nonlinearity={self.nonlinearity}"


class GRUCell(RNNCellBase):
    """One step of :class:`GRU`. Input, output and errors as in :class:`RNNCell`."""

    gates = 3

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """The next state."""
        step, is_batched = self._as_step(input)
        h = self._start_state("hx", hx, step, is_batched)
        _, h = gru_layer(step, h, *self._weights())
        return h if is_batched else h.squeeze(0)


class LSTMCell(RNNCellBase):
    """One step of :class:`LSTM`. As :class:`RNNCell`, but the state is a pair (h, c)."""

    gates = 4

    def forward(
        self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        """The next pair of states."""
        step, is_batched = self._as_step(input)
        h0, c0 = (None, None) if hx is None else pair_of_states("LSTMCell", hx)
        h, c = (self._start_state(n, s, step, is_batched) for n, s in (("h_0", h0), ("c_0", c0)))
        _, h, c = lstm_layer(step, h, c, *self._weights())
        return (h, c) if is_batched else (h.squeeze(0), c.squeeze(0))
