"""Modules and parameters held in sequences and dictionaries."""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, overload

from lucid import _C
from lucid._C import Tensor
from lucid.nn.modules.arguments import indent
from lucid.nn.modules.module import Module
from lucid.nn.parameter import Parameter


def _position(owner: object, index: object, length: int) -> int:
    """Return ``index`` counted from the front."""
    position = operator.index(index)  # type: ignore[arg-type]
    if not -length <= position < length:
        raise _C.OutOfRangeError(
            f"{type(owner).__name__}: index out of range: got {position} for {length} entries"
        )
    return position % length


class _Indexed(Module):
    """Child modules in order under the names "0", "1", and so on, or given ones."""

    def _list(self) -> list[Any]:
        return list(self._modules.values())

    def _name_at(self, index: object) -> str:
        names = list(self._modules)
        return names[_position(self, index, len(names))]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._list())

    def _renumber(self, modules: Iterable[Module]) -> None:
        """Hold exactly ``modules``, named by position."""
        self._modules = {str(index): module for index, module in enumerate(modules)}

    def _insert(self, index: int, module: Module) -> None:
        if not isinstance(module, Module):
            raise _C.ArgumentTypeError(
                f"{type(self).__name__}: expected a Module: got {type(module).__name__}"
            )
        modules = self._list()
        modules.insert(index, module)
        self._renumber(modules)

    def _remove(self, index: object) -> None:
        modules = self._list()
        if isinstance(index, slice):
            del modules[index]
        else:
            del modules[_position(self, index, len(modules))]
        self._renumber(modules)


class Sequential(_Indexed):
    """Call modules one after the other, each with the output of the one before.

    Args:
        args: modules, named "0", "1", and so on; or one ordered dict of them by name.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__()
        if len(args) == 1 and isinstance(args[0], Mapping):
            for name, module in args[0].items():
                self.add_module(name, module)
            return
        for index, module in enumerate(args):
            self.add_module(str(index), module)

    def forward(self, input: Any) -> Any:
        """The last module's output for ``input``."""
        for module in self._modules.values():
            input = module(input)  # type: ignore[misc]
        return input

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return type(self)(OrderedDict(list(self._modules.items())[index]))
        return self._modules[self._name_at(index)]

    def __setitem__(self, index: int, module: Module) -> None:
        setattr(self, self._name_at(index), module)

    def __delitem__(self, index: int | slice) -> None:
        self._remove(index)

    def append(self, module: Module) -> Sequential:
        """Add a module at the end; returns self."""
        self.add_module(str(len(self)), module)
        return self

    def insert(self, index: int, module: Module) -> Sequential:
        """Add a module before position ``index``; returns self."""
        self._insert(index, module)
        return self

    def extend(self, sequential: Iterable[Module]) -> Sequential:
        """Add several modules at the end; returns self."""
        for module in sequential:
            self.append(module)
        return self

    def pop(self, index: int) -> Module:
        """Remove and return the module at ``index``."""
        module: Module = self[index]
        del self[index]
        return module

    def __add__(self, other: Sequential) -> Sequential:
        return Sequential(*self, *other)


class ModuleList(_Indexed):
    """A list of modules that the owner registers.

    Args:
        modules: the first entries; None means none.
    """

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        self.extend(modules or ())

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return type(self)(self._list()[index])
        return self._modules[self._name_at(index)]

    def __setitem__(self, index: int, module: Module) -> None:
        setattr(self, self._name_at(index), module)

    def __delitem__(self, index: int | slice) -> None:
        self._remove(index)

    def append(self, module: Module) -> ModuleList:
        """Add a module at the end; returns self."""
        self.add_module(str(len(self)), module)
        return self

    def insert(self, index: int, module: Module) -> None:
        """Add a module before position ``index``."""
        self._insert(index, module)

    def extend(self, modules: Iterable[Module]) -> ModuleList:
        """Add several modules at the end; returns self."""
        for module in modules:
            self.append(module)
        return self

    def pop(self, index: int = -1) -> Module:
        """Remove and return the module at ``index``."""
        module: Module = self[index]
        del self[index]
        return module

    def __iadd__(self, modules: Iterable[Module]) -> ModuleList:
        return self.extend(modules)

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList([*self, *other])

    def __repr__(self) -> str:
        """One line for each run of equal entries, as PyTorch prints it."""
        runs: list[tuple[int, int, str]] = []
        for index, module in enumerate(self):
            text = repr(module)
            if runs and runs[-1][2] == text:
                runs[-1] = (runs[-1][0], index, text)
            else:
                runs.append((index, index, text))
        if not runs:
            return f"{self._get_name()}()"
        lines = [
            f"({first}): {indent(text)}"
            if first == last
            else f"({first}-{last}): {last - first + 1} x {indent(text)}"
            for first, last, text in runs
        ]
        body = "\n  ".join(lines)
        return f"{self._get_name()}(\n  {body}\n)"


class ModuleDict(Module):
    """A dictionary of modules that the owner registers.

    Args:
        modules: the first entries, a mapping or pairs; None means none.
    """

    def __init__(
        self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]] | None = None
    ) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Any:
        return self._modules[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]
        _C.bump_state()

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: object) -> bool:
        return key in self._modules

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._modules.keys()

    def values(self) -> Iterable[Any]:
        """The modules."""
        return self._modules.values()

    def items(self) -> Iterable[tuple[str, Any]]:
        """Pairs of name and module."""
        return self._modules.items()

    def update(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]]) -> None:
        """Add or replace entries."""
        pairs = modules.items() if isinstance(modules, (Mapping, ModuleDict)) else modules
        for key, module in pairs:
            self[key] = module

    def pop(self, key: str) -> Module:
        """Remove and return the module under ``key``."""
        module: Module = self[key]
        del self[key]
        return module

    def clear(self) -> None:
        """Remove every entry."""
        self._modules.clear()
        _C.bump_state()


def _as_parameter(value: Tensor) -> Parameter:
    """A parameter itself, or one made of a plain tensor."""
    if isinstance(value, Parameter):
        return value
    if isinstance(value, Tensor):
        return Parameter(value)
    raise _C.ArgumentTypeError(
        f"ParameterList: expected a Tensor or Parameter: got {type(value).__name__}"
    )


def _describe(param: Parameter) -> str:
    size = "x".join(str(length) for length in param.shape)
    return f"Parameter containing: [{param.dtype} of size {size}]"


class ParameterList(Module):
    """A list of parameters that the owner registers.

    Args:
        values: the first entries; plain tensors become parameters. None means none.
    """

    def __init__(self, values: Iterable[Tensor] | None = None) -> None:
        super().__init__()
        self.extend(values or ())

    @overload
    def __getitem__(self, index: int) -> Parameter: ...
    @overload
    def __getitem__(self, index: slice) -> ParameterList: ...
    def __getitem__(self, index: int | slice) -> Parameter | ParameterList:
        if isinstance(index, slice):
            return ParameterList(list(self)[index])
        param = self._parameters[str(_position(self, index, len(self)))]
        assert param is not None
        return param

    def __setitem__(self, index: int, value: Tensor) -> None:
        setattr(self, str(_position(self, index, len(self))), _as_parameter(value))

    def __len__(self) -> int:
        return len(self._parameters)

    def __iter__(self) -> Iterator[Parameter]:
        return iter([param for param in self._parameters.values() if param is not None])

    def append(self, value: Tensor) -> ParameterList:
        """Add a parameter at the end; returns self."""
        self.register_parameter(str(len(self)), _as_parameter(value))
        return self

    def extend(self, values: Iterable[Tensor]) -> ParameterList:
        """Add several parameters at the end; returns self."""
        for value in values:
            self.append(value)
        return self

    def __iadd__(self, values: Iterable[Tensor]) -> ParameterList:
        return self.extend(values)

    def extra_repr(self) -> str:
        """One line for each parameter."""
        return "\n".join(f"({index}): {_describe(p)}" for index, p in enumerate(self))


class ParameterDict(Module):
    """A dictionary of parameters that the owner registers.

    Args:
        parameters: the first entries, a mapping or pairs; plain tensors become parameters.
    """

    def __init__(
        self, parameters: Mapping[str, Tensor] | Iterable[tuple[str, Tensor]] | None = None
    ) -> None:
        super().__init__()
        if parameters is not None:
            self.update(parameters)

    def __getitem__(self, key: str) -> Parameter:
        param = self._parameters[key]
        assert param is not None
        return param

    def __setitem__(self, key: str, value: Tensor) -> None:
        self.register_parameter(key, _as_parameter(value))

    def __delitem__(self, key: str) -> None:
        del self._parameters[key]
        _C.bump_state()

    def __len__(self) -> int:
        return len(self._parameters)

    def __iter__(self) -> Iterator[str]:
        return iter(self._parameters)

    def __contains__(self, key: object) -> bool:
        return key in self._parameters

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._parameters.keys()

    def values(self) -> Iterable[Any]:
        """The parameters."""
        return self._parameters.values()

    def items(self) -> Iterable[tuple[str, Any]]:
        """Pairs of name and parameter."""
        return self._parameters.items()

    def update(self, parameters: Mapping[str, Tensor] | Iterable[tuple[str, Tensor]]) -> None:
        """Add or replace entries."""
        pairs = (
            parameters.items() if isinstance(parameters, (Mapping, ParameterDict)) else parameters
        )
        for key, value in pairs:
            self[key] = value

    def pop(self, key: str) -> Parameter:
        """Remove and return the parameter under ``key``."""
        param = self[key]
        del self[key]
        return param

    def extra_repr(self) -> str:
        """One line for each parameter."""
        return "\n".join(f"({key}): {_describe(p)}" for key, p in self.items())
