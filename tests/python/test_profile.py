"""StepEntry.profile: every kernel of a step with its cost and time."""

from __future__ import annotations

import lucid
import lucid.nn.functional as F
import numpy
import pytest
from lucid import Tensor, nn, optim
from lucid.compile import custom_op, fused_step, make_step


def make_model() -> nn.Sequential:
    lucid.manual_seed(3)
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.5), nn.Linear(16, 4))


def batch() -> tuple[Tensor, Tensor]:
    lucid.manual_seed(4)
    return lucid.randn(6, 8), lucid.randn(6, 4)


@pytest.mark.parametrize("segments", [1, 2])
def test_kernels_of_a_step(segments: int) -> None:
    model, (x, t) = make_model(), batch()
    step = make_step(model, F.mse_loss, segments=segments, fallback="error")
    step.compile(x, t)
    before = [p.detach().numpy().tobytes() for p in model.parameters()]
    state = lucid.get_rng_state()
    rows = step.cache[0].profile((x, t))
    assert [p.detach().numpy().tobytes() for p in model.parameters()] == before
    assert numpy.array_equal(lucid.get_rng_state(), state)
    linear = [row for row in rows if row["label"] == "linear"]
    # The forward's two products, and those that the second segment's backward repeats.
    assert len(linear) == segments + 1
    assert linear[0]["flops"] == 2 * 6 * 8 * 16 + 6 * 16
    assert linear[0]["types"] == "float32[6, 16]"
    assert linear[0]["at"].startswith(__file__)
    assert all(row["seconds"] > 0 and row["bytes"] > 0 for row in rows)


def test_fused_kernels_name_their_operations() -> None:
    model, (x, t) = make_model(), batch()
    optimizer = optim.SGD(model.parameters(), lr=0.5, weight_decay=0.25)
    step = fused_step(model, F.mse_loss, optimizer, fallback="error")
    step(x, t)
    labels = [row["label"] for row in step.cache[0].profile((x, t), (0.5, 0.0, 1.0, 0.25))]
    assert labels.count("mul+add+mul+sub") == 4


def test_refused() -> None:
    model, (x, t) = make_model(), batch()
    step = make_step(model, F.mse_loss, fallback="error")
    step.compile(x, t)
    with pytest.raises(lucid.UserError) as caught:
        step.cache[0].profile((x[:3], t[:3]))
    assert str(caught.value) == (
        "profile: the arguments are not those of this signature; call the step with them first, in "
        "the same modes"
    )

    @custom_op("profile::noisy", pure=False)
    def noisy(x: numpy.ndarray) -> numpy.ndarray:
        return x.copy()

    @noisy.shape
    def _(x: numpy.ndarray) -> tuple[tuple[int, ...], lucid.dtype]:
        return x.shape, x.dtype

    compiled = lucid.compile(noisy, fallback="error")
    compiled(x)
    with pytest.raises(lucid.UserError) as caught:
        compiled.cache[0].profile((x,))
    assert str(caught.value) == (
        "profile: the step has an impure custom operation, which would run once more; profile it "
        "without"
    )
