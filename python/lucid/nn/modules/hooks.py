"""The handle by which a registered hook is removed again."""

from __future__ import annotations

import itertools
import weakref
from collections import OrderedDict
from typing import Any

from lucid import _C

_next_id = itertools.count()


class RemovableHandle:
    """Removes one hook from the module that it was registered on; also a context manager.

    Args:
        hooks: the module's hooks of one kind, by id; the handle does not keep them alive.
    """

    def __init__(self, hooks: OrderedDict[int, Any]) -> None:
        self._hooks = weakref.ref(hooks)
        self.id = next(_next_id)

    def remove(self) -> None:
        """Take the hook out; removing it twice does nothing."""
        hooks = self._hooks()
        if hooks is not None and hooks.pop(self.id, None) is not None:
            _C.bump_state()

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()
