"""Recurrent layers, one direction over all steps, and their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

from cases.case import Array, OpCase, normal


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def visits(sequence: Array, reverse: bool) -> list[int]:
    """The time steps in the order in which the layer meets them."""
    steps = list(range(len(sequence)))
    return steps[::-1] if reverse else steps


def lstm(x: Array, h: Array, c: Array, w: Array, reverse: bool) -> tuple[Array, ...]:
    output, gates = np.zeros((*x.shape[:2], w.shape[1])), np.zeros_like(x)
    cells = np.zeros_like(output)
    for t in visits(x, reverse):
        i, f, g, o = np.split(x[t] + h @ w.T, 4, axis=1)
        i, f, g, o = sigmoid(i), sigmoid(f), np.tanh(g), sigmoid(o)
        c = f * c + i * g
        h = o * np.tanh(c)
        output[t], cells[t], gates[t] = h, c, np.concatenate([i, f, g, o], axis=1)
    return gates, output, h, c, cells


def gru(
    x: Array, h: Array, w: Array, b: Array | None = None, *, reverse: bool
) -> tuple[Array, ...]:
    output = np.zeros((*x.shape[:2], w.shape[1]))
    gates = np.zeros((*x.shape[:2], 4 * w.shape[1]))
    for t in visits(x, reverse):
        projected = h @ w.T + (0 if b is None else b)
        (x_r, x_z, x_n), (a_r, a_z, a_n) = np.split(x[t], 3, 1), np.split(projected, 3, 1)
        r, z = sigmoid(x_r + a_r), sigmoid(x_z + a_z)
        n = np.tanh(x_n + r * a_n)
        h = (1 - z) * n + z * h
        output[t], gates[t] = h, np.concatenate([r, z, n, a_n], axis=1)
    return output, h, gates


def rnn(x: Array, h: Array, w: Array, relu: bool, reverse: bool) -> tuple[Array, ...]:
    output = np.zeros(x.shape)
    for t in visits(x, reverse):
        total = x[t] + h @ w.T
        h = np.maximum(total, 0) if relu else np.tanh(total)
        output[t] = h
    return output, h


def lstm_grad(
    gates: Array,
    cells: Array,
    c0: Array,
    w: Array,
    grad: Array | None = None,
    grad_h: Array | None = None,
    grad_c: Array | None = None,
    grad_gates: Array | None = None,
    grad_cells: Array | None = None,
    *,
    reverse: bool,
) -> tuple[Array, ...]:
    """Back through the steps of the LSTM with given values of its gates and cells."""
    dx = np.zeros_like(gates)
    dh = np.zeros_like(c0) if grad_h is None else grad_h
    dc = np.zeros_like(c0) if grad_c is None else grad_c
    order = visits(gates, reverse)
    for place in reversed(range(len(order))):
        t = order[place]
        before = c0 if place == 0 else cells[order[place - 1]]
        i, f, g, o = np.split(gates[t], 4, axis=1)
        extra = np.zeros_like(gates[t]) if grad_gates is None else grad_gates[t]
        dh = dh + (0 if grad is None else grad[t])
        squashed = np.tanh(cells[t])
        dc = dc + dh * o * (1 - squashed**2) + (0 if grad_cells is None else grad_cells[t])
        d = np.concatenate([dc * g, dc * before, dc * i, dh * squashed], axis=1) + extra
        slopes = [i * (1 - i), f * (1 - f), 1 - g**2, o * (1 - o)]
        dx[t] = d * np.concatenate(slopes, axis=1)
        dh, dc = dx[t] @ w, dc * f
    return dx, dh, dc


def gru_grad(
    gates: Array,
    output: Array,
    h0: Array,
    w: Array,
    grad: Array | None = None,
    grad_h: Array | None = None,
    grad_gates: Array | None = None,
    *,
    reverse: bool,
) -> tuple[Array, ...]:
    dx = np.zeros((*gates.shape[:2], w.shape[0]))
    projected = np.zeros_like(dx)
    dh = np.zeros_like(h0) if grad_h is None else grad_h
    order = visits(gates, reverse)
    for place in reversed(range(len(order))):
        t = order[place]
        before = h0 if place == 0 else output[order[place - 1]]
        r, z, n, a_n = np.split(gates[t], 4, axis=1)
        extra = np.zeros_like(gates[t]) if grad_gates is None else grad_gates[t]
        e_r, e_z, e_n, e_a = np.split(extra, 4, axis=1)
        dh = dh + (0 if grad is None else grad[t])
        d_n = (dh * (1 - z) + e_n) * (1 - n**2)
        d_z = (dh * (before - n) + e_z) * z * (1 - z)
        d_r = (d_n * a_n + e_r) * r * (1 - r)
        dx[t] = np.concatenate([d_r, d_z, d_n], axis=1)
        projected[t] = np.concatenate([d_r, d_z, d_n * r + e_a], axis=1)
        dh = dh * z + projected[t] @ w
    return dx, projected, dh


def rnn_grad(
    output: Array,
    w: Array,
    grad: Array | None = None,
    grad_h: Array | None = None,
    *,
    relu: bool,
    reverse: bool,
) -> tuple[Array, ...]:
    dx = np.zeros_like(output)
    dh = np.zeros_like(output[0]) if grad_h is None else grad_h
    for t in reversed(visits(output, reverse)):
        dh = dh + (0 if grad is None else grad[t])
        dx[t] = dh * (output[t] > 0 if relu else 1 - output[t] ** 2)
        dh = dx[t] @ w
    return dx, dh


# An element passes through a product and the functions behind it once for each step.
CHAIN = "rounding errors pass through the products of several steps"


def layers(
    sizes: tuple[int, int, int], reverse: bool, dtype: str = "float32", **more: Any
) -> list[OpCase]:
    """The three layers and their gradients for T steps of N sequences and H units."""
    t, n, h = sizes
    grad = more.pop("grad", True)
    label = f"{sizes} {reverse} {dtype}"
    if dtype == "float32":
        more = {"tolerance": 3e-6, "reason": CHAIN, **more}

    def array(*shape: int, scale: float = 1.0) -> Any:
        return normal(*shape, dtype=dtype, scale=scale)

    def row(op: str, inputs: tuple[Any, ...], numpy: Any, outputs: int, **attrs: bool) -> OpCase:
        attrs = {**attrs, "reverse": reverse}
        return OpCase(
            op,
            inputs,
            numpy,
            attrs,
            grad=grad,
            label=f"{label} {attrs}",
            dtype=(dtype,) * outputs,
            **more,
        )

    def weight(blocks: int) -> Any:
        return array(blocks * h, h, scale=0.5)

    def sequence(blocks: int) -> Any:
        return array(t, n, blocks * h)

    state = array(n, h)
    grads = (sequence(1), state, state, sequence(4), sequence(1))
    return [
        row("lstm_layer", (sequence(4), state, state, weight(4)), lstm, 5),
        row("lstm_layer_grad", (sequence(4), sequence(1), state, weight(4), *grads), lstm_grad, 3),
        row("gru_layer", (sequence(3), state, weight(3), array(3 * h)), gru, 3),
        row(
            "gru_layer_grad",
            (sequence(4), sequence(1), state, weight(3), sequence(1), state, sequence(4)),
            gru_grad,
            3,
        ),
        row("rnn_layer", (sequence(1), state, weight(1)), rnn, 2, relu=False),
        row("rnn_layer", (sequence(1), state, weight(1)), rnn, 2, relu=True),
        row(
            "rnn_layer_grad", (sequence(1), weight(1), sequence(1), state), rnn_grad, 2, relu=False
        ),
        row("rnn_layer_grad", (sequence(1), weight(1), sequence(1), state), rnn_grad, 2, relu=True),
    ]


def missing() -> list[OpCase]:
    """Gradients of which only some outputs were differentiated, and a GRU without bias."""
    gates, cells, state = normal(3, 2, 8), normal(3, 2, 2), normal(2, 2)
    narrow, wide = normal(6, 2), normal(8, 2)
    attrs = {"reverse": False}
    plain = {"relu": False, "reverse": False}
    lstm_given = (gates, cells, state, wide)
    gru_given = (gates, cells, state, narrow)

    def row(op: str, inputs: tuple[Any, ...], numpy: Any, count: int, **more: Any) -> OpCase:
        return OpCase(
            op,
            inputs,
            numpy,
            more.pop("attrs", attrs),
            dtype=("float32",) * count,
            tolerance=3e-6,
            reason=CHAIN,
            **more,
        )

    return [
        row("lstm_layer_grad", (*lstm_given, cells), lstm_grad, 3, label="output"),
        row("lstm_layer_grad", (*lstm_given, None, state), lstm_grad, 3, label="h"),
        row("lstm_layer_grad", (*lstm_given, None, None, state), lstm_grad, 3, label="c"),
        row("lstm_layer_grad", lstm_given, lstm_grad, 3, grad=(), label="none"),
        row("gru_layer_grad", (*gru_given, None, state), gru_grad, 3, label="h"),
        row("gru_layer_grad", gru_given, gru_grad, 3, grad=(), label="none"),
        row("gru_layer", (normal(3, 2, 6), state, narrow), gru, 3, label="no bias"),
        row("rnn_layer_grad", (cells, normal(2, 2), cells), rnn_grad, 2, attrs=plain, label="y"),
        row("rnn_layer_grad", (cells, normal(2, 2)), rnn_grad, 2, attrs=plain, grad=(), label="-"),
    ]


CASES = [
    *layers((3, 2, 3), False),
    *layers((3, 2, 3), True),
    *layers((1, 2, 4), False),
    *layers((2, 0, 3), False, grad=()),
    # Several panels of columns with a rest, and tiles of rows with a rest.
    *layers((3, 13, 37), True, grad=(), tolerance=2e-5),
    *layers((2, 50, 70), False, grad=(), tolerance=2e-5),
    *layers((1, 41, 33), False, grad=(), tolerance=2e-5),
    *layers((3, 2, 5), False, "bfloat16", grad=(), tolerance=2e-2, reason="rounded once"),
    *layers((3, 2, 5), True, "float16", grad=(), tolerance=2e-3, reason="rounded once"),
    *missing(),
]
