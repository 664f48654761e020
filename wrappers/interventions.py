"""Controlled changes of what a merchant is served; nothing that is stored changes."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import gymnasium
import numpy as np
from gymnasium.utils import RecordConstructorArgs

from merchantbench_gym.recording.schema import read_run, rows
from merchantbench_gym.scenario import TOOL_NAMES
from merchantbench_gym.spaces import is_unicode
from merchantbench_gym.tools.control import END_OF_STEP
from merchantbench_gym.wrappers.memory_doc import notes_of
from merchantbench_gym.wrappers.nesting import Nested
from merchantbench_gym.wrappers.notes import NotesProvider
from merchantbench_gym.wrappers.order import check_order, right_order

Step = tuple[Any, Any, bool, bool, dict[str, Any]]
Event = dict[str, Any]

KINDS = ("blank", "swap", "shuffle", "freeze")
READ, WRITE = "read_memory_doc", "write_memory_doc"


@dataclass(frozen=True)
class Windows:
    """A half-open range of window indices.

    Attributes:
        start: First window.
        stop: First window after it; None for no end.
    """

    start: int = 0
    stop: int | None = None

    @classmethod
    def of(cls, given: Any) -> Self:
        """Read a range, a pair (the second of which may be None), or None for all windows.

        Raises:
            ValueError: It is none of these, or it holds no window.
        """
        if given is None:
            return cls()
        start, stop = (given.start, given.stop) if isinstance(given, range) else _pair(given)
        step = given.step if isinstance(given, range) else 1
        whole = type(start) is int and start >= 0 and (stop is None or (type(stop) is int and stop > start))
        if not whole or step != 1:
            raise ValueError(f"windows must be a first window and one after the last, not {given!r}")
        return cls(start, stop)

    def __contains__(self, window: int) -> bool:
        return self.start <= window and (self.stop is None or window < self.stop)

    def __str__(self) -> str:
        return f"{self.start}-{'' if self.stop is None else self.stop}"


def _pair(given: Any) -> tuple[Any, Any]:
    if not isinstance(given, Sequence) or isinstance(given, str) or len(given) != 2:
        raise ValueError(f"windows must be a first window and one after the last, not {given!r}")
    return given[0], given[1]


@dataclass(frozen=True)
class NotesLens:
    """What readers of notes are served instead of what is stored.

    Attributes:
        kind: ``blank``, ``swap``, ``shuffle`` or ``freeze``.
        windows: Where it holds.
        text_served: Text of ``swap``.
        seed: Seed of ``shuffle``.
        visible: Whether ``freeze`` refuses writes.
    """

    kind: str
    windows: Windows
    text_served: str = ""
    seed: int = 0
    visible: bool = False

    def covers(self, window: int) -> bool:
        """Whether it holds in a window."""
        return window in self.windows

    def readable(self, windows: Sequence[int | None]) -> int:
        """Number of versions that can be read, from the windows in which they were written."""
        if self.kind != "freeze":
            return len(windows)
        return sum(window is None or window < self.windows.start for window in windows)

    def text(self, version: int, text: str) -> str:
        """The text that is served for that of a version."""
        if self.kind == "blank":
            return ""
        if self.kind == "swap":
            return self.text_served
        if self.kind == "shuffle":
            lines = text.split("\n")
            generator = np.random.Generator(np.random.PCG64([self.seed, version]))
            return "\n".join(lines[place] for place in generator.permutation(len(lines)).tolist())
        return text

    def refuses_writes(self, window: int) -> bool:
        """Whether nothing may be written in a window."""
        return self.kind == "freeze" and self.visible and window in self.windows


def notes_lens(
    kind: str,
    *,
    windows: Any = None,
    text: str | None = None,
    run: str | os.PathLike[str] | None = None,
    version: int | None = None,
    seed: int | None = None,
    visible: bool = False,
    merchant: int = 0,
) -> NotesLens:
    """Make a lens from the arguments of :class:`NotesIntervention`.

    Raises:
        ValueError: They do not go together, or the run has no such version.
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, not {kind!r}")
    given = {"text": text, "run": run, "version": version, "seed": seed, "visible": visible or None}
    fitting = {"swap": {"text", "run", "version"}, "shuffle": {"seed"}, "freeze": {"visible"}}.get(
        kind, set()
    )
    for name, value in given.items():
        if value is not None and name not in fitting:
            raise ValueError(f"{name} does not go with the kind {kind!r}")
    if kind == "swap":
        if (text is None) == (run is None) or (run is None) != (version is None):
            raise ValueError("swap needs either text, or run and version")
        if run is not None:
            text = _text_of_run(run, version, merchant)
        if not is_unicode(text or ""):
            raise ValueError("text must not hold a lone surrogate")
    if kind == "shuffle" and (type(seed) is not int or seed < 0):
        raise ValueError(f"shuffle needs a seed from 0, not {seed!r}")
    return NotesLens(kind, Windows.of(windows), text or "", seed or 0, visible)


def _text_of_run(path: str | os.PathLike[str], version: int | None, merchant: int) -> str:
    with read_run(path) as connection:
        query = "SELECT content FROM note WHERE merchant = ? AND version = ?"
        found = rows(connection, query, (merchant, version))
    if not found:
        raise ValueError(f"there is no version {version} of the notes in {os.fspath(path)}")
    return str(found[0]["content"])


class NotesIntervention(Nested, gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Serves other notes than those stored, in some windows.

    Reads and what a context is refilled with are served differently; versions are stored as ever.

    =========== =====================================================================================
    Kind        What is served
    =========== =====================================================================================
    ``blank``   an empty document; the number of the version is that of the stored one
    ``swap``    the text given, or a version of the notes of another run
    ``shuffle`` the lines in another order, drawn by ``seed`` and version
    ``freeze``  the version current when the windows begin; later writes succeed and are stored, or,
                with ``visible``, are refused
    =========== =====================================================================================

    Args:
        env: Environment with notes.
        kind: One of the kinds above.
        windows: Range of window indices, or a pair of first and first after; None is all.
        text: Text of ``swap``.
        run: Run file to take the text of ``swap`` from.
        version: Version of the notes in that file.
        seed: Seed of ``shuffle``.
        visible: Whether ``freeze`` refuses writes.

    Raises:
        ValueError: The arguments do not go together, the environment keeps no notes, or a wrong place in the
            stack.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        kind: str,
        *,
        windows: Any = None,
        text: str | None = None,
        run: str | os.PathLike[str] | None = None,
        version: int | None = None,
        seed: int | None = None,
        visible: bool = False,
    ) -> None:
        pair = None if windows is None else [Windows.of(windows).start, Windows.of(windows).stop]
        source = None if run is None else os.fspath(run)
        arguments: dict[str, Any] = {"windows": pair, "text": text, "run": source, "version": version}
        arguments |= {"seed": seed, "visible": visible}
        RecordConstructorArgs.__init__(self, kind=kind, **arguments)
        check_order(env, "NotesIntervention")
        self._lens = self.equip(env.unwrapped, kind=kind, **arguments)
        gymnasium.Wrapper.__init__(self, env)
        self._events: list[Event] = []
        self._last: list[Any] = []

    @staticmethod
    def equip(bare: Any, *, kind: str, **arguments: Any) -> NotesLens:
        """Do to an unwrapped environment what the wrapper does to it.

        Raises:
            ValueError: The arguments do not go together, or the environment keeps no notes.
        """
        provider = notes_of(bare)
        if provider is None:
            raise ValueError(f"NotesIntervention needs MemoryDoc inside it; {right_order()}")
        lens = notes_lens(kind, **arguments, merchant=int(getattr(bare, "merchant", 0)))
        provider.lens = lens
        return lens

    @property
    def intervention(self) -> str:
        """Label of the intervention in results."""
        lens = self._lens
        details = {
            "swap": _sha256(lens.text_served)[:12],
            "shuffle": str(lens.seed),
            "freeze": "visible" if lens.visible else "",
        }.get(lens.kind, "")
        return f"notes:{lens.kind}{f'({details})' if details else ''}@{lens.windows}"

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset the environment."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._events, self._last = [], []
        return observation, info

    def step(self, action: Any) -> Step:
        """Step the environment; what was served differently is noted for the record."""
        window = self.get_wrapper_attr("session").window
        step: Step = self.env.step(action)
        if self._lens.covers(window):
            for result in step[0]["tool_results"]:
                self._note_result(result, window)
        return step

    def served_notes(self, merchant: int | None = None) -> tuple[int, str]:
        """Version and text of a document as a read would serve it now; a use, noted for the record.

        Args:
            merchant: Index of the merchant; None is the one that plays.
        """
        window = self.get_wrapper_attr("session").window
        who = self._merchant if merchant is None else merchant
        version, text = self._provider.served_notes(who, window)
        if self._lens.covers(window):
            use = [who, window, version, _sha256(text)]
            if use != self._last:  # a context asks for them whenever it might need them
                self._last = use
                self._note("context", who, version)
        return version, text

    def take_events(self) -> list[Event]:
        """What was served differently since the last call, for the record."""
        taken, self._events = self._events, []
        return taken

    @property
    def _provider(self) -> NotesProvider:
        provider = notes_of(self)
        assert provider is not None  # the constructor has seen it
        return provider

    @property
    def _merchant(self) -> int:
        return int(getattr(self.unwrapped, "merchant", 0))

    def _note_result(self, result: dict[str, str], window: int) -> None:
        if result["name"] not in (READ, WRITE):
            return
        body = json.loads(result["content"])
        if result["name"] == READ and body["ok"]:
            self._note("read", self._merchant, body["version"])
        if result["name"] == WRITE and not body["ok"] and self._lens.refuses_writes(window):
            self._note("write", self._merchant, self._provider.size(self._merchant)[0])

    def _note(self, use: str, merchant: int, version: int) -> None:
        stored = self._provider.notes(merchant)[version - 1]["content"] if version else ""
        lens = self._lens
        self._events.append(
            {
                "kind": "notes_intervention",
                "intervention": lens.kind,
                "windows": [lens.windows.start, lens.windows.stop],
                "seed": lens.seed,
                "visible": lens.visible,
                "use": use,
                "version": version,
                "stored_sha256": _sha256(stored),
                "served_sha256": _sha256(lens.text(version, stored)),
            }
        )

    def _state(self) -> dict[str, Any]:
        return {"events": list(self._events), "last": self._last}

    def _take(self, state: Any) -> None:
        self._events, self._last = list(state["events"]), list(state["last"])


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class Bans:
    """A provider without tools that takes tools away in some windows.

    Args:
        names: Names of the tools.
        windows: Where they are taken away.
    """

    tools: tuple[Any, ...] = ()

    def __init__(self, names: Iterable[str], windows: Windows) -> None:
        self.names = frozenset(names)
        self.windows = windows

    def denied(self, window: int) -> frozenset[str]:
        """Names of the tools that are taken away in a window."""
        return self.names if window in self.windows else frozenset()

    def snapshot(self) -> bytes:
        """Nothing: it has no state."""
        return b""

    def restore(self, data: bytes, /) -> None:
        """Nothing to take over."""

    def clone(self) -> Bans:
        """The same again."""
        return Bans(self.names, self.windows)


class ToolBan(Nested, gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Takes tools away in some windows: they leave the schema, and calls of them answer ``tool_denied``.

    Args:
        env: Environment to wrap.
        tools: Names of the tools.
        windows: Range of window indices, or a pair of first and first after; None is all.

    Raises:
        ValueError: There is no such tool, it cannot be taken away, or a wrong place in the stack.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], tools: Iterable[str], *, windows: Any = None) -> None:
        names = [tools] if isinstance(tools, str) else list(tools)
        pair = None if windows is None else [Windows.of(windows).start, Windows.of(windows).stop]
        RecordConstructorArgs.__init__(self, tools=names, windows=pair)
        check_order(env, "ToolBan")
        self._bans = self.equip(env.unwrapped, tools=names, windows=pair)
        gymnasium.Wrapper.__init__(self, env)
        self._events: list[Event] = []

    @staticmethod
    def equip(bare: Any, *, tools: Iterable[str], windows: Any = None) -> Bans:
        """Do to an unwrapped environment what the wrapper does to it.

        Raises:
            ValueError: There is no such tool, or it cannot be taken away.
        """
        names = list(tools)
        known = {*TOOL_NAMES, *(schema["function"]["name"] for schema in bare.tool_schemas)}
        unknown = sorted(set(names) - known | ({END_OF_STEP} & set(names)))
        if unknown or not names:
            what = ", ".join(unknown) or "none"
            raise ValueError(f"tools must name tools that can be taken away, not {what}")
        bans = Bans(names, Windows.of(windows))
        bare.add_provider(bans)
        return bans

    @property
    def intervention(self) -> str:
        """Label of the intervention in results."""
        return f"ban:{','.join(sorted(self._bans.names))}@{self._bans.windows}"

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset the environment."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._events = []
        return observation, info

    def step(self, action: Any) -> Step:
        """Step the environment; calls that were denied are noted for the record."""
        denied = self._bans.denied(self.get_wrapper_attr("session").window)
        step: Step = self.env.step(action)
        for result in step[0]["tool_results"]:
            if result["name"] in denied and '"tool_denied"' in result["content"]:
                windows = [self._bans.windows.start, self._bans.windows.stop]
                self._events.append({"kind": "tool_ban", "tool": result["name"], "windows": windows})
        return step

    def take_events(self) -> list[Event]:
        """What was denied since the last call, for the record."""
        taken, self._events = self._events, []
        return taken

    def _state(self) -> list[Event]:
        return list(self._events)

    def _take(self, state: Any) -> None:
        self._events = list(state)
