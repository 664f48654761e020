"""What programs add to a session: tools with state of their own, and listeners to its turns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from merchantbench_gym.tools.registry import Tool

#: Receives the record of every turn, inside the turn's undo scope. One with a false attribute
#: `needs_digest` gets empty strings for body hash and state digest, which cost more than a turn; one with
#: a true attribute `reads_only` promises not to change the record and may share it with others.
Listener = Callable[[dict[str, Any]], object]


class ToolProvider(Protocol):
    """An object that adds tools with state of their own to a session.

    It may also have `denied(window) -> iterable of names`, the tools it takes away in a window.
    """

    @property
    def tools(self) -> Iterable[Tool]:
        """The tools it adds."""

    def snapshot(self) -> bytes:
        """Return its whole state; equal states give equal bytes."""

    def restore(self, data: bytes, /) -> None:
        """Return to the state of a snapshot."""

    def clone(self) -> ToolProvider:
        """Return an independent copy."""
