"""Packed sequences: what goes in comes out, and layers end each sequence at its length."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import lucid
import numpy as np
import pytest
from lucid import Tensor, nn
from lucid.compile import load_compiled, make_step, save_compiled
from lucid.nn.utils import rnn
from zoo import floats

KINDS = pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
LENGTHS = [3, 6, 1, 6]


def sequences() -> list[Tensor]:
    return [floats(i, length, 5) for i, length in enumerate(LENGTHS)]


def bits(tensor: Tensor) -> bytes:
    return tensor.detach().numpy().tobytes()


@pytest.mark.parametrize("batch_first", [False, True])
def test_there_and_back(batch_first: bool) -> None:
    padded = rnn.pad_sequence(sequences(), batch_first=batch_first)
    packed = rnn.pack_padded_sequence(padded, LENGTHS, batch_first, enforce_sorted=False)
    assert packed.batch_sizes.tolist() == [4, 3, 3, 2, 2, 2]
    assert packed.sorted_indices is not None and packed.unsorted_indices is not None
    assert packed.sorted_indices.tolist() == [1, 3, 0, 2]
    assert packed.unsorted_indices.tolist() == [2, 0, 3, 1]
    assert tuple(packed.data.shape) == (16, 5)
    again, lengths = rnn.pad_packed_sequence(packed, batch_first)
    assert lengths.tolist() == LENGTHS
    assert bits(again) == bits(padded)
    for mine, its in zip(rnn.unpack_sequence(packed), sequences(), strict=True):
        assert bits(mine) == bits(its)


def test_in_order_nothing_is_sorted() -> None:
    ordered = sorted(sequences(), key=len, reverse=True)
    packed = rnn.pack_sequence(ordered)
    assert packed.sorted_indices is None and packed.unsorted_indices is None
    padded, lengths = rnn.pad_packed_sequence(packed, padding_value=-1.0, total_length=8)
    assert lengths.tolist() == [6, 6, 3, 1]
    assert tuple(padded.shape) == (8, 4, 5)
    for n, sequence in enumerate(ordered):
        assert bits(padded[: len(sequence), n].contiguous()) == bits(sequence)
        assert np.all(padded[len(sequence) :, n].numpy() == -1.0)
    for mine, its in zip(rnn.unpad_sequence(padded, lengths), ordered, strict=True):
        assert bits(mine) == bits(its)


def test_lengths_as_a_tensor_and_other_dtypes() -> None:
    packed = rnn.pack_padded_sequence(floats(0, 4, 2), lucid.tensor([4, 1]))
    assert packed.batch_sizes.tolist() == [2, 1, 1, 1]
    assert packed.double().data.dtype == lucid.float64
    assert packed.double().float().cpu().data.dtype == lucid.float32
    assert rnn.pack_padded_sequence(lucid.arange(6).reshape(3, 2), [3, 2]).data.tolist() == [
        *(0, 1, 2, 3, 4)
    ]


def test_gradients_go_to_what_is_there() -> None:
    padded = rnn.pad_sequence(sequences()).requires_grad_()
    packed = rnn.pack_padded_sequence(padded, LENGTHS, enforce_sorted=False)
    again, _ = rnn.pad_packed_sequence(packed, padding_value=3.0)
    (again * again).sum().backward()
    assert padded.grad is not None
    assert bits(padded.grad) == bits(padded * 2)  # 0 in the padding


@KINDS
@pytest.mark.parametrize("bidirectional", [False, True])
def test_each_sequence_as_if_alone(kind: str, bidirectional: bool) -> None:
    lucid.manual_seed(1)
    layer: Any = getattr(nn, kind)(5, 4, 2, bidirectional=bidirectional)
    output, last = layer(rnn.pack_sequence(sequences(), enforce_sorted=False))
    states = last if kind == "LSTM" else (last,)
    for n, mine in enumerate(rnn.unpack_sequence(output)):
        alone, its = layer(sequences()[n])
        assert bits(mine) == bits(alone)
        for state, its_state in zip(states, its if kind == "LSTM" else (its,), strict=True):
            assert bits(state[:, n].contiguous()) == bits(its_state)


@KINDS
def test_what_is_in_the_padding_does_not_matter(kind: str) -> None:
    layer: Any = getattr(nn, kind)(5, 4, bidirectional=True)
    padded = rnn.pad_sequence(sequences())
    noisy = rnn.pad_sequence(sequences(), padding_value=1e30)
    found = []
    for x in (padded, noisy):
        layer.zero_grad()
        packed = rnn.pack_padded_sequence(x, LENGTHS, enforce_sorted=False)
        output, _ = layer(packed)
        output.data.square().sum().backward()
        found.append([bits(output.data), *(bits(p.grad) for p in layer.parameters())])
    assert found[0] == found[1]


def packed_of(lengths: list[int]) -> rnn.PackedSequence:
    given = [floats(i, length, 5) for i, length in enumerate(lengths)]
    return rnn.pack_sequence(given, enforce_sorted=False)


class Reads(nn.Module):
    """The mean last state of packed sequences."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.body = getattr(nn, kind)(5, 4, 2, bidirectional=True)

    def forward(self, packed: rnn.PackedSequence) -> Tensor:
        output, state = self.body(packed)
        state = state[0] if isinstance(state, tuple) else state
        return state.mean() + output.data.square().mean()


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_a_step_takes_packed_sequences(kind: str) -> None:
    lucid.manual_seed(4)
    model = Reads(kind)
    step = make_step(model, lambda y: y, fallback="error")
    for lengths in ([4, 2, 6], [6, 4, 2], [4, 2, 6], [3, 3], [4, 2, 6]):
        found = []
        for run in (model, step):
            packed = packed_of(lengths)
            packed.data.requires_grad_()
            model.zero_grad()
            loss = run(packed)
            loss.backward()
            assert packed.data.grad is not None
            found.append([bits(t) for t in (loss, packed.data.grad)])
            found[-1] += [bits(p.grad) for p in model.parameters()]
        assert found[0] == found[1]
    assert step.cache_info()["misses"] == 2  # [4, 2, 6] and [6, 4, 2] have the same batch sizes
    assert "because of another structure of x" in step.explain()


def test_a_saved_step_takes_packed_sequences(tmp_path: Path) -> None:
    model = Reads("GRU")
    step = make_step(model, lambda y: y, fallback="error")
    step(packed_of([4, 2, 6]))
    save_compiled(step, tmp_path / "step.lucid")
    loaded = load_compiled(tmp_path / "step.lucid", copy.deepcopy(model))
    assert bits(loaded(packed_of([6, 2, 4]))) == bits(model(packed_of([6, 2, 4])))
    assert loaded.cache_info()["hits"] == 1


def test_packed_sequences_there_and_back_in_a_compiled_function() -> None:
    layer = nn.GRU(5, 4)
    compiled = lucid.compile(lambda packed: layer(packed)[0], fallback="error")
    packed = packed_of([4, 2, 6])
    for _ in range(2):
        found, expected = compiled(packed), layer(packed)[0]
        assert isinstance(found, rnn.PackedSequence)
        assert found.batch_sizes.tolist() == expected.batch_sizes.tolist()
        for mine, other in zip(found, expected, strict=True):
            assert bits(mine) == bits(other)
        padded, lengths = rnn.pad_packed_sequence(found)
        assert lengths.tolist() == [4, 2, 6] and tuple(padded.shape) == (6, 3, 4)


def test_packed_inside_of_a_compiled_function() -> None:
    layer = nn.GRU(5, 4)

    def last(padded: Tensor, lengths: list[int]) -> tuple[Tensor, Tensor]:
        packed = rnn.pack_padded_sequence(padded, lengths, enforce_sorted=False)
        output, state = layer(packed)
        return rnn.pad_packed_sequence(output)[0], state

    padded = rnn.pad_sequence(sequences())
    compiled = lucid.compile(last, fallback="error")
    for lengths in (LENGTHS, LENGTHS[::-1], LENGTHS):
        for mine, other in zip(compiled(padded, lengths), last(padded, lengths), strict=True):
            assert bits(mine) == bits(other)
    assert compiled.cache_info()["misses"] == 2


def test_copies_keep_the_batch_sizes() -> None:
    packed = packed_of([4, 2, 6])
    for copied in (copy.deepcopy(packed), pickle.loads(pickle.dumps(packed)), packed.double()):
        assert isinstance(copied, rnn.PackedSequence)
        assert copied.sizes() == packed.batch_sizes.tolist() == [3, 3, 2, 2, 1, 1]
    other = packed._replace(batch_sizes=lucid.tensor([6, 6, 6]))
    assert other.sizes() == [6, 6, 6]
    packed.batch_sizes.clamp_(max=2)
    assert packed.sizes() == [2, 2, 2, 2, 1, 1]


def test_projection() -> None:
    lucid.manual_seed(2)
    layer = nn.LSTM(5, 4, 2, proj_size=3, bidirectional=True)
    names = [name for name, _ in layer.named_parameters()][:5]
    assert names == [
        f"{n}_l0" for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
    ]
    assert tuple(layer.weight_hr_l1.shape) == (3, 4)
    assert len(layer.all_weights[0]) == 5
    assert "proj_size=3" in repr(layer)
    x = floats(3, 6, 2, 5)
    output, (h, c) = layer(x)
    assert [tuple(t.shape) for t in (output, h, c)] == [(6, 2, 6), (4, 2, 3), (4, 2, 4)]
    compiled = lucid.compile(lambda x: layer(x)[0], fallback="error")
    assert bits(compiled(x)) == bits(output)
    lucid.autograd.gradcheck(
        lambda x, *_: double(x)[0],
        (floats(4, 3, 2, 5).double().requires_grad_(), *(double := layer.double()).parameters()),
    )
