"""Recurrent modules: names, start values, shapes, dropout, steps, threads, second derivatives."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Iterator
from typing import Any

import lucid
import lucid.nn as nn
import numpy as np
import pytest
from lucid import Tensor, autograd
from lucid.compile import clear_cache, counters, make_step
from zoo import floats, labels

KINDS = ("RNN", "GRU", "LSTM")
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
EVERY_KIND = pytest.mark.parametrize("kind", KINDS)


def states_of(kind: str, last: Any) -> tuple[Tensor, ...]:
    return last if kind == "LSTM" else (last,)


def start(kind: str, *states: Tensor) -> Any:
    return tuple(states) if kind == "LSTM" else states[0]


def bits(tensor: Tensor | None) -> bytes | None:
    return None if tensor is None else tensor.detach().numpy().tobytes()


@EVERY_KIND
def test_names_and_shapes_of_the_parameters(kind: str) -> None:
    layer = getattr(nn, kind)(5, 3, num_layers=2, bidirectional=True)
    rows = 3 * GATES[kind]
    expected = {}
    for k, width in ((0, 5), (1, 6)):
        for end in ("", "_reverse"):
            expected[f"weight_ih_l{k}{end}"] = (rows, width)
            expected[f"weight_hh_l{k}{end}"] = (rows, 3)
            expected[f"bias_ih_l{k}{end}"] = (rows,)
            expected[f"bias_hh_l{k}{end}"] = (rows,)
    found = {name: tuple(value.shape) for name, value in layer.state_dict().items()}
    assert list(found.items()) == list(expected.items())
    plain = getattr(nn, kind)(5, 3, bias=False)
    assert list(plain.state_dict()) == ["weight_ih_l0", "weight_hh_l0"]
    assert [len(weights) for weights in layer.all_weights] == [4, 4, 4, 4]
    cell = getattr(nn, f"{kind}Cell")(5, 3)
    assert list(cell.state_dict()) == ["weight_ih", "weight_hh", "bias_ih", "bias_hh"]
    assert list(getattr(nn, f"{kind}Cell")(5, 3, bias=False).state_dict()) == [
        "weight_ih",
        "weight_hh",
    ]


@EVERY_KIND
def test_start_values_are_uniform(kind: str) -> None:
    lucid.manual_seed(0)
    for module in (getattr(nn, kind)(20, 64), getattr(nn, f"{kind}Cell")(20, 64)):
        for parameter in module.parameters():
            values = parameter.detach().numpy()
            assert np.abs(values).max() <= 1 / 8
            assert np.abs(values).max() > 0.9 / 8
            assert abs(values.mean()) < 4 / 8 / np.sqrt(3 * values.size)


def test_text() -> None:
    lstm = nn.LSTM(5, 3, 2, bias=False, batch_first=True, dropout=0.5, bidirectional=True)
    assert repr(lstm) == (
        "LSTM(5, 3, num_layers=2, bias=False, batch_first=True, dropout=0.5, bidirectional=True)"
    )
    assert repr(nn.GRU(5, 3)) == "GRU(5, 3)"
    assert repr(nn.RNNCell(5, 3, nonlinearity="relu")) == "RNNCell(5, 3, nonlinearity=relu)"
    assert repr(nn.LSTMCell(5, 3, bias=False)) == "LSTMCell(5, 3, bias=False)"
    assert [nn.LSTM(1, 1).mode, nn.GRU(1, 1).mode] == ["LSTM", "GRU"]
    assert [nn.RNN(1, 1).mode, nn.RNN(1, 1, 1, "relu").mode] == ["RNN_TANH", "RNN_RELU"]


@EVERY_KIND
def test_copies_are_equal(kind: str) -> None:
    layer = getattr(nn, kind)(5, 3, 2)
    layer.flatten_parameters()
    x = floats(0, 4, 2, 5)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert bits(other(x)[0]) == bits(layer(x)[0])


@EVERY_KIND
def test_layouts_agree(kind: str) -> None:
    lucid.manual_seed(1)
    layer = getattr(nn, kind)(5, 3, 2, bidirectional=True)
    first = getattr(nn, kind)(5, 3, 2, bidirectional=True, batch_first=True)
    first.load_state_dict(layer.state_dict())
    x = floats(0, 4, 2, 5)
    zeros = lucid.zeros(4, 2, 3)
    output, last = layer(x)
    assert output.shape == (4, 2, 6)
    assert bits(output) == bits(layer(x, start(kind, zeros, zeros))[0])
    turned, turned_last = first(x.transpose(0, 1))
    assert bits(turned.transpose(0, 1).contiguous()) == bits(output)
    for a, b in zip(states_of(kind, last), states_of(kind, turned_last), strict=True):
        assert a.shape == (4, 2, 3)
        assert bits(a) == bits(b)
    single, single_last = layer(x[:, 1])
    assert bits(single) == bits(output[:, 1].contiguous())
    for a, b in zip(states_of(kind, last), states_of(kind, single_last), strict=True):
        assert bits(b) == bits(a[:, 1].contiguous())


@EVERY_KIND
def test_last_states_are_those_of_the_output(kind: str) -> None:
    output, last = getattr(nn, kind)(5, 3, bidirectional=True)(floats(0, 4, 2, 5))
    h = states_of(kind, last)[0]
    assert bits(h[0]) == bits(output[-1, :, :3].contiguous())
    assert bits(h[1]) == bits(output[0, :, 3:].contiguous())


@EVERY_KIND
def test_cells_equal_layers(kind: str) -> None:
    layer, cell = getattr(nn, kind)(5, 3), getattr(nn, f"{kind}Cell")(5, 3)
    cell.load_state_dict({n.removesuffix("_l0"): t for n, t in layer.state_dict().items()})
    x = floats(0, 4, 2, 5)
    output, last = layer(x)
    state = None
    for t in range(4):
        state = cell(x[t], state)
        h = state[0] if kind == "LSTM" else state
        np.testing.assert_allclose(h.detach().numpy(), output[t].detach().numpy(), atol=1e-6)
    single = cell(x[0, 0])
    assert (single[0] if kind == "LSTM" else single).shape == (3,)
    assert states_of(kind, last)[-1].shape == (1, 2, 3)


def test_dropout_is_between_layers() -> None:
    with pytest.warns(UserWarning, match="num_layers greater than 1"):
        nn.GRU(5, 3, dropout=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer = nn.GRU(5, 8, 2, dropout=0.5)
    x = floats(0, 4, 2, 5)
    layer.eval()
    still = layer(x)[0]
    assert bits(layer(x)[0]) == bits(still)
    layer.train()
    lucid.manual_seed(3)
    shaken = layer(x)[0]
    assert bits(shaken) != bits(still)
    lucid.manual_seed(3)
    assert bits(layer(x)[0]) == bits(shaken)
    layer.dropout = 1.0  # the second layer sees zeros only, the last output is not dropped
    expected = nn.GRU(8, 8)
    own = layer.state_dict()
    expected.load_state_dict({n[:-1] + "0": own[n] for n in own if n.endswith("l1")})
    assert bits(layer(x)[0]) == bits(expected(lucid.zeros(4, 2, 8))[0])


@EVERY_KIND
def test_a_sequence_in_two_parts_is_the_whole(kind: str) -> None:
    layer = getattr(nn, kind)(5, 3, 2)
    x = floats(0, 6, 2, 5)
    whole, whole_last = layer(x)
    first, middle = layer(x[:4])
    second, last = layer(x[4:], middle)
    assert bits(lucid.cat([first, second])) == bits(whole)
    for a, b in zip(states_of(kind, last), states_of(kind, whole_last), strict=True):
        assert bits(a) == bits(b)


@EVERY_KIND
def test_padded_sequences(kind: str) -> None:
    """What is refused as packed: the last state of each sequence, and no gradient from padding."""
    layer = getattr(nn, kind)(5, 3)
    x = floats(0, 6, 3, 5).requires_grad_()
    lengths = [6, 2, 4]
    places = lucid.tensor(lengths) - 1
    last = layer(x)[0][places, lucid.arange(3)]
    for n, length in enumerate(lengths):
        assert bits(last[n]) == bits(layer(x[:length, n])[0][-1])
    last.square().sum().backward()
    assert x.grad is not None
    for n, length in enumerate(lengths):
        assert np.all(x.grad.numpy()[length:, n] == 0)
        assert np.all(x.grad.numpy()[:length, n] != 0)


class LastState(nn.Module):
    """The last state of a recurrent layer through a linear one."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.layer = getattr(nn, kind)(5, 6)
        self.head = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(x)[0][-1])


@EVERY_KIND
def test_a_step_is_one_run(kind: str) -> None:
    lucid.manual_seed(2)
    model = LastState(kind)
    twin = copy.deepcopy(model)
    step = make_step(model, nn.functional.cross_entropy, fallback="error")
    x, t = floats(0, 7, 3, 5), labels(0, 4, 3)
    step(x, t).backward()
    nn.functional.cross_entropy(twin(x), t).backward()
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        assert bits(a.grad) == bits(b.grad)
    model.zero_grad()
    before = counters()
    step(x, t).backward()
    after = counters()
    assert after["executable_runs"] - before["executable_runs"] == 1
    assert after["eager_dispatches"] == before["eager_dispatches"]


@EVERY_KIND
def test_learns_to_count(kind: str) -> None:
    """Which of two symbols is more frequent in a sequence: no single step shows it."""
    lucid.manual_seed(4)
    model = nn.Sequential(nn.Linear(1, 4), LastOf(getattr(nn, kind)(4, 12)), nn.Linear(12, 2))
    optimizer = lucid.optim.Adam(model.parameters(), lr=0.02)
    step = make_step(model, nn.functional.cross_entropy, fallback="error")
    random = np.random.default_rng(0)
    for _ in range(120):
        x = random.choice([-1.0, 1.0], (9, 64, 1)).astype(np.float32)
        target = (x.sum(axis=(0, 2)) > 0).astype(np.int64)
        optimizer.zero_grad()
        step(lucid.tensor(x), lucid.tensor(target)).backward()
        optimizer.step()
    x = random.choice([-1.0, 1.0], (9, 500, 1)).astype(np.float32)
    guess = model(lucid.tensor(x)).detach().numpy().argmax(axis=1)
    assert np.mean(guess == (x.sum(axis=(0, 2)) > 0)) > 0.97


class LastOf(nn.Module):
    """The output of a recurrent layer after the last step."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)[0][-1]


@pytest.fixture
def threads() -> Iterator[None]:
    before = lucid.get_num_threads()
    yield
    lucid.set_num_threads(before)
    clear_cache()


# Cut by sequences, by units, and by neither.
@pytest.mark.parametrize("sizes", [(3, 33, 80), (3, 5, 300), (2, 2, 8)], ids=str)
@EVERY_KIND
def test_bits_do_not_depend_on_threads(
    kind: str, sizes: tuple[int, int, int], threads: None
) -> None:
    steps, batch, units = sizes
    lucid.manual_seed(5)
    layer = getattr(nn, kind)(9, units)
    x = floats(0, steps, batch, 9)

    def total(result: Any) -> Tensor:
        output, last = result
        return output.sum() + sum(state.square().sum() for state in states_of(kind, last))

    results = []
    for count in (1, 2, 3, 5):
        lucid.set_num_threads(count)
        clear_cache()
        # The compiled step overwrites gates in place, the eager call does not.
        for loss_of in (lambda x: total(layer(x)), make_step(layer, total, fallback="error")):
            layer.zero_grad()
            loss = loss_of(x)
            loss.backward()
            results.append([bits(loss), *(bits(p.grad) for p in layer.parameters())])
    assert results[1:] == results[:1] * 7


@EVERY_KIND
def test_not_a_number_stays(kind: str) -> None:
    x = floats(0, 4, 2, 5).numpy().copy()
    x[1, 0, 2] = np.nan
    output = getattr(nn, kind)(5, 3)(lucid.tensor(x))[0].detach().numpy()
    expected = np.zeros((4, 2, 3), bool)
    expected[1:, 0] = True
    np.testing.assert_array_equal(np.isnan(output), expected)


@EVERY_KIND
def test_no_sequences(kind: str) -> None:
    layer = getattr(nn, kind)(5, 3)
    output, last = layer(lucid.zeros(4, 0, 5))
    assert output.shape == (4, 0, 3)
    assert all(state.shape == (1, 0, 3) for state in states_of(kind, last))
    output.sum().backward()
    assert all(float(p.grad.abs().sum()) == 0 for p in layer.parameters())


@EVERY_KIND
def test_gradient_penalty(kind: str) -> None:
    """The derivative of a gradient's norm by a weight, against central differences."""
    layer = getattr(nn, kind)(3, 2, dtype=lucid.float64, bidirectional=True)
    x = floats(0, 3, 2, 3).to(lucid.float64).requires_grad_()
    weight = layer.weight_hh_l0

    def penalty() -> Tensor:
        (slope,) = autograd.grad(layer(x)[0].square().sum(), [x], create_graph=True)
        return slope.square().sum()

    (found,) = autograd.grad(penalty(), [weight])
    origin = weight.detach().numpy().copy()
    for place in ((0, 1), (1, 0)):
        values = []
        for sign in (1, -1):
            moved = origin.copy()
            moved[place] += sign * 1e-5
            weight.data = lucid.tensor(moved)
            values.append(float(penalty()))
        weight.data = lucid.tensor(origin)
        slope = (values[0] - values[1]) / 2e-5
        assert abs(float(found[place]) - slope) < 1e-6 * max(1.0, abs(slope))
