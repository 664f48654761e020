"""Notes: one text document per merchant and run, kept in versions, with the tools that read and write it."""

from __future__ import annotations

import copy
import json
from bisect import bisect_left
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple, Protocol

from pydantic import Field

from merchantbench_gym.tools.registry import Tool
from merchantbench_gym.tools.results import MAX_CONTENT, ToolError, dumps, echo, success

if TYPE_CHECKING:
    from collections.abc import Sequence

    from merchantbench_gym.tools.context import Context

#: Largest size of a document in bytes of UTF-8.
MAX_BYTES: Final = 262_144

_FORMAT: Final = "merchantbench-notes-1"


class _Version(NamedTuple):
    """A version of a document; never changed once made, so that copies share it."""

    text: str
    size: int  # bytes
    window: int | None  # None for the text a document starts with
    turn: int | None
    entry: bytes  # its line in a snapshot; empty for the text a document starts with


class Lens(Protocol):
    """What readers of notes are shown in place of what is stored; a value without state."""

    def covers(self, window: int) -> bool:
        """Whether anything is different in a window."""

    def readable(self, windows: Sequence[int | None]) -> int:
        """Number of versions that can be read, from the windows in which they were written."""

    def text(self, version: int, text: str) -> str:
        """The text that is served for that of a version."""

    def refuses_writes(self, window: int) -> bool:
        """Whether nothing may be written in a window."""


class NotesProvider:
    """Adds ``read_memory_doc`` and ``write_memory_doc`` to a session, and keeps what they write.

    Give it to ``env.unwrapped.add_provider``. Every merchant has a document of its own and cannot address
    another's; documents end with the episode. Every version ever written can be read. Text is stored exactly
    as given.

    Args:
        initial: Text every document starts with, as version 1; empty for nothing, which is version 0.

    Attributes:
        lens: What readers are shown in place of what is stored, None for the notes as they are.
        of_wrapper: Whether a wrapper has added it, which will add it again where the stack is built again.

    Raises:
        ValueError: The text is larger than 262,144 bytes or holds a lone surrogate.
    """

    def __init__(self, initial: str = "") -> None:
        try:
            size = len(initial.encode())
        except UnicodeEncodeError:
            raise ValueError("initial must not hold a lone surrogate") from None
        if size > MAX_BYTES:
            raise ValueError(f"initial has {size} bytes, the maximum is {MAX_BYTES}")
        self._start = (_Version(initial, size, None, None, b""),) if initial else ()
        self._documents: dict[int, list[_Version]] = {}
        self.lens: Lens | None = None
        self.of_wrapper = False

    @property
    def arguments(self) -> dict[str, Any]:
        """What the provider was made with, as JSON data."""
        return {"initial": self._start[0].text if self._start else ""}

    # --- tools ---

    @property
    def tools(self) -> list[Tool]:
        """The two tools, bound to this provider."""
        return [_bound(template, self) for template in _templates()]

    def read_memory_doc(  # noqa: D417
        self,
        ctx: Context,
        *,
        version: int | None = None,
        offset: Annotated[int, Field(ge=0)] = 0,
        limit: Annotated[int, Field(ge=1, le=24_000)] = 16_000,
    ) -> dict[str, Any]:
        """Read your own notes, or an earlier version of them, in pages.

        The notes are one text document that stays with you for the whole run; version 0 with empty content
        means that nothing has been written yet. total_chars and bytes are the size of the whole version.
        Continue at next_offset until it is null; a page may be shorter than limit. Live: writes of this turn
        are included.

        Args:
            version: Version to read; the latest if left out.
            offset: Character to start at, from 0.
            limit: Most characters to return.
        """
        number, text, latest = self._serve(ctx.merchant, version, ctx.window.index)
        head = {
            "version": number,
            "latest_version": latest,
            "oldest_version": min(1, latest),
            "bytes": len(text.encode()),
            "total_chars": len(text),
            "offset": offset,
        }
        return _page(head, text, offset, limit)

    def write_memory_doc(  # noqa: D417
        self,
        ctx: Context,
        *,
        content: str,
        mode: Literal["replace", "append"] = "replace",
        expected_version: Annotated[int, Field(ge=0)] | None = None,
    ) -> dict[str, Any]:
        """Save your own notes, replacing or extending the document.

        Every success makes one new version; earlier versions stay readable. The document may have at most
        262144 bytes of UTF-8, and its text is stored exactly as given. A call that fails writes nothing.

        Args:
            content: Text to store; may be empty.
            mode: replace stores the text as the whole document, append puts it directly after what is there.
            expected_version: Write only if this is the current version (0 if nothing has been written yet).
        """
        if self.lens is not None and self.lens.refuses_writes(ctx.window.index):
            raise ToolError("not_available", "the notes cannot be changed at present; nothing was written")
        versions = self._versions(ctx.merchant)
        current = len(versions)
        if expected_version is not None and expected_version != current:
            raise ToolError(
                "version_conflict",
                f"the current version is {current}, not {echo(expected_version)}; nothing was written",
                "$.expected_version",
            )
        before = versions[-1] if versions else None
        text = before.text + content if before and mode == "append" else content
        size = len(text.encode())
        if size > MAX_BYTES:
            message = f"the document would have {size} bytes, the maximum is {MAX_BYTES}; nothing was written"
            raise ToolError("too_large", message, "$.content")
        self._add(ctx.merchant, text, ctx.window.index, ctx.window.turn)
        return {"version": current + 1, "bytes": size, "previous_bytes": before.size if before else 0}

    # --- reading ---

    def served_notes(self, merchant: int = 0, window: int | None = None) -> tuple[int, str]:
        """Return version and text of a document; (0, "") if nothing has been written.

        Args:
            merchant: Index of the merchant.
            window: Window in which it would be read, for what a lens serves then; None is without the lens.
        """
        number, text, _ = self._serve(merchant, None, window)
        return number, text

    def size(self, merchant: int = 0) -> tuple[int, int]:
        """Return version and bytes of a document as stored; (0, 0) if nothing has been written."""
        versions = self._versions(merchant)
        return len(versions), versions[-1].size if versions else 0

    def notes(self, merchant: int = 0) -> list[dict[str, Any]]:
        """Return every version of a document as stored, the oldest first.

        Args:
            merchant: Index of the merchant.

        Returns:
            Mappings of ``version, window, turn, content``. Window (from 0) and turn (from 1) are those of the
            write, None for the initial text.
        """
        return [
            {"version": number, "window": version.window, "turn": version.turn, "content": version.text}
            for number, version in enumerate(self._versions(merchant), 1)
        ]

    # --- copies ---

    def snapshot(self) -> bytes:
        """Return initial text and all documents; equal states give equal bytes."""
        head = {"format": _FORMAT, "initial": self._start[0].text if self._start else ""}
        documents = (self._documents[merchant] for merchant in sorted(self._documents))
        # Ready lines: the session takes a snapshot before every write.
        entries = (version.entry for document in documents for version in document)
        return b"".join((_line(head), *entries))

    def restore(self, data: bytes, /) -> None:
        """Return to the state of a snapshot.

        Raises:
            ValueError: The bytes are no snapshot of notes; nothing has changed.
        """
        if data == self.snapshot():
            return  # the usual case when a refused write is undone
        try:
            twin = _from_snapshot(bytes(data))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError("these bytes are no snapshot of notes") from error
        self._start, self._documents = twin._start, twin._documents

    def clone(self) -> NotesProvider:
        """Return an independent copy."""
        twin = copy.copy(self)
        twin._documents = {merchant: list(document) for merchant, document in self._documents.items()}
        return twin

    # --- parts of the above ---

    def _versions(self, merchant: int) -> list[_Version] | tuple[_Version, ...]:
        return self._documents.get(merchant, self._start)

    def _serve(self, merchant: int, version: int | None, window: int | None) -> tuple[int, str, int]:
        """Return version and text that a read of a version serves, None being the latest, and the latest.

        Raises:
            ToolError: `not_found`.
        """
        versions = self._versions(merchant)
        lens = self.lens
        if lens is not None and (window is None or not lens.covers(window)):
            lens = None
        latest = len(versions) if lens is None else lens.readable([entry.window for entry in versions])
        number = latest if version is None else version
        if number != latest and not 1 <= number < latest:
            there = f"versions 1 to {latest} can be read" if latest else "nothing has been written yet"
            raise ToolError("not_found", f"there is no version {echo(version)}; {there}", "$.version")
        text = versions[number - 1].text if number else ""
        return number, text if lens is None else lens.text(number, text), latest

    def _add(self, merchant: int, text: str, window: int, turn: int) -> None:
        versions = self._versions(merchant)
        before = versions[-1].text if versions else ""
        # Only what is new goes into snapshots: appending a year long makes them grow with the text written,
        # not with its square.
        kept = text.startswith(before)
        entry = _line([merchant, window, turn, kept, text[len(before) :] if kept else text])
        version = _Version(text, len(text.encode()), window, turn, entry)
        if merchant in self._documents:
            self._documents[merchant].append(version)
        else:
            self._documents[merchant] = [*self._start, version]


def _page(head: dict[str, Any], text: str, offset: int, limit: int) -> dict[str, Any]:
    """Return the longest page of a text from an offset that keeps to a limit and to the result cap."""

    def page(size: int) -> dict[str, Any]:
        end = offset + size
        return {**head, "content": text[offset:end], "next_offset": end if end < len(text) else None}

    def is_too_long(size: int) -> bool:
        return len(dumps(success(**page(size)))) > MAX_CONTENT

    size = max(0, min(limit, len(text) - offset))
    if is_too_long(size):
        # Characters may take up to six in JSON. The first size that is too long, less one, is the longest.
        size = bisect_left(range(size), True, lo=1, key=is_too_long) - 1
    return page(size)


def _line(value: Any) -> bytes:
    return dumps(value).encode() + b"\n"


def _from_snapshot(data: bytes) -> NotesProvider:
    head, *entries = (json.loads(line) for line in data.splitlines())
    if head["format"] != _FORMAT:
        raise ValueError("unknown format")
    provider = NotesProvider(head["initial"])
    for merchant, window, turn, kept, text in entries:
        before = provider.served_notes(merchant)[1] if kept else ""
        provider._add(merchant, before + text, window, turn)
    return provider


@cache
def _templates() -> tuple[Tool, Tool]:
    """The tools of no provider in particular: their models take long to make, and clones are many."""
    provider = NotesProvider()
    return (
        Tool(provider.read_memory_doc, kind="READ", examples=[{}, {"version": 1, "offset": 16_000}]),
        Tool(
            provider.write_memory_doc,
            kind="WRITE",
            examples=[
                {"content": "sup_0017 ships late; do not list its products again.\n"},
                {
                    "content": "P00042: 25.00 sells, 29.00 does not.\n",
                    "mode": "append",
                    "expected_version": 3,
                },
            ],
        ),
    )


def _bound(template: Tool, provider: NotesProvider) -> Tool:
    tool = copy.copy(template)
    tool.function = getattr(provider, template.name)
    return tool
