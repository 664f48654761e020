"""State of a stack of wrappers: every stateful wrapper adds its own to that of the stack below it."""

from __future__ import annotations

import copy
import json
from typing import Any, Self


class Nested:
    """Mixin of stateful wrappers: ``snapshot``, ``restore`` and ``clone`` that take the stack below along.

    Calling them on the outermost stateful wrapper covers the whole stack; wrappers without state in between
    are copied along. A wrapper supplies its state as JSON data.
    """

    env: Any

    def _state(self) -> Any:
        """State of this wrapper alone, as JSON data."""
        raise NotImplementedError

    def _take(self, state: Any) -> None:
        """Take over a state; raises before anything has changed."""
        raise NotImplementedError

    def snapshot(self) -> bytes:
        """The state of wrapper and stack below as portable bytes, without executable content."""
        head = {"wrapper": type(self).__name__, "state": self._state()}
        inner: bytes = self.env.get_wrapper_attr("snapshot")()
        return json.dumps(head).encode() + b"\n" + inner

    def restore(self, data: bytes) -> None:
        """Continue from a snapshot of a stack of the same make.

        Raises:
            ValueError: The snapshot is of another stack. Nothing has changed then.
        """
        line, _, inner = bytes(data).partition(b"\n")
        name = type(self).__name__
        try:
            head = json.loads(line)
            fits = head["wrapper"] == name
        except (ValueError, KeyError, TypeError):
            fits = False
        if not fits:
            raise ValueError(f"these bytes are no snapshot of a stack with {name} at its top")
        before = self._state()
        self._take(head["state"])
        try:
            self.env.get_wrapper_attr("restore")(inner)
        except BaseException:
            self._take(before)
            raise

    def clone(self) -> Self:
        """An independent stack in the same state."""
        return copy.deepcopy(self, {id(self.env): cloned(self.env)})


def cloned(env: Any) -> Any:
    """Copy a stack down to the first layer that can clone itself, which takes along what is below it."""
    if hasattr(env, "clone"):
        return env.clone()
    return copy.deepcopy(env, {id(env.env): cloned(env.env)})
