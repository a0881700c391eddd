"""Random programs: the compiled step equals the eager one bit for bit, loss and gradients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import lucid
import pytest
from lucid import optim
from lucid.compile import fused_step, make_step
from op_running import to_bytes
from random_programs import Call, Program, ProgramModule, shrink, write_program

NUM_PROGRAMS = 60
NUM_LARGE_PROGRAMS = 24


def results(model: ProgramModule, run: Any, seed: int) -> list[bytes | None]:
    """Bytes of the loss and of every gradient."""
    for parameter in model.parameters():
        parameter.grad = None
    lucid.manual_seed(seed)
    loss = run(lucid.zeros(1))
    loss.backward()
    return [to_bytes(loss), *[to_bytes(p.grad) for p in model.parameters()]]


def differs(program: Program, seed: int) -> bool:
    """True if two compiled runs are not both equal to the eager one."""
    model = ProgramModule(program, seed)
    expected = results(model, model, seed)
    step = make_step(model, lambda y: y, fallback="error")
    found = [results(model, step, seed) for _ in range(2)]
    assert step.cache_info()["misses"] == 1
    assert step.timing()["runs"] == 2
    return found != [expected] * 2


def fails(program: Program, seed: int) -> bool:
    """True if the program differs or raises."""
    try:
        return differs(program, seed)
    except Exception:
        return True


def report(program: Program, seed: int) -> str:
    """A small failing program and its graph."""
    small = shrink(program, lambda candidate: fails(candidate, seed))
    model = ProgramModule(small, seed)
    step = make_step(model, lambda y: y, fallback="error")
    try:
        step(lucid.zeros(1))
        graph = step.graph_dump()
    except Exception as error:
        graph = f"{type(error).__name__}: {error}"
    return f"seed {seed}\n{small}\n{graph}"


@pytest.mark.parametrize("seed", range(NUM_PROGRAMS))
def test_compiled_equals_eager(seed: int) -> None:
    program = write_program(seed)
    if fails(program, seed):
        pytest.fail(report(program, seed))


@pytest.mark.parametrize("seed", range(0, NUM_PROGRAMS, 3))
def test_fused_step_equals_eager_updates(seed: int) -> None:
    """Three updates in place, with an array that holds the parameters before the last."""
    program = write_program(seed)
    models = [ProgramModule(program, seed) for _ in range(2)]
    optimizers = [optim.AdamW(m.parameters(), lr=0.01) for m in models]
    fused = fused_step(models[1], lambda y: y, optimizers[1], fallback="error")
    for i in range(3):
        results(models[0], models[0], seed)
        optimizers[0].step()
        held = [p.detach().numpy() for p in models[1].parameters()] if i == 2 else []
        before = [array.tobytes() for array in held]
        lucid.manual_seed(seed)
        fused(lucid.zeros(1))
        assert [array.tobytes() for array in held] == before
        found, wanted = ([to_bytes(p) for p in m.parameters()] for m in reversed(models))
        assert found == wanted, f"seed {seed}, update {i}\n{program}"


@pytest.mark.parametrize("low", [lucid.bfloat16, lucid.float16], ids=lambda d: d.name)
def test_compiled_equals_eager_under_autocast(low: lucid.dtype) -> None:
    """Operations that take one dtype and are not cast refuse some of the programs."""
    equal = 0
    for seed in range(NUM_PROGRAMS):
        program = write_program(seed)
        model = ProgramModule(program, seed)
        with lucid.autocast("cpu", low):
            try:
                expected = results(model, model, seed)
            except lucid.DtypeError:
                continue
            step = make_step(model, lambda y: y, fallback="error")
            assert results(model, step, seed) == expected, f"seed {seed}\n{program}"
        equal += 1
    assert equal >= NUM_PROGRAMS - 10


@pytest.fixture
def num_threads() -> Iterator[None]:
    """Puts the number of threads back."""
    before = lucid.get_num_threads()
    yield
    lucid.set_num_threads(before)


@pytest.mark.usefixtures("num_threads")
@pytest.mark.parametrize("seed", range(NUM_LARGE_PROGRAMS))
def test_number_of_threads_changes_no_bit(seed: int) -> None:
    program = write_program(seed, is_large=True)
    model = ProgramModule(program, seed)
    step = make_step(model, lambda y: y, fallback="error")
    found = []
    for count in (1, 2, 3):
        lucid.set_num_threads(count)
        found += [results(model, run, seed) for run in (model, step)]
    if found != [found[0]] * len(found):
        pytest.fail(report(program, seed))


def test_programs_are_varied() -> None:
    programs = [write_program(seed) for seed in range(NUM_PROGRAMS)]
    used = {call.op for program in programs for call in program.calls}
    assert len(used) >= 70
    assert str(write_program(5)) == str(programs[5])


def test_failing_program_is_shrunk() -> None:
    calls = (
        Call("v0", "exp", ("p0",)),
        Call("v1", "add", ("v0", "p1")),
        Call("v2", "cumsum", ("v1",), {"dim": 1}),
        Call("v3", "sum", ("v2",), {"dims": [0], "keepdim": False}),
        Call("v4", "tanh", ("v1",)),
    )
    program = Program({"p0": (3, 1), "p1": (3, 5)}, calls)

    def has_both(candidate: Program) -> bool:
        ops = {call.op for call in candidate.calls}
        return {"cumsum", "tanh"} <= ops and not fails(candidate, 0)

    assert has_both(program)
    assert str(shrink(program, has_both)) == (
        "p1 = parameter (3, 5)\nv2 = cumsum('p1',) dim=1\nv4 = tanh('p1',)"
    )
