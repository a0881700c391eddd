"""The table of errors: a call for every message, and the message's exact text."""

import lucid
from errors import (
    arranging,
    compiled,
    custom,
    diagnosis,
    functional,
    functions,
    grids,
    modules,
    networks,
    operations,
    optimizers,
    precision,
    recurrent,
    runtime,
    serialization,
    shapes,
    tracing,
    training,
)
from errors.case import ErrorCase

# Messages of a build without the device.
WITHOUT_METAL = {"device: metal", "to: device without copy"}

ALL_CASES: list[ErrorCase] = [
    *operations.CASES,
    *networks.CASES,
    *runtime.CASES,
    *tracing.CASES,
    *functions.CASES,
    *shapes.CASES,
    *arranging.CASES,
    *functional.CASES,
    *grids.CASES,
    *modules.CASES,
    *optimizers.CASES,
    *training.CASES,
    *precision.CASES,
    *serialization.CASES,
    *compiled.CASES,
    *recurrent.CASES,
    *custom.CASES,
    *diagnosis.CASES,
]

CASES = [
    case for case in ALL_CASES if not (lucid.metal.is_available() and case.name in WITHOUT_METAL)
]
