"""What autocast and GradScaler refuse."""

from __future__ import annotations

import copy

import lucid
from lucid import autocast, optim
from lucid.amp import GradScaler
from lucid.compile import make_step

from .case import ErrorCase, f32, i64, leaf


def sgd(has_gradient: bool = True) -> optim.SGD:
    parameter = leaf(2)
    if has_gradient:
        parameter.grad = f32(2)
    return optim.SGD([parameter], lr=0.1)


def started() -> GradScaler:
    scaler = GradScaler()
    scaler.scale(f32(1))
    return scaler


def unscale_twice() -> None:
    scaler, optimizer = started(), sgd()
    scaler.unscale_(optimizer)
    scaler.unscale_(optimizer)


def unscale_after_step() -> None:
    scaler, optimizer = started(), sgd()
    scaler.step(optimizer)
    scaler.unscale_(optimizer)


def step_twice() -> None:
    scaler, optimizer = started(), sgd()
    scaler.step(optimizer)
    scaler.step(optimizer)


def unscale_and_fused_step() -> None:
    scaler, optimizer = started(), sgd()
    scaler.unscale_(optimizer)
    scaler._check_step(optimizer)


def copy_in_between() -> None:
    scaler = started()
    scaler.step(sgd())
    copy.deepcopy(scaler)


def half_gradients() -> None:
    parameter = lucid.zeros(2, dtype=lucid.float16, requires_grad=True)
    parameter.grad = f32(2).half()
    started().unscale_(optim.SGD([parameter], lr=0.1))


def scale_in_a_step() -> None:
    scaler = GradScaler()
    model = lucid.nn.Linear(2, 2)
    make_step(model, lambda y: scaler.scale(y.sum()), fallback="error")(f32(1, 2))


CASES = [
    ErrorCase(
        "GradScaler: in a compiled step",
        scale_in_a_step,
        lucid.TraceError,
        "scale: a GradScaler inside a compiled step would be frozen into it; scale the loss that "
        "the step returns",
    ),
    ErrorCase(
        "autocast: device_type",
        lambda: autocast(lucid.float16),
        lucid.ArgumentTypeError,
        "autocast: device_type must be 'cpu' or 'metal': got dtype; give it first, then dtype",
    ),
    ErrorCase(
        "autocast: unknown device",
        lambda: autocast("cuda"),
        lucid.UserError,
        "device: unknown device 'cuda'; use 'cpu' or 'metal'",
    ),
    ErrorCase(
        "autocast: dtype",
        lambda: autocast("cpu", "bfloat16"),  # type: ignore[arg-type]
        lucid.ArgumentTypeError,
        "autocast: dtype must be lucid.bfloat16 or lucid.float16: got str; device_type comes first",
    ),
    ErrorCase(
        "autocast: low dtype of the core",
        lambda: lucid._C.set_autocast_mode(lucid.device("cpu"), True, lucid.float32),
        lucid.DtypeError,
        "autocast: the low dtype must be bfloat16 or float16: got lucid.float32",
    ),
    ErrorCase(
        "GradScaler: device",
        lambda: GradScaler(1024.0),  # type: ignore[arg-type]
        lucid.ArgumentTypeError,
        "GradScaler: device must be 'cpu' or 'metal': got float; give init_scale by name",
    ),
    ErrorCase(
        "GradScaler: growth_factor",
        lambda: GradScaler(growth_factor=1.0),
        lucid.UserError,
        "GradScaler: growth_factor must be > 1: got 1.0",
    ),
    ErrorCase(
        "GradScaler: backoff_factor",
        lambda: GradScaler(backoff_factor=1.0),
        lucid.UserError,
        "GradScaler: backoff_factor must be < 1: got 1.0",
    ),
    ErrorCase(
        "GradScaler: init_scale",
        lambda: GradScaler(init_scale=0.0),
        lucid.UserError,
        "GradScaler: init_scale must be positive and finite: got 0.0",
    ),
    ErrorCase(
        "GradScaler: growth_interval",
        lambda: GradScaler(growth_interval=0),
        lucid.UserError,
        "GradScaler: growth_interval must be a positive integer: got 0",
    ),
    ErrorCase(
        "GradScaler: outputs",
        lambda: GradScaler().scale(1.0),
        lucid.ArgumentTypeError,
        "scale: outputs must be a Tensor or an iterable of Tensors: got float",
    ),
    ErrorCase(
        "GradScaler: unscale_ before scale",
        lambda: GradScaler().unscale_(sgd()),
        lucid.UserError,
        "unscale_: nothing has been scaled yet; call scale(loss).backward() before",
    ),
    ErrorCase(
        "GradScaler: update before scale",
        lambda: GradScaler().update(),
        lucid.UserError,
        "update: nothing has been scaled yet; call scale(loss).backward() before",
    ),
    ErrorCase(
        "GradScaler: unscale_ twice",
        unscale_twice,
        lucid.AutogradError,
        "unscale_: already called for this optimizer since the last update(); call it once",
    ),
    ErrorCase(
        "GradScaler: unscale_ after step",
        unscale_after_step,
        lucid.AutogradError,
        "unscale_: called after step(); call it before, or call update() first",
    ),
    ErrorCase(
        "GradScaler: float16 gradients",
        half_gradients,
        lucid.UserError,
        "unscale_: a gradient is float16: its range has no room for unscaling; keep the parameters "
        "in float32 and run the forward under autocast",
    ),
    ErrorCase(
        "GradScaler: closure",
        lambda: started().step(sgd(), closure=lambda: 1.0),
        lucid.AutogradError,
        "step: a closure cannot be used while the GradScaler is enabled; compute the loss before",
    ),
    ErrorCase(
        "GradScaler: step twice",
        step_twice,
        lucid.AutogradError,
        "step: already called for this optimizer since the last update(); call update() after each "
        "round of steps",
    ),
    ErrorCase(
        "GradScaler: step without gradients",
        lambda: started().step(sgd(has_gradient=False)),
        lucid.UserError,
        "step: no gradient of this optimizer was checked: its parameters have none; call "
        "backward() first",
    ),
    ErrorCase(
        "GradScaler: unscale_ and a step that unscales",
        unscale_and_fused_step,
        lucid.AutogradError,
        "step: unscale_() was called, but this step unscales by itself; leave it out",
    ),
    ErrorCase(
        "GradScaler: update without a step",
        lambda: started().update(),
        lucid.UserError,
        "update: no gradients were checked since the last update(); call step(optimizer) first",
    ),
    ErrorCase(
        "GradScaler: new scale",
        lambda: started().update(f32(2)),
        lucid.ArgumentTypeError,
        "update: new_scale must be a number or a float32 tensor of one element without a gradient",
    ),
    ErrorCase(
        "GradScaler: state of a disabled one",
        lambda: GradScaler().load_state_dict({}),
        lucid.AutogradError,
        "load_state_dict: the dict has no 'scale'; was it saved by an enabled GradScaler?",
    ),
    ErrorCase(
        "GradScaler: copied in between",
        copy_in_between,
        lucid.UserError,
        "GradScaler: copied between unscale_() or step() and update(); copy it after update()",
    ),
    ErrorCase(
        "all_finite: nothing",
        lambda: lucid.functions.comparison.all_finite([]),
        lucid.UserError,
        "all_finite: no tensors are given; give at least one",
    ),
    ErrorCase(
        "all_finite: integers",
        lambda: lucid.functions.comparison.all_finite([i64(2)]),
        lucid.DtypeError,
        "all_finite: dtype is not floating: int64; cast to a floating dtype first",
    ),
]
