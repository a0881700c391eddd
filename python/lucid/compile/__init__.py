"""Compiling whole training steps. The module itself can be called: ``lucid.compile(model)``."""

from lucid.compile import tracing as _tracing  # noqa: F401  (surface of compiled steps)
from lucid.compile.callable_module import make_callable
from lucid.compile.custom import CustomOp, TensorSpec, custom_op
from lucid.compile.diagnosis import DiagnosisReport, OpInfo, diagnose
from lucid.compile.entries import FallbackWarning, RecompileWarning
from lucid.compile.function import CompiledFunction
from lucid.compile.fused import FusedStep, compile_optimizer, fused_step
from lucid.compile.module import (
    CompiledModule,
    compile,  # noqa: F401, A004
    compiled_step,
)
from lucid.compile.process import cache_info, clear_cache, clear_disk_cache, counters
from lucid.compile.saving import load_compiled, save_compiled
from lucid.compile.step import Step, make_autoseg_step, make_segmented_step, make_step

# Neither `compile`, which would hide the builtin, nor names with an underscore.
__all__ = [
    "CompiledFunction",
    "CompiledModule",
    "CustomOp",
    "DiagnosisReport",
    "FallbackWarning",
    "FusedStep",
    "OpInfo",
    "RecompileWarning",
    "Step",
    "TensorSpec",
    "cache_info",
    "clear_cache",
    "clear_disk_cache",
    "compile_optimizer",
    "compiled_step",
    "counters",
    "custom_op",
    "diagnose",
    "fused_step",
    "load_compiled",
    "make_autoseg_step",
    "make_segmented_step",
    "make_step",
    "save_compiled",
]

make_callable(__name__)
