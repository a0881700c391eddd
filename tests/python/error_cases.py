"""The table of errors: a call for every message, and the message's exact text."""

from errors import (
    custom,
    functional,
    functions,
    modules,
    networks,
    operations,
    precision,
    recurrent,
    runtime,
    serialization,
    shapes,
    tracing,
    training,
)
from errors.case import ErrorCase

CASES: list[ErrorCase] = [
    *operations.CASES,
    *networks.CASES,
    *runtime.CASES,
    *tracing.CASES,
    *functions.CASES,
    *shapes.CASES,
    *functional.CASES,
    *modules.CASES,
    *training.CASES,
    *precision.CASES,
    *serialization.CASES,
    *recurrent.CASES,
    *custom.CASES,
]
