"""The order of the wrappers in a stack.

Inner before outer; Gymnasium's own wrappers may stand anywhere::

    FaultInjection
    Reward, SeedGuard
    MemoryDoc
    NotesIntervention, ToolBan
    Chat
    ContextTrim
    RecordRun
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

RANKS = {
    "FaultInjection": 10,
    "Reward": 20,
    "SeedGuard": 20,
    "MemoryDoc": 30,
    "NotesIntervention": 40,
    "ToolBan": 40,
    "Chat": 50,
    "ContextTrim": 60,
    "RecordRun": 90,
}
NOT_FLAT = frozenset({"MemoryDoc", "NotesIntervention", "ToolBan", "Chat", "ContextTrim"})
NEEDS = {"ContextTrim": "Chat"}

PACKAGE = "merchantbench_gym."


def check_order(env: Any, wrapper: str) -> None:
    """Raise unless a wrapper may be put around an environment.

    Args:
        env: The environment, wrapped or not.
        wrapper: Class name of the wrapper, one of :data:`RANKS`.

    Raises:
        ValueError: It is there already, stands inside one that belongs further in, misses one that it needs,
            or does not go with the numeric environment. The message names both and the right order.
    """
    below = list(names_of_stack(env))
    if wrapper in below:
        raise ValueError(f"{wrapper} is in this stack already; {wrapper} around {wrapper} has no meaning")
    for name in below:
        if RANKS[name] > RANKS[wrapper]:
            raise ValueError(f"{wrapper} must stand inside {name}, not around it; {right_order()}")
    needed = NEEDS.get(wrapper)
    if needed is not None and needed not in below:
        raise ValueError(f"{wrapper} needs {needed} inside it; {right_order()}")
    if wrapper in NOT_FLAT and own_name(env.unwrapped) == "FlatEnv":
        raise ValueError(f"{wrapper} does not go with FlatEnv, whose observations hold no text")


def names_of_stack(env: Any) -> Iterator[str]:
    """Names of the ranked wrappers around an environment, outermost first."""
    while env is not env.unwrapped:
        name = own_name(env)
        if name in RANKS:
            yield name
        env = env.env


def own_name(env: Any) -> str:
    """Name of the class of this package that an object is of, "" if it is of none."""
    ours = (kind for kind in type(env).__mro__ if kind.__module__.startswith(PACKAGE))
    kind = next(ours, None)
    return "" if kind is None else kind.__name__


def right_order() -> str:
    """The right order in words."""
    ranks = sorted(set(RANKS.values()))
    groups = [" and ".join(name for name, rank in RANKS.items() if rank == r) for r in ranks]
    return f"the order from inner to outer is {', '.join(groups)}"
