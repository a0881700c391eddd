"""The table of operations: at least one row for every operation of the registry."""

from cases import binary, custom, nn, pointwise, recurrent, reduction, shape, training
from cases.case import OpCase


def distinct(rows: list[OpCase]) -> dict[str, OpCase]:
    """The rows by name; a number tells apart those of one name."""
    named: dict[str, OpCase] = {}
    for row in rows:
        name = row.name
        count = 2
        while name in named:
            name = f"{row.name}#{count}"
            count += 1
        named[name] = row
    return named


CASES = distinct(
    [
        *pointwise.CASES,
        *binary.CASES,
        *shape.CASES,
        *reduction.CASES,
        *nn.CASES,
        *training.CASES,
        *recurrent.CASES,
        *custom.CASES,
    ]
)
