"""Grad modes and autocast as context managers and decorators: nested, recursive, in generators."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import lucid
import pytest

MODES: dict[str, tuple[Callable[[], Any], bool]] = {
    "no_grad": (lucid.no_grad, False),
    "enable_grad": (lucid.enable_grad, True),
    "inference_mode": (lucid.inference_mode, False),
    "inference_mode(False)": (lambda: lucid.inference_mode(False), True),
    "set_grad_enabled(False)": (lambda: lucid.set_grad_enabled(False), False),
    "set_grad_enabled(True)": (lambda: lucid.set_grad_enabled(True), True),
}


@pytest.fixture(params=[False, True], ids=["grad off", "grad on"], autouse=True)
def outside(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Each test runs in both modes, and leaves the one that it found."""
    before = lucid.is_grad_enabled()
    lucid.autograd.set_grad_enabled(request.param)
    yield request.param
    found = lucid.is_grad_enabled()
    lucid.autograd.set_grad_enabled(before)
    assert found == request.param


@pytest.mark.parametrize("name", MODES)
def test_one_object_nested(name: str, outside: bool) -> None:
    make, inside = MODES[name]
    mode = make()
    with mode:
        with mode:
            with lucid.set_grad_enabled(not inside):
                with mode:
                    assert lucid.is_grad_enabled() == inside
                assert lucid.is_grad_enabled() != inside
            assert lucid.is_grad_enabled() == inside
        assert lucid.is_grad_enabled() == inside
    assert lucid.is_grad_enabled() == outside
    with mode:
        assert lucid.is_grad_enabled() == inside


@pytest.mark.parametrize("name", MODES)
def test_decorated_recursion(name: str, outside: bool) -> None:
    make, inside = MODES[name]
    seen = []

    @make()
    def descend(depth: int) -> None:
        seen.append(lucid.is_grad_enabled())
        if depth:
            descend(depth - 1)
            seen.append(lucid.is_grad_enabled())
        else:
            raise KeyError("the bottom")

    assert lucid.is_grad_enabled() == outside
    with pytest.raises(KeyError):
        descend(3)
    assert seen == [inside] * 4


def test_set_at_once_until_the_end(outside: bool) -> None:
    mode = lucid.set_grad_enabled(not outside)
    assert lucid.is_grad_enabled() != outside
    with mode:
        pass
    assert lucid.is_grad_enabled() == outside


@pytest.mark.parametrize("mode", [lucid.no_grad, lucid.enable_grad, lucid.inference_mode])
def test_without_parentheses(mode: Any) -> None:
    @mode
    def now() -> bool:
        """Says it."""
        return lucid.is_grad_enabled()

    assert now() == (mode is lucid.enable_grad)
    assert now.__doc__ == "Says it."
    bound = mode(functools.partial(lambda given: (given, lucid.is_grad_enabled()), 3))
    assert bound() == (3, mode is lucid.enable_grad)


@pytest.mark.parametrize("name", MODES)
def test_generators(name: str, outside: bool) -> None:
    make, inside = MODES[name]
    ended = []

    @make()
    def echo(count: int) -> Any:
        given: Any = None
        try:
            for _ in range(count):
                try:
                    given = yield given, lucid.is_grad_enabled()
                except KeyError as error:
                    given = error.args[0]
            return "done", lucid.is_grad_enabled()
        finally:
            ended.append(lucid.is_grad_enabled())

    running = echo(3)
    assert next(running) == (None, inside)
    assert lucid.is_grad_enabled() == outside
    assert running.send(5) == (5, inside)
    assert running.throw(KeyError("thrown")) == ("thrown", inside)
    assert lucid.is_grad_enabled() == outside
    with pytest.raises(StopIteration) as end:
        next(running)
    assert end.value.value == ("done", inside)
    left = echo(2)
    next(left)
    left.close()
    assert ended == [inside, inside]
    assert [given for given, _ in echo(2)] == [None, None]
    unheard = echo(2)
    next(unheard)
    with pytest.raises(ZeroDivisionError):
        unheard.throw(ZeroDivisionError)
    assert lucid.is_grad_enabled() == outside


def test_generators_under_autocast() -> None:
    @lucid.amp.autocast("cpu", dtype=lucid.bfloat16)
    def products(x: lucid.Tensor) -> Iterator[lucid.Tensor]:
        yield x @ x
        yield x @ x

    x = lucid.ones(2, 2)
    running = products(x)
    for _ in range(2):
        assert next(running).dtype == lucid.bfloat16
        assert (x @ x).dtype == lucid.float32


def test_a_decorated_function_in_threads() -> None:
    barrier = threading.Barrier(2)
    found: list[list[bool]] = []

    @lucid.no_grad()
    def meet(others: int) -> None:
        barrier.wait(timeout=30)
        if others:
            meet(others - 1)

    def work(mode: bool) -> None:
        lucid.autograd.set_grad_enabled(mode)
        meet(3)
        found.append([mode, lucid.is_grad_enabled()])

    threads = [threading.Thread(target=work, args=(mode,)) for mode in (False, True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [[False, False], [True, True]]
