"""The run file: what happened in a run, turn by turn, and going on from it.

A run is recorded by the wrapper ``RecordRun``, a market of several seats by :func:`attach`. Each part is
loaded on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from merchantbench_gym.recording.branch import fork, salvage
    from merchantbench_gym.recording.exporting import export
    from merchantbench_gym.recording.market import attach
    from merchantbench_gym.recording.rerun import replay
    from merchantbench_gym.recording.resuming import resume
    from merchantbench_gym.recording.schema import JournalMismatch

_HOMES = {
    "JournalMismatch": "schema",
    "attach": "market",
    "export": "exporting",
    "fork": "branch",
    "replay": "rerun",
    "resume": "resuming",
    "salvage": "branch",
}

__all__ = ["JournalMismatch", "attach", "export", "fork", "replay", "resume", "salvage"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
