"""fused_step: forward, backward and update of a training step in one executable."""

from __future__ import annotations

import contextlib
import numbers
from collections.abc import Callable, Iterator, Sequence
from operator import is_
from typing import Any

from lucid import _C, autograd
from lucid import functions as fn
from lucid._C import Tensor
from lucid.amp.grad_scaler import GradScaler, check_unscaled_dtypes, inverse_of, unscaled
from lucid.autograd import is_anomaly_enabled, no_grad
from lucid.compile.entries import MISS, Compiled, Entry, checked_fallback
from lucid.compile.loss import check_output, input_names, split_result
from lucid.compile.reach import Place
from lucid.compile.tracing import Subject, Traced, trace
from lucid.compile.tree import LEAF, Structure, flatten, unflatten
from lucid.functions.comparison import all_finite
from lucid.functions.precision import without_autocast
from lucid.functions.random import get_rng_state, set_rng_state
from lucid.nn.modules.module import Module
from lucid.nn.utils.clip import clip_grad_norm_, clipped, get_total_norm
from lucid.optim.optimizer import Group, Optimizer
from lucid.optim.update import Plan

__all__ = ["FusedStep", "compile_optimizer", "fused_step"]


class _FusedEntry(Entry):
    """One signature of a fused step, with the plan of its update."""

    def __init__(
        self,
        names: list[str],
        structures: list[Structure],
        leaves: list[Tensor],
        traced: Traced,
        step: FusedStep,
        plan: Plan,
    ) -> None:
        super().__init__(names, structures, leaves, traced)
        self._step = step
        groups = self._all_groups = step._optimizer.param_groups
        self._groups = [(g, list(g["params"])) for g in groups]
        lists = [groups, *(g["params"] for g in groups)]
        self._watch = _C.Watch([(g, "params", g["params"]) for g in groups], lists)
        self.plan = plan

    def try_run(self, args: tuple[Any, ...], scalars: tuple[float, ...] = ()) -> Any:
        plan = self.plan
        is_same = self._step._optimizer.param_groups is self._all_groups and self._watch.holds()
        if not is_same or not plan.stands():
            if self.difference() is not None:
                return MISS
        values = plan.scalars()
        if values is None:
            return MISS
        if self._step._scaler is not None:
            values = (*self._step.scaling(), *values)
        result = Entry.try_run(self, args, values)
        if result is MISS:
            return MISS
        if type(result) is Tensor:
            plan.commit(())
            return result
        results, aux, skipped, created = result
        if not self._step.report(skipped):
            self.plan.commit(created)
        return (results, aux) if self._step.has_aux else results

    def difference(self) -> str | None:
        """What of the optimizer is no longer as the plan has it, or None."""
        groups = self._step._optimizer.param_groups
        if groups is self._all_groups and self._watch.holds():
            return None if self.plan.stands() else "state of the optimizer"
        if len(groups) != len(self._groups):
            return "list of the optimizer's groups"
        for group, (known, params) in zip(groups, self._groups, strict=True):
            now = group["params"]
            same = group is known and len(now) == len(params) and all(map(is_, now, params))
            if not same:
                return "list of the optimizer's parameters"
        if not self.plan.stands():
            return "state of the optimizer"
        return None

    def _rebind(
        self, names: list[str], structures: list[Structure], leaves: list[Tensor]
    ) -> str | None:
        found = self.difference()
        if found is None and self.plan.scalars() is None:
            found = "option of the optimizer"
        if found is None and self._step.hooked() is not None:
            found = "hook of a parameter"
        return found or super()._rebind(names, structures, leaves)


class FusedStep(Compiled):
    """A training step with its update in one executable; made by :func:`fused_step`.

    Calling it as ``step(x, *extra_inputs)`` updates parameters and optimizer state and returns
    the loss, without history; with ``has_aux`` it is ``(loss, aux)``. ``grad`` of the parameters
    is neither read nor written, and a step with gradient hooks on parameters runs eagerly. Calls
    of several threads take turns. After an error parameters, optimizer state, buffers, generators
    and the scaler are as before the call.
    """

    _what = "fused_step"

    def __init__(
        self,
        model: Module,
        loss_fn: Callable[..., Any],
        optimizer: Optimizer,
        fallback: str,
        has_aux: bool,
        clip_norm: float | None,
        accumulate: int,
        scaler: GradScaler | None,
    ) -> None:
        super().__init__(fallback)
        self.has_aux = has_aux
        self.clip_norm = clip_norm
        self.accumulate = accumulate
        self._model = model
        self._loss_fn = loss_fn
        self._optimizer = optimizer
        self._scaler = scaler if scaler is not None and scaler.is_enabled() else None

    def pairs(self) -> list[tuple[Tensor, Group]]:
        """The optimizer's parameters that can have a gradient, with their groups."""
        return [
            (param, group)
            for group in self._optimizer.param_groups
            for param in group["params"]
            if param.requires_grad
        ]

    def hooked(self) -> Tensor | None:
        """A parameter with a gradient hook, which one executable would not call."""
        return next((param for param, _ in self.pairs() if param._num_hooks), None)

    def scaling(self) -> tuple[float, ...]:
        """The numbers that a scaler adds to a run: the scale and its inverse."""
        if self._scaler is None:
            return ()
        self._scaler._check_step(self._optimizer)
        scale = self._scaler._scale_value()
        return (scale, inverse_of(scale))

    def report(self, skipped: Any) -> bool:
        """Tell the scaler how a run went; True if the update was skipped."""
        if self._scaler is None:
            return False
        is_skipped = bool(skipped.item())
        self._scaler._report(self._optimizer, is_skipped)
        self._scaler.update()
        return is_skipped

    # ------------------------------------------------------------ calls

    def __call__(self, *args: Any) -> Any:
        with self._lock:  # two updates at once would lose one of them
            if is_anomaly_enabled():  # whose backward stops before the update, at the operation
                self._checked(self._names(args), args, [])
                return self._run_eagerly(args)
            entries = self._entries
            if entries:
                result = entries[0].try_run(args)
                if result is not MISS:
                    self._hits += 1
                    return result
            return self._slow(args)

    def _names(self, args: tuple[Any, ...]) -> list[str]:
        return input_names(len(args))

    def _checked(
        self, names: list[str], args: tuple[Any, ...], leaves: list[Tensor]
    ) -> list[Structure]:
        if not args:
            raise _C.ArgumentTypeError("fused_step: needs the model's input: step(x, *extra)")
        if not _C.is_grad_enabled():
            raise _C.UserError("fused_step: called under no_grad; call the model itself there")
        structures = [flatten(a, name, leaves) for a, name in zip(args, names, strict=True)]
        self._check_devices([*leaves, *self._model.parameters()])
        for leaf in leaves:
            if leaf.requires_grad:
                raise _C.UserError(
                    f"fused_step: an input of shape {leaf.shape} requires a gradient, which a "
                    "fused step does not return; detach it, or use make_step"
                )
        if not self.pairs():
            raise _C.UserError(
                "fused_step: no parameter of the optimizer requires a gradient; there is nothing "
                "to update"
            )
        self._micro_batches(list(args))
        return structures

    def _micro_batches(self, args: list[Any]) -> list[list[Any]]:
        """The arguments of each micro-batch: tensors cut along their first axis."""
        if self.accumulate == 1:
            return [args]
        leaves: list[Tensor] = []
        structures = [flatten(a, "an argument", leaves) for a in args]
        sizes = [leaf.shape[0] for leaf in leaves if leaf.ndim > 0]
        if not sizes or sizes[0] % self.accumulate != 0:
            raise _C.ShapeError(
                f"fused_step: accumulate={self.accumulate} cuts the first axis into equal parts: "
                f"got size {sizes[0] if sizes else 'none'}; choose a multiple"
            )
        size = sizes[0] // self.accumulate
        result = []
        for i in range(self.accumulate):
            rows = slice(i * size, (i + 1) * size)
            parts = iter([t[rows] if t.ndim > 0 and t.shape[0] == sizes[0] else t for t in leaves])
            result.append([unflatten(s, lambda: next(parts)) for s in structures])  # noqa: B023
        return result

    def _loss_of(self, arguments: list[Any]) -> tuple[Tensor, Any]:
        """The loss of one micro-batch, its share of the whole, and the auxiliary results."""
        output = self._model(arguments[0])
        check_output(output, self._what)
        loss, aux = split_result(self._loss_fn(output, *arguments[1:]), self.has_aux, self._what)
        return (loss if self.accumulate == 1 else loss / self.accumulate), aux

    # ------------------------------------------------------------ compiled

    def _roots(self) -> tuple[Any, ...]:
        return (self._model, self._loss_fn)

    def _make(self, names: list[str], structures: list[Structure], leaves: list[Tensor]) -> Entry:
        # Entries of state that was replaced would keep it alive.
        self._entries = [e for e in self._entries if isinstance(e, _FusedEntry) and e.plan.stands()]
        recording = _Recording(self)
        traced = trace(recording.subject(), structures, leaves)
        assert recording.plan is not None
        return _FusedEntry(names, structures, leaves, traced, self, recording.plan)

    def _keep(self, entry: Entry, leaves: list[Tensor], differences: list[str]) -> None:
        super()._keep(entry, leaves, differences)
        if isinstance(entry, _FusedEntry) and not entry.plan.stands():
            self._entries.remove(entry)  # it made optimizer state, which is there now

    # ------------------------------------------------------------ eager

    def _run_eagerly(self, args: tuple[Any, ...]) -> Any:
        with _undone_on_error(self._model):
            return self._begin_eagerly(args)()

    def _begin_eagerly(self, args: tuple[Any, ...]) -> Callable[[], Any]:
        """Forward and backward of all micro-batches; the update is left to what is given."""
        pairs = self.pairs()
        with _own_gradients(pairs, [None] * len(pairs)):
            total: Tensor | None = None
            all_aux = []
            for arguments in self._micro_batches(list(args)):
                loss, aux = self._loss_of(arguments)
                scaled = loss if self._scaler is None else self._scaler.scale(loss)
                scaled.backward()
                all_aux.append(_without_history(aux))
                total = loss.detach() if total is None else total + loss.detach()
            gradients = [param.grad for param, _ in pairs]

        def finish() -> Any:
            with _own_gradients(pairs, gradients):
                without_autocast(self._update_eagerly, [param for param, _ in pairs])
            if not self.has_aux:
                return total
            return total, (all_aux[0] if self.accumulate == 1 else all_aux)

        return finish

    def _update_eagerly(self, params: list[Tensor]) -> None:
        """Unscale, clip and update by the gradients that the parameters have."""
        if self._scaler is not None:
            self._scaler.unscale_(self._optimizer)
        if self.clip_norm is not None:
            clip_grad_norm_(params, self.clip_norm)
        if self._scaler is None:
            self._optimizer.step()
        else:
            self._scaler.step(self._optimizer)
            self._scaler.update()


@contextlib.contextmanager
def _own_gradients(
    pairs: list[tuple[Tensor, Group]], gradients: Sequence[Tensor | None]
) -> Iterator[None]:
    """Gradients of this step's own; those that were there are put back."""
    before = [(param, param.grad) for param, _ in pairs]
    for (param, _), gradient in zip(pairs, gradients, strict=True):
        param.grad = gradient
    try:
        yield
    finally:
        for param, gradient in before:
            param.grad = gradient


@contextlib.contextmanager
def _undone_on_error(model: Module) -> Iterator[None]:
    """Put buffers and the default generator back if an eager step fails."""
    before = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    generator = get_rng_state()
    try:
        yield
    except BaseException:
        with no_grad():
            for buffer, value in before:
                buffer.assign_(value)
        set_rng_state(generator)
        raise


def _without_history(aux: Any) -> Any:
    tensors: list[Tensor] = []
    structure = flatten(aux, "aux", tensors)
    detached = iter([tensor.detach() for tensor in tensors])
    return unflatten(structure, lambda: next(detached))


class _Recording:
    """Records a fused step: losses, gradients, clipping and the update."""

    def __init__(self, step: FusedStep) -> None:
        self._step = step
        self.plan: Plan | None = None

    def subject(self) -> Subject:
        """What is traced."""
        step = self._step

        def compile_trace(
            made: _C.Trace, leaves: list[Tensor], found: list[Tensor]
        ) -> _C.StepEntry:
            return _C.compile_function(made, leaves, found, False)

        return Subject(
            step._what,
            step._roots(),
            self.record,
            compile_trace,
            places=self._places,
        )

    def _places(self) -> list[Place]:
        """Where the tensors of the optimizer stand."""
        assert self.plan is not None
        places = [
            Place(state, name, "item", f"optimizer state {name!r}")
            for state, name in self.plan.places()
        ]
        for group in self._step._optimizer.param_groups:
            params = group["params"]
            places += [
                Place(params, i, "item", f"parameter {i} of the optimizer")
                for i, param in enumerate(params)
                if param.requires_grad
            ]
        return places

    def record(
        self, recorder: _C.Recorder, arguments: list[Any]
    ) -> tuple[list[Tensor], Structure | None]:
        """The loss, auxiliary results, whether the update is skipped, and new optimizer state."""
        step = self._step
        pairs = step.pairs()
        hooked = step.hooked()
        if hooked is not None:
            raise _C.TraceError(
                f"fused_step: a parameter of shape {hooked.shape} has a gradient hook, which one "
                "executable does not call; remove it, or use make_step"
            )
        scaling = None if step._scaler is None else self._scaling(recorder, step._scaler)
        total, all_aux, sums = self._gradients(arguments, pairs, scaling)
        used = [i for i, gradient in enumerate(sums) if gradient is not None]
        self._check_used(used)
        recorder.pause()
        try:
            self.plan = Plan(step._optimizer, [pairs[i] for i in used])
        finally:
            recorder.resume()
        gradients: list[Tensor] = [sums[i] for i in used]  # type: ignore[misc]
        skip, created = without_autocast(self._update, recorder, gradients, scaling)
        results: list[Tensor] = [total]
        if not step.has_aux and skip is None and not created:
            return results, None
        aux = all_aux[0] if step.accumulate == 1 else all_aux
        structures = [
            LEAF,
            flatten(aux, "aux", results),
            flatten(skip, "skip", results),
            flatten(created, "created", results),
        ]
        return results, Structure("tuple", tuple, tuple(structures))

    def _scaling(self, recorder: _C.Recorder, scaler: GradScaler) -> tuple[Tensor, Tensor]:
        """The stand-ins of the scale and its inverse, of the scaler's own dtype."""
        recorder.pause()
        try:
            like = scaler._scale_tensor(self._step.pairs()[0][0].device)
        finally:
            recorder.resume()
        return recorder.scalar(like), recorder.scalar(like)

    def _update(
        self,
        recorder: _C.Recorder,
        gradients: list[Tensor],
        scaling: tuple[Tensor, Tensor] | None,
    ) -> tuple[Tensor | None, list[Tensor]]:
        """Unscale, clip and update: whether it is skipped, and the new state tensors."""
        step = self._step
        assert self.plan is not None
        skip = None
        with no_grad():
            if scaling is not None:
                check_unscaled_dtypes(gradients)
                skip = fn.logical_not(all_finite(gradients))
                gradients = [unscaled(gradient, scaling[1]) for gradient in gradients]
            if step.clip_norm is not None:
                norm = get_total_norm(gradients)
                gradients = clipped(gradients, step.clip_norm, norm)
            return skip, self.plan.record(gradients, self.plan.stand_ins(recorder), skip)

    def _gradients(
        self, arguments: list[Any], pairs: list[Any], scaling: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, list[Any], list[Tensor | None]]:
        """The loss, the auxiliary results and the sums of gradients of all micro-batches."""
        params = [param for param, _ in pairs]
        sums: list[Tensor | None] = [None] * len(params)
        total: Tensor | None = None
        all_aux = []
        for part in self._step._micro_batches(arguments):
            loss, aux = self._step._loss_of(part)
            self._check_unwritten(params)
            scaled = loss if scaling is None else loss * scaling[0]
            found = autograd.grad(scaled, params, allow_unused=True)
            with no_grad():
                for i, gradient in enumerate(found):
                    known = sums[i]
                    if gradient is not None:
                        gradient = gradient.detach()
                        sums[i] = gradient if known is None else known + gradient
                total = loss.detach() if total is None else total + loss.detach()
            all_aux.append(aux)
        assert total is not None
        return total, all_aux, sums

    @staticmethod
    def _check_unwritten(params: list[Tensor]) -> None:
        """Refuse a step that gives a parameter another value by itself: its gradient belongs to
        the old one, which the update would not see."""
        for param in params:
            if param.is_symbolic:
                raise _C.TraceError(
                    f"fused_step: the step writes a parameter of shape {param.shape} that its "
                    "optimizer updates; write it outside of the step, or use make_step"
                )

    def _check_used(self, used: list[int]) -> None:
        if used:
            return
        raise _C.UserError(
            "fused_step: the loss depends on no parameter of the optimizer; make the optimizer "
            "from the parameters of the model that is trained"
        )


def fused_step(
    model: Module,
    loss_fn: Callable[..., Any],
    optimizer: Optimizer,
    *,
    clip_norm: float | None = None,
    accumulate: int = 1,
    scaler: GradScaler | None = None,
    has_aux: bool = False,
    fallback: str | None = None,
) -> FusedStep:
    """Compile forward, loss, backward and the optimizer's update into one executable.

    A call equals, bit for bit on cpu, ``(loss / accumulate).backward()`` for each micro-batch,
    ``clip_grad_norm_``, ``optimizer.step()``. Learning rates and the other numbers of the
    optimizer are read at each call, so schedulers compile nothing.

    Args:
        model: the module to train.
        loss_fn: ``loss_fn(model(x), *extra_inputs)`` must return one floating element.
        optimizer: an optimizer of this package; its parameter groups hold. Parameters without
            gradient stay as they are.
        clip_norm: bound on the joint 2-norm of all gradients, None for none.
        accumulate: number of micro-batches that the first axis of the inputs is cut into; their
            activations live one after another. Inputs of another first size are passed whole.
        scaler: scales the loss; where a gradient is not finite, the update is skipped. A call
            is also the scaler's ``step`` and ``update``.
        has_aux: ``loss_fn`` returns ``(loss, aux)``, and so does the step; with ``accumulate``
            ``aux`` is a list, one of each micro-batch.
        fallback: what happens to a step that cannot be compiled: see :func:`make_step`.

    Returns: ``step(x, *extra_inputs)``, which returns the loss (the mean of the micro-batches).
    Raises: ArgumentTypeError for a model, loss_fn or optimizer of the wrong type; UserError for
        a bad clip_norm or accumulate, and at the first call if the loss depends on no parameter of
        the optimizer; UnsupportedError for an optimizer with a ``step`` of its own.
    """
    _check_model(model, loss_fn)
    _check_optimizer("fused_step", optimizer)
    if clip_norm is not None and not (_is_number(clip_norm) and clip_norm > 0):
        raise _C.UserError(f"fused_step: clip_norm must be a positive number: got {clip_norm!r}")
    if not isinstance(accumulate, int) or isinstance(accumulate, bool) or accumulate < 1:
        raise _C.UserError(f"fused_step: accumulate must be a positive integer: got {accumulate!r}")
    if scaler is not None and not isinstance(scaler, GradScaler):
        raise _C.ArgumentTypeError(
            f"fused_step: scaler must be a lucid.amp.GradScaler: got {type(scaler).__name__}"
        )
    chosen = checked_fallback("fused_step", fallback)
    limit = None if clip_norm is None else float(clip_norm)
    return FusedStep(model, loss_fn, optimizer, chosen, has_aux, limit, accumulate, scaler)


def _is_number(value: object) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _check_model(model: object, loss_fn: object) -> None:
    if not isinstance(model, Module):
        raise _C.ArgumentTypeError(
            f"fused_step: model must be an nn.Module: got {type(model).__name__}"
        )
    if not callable(loss_fn):
        raise _C.ArgumentTypeError(
            f"fused_step: loss_fn must be callable: got {type(loss_fn).__name__}"
        )


def _check_optimizer(what: str, optimizer: object) -> None:
    if not isinstance(optimizer, Optimizer):
        raise _C.ArgumentTypeError(
            f"{what}: optimizer must be a lucid.optim.Optimizer: got {type(optimizer).__name__}"
        )
    if type(optimizer).step is not Optimizer.step:
        raise _C.UnsupportedError(
            f"{what}: {type(optimizer).__name__} has a step of its own, which is not traced; "
            "define _tensors, _numbers and update instead, or use make_step"
        )


def compile_optimizer(*args: Any, **options: Any) -> Any:
    """Run an optimizer's update compiled, alone or in one executable with the step.

    ``compile_optimizer(optimizer)`` returns the optimizer, whose ``step()`` updates all
    parameters by one executable (optimizers of this package do so by themselves, but for groups
    with ``foreach=False``). ``compile_optimizer(model, loss_fn, optimizer, **options)`` is
    :func:`fused_step`.

    Raises: ArgumentTypeError for something else than an optimizer, UnsupportedError for an
        optimizer with a ``step`` of its own.
    """
    if not args and not options:
        raise _C.ArgumentTypeError(
            "compile_optimizer: needs an optimizer: call it as compile_optimizer(optimizer), or "
            "with model, loss_fn and optimizer"
        )
    if len(args) != 1 or options:
        return fused_step(*args, **options)
    (optimizer,) = args
    _check_optimizer("compile_optimizer", optimizer)
    for group in optimizer.param_groups:
        group["foreach"] = None
    return optimizer
