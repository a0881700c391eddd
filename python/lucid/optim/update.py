"""The update of all parameters as one executable.

``Plan`` is one traced update: of these parameters, with these state tensors and this arithmetic.
The numbers of a step (learning rate, bias corrections) are inputs of a run, computed on the host
in double precision, so that schedulers compile nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lucid import _C
from lucid._C import Tensor
from lucid.autograd import no_grad

if TYPE_CHECKING:
    from lucid.optim.optimizer import Group, Numbers, Optimizer

__all__ = ["Plan", "Updates"]

# Entries of a parameter's state that are numbers and advance with each step.
_COUNTERS = ("step", "mu_product")
_MAX_PLANS = 8

Pair = tuple[Tensor, "Group"]


_NOTHING: dict[str, Any] = {}


def _is_constant(value: object) -> bool:
    if type(value) is tuple:
        return all(map(_is_constant, value))
    return value is None or type(value) in (bool, int, float, str)


def _counters_of(state: dict[str, Any]) -> dict[str, Any]:
    return {name: state[name] for name in _COUNTERS if name in state}


def watch_groups(optimizer: Optimizer) -> _C.Watch | None:
    """Holds while the groups have the parameters that they have now and are updated together;
    None if some are not."""
    groups = optimizer.param_groups
    if any(group.get("foreach", False) is False for group in groups):
        return None
    items = [(group, name, group[name]) for group in groups for name in ("params", "foreach")]
    return _C.Watch(items, [groups, *(group["params"] for group in groups)])


class _Class:
    """Parameters of one group and dtype that take the same numbers."""

    def __init__(
        self, group: Group, counters: dict[str, Any], numbers: Numbers, follows_from_group: bool
    ) -> None:
        self.group = group
        self.options = dict(numbers.options)
        self.names = list(numbers.scalars)
        self._follows_from_group = follows_from_group
        # While the values of the group are those of the last step: the numbers that stay.
        self._group_watch: _C.Watch | None = None
        self._constants: tuple[float, ...] = ()
        self._by_step = numbers.by_step
        self.params: list[Tensor] = []
        self.before = counters
        self.after: dict[str, Any] = {}
        # Of the last run: its counts, and what the states of the parameters had after it.
        self._counts: dict[str, Any] = {}
        self._watch: _C.Watch | None = None

    def holds(self) -> bool:
        """True if all states are as the last run of this plan has left them."""
        if self._watch is None:
            return False
        if self._watch.holds():
            return True
        self._watch = None
        return False

    @property
    def is_unwatched(self) -> bool:
        """True until the first run, and after somebody else has changed a state."""
        return self._watch is None

    def commit(self, state_of: dict[Tensor, dict[str, Any]], watches: bool) -> None:
        """Advance the counts of all parameters; from then on see who changes their states."""
        self._counts = self.after
        if self._watch is not None:
            for name, count in self.after.items():
                self._watch.put(name, count)
            return
        items: list[tuple[dict[Any, Any], Any, Any]] = []
        for param in self.params:
            if self.after:
                state_of.setdefault(param, {}).update(self.after)
            state = state_of.get(param)
            if state is not None:
                items.append((state_of, param, state))
                items += [(state, name, value) for name, value in state.items()]
        if watches:
            self._watch = _C.Watch(items)

    def scalars(self, optimizer: Optimizer) -> tuple[float, ...] | None:
        """The numbers of the next step; None if the arithmetic would be another."""
        if self._watch is not None:
            if self._group_watch is not None and self._group_watch.holds():
                return self._next_scalars()
            self.after = dict(self._counts)
        elif not self._take_counts(optimizer.state):
            return None
        numbers = optimizer.checked_numbers(self.group, self.after)
        if numbers.options != self.options or list(numbers.scalars) != self.names:
            return None
        values = tuple(numbers.scalars.values())
        if self._follows_from_group:
            self._watch_group(numbers, values)
        return values

    def _next_scalars(self) -> tuple[float, ...]:
        """The numbers of the next step of a group that has not changed."""
        if not self._counts:
            return self._constants
        step = self._counts["step"] + 1
        self.after = {"step": step}
        return self._constants + self._by_step(step)

    def _watch_group(self, numbers: Numbers, values: tuple[float, ...]) -> None:
        """See who changes a value of the group; one that is no constant may change unseen."""
        options = {k: v for k, v in self.group.items() if k not in ("params", "param_names")}
        if set(self.after) <= {"step"} and all(map(_is_constant, options.values())):
            changing = len(numbers.by_step(1))
            self._constants = values[: len(values) - changing]
            self._by_step = numbers.by_step
            self._group_watch = _C.Watch([(self.group, k, v) for k, v in options.items()])

    def _take_counts(self, state_of: dict[Tensor, dict[str, Any]]) -> bool:
        """Start from the counts of all parameters; False if they differ."""
        states = [state_of.get(param, _NOTHING) for param in self.params]
        for name in _COUNTERS:
            count = states[0].get(name)
            for state in states:
                if state.get(name) != count:
                    return False
        self.after = _counters_of(states[0])
        return True


class Plan:
    """One update that can be traced, or run again: which parameters, state and numbers.

    ``pairs`` are the parameters that have gradients, with their groups. State tensors that are
    new are made here, and put into the optimizer's state after the first run.
    """

    def __init__(self, optimizer: Optimizer, pairs: Sequence[Pair]) -> None:
        self._optimizer = optimizer
        self.params = [param for param, _ in pairs]
        self._groups = [group for _, group in pairs]
        self._state = optimizer.state
        self._tensors: list[dict[str, Tensor]] = []
        # By parameter, what its state must have for this plan to be right; None for nothing.
        self._expected: list[dict[str, Tensor | None]] = []
        self._classes: list[_Class] = []
        self._class_of: list[_Class] = []
        for param, group in pairs:
            state = dict(self._state.get(param, _NOTHING))
            known_names = set(state)
            tensors = optimizer._tensors(param, group, state)
            self._tensors.append(tensors)
            self._expected.append({n: t if n in known_names else None for n, t in tensors.items()})
            self._class_of.append(self._find_class(param, group, _counters_of(state)))
        self._made: list[tuple[int, str]] = []

    def _find_class(self, param: Tensor, group: Group, counters: dict[str, Any]) -> _Class:
        for known in self._classes:
            same_numbers = known.group is group and known.before == counters
            if same_numbers and known.params[0].dtype == param.dtype:
                break
        else:
            follows = getattr(self._optimizer._numbers, "follows_from_group", False)
            numbers = self._optimizer.checked_numbers(group, dict(counters))
            known = _Class(group, counters, numbers, follows)
            self._classes.append(known)
        known.params.append(param)
        return known

    def stand_ins(self, recorder: _C.Recorder) -> list[dict[str, Tensor]]:
        """By class, the stand-ins of the numbers of :meth:`scalars`, in its order."""
        return [
            {name: recorder.scalar(known.params[0]) for name in known.names}
            for known in self._classes
        ]

    def record(
        self,
        gradients: Sequence[Tensor],
        stand_ins: list[dict[str, Tensor]],
        skip: Tensor | None = None,
    ) -> list[Tensor]:
        """Write the update into the running trace; returns the state tensors that are new.

        ``skip`` is a () bool tensor: where it is true at a run, nothing is changed.
        """
        created = []
        numbers_of = dict(zip(map(id, self._classes), stand_ins, strict=True))
        with no_grad():
            for i, param in enumerate(self.params):
                known = self._class_of[i]
                old = self._tensors[i]
                value, updated = self._optimizer.update(
                    param,
                    gradients[i],
                    old,
                    numbers_of[id(known)],  # type: ignore[arg-type]  # () tensors act as numbers
                    known.options,
                )
                param.assign_(value if skip is None else _kept(skip, param, value))
                for name, tensor in updated.items():
                    if name in old:
                        before = old[name]
                        before.assign_(tensor if skip is None else _kept(skip, before, tensor))
                    else:
                        self._made.append((i, name))
                        self._expected[i][name] = None
                        created.append(tensor)
        return created

    def fits(self, pairs: Sequence[Pair]) -> bool:
        """True if this plan updates just these parameters, of an optimizer whose state is as
        this plan knows it."""
        if len(pairs) != len(self.params):
            return False
        for (param, group), known, its_group in zip(pairs, self.params, self._groups, strict=True):
            if param is not known or group is not its_group:
                return False
        return self.stands()

    def stands(self) -> bool:
        """True while the optimizer's state tensors are those that this plan knows: one that
        makes tensors stands until its first run."""
        if self._optimizer.state is not self._state:
            return False
        all_hold = True
        for known in self._classes:  # each is asked: it forgets what no longer holds
            if not known.holds():
                all_hold = False
        if all_hold:
            return True
        for param, expected in zip(self.params, self._expected, strict=True):
            state = self._state.get(param, _NOTHING)
            for name, tensor in expected.items():
                if state.get(name) is not tensor:
                    return False
        return True

    def scalars(self) -> tuple[float, ...] | None:
        """The numbers of the next step, in order; None if another plan is needed."""
        result: tuple[float, ...] = ()
        for known in self._classes:
            found = known.scalars(self._optimizer)
            if found is None:
                return None
            result += found
        return result

    def places(self) -> list[tuple[dict[str, Tensor], str]]:
        """Where the state tensors that it reads stand."""
        return [(tensors, name) for tensors in self._tensors for name in tensors]

    def commit(self, created: Sequence[Tensor]) -> None:
        """Note a run that has succeeded: new state tensors, and counts advanced."""
        for known in self._classes:
            if known.is_unwatched:
                self._put_tensors(created)
                break
        for known in self._classes:
            known.commit(self._state, watches=not self._made)

    def _put_tensors(self, created: Sequence[Tensor]) -> None:
        """Put the state tensors that are new into the optimizer's state."""
        for param, expected, tensors in zip(
            self.params, self._expected, self._tensors, strict=True
        ):
            fresh = {n: t for n, t in tensors.items() if expected[n] is None}
            if fresh:
                self._state.setdefault(param, {}).update(fresh)
                expected.update(fresh)
        for (i, name), tensor in zip(self._made, created, strict=True):
            self._state.setdefault(self.params[i], {})[name] = tensor


def _kept(skip: Tensor, old: Tensor, new: Tensor) -> Tensor:
    from lucid import functions as fn

    return fn.where(skip, old, new)


class _Compiled:
    """A plan and its executable."""

    def __init__(self, optimizer: Optimizer, plan: Plan, gradients: list[Tensor]) -> None:
        self.plan = plan
        self._groups = optimizer.param_groups
        self._watch = watch_groups(optimizer)
        self._params = tuple(plan.params)
        known = {id(param) for param in plan.params}
        self._others = tuple(
            param for group in self._groups for param in group["params"] if id(param) not in known
        )
        recorder = _C.Recorder("optimizer")
        try:
            arguments = [recorder.argument(gradient) for gradient in gradients]
            created = plan.record(arguments, plan.stand_ins(recorder))
            trace = recorder.finish(created)
        finally:
            recorder.cancel()
        self._captures = trace.captures
        self.entry = _C.compile_function(trace, gradients, self._captures, False)

    def try_again(self, optimizer: Optimizer) -> bool:
        """Run once more if groups, state and gradients are of the kind that they were."""
        if self._watch is None or optimizer.param_groups is not self._groups:
            return False
        plan = self.plan
        if not self._watch.holds() or not plan.stands():
            return False
        scalars = plan.scalars()
        if scalars is None:
            return False
        created = self.entry.try_update(self._params, self._others, scalars)
        if created is None:
            return False
        plan.commit((created,) if isinstance(created, Tensor) else created)
        return True

    def try_run(self, gradients: list[Tensor], scalars: tuple[float, ...]) -> Any:
        """The new state tensors; None for gradients of other types."""
        arguments = tuple(gradients)
        found = self.entry.try_run(arguments, scalars)
        if found is None and self.entry.accepts(arguments) and self.entry.rebind(self._captures):
            found = self.entry.try_run(arguments, scalars)
        return found


class Updates:
    """The compiled updates of one optimizer, most recently used first."""

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._known: list[_Compiled] = []

    def run_again(self) -> bool:
        """Do as the last update did, if all is as it was then."""
        return bool(self._known) and self._known[0].try_again(self._optimizer)

    def run(self, pairs: list[Pair]) -> None:
        """Update these parameters by their gradients."""
        if not pairs:
            return
        gradients: list[Tensor] = [param.grad for param, _ in pairs]  # type: ignore[misc]
        for known in self._known:
            if known.plan.fits(pairs) and self._run(known, gradients):
                if known is not self._known[0]:
                    self._known = [known, *(k for k in self._known if k is not known)]
                return
        # Plans of state that was replaced would keep it alive.
        self._known = [known for known in self._known if known.plan.stands()]
        for part in _by_device(pairs):
            gradients = [param.grad for param, _ in part]  # type: ignore[misc]
            made = _Compiled(self._optimizer, Plan(self._optimizer, part), gradients)
            if not self._run(made, gradients):
                raise _C.InternalError("optimizer: a fresh executable refused its own update")
            if len(part) == len(pairs) and made.plan.stands():
                self._known = [made, *self._known][:_MAX_PLANS]

    @staticmethod
    def _run(compiled: _Compiled, gradients: list[Tensor]) -> bool:
        scalars = compiled.plan.scalars()
        if scalars is None:
            return False
        created = compiled.try_run(gradients, scalars)
        if created is None:
            return False
        compiled.plan.commit((created,) if isinstance(created, Tensor) else created)
        return True

    def __reduce__(self) -> Any:
        return (Updates, (self._optimizer,))  # executables are made anew


def _by_device(pairs: list[Pair]) -> list[list[Pair]]:
    parts: dict[str, list[Pair]] = {}
    for param, group in pairs:
        parts.setdefault(param.device.type, []).append((param, group))
    return list(parts.values())
