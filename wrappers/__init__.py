"""Wrappers around the environments, and the seat a policy sits in.

The folder is installed as ``merchantbench_gym.wrappers``. Everything is resolved on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from merchantbench_gym.wrappers.chat import Chat
    from merchantbench_gym.wrappers.chat_seat import ChatSeat
    from merchantbench_gym.wrappers.context_trim import ContextTrim
    from merchantbench_gym.wrappers.errors import InjectedCrash, ResponseLost
    from merchantbench_gym.wrappers.fault_injection import FaultInjection
    from merchantbench_gym.wrappers.focal_seat import FocalSeat
    from merchantbench_gym.wrappers.interventions import NotesIntervention, ToolBan
    from merchantbench_gym.wrappers.memory_doc import MemoryDoc
    from merchantbench_gym.wrappers.notes import NotesProvider
    from merchantbench_gym.wrappers.record_run import RecordRun
    from merchantbench_gym.wrappers.reward import Reward
    from merchantbench_gym.wrappers.seat import Seat
    from merchantbench_gym.wrappers.seed_guard import SeedGuard
    from merchantbench_gym.wrappers.trimming import ContextBudgetError, trim_blocks

_HOMES = {
    "Chat": "chat",
    "ChatSeat": "chat_seat",
    "ContextBudgetError": "trimming",
    "ContextTrim": "context_trim",
    "FaultInjection": "fault_injection",
    "FocalSeat": "focal_seat",
    "InjectedCrash": "errors",
    "MemoryDoc": "memory_doc",
    "NotesIntervention": "interventions",
    "NotesProvider": "notes",
    "RecordRun": "record_run",
    "ResponseLost": "errors",
    "Reward": "reward",
    "Seat": "seat",
    "SeedGuard": "seed_guard",
    "ToolBan": "interventions",
    "trim_blocks": "trimming",
}

__all__ = [
    "Chat",
    "ChatSeat",
    "ContextBudgetError",
    "ContextTrim",
    "FaultInjection",
    "FocalSeat",
    "InjectedCrash",
    "MemoryDoc",
    "NotesIntervention",
    "NotesProvider",
    "RecordRun",
    "ResponseLost",
    "Reward",
    "Seat",
    "SeedGuard",
    "ToolBan",
    "trim_blocks",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
