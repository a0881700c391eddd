"""save_compiled and load_compiled: what is loaded runs as what was saved; what does not fit is
refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lucid
import lucid.nn.functional as F
import pytest
from lucid import Tensor, nn
from lucid.compile import counters, load_compiled, make_step, save_compiled


def make_model(outputs: int = 4) -> nn.Sequential:
    lucid.manual_seed(7)
    return nn.Sequential(
        nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, outputs)
    )


def batch(rows: int = 6) -> tuple[Tensor, Tensor]:
    lucid.manual_seed(8)
    return lucid.randn(rows, 8), lucid.randn(rows, 4)


def state_of(model: nn.Module, loss: Tensor) -> list[bytes]:
    tensors = [loss, *model.state_dict().values()]
    tensors += [p.grad for p in model.parameters() if p.grad is not None]
    return [t.detach().numpy().tobytes() for t in tensors]


def run(step: Callable[..., Any], model: nn.Module, *args: Tensor) -> list[bytes]:
    lucid.manual_seed(9)
    loss = step(*args)
    loss.backward()
    return state_of(model, loss)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "step.lucid"


@pytest.mark.parametrize("segments", [1, 2])
def test_loaded_step_runs_as_the_saved_one(path: Path, segments: int) -> None:
    model, twin = make_model(), make_model()
    step = make_step(model, F.mse_loss, segments=segments, fallback="error")
    x, t = batch()
    step.compile(x, t)
    save_compiled(step, path)
    loaded = load_compiled(path, twin)
    before = counters()
    assert run(loaded, twin, x, t) == run(step, model, x, t)
    assert counters()["eager_dispatches"] == before["eager_dispatches"]
    assert loaded.cache_info() == {"entries": 1, "hits": 1, "misses": 0, "max_entries": 64}
    assert loaded.explain().startswith("loaded: ")


def test_loading_compiles_nothing_that_the_process_has(path: Path) -> None:
    model, twin = make_model(), make_model()
    step = make_step(model, F.mse_loss, fallback="error")
    step.compile(*batch())
    save_compiled(step, path)
    before = counters()
    load_compiled(path, twin)
    assert counters()["compilations"] == before["compilations"]


def test_loaded_module(path: Path) -> None:
    model, twin = make_model(), make_model()
    compiled = lucid.compile(model, fallback="error")
    x, t = batch()
    compiled(x)
    save_compiled(compiled, path)
    model.load_state_dict(twin.state_dict())
    loaded = load_compiled(path, twin)
    expected = run(lambda x, t: F.mse_loss(compiled(x), t), model, x, t)
    assert run(lambda x, t: F.mse_loss(loaded(x), t), twin, x, t) == expected
    assert loaded.cache_info()["misses"] == 0


def test_trees_of_arguments_and_results(path: Path) -> None:
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(3, 3)

        def forward(self, x: dict[str, Any], *, scale: float) -> Any:
            return {"y": self.inner(x["a"]) * scale, "rest": [x["b"], (1, "two", None)]}

    model = Pair()
    compiled = lucid.compile(model, fallback="error")
    x = {"a": lucid.ones(2, 3), "b": lucid.arange(4)}
    expected = compiled(x, scale=0.1)
    save_compiled(compiled, path)
    loaded = load_compiled(path, model, fallback="error")
    result = loaded(x, scale=0.1)
    assert result["y"].tolist() == expected["y"].tolist()
    assert result["rest"][0].tolist() == [0, 1, 2, 3]
    assert result["rest"][1] == (1, "two", None)
    assert loaded.cache_info()["hits"] == 1


def test_only_signatures_of_the_model_as_it_is(path: Path) -> None:
    model = make_model()
    step = make_step(model, F.mse_loss, fallback="error")
    x, t = batch()
    step(x, t)
    model.eval()
    step(x, t)
    save_compiled(step, path)
    loaded = load_compiled(path, make_model().eval())
    assert loaded.cache_info()["entries"] == 1


def test_further_signatures_with_a_loss(path: Path) -> None:
    model = make_model()

    def loss_fn(y: Tensor, t: Tensor) -> Tensor:
        return F.mse_loss(y, t)

    step = make_step(model, loss_fn, fallback="error")
    step.compile(*batch())
    save_compiled(step, path)
    loaded = load_compiled(path, model, loss_fn, fallback="error")
    loaded(*batch(3))
    assert loaded.cache_info()["misses"] == 1
    with pytest.raises(lucid.UserError, match="load_compiled: the file was saved with another los"):
        load_compiled(path, model, lambda y, t: F.l1_loss(y, t))


def test_modes_are_put_back(path: Path) -> None:
    model = make_model()
    step = make_step(model, F.mse_loss, fallback="error")
    with lucid.autocast("cpu"):
        step.compile(*batch())
    save_compiled(step, path)
    loaded = load_compiled(path, model)
    assert not lucid.is_autocast_enabled("cpu")
    assert lucid.is_grad_enabled()
    with lucid.autocast("cpu"):
        loaded(*batch())
    with pytest.raises(lucid.UserError, match="the file has no signature for these arguments"):
        loaded(*batch())


def test_other_model(path: Path) -> None:
    step = make_step(make_model(), F.mse_loss, fallback="error")
    step.compile(*batch())
    save_compiled(step, path)
    text = (
        "load_compiled: the file was saved from another model; it differs in:\n"
        "  4.weight: shape [4, 16] saved, [5, 16] now\n"
        "  4.bias: shape [4] saved, [5] now\n"
        "  module '4': attribute out_features: ['int', '4'] saved, ['int', '5'] now"
    )
    with pytest.raises(lucid.UserError) as caught:
        load_compiled(path, make_model(5))
    assert str(caught.value) == text
    with pytest.raises(lucid.UserError, match="attribute training: .* saved, .* now"):
        load_compiled(path, make_model().eval())
    with pytest.raises(lucid.UserError, match="0.weight: missing from the model"):
        load_compiled(path, nn.Sequential())


def saved_bytes(path: Path) -> bytes:
    step = make_step(make_model(), F.mse_loss, fallback="error")
    step.compile(*batch())
    save_compiled(step, path)
    return path.read_bytes()


DAMAGES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "foreign": (lambda data: b"PK" + data, "is no file of save_compiled"),
    "empty": (lambda data: b"", "is no file of save_compiled"),
    "header": (lambda data: data[:20], "is damaged: its header cannot be read"),
    "truncated": (lambda data: data[:-7], "is truncated or damaged: "),
    "flipped": (lambda data: data[:-9] + b"#" + data[-8:], "is damaged: its checksum does not fit"),
    "newer": (
        lambda data: data.replace(b'"version": 2', b'"version": 3'),
        "has version 3, this package reads 2; save it again",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_files(path: Path, damage: str) -> None:
    change, text = DAMAGES[damage]
    path.write_bytes(change(saved_bytes(path)))
    with pytest.raises(lucid.UserError, match=text):
        load_compiled(path, make_model())


def forged(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """A file whose checksum fits but whose content was changed."""
    import hashlib

    magic, _, text = saved_bytes(path).split(b"\n", 2)
    body = json.loads(text)
    change(body["signatures"][0])
    text = json.dumps(body).encode()
    header = {"version": 2, "sha256": hashlib.sha256(text).hexdigest(), "size": len(text)}
    path.write_bytes(magic + b"\n" + json.dumps(header).encode() + b"\n" + text)


FORGERIES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no graph": lambda s: s["trace"].pop("graph"),
    "other graph": lambda s: s["trace"].update(graph="graph {\n  return\n}"),
    "unknown operation": lambda s: s["trace"].update(
        graph=s["trace"]["graph"].replace("relu(", "relux(")
    ),
    "wrong shape": lambda s: s["trace"].update(
        graph=s["trace"]["graph"].replace("float32[6, 16]", "float32[6, 17]", 1)
    ),
    "fewer results": lambda s: s["trace"].update(result_tracks=[]),
    "capture swapped": lambda s: s["captures"].reverse(),
    "capture unknown": lambda s: s.update(captures=["nobody"] * len(s["captures"])),
    "target out of range": lambda s: s["trace"].update(targets=[[99, -1]]),
    "target of two": lambda s: s["trace"]["targets"].__setitem__(0, [0, 0]),
    "negative draws": lambda s: s["trace"].update(counters=[-5]),
    "segments out of order": lambda s: s["trace"].update(marks=[9999]),
    "more arguments": lambda s: s["trace"].update(num_arguments=50),
    "write of nothing": lambda s: s["trace"].update(writes=[7] * len(s["trace"]["writes"])),
    "leaf of another type": lambda s: s["leaves"][0].__setitem__(1, "no_dtype"),
    "tree of another kind": lambda s: s["structures"][0].pop("kind"),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_forged_files_are_refused(path: Path, forgery: str) -> None:
    forged(path, FORGERIES[forgery])
    with pytest.raises(lucid.Error):
        load_compiled(path, make_model())


def captured() -> Any:
    outside = lucid.ones(4)
    return make_step(make_model(), lambda y, t: F.mse_loss(y * outside, t), fallback="error")


def hooked() -> Any:
    model = make_model()
    model[0].register_forward_hook(lambda module, args, result: None)
    return make_step(model, F.mse_loss, fallback="error")


def drawing() -> Any:
    generator = lucid.Generator()

    def loss_fn(y: Tensor, t: Tensor) -> Tensor:
        return F.mse_loss(y + lucid.rand(4, generator=generator), t)

    return make_step(make_model(), loss_fn, fallback="error")


REFUSED: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (captured, lucid.UserError, "save_compiled: the step reads a tensor of shape \\(4,\\) that is"),
    (hooked, lucid.UnsupportedError, "save_compiled: module '0' has hooks"),
    (drawing, lucid.UnsupportedError, "save_compiled: the step draws from a generator of its own"),
]


@pytest.mark.parametrize(("make", "kind", "text"), REFUSED)
def test_refused(path: Path, make: Callable[[], Any], kind: type[Exception], text: str) -> None:
    path.write_bytes(b"what was there")
    step = make()
    step.compile(*batch())
    with pytest.raises(kind, match=text):
        save_compiled(step, path)
    assert path.read_bytes() == b"what was there"
    assert list(path.parent.iterdir()) == [path]


def test_wrong_arguments(path: Path) -> None:
    model = make_model()
    with pytest.raises(lucid.ArgumentTypeError, match="save_compiled: expected a step of make_ste"):
        save_compiled(model, path)  # type: ignore[arg-type]
    with pytest.raises(lucid.UserError, match="nothing has been compiled for the model as it is"):
        save_compiled(make_step(model, F.mse_loss), path)
    with pytest.raises(lucid.ArgumentTypeError, match="load_compiled: model must be an nn.Module"):
        load_compiled(path, F.mse_loss)  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError):
        load_compiled(path, model)
