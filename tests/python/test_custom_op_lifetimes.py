"""custom_op: memory lent to users' functions, names, copies and threads."""

from __future__ import annotations

import copy
import gc
import pickle
import subprocess
import sys
import threading
from typing import Any

import lucid
import numpy as np
import pytest
from custom_ops import Array, gradients, one_input, softclip
from lucid import nn
from lucid.compile import custom_op, make_step


def keeping(x: Array, *, held: str) -> Array:
    HELD.append({"view": lambda: x[1:], "memory": lambda: memoryview(x), "self": lambda: x}[held]())
    return x * 2


HELD: list[Any] = []


@pytest.mark.parametrize("held", ["view", "memory", "self"])
def test_memory_of_a_held_array_is_not_used_again(held: str) -> None:
    op = one_input("keeping", keeping)
    HELD.clear()
    step = make_step(nn.Linear(64, 64), lambda y: op(y * 2, held=held).sum(), fallback="error")
    with pytest.raises(lucid.UserError, match="is still referenced after the call"):
        step(lucid.randn(32, 64))
    before = np.array(HELD[0])
    other = make_step(nn.Linear(64, 64), lambda y: (y * 3).tanh().sum(), fallback="error")
    for _ in range(5):
        other(lucid.randn(32, 64)).backward()
        lucid.randn(32, 64)
    assert np.array_equal(np.array(HELD[0]), before)
    del other, step
    gc.collect()
    in_use = lucid._C.memory_allocated()
    HELD.clear()
    gc.collect()
    assert lucid._C.memory_allocated() < in_use  # the inputs of the run, held with its arena


def test_an_exception_keeps_the_memory_that_its_frames_show() -> None:
    def fail(x: Array) -> Array:
        raise ValueError(x[:1])

    op = one_input("fail_with_view", fail)
    step = make_step(nn.Linear(64, 64), lambda y: op(y * 2).sum(), fallback="error")
    with pytest.raises(ValueError) as caught:
        step(lucid.randn(32, 64))
    shown = caught.value.args[0]
    before = shown.copy()
    for _ in range(5):
        lucid.randn(32, 64).matmul(lucid.randn(64, 64)).tanh()
    assert np.array_equal(shown, before)


def test_an_array_without_elements_is_lent_like_others() -> None:
    def hold_nothing(x: Array) -> Array:
        HELD.append(x)
        assert x.shape == (0, 4)
        assert not x.flags.owndata
        raise ValueError("held")

    HELD.clear()
    op = one_input("hold_nothing", hold_nothing)
    step = make_step(nn.Linear(4, 4), lambda y: op(y[:0] * 2).sum(), fallback="error")
    for _ in range(3):
        with pytest.raises(ValueError, match="held"):
            step(lucid.randn(2, 4))
    HELD.clear()
    gc.collect()


def test_a_cycle_does_not_count_as_held() -> None:
    def cyclic(x: Array) -> Array:
        knot: list[Any] = [x]
        knot.append(knot)
        return x.copy()

    assert one_input("cyclic", cyclic)(lucid.ones(2)).tolist() == [1.0, 1.0]


def test_a_view_may_be_returned() -> None:
    op = one_input("transposed", lambda x: x.T)
    x = lucid.randn(3, 3)
    assert op(x).tolist() == x.numpy().T.tolist()


# ------------------------------------------------------------ names, copies, threads


def test_a_name_belongs_to_one_function() -> None:
    source = "def f(x):\n    return x.copy()\n"
    scope: dict[str, Any] = {}
    exec(source, scope)
    first = custom_op("tests::defined_again", pure=True)(scope["f"])
    exec(source, scope)  # as a notebook's cell that is run again
    assert custom_op("tests::defined_again", pure=True)(scope["f"]) is first
    with pytest.raises(lucid.UserError, match="is the name of another function"):
        custom_op("tests::defined_again", pure=False)(scope["f"])
    with pytest.raises(lucid.UserError, match="is the name of another function"):
        custom_op("tests::defined_again", pure=True)(lambda x: x)


def test_copies_are_the_operation_itself() -> None:
    assert copy.deepcopy(softclip) is softclip
    assert pickle.loads(pickle.dumps(softclip)) is softclip
    assert repr(softclip) == 'custom_op("tests::softclip", pure=True)'
    assert softclip.name == "tests::softclip"


COUNT = 0


def counting(x: Array) -> Array:
    global COUNT
    COUNT += 1
    return x.copy()


def test_what_the_functions_read_is_not_watched() -> None:
    op = one_input("counting", counting, pure=False)
    step = make_step(nn.Linear(2, 2), lambda y: op(y).sum(), fallback="error")
    for _ in range(4):
        step(lucid.ones(1, 2)).backward()
    assert step.cache_info()["misses"] == 1
    assert COUNT == 4


def test_it_may_call_lucid_and_a_step() -> None:
    inner = make_step(nn.Linear(4, 4), lambda y: y.square().sum(), fallback="error")
    inner(lucid.ones(3, 4))

    def nested(x: Array) -> Array:
        t = lucid.from_numpy(x)
        inner(t).backward()
        return np.array((t * 2).numpy())

    op = one_input("nested", nested, pure=False)
    model = nn.Linear(4, 4)
    x = lucid.randn(3, 4)
    step = make_step(model, lambda y: op(y).sum(), fallback="error")
    assert step(x).item() == (model(x) * 2).sum().item()


def test_threads_do_not_wait_for_each_other() -> None:
    """Kernels that need the interpreter beside threads that hold it, and a lock of the user's."""
    lock = threading.Lock()

    def locked(x: Array) -> Array:
        with lock:
            return np.asarray(x + x)

    op = one_input("locked", locked)
    models = [nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64)) for _ in range(4)]
    x = lucid.randn(256, 64)
    expected = [gradients(m, op(m(x)).sum(), 1.0) for m in models]
    found: list[list[Any]] = [[] for _ in models]

    def work(i: int) -> None:
        step = make_step(models[i], lambda y: op(y).sum(), fallback="error", segments=1 + i % 2)
        for _ in range(10):
            found[i].append(gradients(models[i], step(x), 1.0))
            op(x)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(models))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
        assert not thread.is_alive()
    assert found == [[want] * 10 for want in expected]


def test_exit_with_a_held_array() -> None:
    """The process ends in good order although arrays of the core's are still held."""
    code = """
import lucid, numpy as np
from lucid.compile import custom_op
held = []
@custom_op("exit::keep", pure=True)
def keep(x):
    held.append(x)
    raise ValueError("kept")
keep.shape(lambda x: (x.shape, x.dtype))
try:
    keep(lucid.ones(1000))
except ValueError as error:
    held.append(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
