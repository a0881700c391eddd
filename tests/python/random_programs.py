"""Random programs over the operations of the table, and how a failing one is made small."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import lucid
import numpy as np
from cases.case import Array, OpCase, Sample
from lucid import Tensor, nn
from op_cases import CASES
from op_running import to_numpy

MAX_ELEMENTS = 400
MAX_LARGE_ELEMENTS = 60000
MAX_VALUE = 100.0
# Shapes of the first parameters: they broadcast against each other and are odd in size.
SHAPES = ((3, 5), (5,), (2, 3, 5), (3, 1), (), (7,), (2, 1, 4))
# The same for programs whose work is split among threads.
LARGE_SHAPES = ((33, 129), (129,), (2, 33, 129), (33, 1), (), (257,), (2, 1, 128))


@dataclass(frozen=True)
class Call:
    """One operation: its result's name, and its operands, names or numbers."""

    result: str
    op: str
    operands: tuple[str | float, ...]
    attrs: dict[str, Any] = field(default_factory=dict)
    index: Array | None = None

    def __str__(self) -> str:
        attrs = "".join(f" {name}={value}" for name, value in self.attrs.items())
        index = "" if self.index is None else f" index={self.index.tolist()}"
        return f"{self.result} = {self.op}{self.operands}{attrs}{index}"


@dataclass(frozen=True)
class Program:
    """Parameters by name, and calls in order. The loss adds up what no call reads."""

    parameters: dict[str, tuple[int, ...]]
    calls: tuple[Call, ...]

    def results(self) -> list[str]:
        """The values that no call reads."""
        read = {name for call in self.calls for name in call.operands}
        return [call.result for call in self.calls if call.result not in read]

    def __str__(self) -> str:
        lines = [f"{name} = parameter {shape}" for name, shape in self.parameters.items()]
        return "\n".join([*lines, *map(str, self.calls)])


class ProgramModule(nn.Module):
    """A program as a model; called with any tensor, it gives the loss."""

    def __init__(self, program: Program, seed: int) -> None:
        super().__init__()
        self.program = program
        random = np.random.default_rng(seed)
        for name, shape in program.parameters.items():
            array = random.uniform(-1.5, 1.5, shape).astype(np.float32)
            setattr(self, name, nn.Parameter(lucid.tensor(array)))
        for call in program.calls:
            if call.index is not None:
                self.register_buffer(f"index_{call.result}", lucid.tensor(call.index))

    def forward(self, x: Tensor) -> Tensor:
        values = {name: getattr(self, name) for name in self.program.parameters}
        for call in self.program.calls:
            values[call.result] = self.run(call, values)
        # Something to differentiate, also where all results are detached.
        total = lucid.sum(values[next(iter(self.program.parameters))])
        for place, name in enumerate(self.program.results()):
            value = values[name].to(lucid.float32)
            total = total + lucid.sum(value * value) * (0.25 + place)
        return total

    def run(self, call: Call, values: dict[str, Tensor]) -> Tensor:
        operands: list[Any] = [values[o] if isinstance(o, str) else o for o in call.operands]
        if call.index is not None:
            operands.insert(1, getattr(self, f"index_{call.result}"))
        if call.op == "dropout":
            operands.append(lucid.default_generator)
        result = lucid._C.emit(call.op, *operands, **call.attrs)
        return result[0] if isinstance(result, tuple) else result


def elementwise_rows(num_inputs: int) -> list[OpCase]:
    """One row for each differentiable element-wise operation and choice of attributes."""
    chosen: dict[str, OpCase] = {}
    for case in CASES.values():
        is_fit = (
            len(case.inputs) == num_inputs
            and all(isinstance(i, Sample) and i.dtype == "float32" for i in case.inputs)
            and case.op != "cast"
            and lucid._C.op_info(case.op)["is_elementwise"]
            and lucid._C.op_info(case.op)["has_vjp"]
        )
        if is_fit:
            chosen.setdefault(f"{case.op} {case.attrs}", case)
    return list(chosen.values())


UNARY = elementwise_rows(1)
BINARY = elementwise_rows(2)
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


class Writer:
    """Adds random calls to a program, each valid and of moderate values."""

    def __init__(self, seed: int, max_elements: int) -> None:
        self.max_elements = max_elements
        self.random = np.random.default_rng(seed)
        self.parameters: dict[str, tuple[int, ...]] = {}
        self.calls: list[Call] = []
        self.values: dict[str, Array] = {}

    def parameter(self, *shape: int) -> str:
        name = f"p{len(self.parameters)}"
        self.parameters[name] = shape
        self.values[name] = self.random.uniform(-1.5, 1.5, shape).astype(np.float32)
        return name

    def pick(self, min_rank: int = 0) -> str:
        """A floating value with elements, most often a late one."""
        names = [
            n
            for n, v in self.values.items()
            if v.ndim >= min_rank and v.dtype == np.float32 and v.size
        ]
        if not names:
            return self.parameter(*(3, 5, 2)[:min_rank])
        late = self.random.random() < 0.6
        return str(self.random.choice(names[-4:] if late else names))

    def axis(self, name: str) -> int:
        return int(self.random.integers(self.values[name].ndim))

    def call(
        self, op: str, *operands: str | float, index: Array | None = None, **attrs: Any
    ) -> str | None:
        """Adds the call unless its result is too large, or not finite."""
        made = Call(f"v{len(self.calls)}", op, operands, attrs, index)
        tensors: list[Any] = [
            lucid.tensor(self.values[o]) if isinstance(o, str) else o for o in operands
        ]
        if index is not None:
            tensors.insert(1, lucid.tensor(index))
        if op == "dropout":
            tensors.append(lucid.default_generator)
        result = lucid._C.emit(op, *tensors, **attrs)
        value = to_numpy(result[0] if isinstance(result, tuple) else result)
        is_moderate = np.all(np.isfinite(value)) and np.max(np.abs(value), initial=0) < MAX_VALUE
        if value.size > self.max_elements or not is_moderate:
            return None
        self.calls.append(made)
        self.values[made.result] = value
        return made.result

    def partner(self, name: str) -> str | float:
        """A number, or a value that broadcasts with this one."""
        if self.random.random() < 0.2:
            return float(self.random.choice([0.5, -1.0, 2.0, 0.0, 3.0]))
        shape = self.values[name].shape
        for _ in range(8):
            other = self.pick()
            try:
                np.broadcast_shapes(shape, self.values[other].shape)
            except ValueError:
                continue
            return other
        return self.parameter(*shape[1:])

    # ---------------------------------------------------------------- kinds of calls

    def unary(self) -> None:
        case = UNARY[self.random.integers(len(UNARY))]
        self.call(case.op, self.pick(), **case.attrs)

    def binary(self) -> None:
        case = BINARY[self.random.integers(len(BINARY))]
        first = self.pick()
        self.call(case.op, first, self.partner(first))

    def shared(self) -> None:
        """A value read twice by one call."""
        name = self.pick()
        self.call(str(self.random.choice(["add", "mul", "maximum", "sub"])), name, name)

    def where(self) -> None:
        first = self.pick()
        other = self.partner(first)
        condition = self.call(str(self.random.choice(COMPARISONS)), first, other)
        if condition is not None:
            self.call("where", condition, first, other)

    def clamp(self) -> None:
        self.call("clamp", self.pick(), -0.5, 0.75)

    def reduction(self) -> None:
        name = self.pick(1)
        rank = self.values[name].ndim
        count = self.random.integers(1, rank + 1)
        dims = sorted(int(d) for d in self.random.choice(rank, count, replace=False))
        op = str(self.random.choice(["sum", "amax", "amin", "prod", "sum"]))
        self.call(op, name, dims=dims, keepdim=bool(self.random.random() < 0.5))

    def along(self) -> None:
        name = self.pick(1)
        op = str(self.random.choice(["softmax", "log_softmax", "cumsum"]))
        self.call(op, name, dim=self.axis(name))

    def order(self) -> None:
        name = self.pick(1)
        descending = bool(self.random.random() < 0.5)
        self.call("sort", name, dim=self.axis(name), descending=descending)

    def reshape(self) -> None:
        name = self.pick()
        shape = self.values[name].shape
        size = self.values[name].size
        options = [[size], [1, *shape], [*shape, 1]]
        options += [[d, size // d] for d in (2, 3, 5) if size % d == 0]
        self.call("reshape", name, shape=list(options[self.random.integers(len(options))]))

    def permute(self) -> None:
        name = self.pick(2)
        dims = [int(d) for d in self.random.permutation(self.values[name].ndim)]
        self.call("permute", name, dims=dims)

    def broadcast(self) -> None:
        name = self.pick()
        shape = [3 if n == 1 else n for n in self.values[name].shape]
        self.call("broadcast_to", name, shape=[2, *shape] if len(shape) < 4 else shape)

    def cut(self) -> None:
        name = self.pick(1)
        starts, sizes, steps = [], [], []
        for length in self.values[name].shape:
            step = int(self.random.choice([1, 1, 2, -1]))
            start = int(self.random.integers(length))
            room = length - 1 - start if step > 0 else start
            starts.append(start)
            sizes.append(1 + int(self.random.integers(room // abs(step) + 1)))
            steps.append(step)
        if self.random.random() < 0.6:
            self.call("slice", name, starts=starts, sizes=sizes, steps=steps)
        else:
            self.call("slice_update", name, self.parameter(*sizes), starts=starts, steps=steps)

    def pad(self) -> None:
        name = self.pick(1)
        rank = self.values[name].ndim
        low = [int(n) for n in self.random.integers(0, 2, rank)]
        high = [int(n) for n in self.random.integers(0, 3, rank)]
        self.call("pad", name, low=low, high=high, value=float(self.random.choice([0.0, -0.5])))

    def concat(self) -> None:
        name = self.pick(1)
        axis = self.axis(name)
        shape = list(self.values[name].shape)
        shape[axis] = int(self.random.integers(1, 4))
        self.call("concat", name, self.parameter(*shape), name, dim=axis)

    def product(self) -> None:
        name = self.pick(2)
        *_, rows, columns = self.values[name].shape
        transpose_a, transpose_b = (bool(b) for b in self.random.random(2) < 0.5)
        inner = rows if transpose_a else columns
        width = int(self.random.integers(1, 6))
        other = self.parameter(*((width, inner) if transpose_b else (inner, width)))
        self.call("matmul", name, other, transpose_a=transpose_a, transpose_b=transpose_b)

    def square_product(self) -> None:
        """A matrix times itself, transposed."""
        name = self.pick(2)
        self.call("matmul", name, name, transpose_a=False, transpose_b=True)

    def linear(self) -> None:
        name = self.pick(1)
        width = int(self.random.integers(1, 6))
        weight = self.parameter(width, self.values[name].shape[-1])
        self.call("linear", name, weight, self.parameter(width))

    def normalize(self) -> None:
        name = self.pick(1)
        size = self.values[name].shape[-1]
        if size > 2:
            affine = (self.parameter(size), self.parameter(size))
            self.call("layer_norm", name, *affine, axes=1, eps=1e-3)

    def index(self) -> None:
        name = self.pick(1)
        axis = self.axis(name)
        shape = list(self.values[name].shape)
        size = shape[axis]
        if self.random.random() < 0.5:
            self.call("take", name, index=self.random.integers(-size, size, (2, 3)), dim=axis)
        else:
            shape[axis] = 4
            self.call("gather", name, index=self.random.integers(-size, size, shape), dim=axis)

    def dropout(self) -> None:
        self.call("dropout", self.pick(), p=0.25)

    def detach(self) -> None:
        self.call("detach", self.pick())

    def chain(self) -> None:
        """Element-wise calls, each of which reads the one before, some an older link again."""
        links = [self.pick()]
        for _ in range(self.random.integers(3, 11)):
            link, older = links[-1], str(self.random.choice(links))
            kind = self.random.random()
            if kind < 0.4:
                case = UNARY[self.random.integers(len(UNARY))]
                made = self.call(case.op, link, **case.attrs)
            else:
                op = str(self.random.choice(["add", "sub", "mul", "maximum", "minimum"]))
                made = self.call(op, link, older if kind < 0.6 else self.partner(link))
            if made is not None:
                links.append(made)

    def cast_chain(self) -> None:
        """Element-wise calls in another dtype; some of what they make is read in both."""
        name = self.pick()
        dtype = lucid.float64 if self.random.random() < 0.5 else lucid.float16
        links: list[str | None] = [self.call("cast", name, dtype=dtype)]
        for _ in range(self.random.integers(1, 5)):
            if links[-1] is None:
                return
            op = str(self.random.choice(["tanh", "neg", "mul", "add", "maximum"]))
            operands = links[-1:] if op in ("tanh", "neg") else [links[-1], links[0]]
            links.append(self.call(op, *[o for o in operands if o is not None]))
        for link in (links[-1], links[len(links) // 2]):
            back = None if link is None else self.call("cast", link, dtype=lucid.float32)
            if back is not None:
                self.call("mul", back, name)


KINDS: tuple[tuple[Callable[[Writer], None], int], ...] = (
    (Writer.unary, 8),
    (Writer.binary, 8),
    (Writer.shared, 2),
    (Writer.where, 2),
    (Writer.clamp, 1),
    (Writer.reduction, 3),
    (Writer.along, 2),
    (Writer.order, 1),
    (Writer.reshape, 2),
    (Writer.permute, 2),
    (Writer.broadcast, 2),
    (Writer.cut, 3),
    (Writer.pad, 1),
    (Writer.concat, 2),
    (Writer.product, 2),
    (Writer.square_product, 1),
    (Writer.linear, 1),
    (Writer.normalize, 1),
    (Writer.index, 2),
    (Writer.dropout, 1),
    (Writer.detach, 1),
    (Writer.chain, 4),
    (Writer.cast_chain, 2),
)


def write_program(seed: int, is_large: bool = False) -> Program:
    """The program of a seed: 3 to 24 calls."""
    lucid.manual_seed(seed)
    writer = Writer(seed, MAX_LARGE_ELEMENTS if is_large else MAX_ELEMENTS)
    shapes = LARGE_SHAPES if is_large else SHAPES
    for place in writer.random.choice(len(shapes), 3, replace=False):
        writer.parameter(*shapes[place])
    weights = np.asarray([weight for _, weight in KINDS], np.float64)
    length = writer.random.integers(3, 25)
    while len(writer.calls) < length:
        kind = writer.random.choice(len(KINDS), p=weights / weights.sum())
        KINDS[kind][0](writer)
    return tidied(Program(writer.parameters, tuple(writer.calls)))


def tidied(program: Program) -> Program:
    """Without the parameters that nothing reads."""
    read = {name for call in program.calls for name in call.operands}
    kept = {name: shape for name, shape in program.parameters.items() if name in read}
    return replace(program, parameters=kept)


def without_call(program: Program, place: int, shapes: dict[str, tuple[int, ...]]) -> Program:
    """The program with a call's result replaced: by an operand of its shape, or a parameter."""
    gone = program.calls[place]
    shape = shapes[gone.result]
    stand_ins = [o for o in gone.operands if isinstance(o, str) and shapes[o] == shape]
    parameters = dict(program.parameters)
    if not stand_ins:
        stand_ins = [f"r{gone.result}"]
        parameters[stand_ins[0]] = shape
    renamed = {gone.result: stand_ins[0]}
    calls = [
        replace(call, operands=tuple(renamed.get(o, o) for o in call.operands))
        for call in program.calls
        if call is not gone
    ]
    return tidied(Program(parameters, tuple(calls)))


def shapes_of(program: Program) -> dict[str, tuple[int, ...]]:
    """Shapes of all values."""
    model = ProgramModule(program, 0)
    values = {name: getattr(model, name) for name in program.parameters}
    for call in program.calls:
        values[call.result] = model.run(call, values)
    return {name: tuple(value.shape) for name, value in values.items()}


def shrink(program: Program, fails: Callable[[Program], bool]) -> Program:
    """A program that still fails, and of which no call can be left out."""
    shapes = shapes_of(program)
    place = len(program.calls) - 1
    while place >= 0 and len(program.calls) > 1:
        smaller = without_call(program, place, shapes)
        shapes.update(smaller.parameters)
        if smaller.calls and fails(smaller):
            program = smaller
            place = len(program.calls)
        place -= 1
    return program
