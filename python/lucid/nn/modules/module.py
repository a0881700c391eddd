"""Module: the base class of layers, which finds parameters, buffers and modules by name."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from lucid import _C
from lucid._C import Tensor
from lucid.autograd import no_grad
from lucid.functions.arguments import user_line
from lucid.nn.modules.arguments import check_name, indent, parse_target, replace_data
from lucid.nn.modules.hooks import Hooked
from lucid.nn.modules.state import IncompatibleKeys, load_state
from lucid.nn.parameter import Parameter, clear_grad

Self = TypeVar("Self", bound="Module")

# Called with every module that is called while a step is traced: the compiler's signature
# covers the modules of a trace.
_call_observers: list[Callable[[Module], None]] = []
# Called with every module that is made while a step is traced: it is new at each call.
_made_observers: list[Callable[[Module], None]] = []


def _describe(value: Tensor | None) -> str:
    if value is None:
        return "None"
    kind = "" if value.is_symbolic else " from outside"
    return f"{value.dtype.name}{list(value.shape)}{kind}"


def _forward_unimplemented(self: Module, *args: Any) -> Any:
    """The computation of one call; every subclass defines its own."""
    raise _C.UnsupportedError(f"{type(self).__name__}: forward is not defined; add the method")


class Module(Hooked):
    """Base class of all layers and models.

    Assigning a :class:`Parameter`, a module or, after ``register_buffer``, a tensor to an
    attribute registers it, so that ``parameters``, ``to``, ``state_dict`` and the like reach it.
    A subclass calls ``super().__init__()`` first and defines ``forward``.
    """

    training: bool
    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _non_persistent_buffers_set: set[str]
    _modules: dict[str, Module | None]

    def __init__(self) -> None:
        # Past __setattr__, which needs these to exist.
        self.__dict__.update(
            training=True,
            _parameters={},
            _buffers={},
            _non_persistent_buffers_set=set(),
            _modules={},
        )
        self._make_hooks()
        if _C.is_tracing():
            for observe in tuple(_made_observers):  # other threads may trace too
                observe(self)

    forward: Callable[..., Any] = _forward_unimplemented

    # ------------------------------------------------------------ calling

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the pre-hooks, ``forward`` and the hooks."""
        if _C.is_tracing():
            for observe in tuple(_call_observers):
                observe(self)
        if (  # as _has_hooks, without the call: every call of every module comes by
            self._forward_hooks
            or self._forward_pre_hooks
            or self._backward_hooks
            or self._backward_pre_hooks
        ):
            return self._call_with_hooks(args, kwargs)
        return self.forward(*args, **kwargs)

    # ------------------------------------------------------------ registering

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a parameter under ``name``, or reserve the name with None.

        Raises: UserError for a bad or taken name, ArgumentTypeError for another type.
        """
        self._require_init("parameters")
        name = check_name(self, "parameter", name, self._parameters)
        if param is not None and not isinstance(param, Parameter):
            raise _C.ArgumentTypeError(
                f"register_parameter: expected a Parameter or None for {name!r}: got "
                f"{type(param).__name__}; wrap it in nn.Parameter"
            )
        if param is not None and param.grad_fn is not None:
            raise _C.UserError(
                f"register_parameter: {name!r} is the result of an operation; compute it in "
                "forward, or detach it first"
            )
        self._parameters[name] = param
        _C.bump_state()

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a tensor that belongs to the module's state but is not trained.

        Args:
            tensor: the values, or None to reserve the name.
            persistent: whether ``state_dict`` lists it.

        Raises: UserError for a bad or taken name, ArgumentTypeError for another type.
        """
        self._require_init("buffers")
        name = check_name(self, "buffer", name, self._buffers)
        if tensor is not None and not isinstance(tensor, Tensor):
            raise _C.ArgumentTypeError(
                f"register_buffer: expected a Tensor or None for {name!r}: got "
                f"{type(tensor).__name__}"
            )
        self._buffers[name] = tensor
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)
        _C.bump_state()

    def add_module(self, name: str, module: Module | None) -> None:
        """Add a child module under ``name``, or reserve the name with None.

        Raises: UserError for a bad or taken name, ArgumentTypeError for another type.
        """
        self._require_init("modules")
        if module is not None and not isinstance(module, Module):
            raise _C.ArgumentTypeError(
                f"add_module: expected a Module or None for {name!r}: got {type(module).__name__}"
            )
        self._modules[check_name(self, "module", name, self._modules)] = module
        _C.bump_state()

    def register_module(self, name: str, module: Module | None) -> None:
        """Alias of :meth:`add_module`."""
        self.add_module(name, module)

    def _require_init(self, kind: str) -> None:
        if "_parameters" not in self.__dict__:
            raise _C.UserError(
                f"{type(self).__name__}: {kind} were assigned before Module.__init__(); "
                "call super().__init__() first"
            )

    def __getattr__(self, name: str) -> Any:
        members = self.__dict__
        for kind in ("_parameters", "_buffers", "_modules"):
            if kind in members and name in members[kind]:
                return members[kind][name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __setattr__(self, name: str, value: Any) -> None:
        members = self.__dict__
        if isinstance(value, Parameter):
            self._require_init("parameters")
            if self._parameters.get(name) is not value:
                self._forget(name, keep=self._parameters)
                self.register_parameter(name, value)
            return
        if isinstance(value, Module):
            self._require_init("modules")
            if self._modules.get(name) is not value:
                self._forget(name, keep=self._modules)
                self.add_module(name, value)
            return
        if "_parameters" in members:
            if name in self._parameters:
                self._reset(self._parameters, name, value, "parameter", "lucid.nn.Parameter")
                return
            if name in self._modules:
                self._reset(self._modules, name, value, "child module", "lucid.nn.Module")
                return
            if name in self._buffers:
                self._set_buffer(name, value)
                return
        if name in members and members[name] is value:
            return
        object.__setattr__(self, name, value)
        _C.bump_state()

    def _forget(self, name: str, keep: Mapping[str, Any]) -> None:
        """Drop whatever else ``name`` means; an entry of ``keep`` is replaced in its place."""
        for kind in (self.__dict__, self._parameters, self._buffers, self._modules):
            if kind is not keep:
                kind.pop(name, None)
        self._non_persistent_buffers_set.discard(name)

    def _reset(
        self, known: dict[str, Any], name: str, value: object, kind: str, wanted: str
    ) -> None:
        """Set a registered name to None; any other value is of the wrong type."""
        if value is not None:
            raise _C.ArgumentTypeError(
                f"{kind} {name!r}: expected {wanted} or None: got {type(value).__name__}"
            )
        if known[name] is not None:
            known[name] = None
            _C.bump_state()

    def _set_buffer(self, name: str, value: object) -> None:
        """Replace a buffer; in a trace its new value becomes state that is written back."""
        if value is not None and not isinstance(value, Tensor):
            raise _C.ArgumentTypeError(
                f"buffer {name!r}: expected lucid.Tensor or None: got {type(value).__name__}"
            )
        old = self._buffers[name]
        if value is old:
            return
        if _C.is_tracing():
            self._write_buffer(name, old, value)
            return
        self._buffers[name] = value
        _C.bump_state()

    def _write_buffer(self, name: str, old: Tensor | None, value: Tensor | None) -> None:
        """In a trace: what a buffer is assigned, each run writes into it."""
        if old is not None and value is not None:
            if value._cell_id == old._cell_id:
                return
            if value.is_symbolic and (value.shape, value.dtype) == (old.shape, old.dtype):
                self._buffers[name] = value
                return
        raise _C.TraceError(
            f"{type(self).__name__}.{name}: a compiled step can give a buffer only a new value "
            f"that it has computed, of the same shape and dtype: got {_describe(value)} for "
            f"{_describe(old)}; assign it outside of the step, or use copy_{user_line()}"
        )

    def __delattr__(self, name: str) -> None:
        for known in (self._parameters, self._buffers, self._modules):
            if name in known:
                del known[name]
                self._non_persistent_buffers_set.discard(name)
                _C.bump_state()
                return
        object.__delattr__(self, name)
        _C.bump_state()

    def __dir__(self) -> list[str]:
        names = {*super().__dir__(), *self._parameters, *self._buffers, *self._modules}
        return sorted(name for name in names if not name[0].isdigit())

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        _C.bump_state()

    # ------------------------------------------------------------ listing

    def _named_members(
        self,
        members: Callable[[Module], Mapping[str, Any]],
        prefix: str,
        recurse: bool,
        remove_duplicate: bool,
    ) -> Iterator[tuple[str, Any]]:
        """Tensors of one kind with their dotted names, each object once."""
        seen: set[int] = set()
        modules = (
            self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate)
            if recurse
            else [(prefix, self)]
        )
        for path, module in modules:
            for name, value in members(module).items():
                if value is None or id(value) in seen:
                    continue
                if remove_duplicate:
                    seen.add(id(value))
                yield f"{path}.{name}" if path else name, value

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """The parameters of this module and, if ``recurse``, of those below; each once."""
        for _, param in self.named_parameters(recurse=recurse):
            yield param

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """Like :meth:`parameters`, with dotted names."""
        return self._named_members(
            lambda module: module._parameters, prefix, recurse, remove_duplicate
        )

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """The buffers of this module and, if ``recurse``, of those below; each once."""
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Like :meth:`buffers`, with dotted names."""
        return self._named_members(
            lambda module: module._buffers, prefix, recurse, remove_duplicate
        )

    def children(self) -> Iterator[Module]:
        """The modules directly below this one, each once."""
        for _, module in self.named_children():
            yield module

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """Like :meth:`children`, with names."""
        seen: set[int] = set()
        for name, module in self._modules.items():
            if module is not None and id(module) not in seen:
                seen.add(id(module))
                yield name, module

    def modules(self, remove_duplicate: bool = True) -> Iterator[Module]:
        """This module and all below, parents first; each once, or wherever it stands."""
        for _, module in self.named_modules(remove_duplicate=remove_duplicate):
            yield module

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """Like :meth:`modules`, with dotted names; this module's own name is ``prefix``."""
        seen: set[Module] = set() if memo is None else memo
        if self in seen:
            return
        if remove_duplicate:
            seen.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                path = f"{prefix}.{name}" if prefix else name
                yield from module.named_modules(seen, path, remove_duplicate)

    def get_submodule(self, target: str) -> Module:
        """The module with the dotted name ``target``; "" is this one.

        Raises: AttributeError if there is none.
        """
        module: Any = self
        for name in target.split(".") if target else ():
            module = getattr(module, name)
            if not isinstance(module, Module):
                raise AttributeError(f"`{name}` is not a Module")
        return module  # type: ignore[no-any-return]

    def get_parameter(self, target: str) -> Parameter:
        """The parameter with the dotted name ``target``.

        Raises: AttributeError if there is none.
        """
        path, _, name = target.rpartition(".")
        found = getattr(self.get_submodule(path), name)
        if not isinstance(found, Parameter):
            raise AttributeError(f"`{name}` is not a Parameter")
        return found

    def get_buffer(self, target: str) -> Tensor:
        """The buffer with the dotted name ``target``.

        Raises: AttributeError if there is none.
        """
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        found = module._buffers.get(name)
        if found is None:
            raise AttributeError(f"`{name}` is not a buffer of {type(module).__name__}")
        return found

    # ------------------------------------------------------------ changing all at once

    def apply(self: Self, fn: Callable[[Module], None]) -> Self:
        """Call ``fn`` on every module below, then on this one; returns self."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def _apply(self: Self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Replace the values of all parameters, gradients and buffers by ``fn`` of them."""
        if recurse:
            for module in self.children():
                module._apply(fn)
        with no_grad():
            for param in self._parameters.values():
                if param is not None:
                    replace_data(param, fn)
            for name, buffer in self._buffers.items():
                if buffer is not None:
                    self._buffers[name] = fn(buffer)
        _C.bump_state()
        return self

    def to(self: Self, *args: Any, **kwargs: Any) -> Self:
        """Move to a device and cast floating-point tensors to a dtype, in place.

        Args:
            args: a device, a dtype, both, or a tensor that has them; also by keyword.

        Returns: self. Integer parameters and buffers keep their dtype.
        Raises: DeviceUnavailableError if there is no such device.
        """
        device, dtype = parse_target(args, kwargs)
        if dtype is not None and not dtype.is_floating_point:
            raise _C.DtypeError(
                f"to: dtype is not floating: got {dtype.name}; give a floating dtype"
            )

        def convert(tensor: Tensor) -> Tensor:
            if device is not None:
                tensor = tensor.to(device)
            if dtype is not None and tensor.is_floating_point() and tensor.dtype != dtype:
                tensor = tensor.to(dtype)
            return tensor

        return self._apply(convert)

    def cpu(self: Self) -> Self:
        """Move to the cpu."""
        return self.to("cpu")

    def metal(self: Self) -> Self:
        """Move to the Apple GPU."""
        return self.to("metal")

    def half(self: Self) -> Self:
        """Cast floating-point tensors to float16."""
        return self.to(_C.float16)

    def bfloat16(self: Self) -> Self:
        """Cast floating-point tensors to bfloat16."""
        return self.to(_C.bfloat16)

    def float(self: Self) -> Self:
        """Cast floating-point tensors to float32."""
        return self.to(_C.float32)

    def double(self: Self) -> Self:
        """Cast floating-point tensors to float64."""
        return self.to(_C.float64)

    def train(self: Self, mode: bool = True) -> Self:
        """Set training (True) or evaluation mode on this module and all below; returns self."""
        if not isinstance(mode, bool):
            raise _C.UserError(f"train: mode must be a bool: got {type(mode).__name__}")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self: Self) -> Self:
        """Set evaluation mode; ``train(False)``."""
        return self.train(False)

    def requires_grad_(self: Self, requires_grad: bool = True) -> Self:
        """Freeze or free every parameter; returns self."""
        for param in self.parameters():
            if param.requires_grad != requires_grad:
                param.requires_grad_(requires_grad)
                _C.bump_state()
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop every parameter's gradient, or fill it with zeros."""
        for param in self.parameters():
            clear_grad(param, set_to_none)

    # ------------------------------------------------------------ state

    def state_dict(
        self,
        *,
        destination: dict[str, Any] | None = None,
        prefix: str = "",
        keep_vars: bool = False,
    ) -> dict[str, Any]:
        """Parameters and persistent buffers by dotted name.

        Args:
            destination: the dict to fill; None makes one.
            prefix: put before every name.
            keep_vars: list the parameters themselves instead of detached tensors.

        Returns: an ordered dict whose tensors share the parameters' values.
        """
        if destination is None:
            destination = OrderedDict()
        for name, value in self._state().items():
            destination[prefix + name] = value if keep_vars else value.detach()
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(
                    destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars
                )
        return destination

    def _state(self) -> dict[str, Tensor]:
        """This module's own parameters and persistent buffers."""
        state: dict[str, Tensor] = {
            name: param for name, param in self._parameters.items() if param is not None
        }
        for name, buffer in self._buffers.items():
            if buffer is not None and name not in self._non_persistent_buffers_set:
                state[name] = buffer
        return state

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> IncompatibleKeys:
        """Copy the values of ``state_dict`` into the parameters and buffers.

        Args:
            state_dict: tensors by dotted name, as :meth:`state_dict` gives them.
            strict: missing and unexpected names are errors.
            assign: make the tensors themselves the module's, with their dtype and device.

        Returns: (missing_keys, unexpected_keys).
        Raises: UserError that lists every name and shape that does not fit; then nothing has
            been changed.
        """
        result = load_state(self, state_dict, strict, assign)
        _C.bump_state()
        return result

    # ------------------------------------------------------------ printing

    def extra_repr(self) -> str:
        """What ``repr`` shows between the parentheses before the children."""
        return ""

    def _get_name(self) -> str:
        return type(self).__name__

    def __repr__(self) -> str:
        extra = self.extra_repr()
        lines = extra.split("\n") if extra else []
        children = [f"({name}): {indent(repr(module))}" for name, module in self._modules.items()]
        if not children and len(lines) <= 1:
            return f"{self._get_name()}({extra})"
        body = "\n  ".join(lines + children)
        return f"{self._get_name()}(\n  {body}\n)"
