"""Parameter: a leaf tensor that a module lists as trainable."""

from __future__ import annotations

from typing import Any

from lucid import functions as fn
from lucid._C import Tensor
from lucid.autograd import no_grad


class Parameter(Tensor):
    """A tensor that becomes a module's parameter when assigned to one of its attributes.

    Args:
        data: the values, any shape; the parameter shares the tensor's cell. None: empty.
        requires_grad: whether gradients are wanted; True by default.
    """

    def __init__(self, data: Tensor | None = None, requires_grad: bool = True) -> None:
        super().__init__(fn.empty(0) if data is None else data, requires_grad)

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        """An independent parameter with the same values and no gradient."""
        known = memo.get(id(self))
        if known is not None:
            return known  # type: ignore[no-any-return]
        copied = type(self)(self.detach().clone(), self.requires_grad)
        memo[id(self)] = copied
        return copied

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Pickle as class, values and ``requires_grad``; the gradient is left out."""
        return _rebuild_parameter, (type(self), self.detach(), self.requires_grad)

    def __repr__(self) -> str:
        return "Parameter containing:\n" + super().__repr__()


def _rebuild_parameter(cls: type[Parameter], data: Tensor, requires_grad: bool) -> Parameter:
    """Make the parameter that ``Parameter.__reduce_ex__`` wrote down."""
    return cls(data, requires_grad)


def clear_grad(param: Tensor, set_to_none: bool) -> None:
    """Drop a tensor's gradient, or put zeros into it."""
    grad = param.grad
    if grad is None:
        return
    if set_to_none:
        param.grad = None
        return
    with no_grad():
        grad.assign_(fn.zeros_like(grad))
