"""Which wrapper may stand where."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import gymnasium
import pytest

from merchantbench_gym.wrappers import order
from merchantbench_gym.wrappers.order import RANKS, check_order


class Bare(gymnasium.Env[Any, Any]):
    __module__ = "merchantbench_gym.envs.merchant"


class FlatEnv(gymnasium.Env[Any, Any]):
    __module__ = "merchantbench_gym.envs.flat"


def stacked(*names: str, base: type[gymnasium.Env[Any, Any]] = Bare) -> Any:
    """A stack of wrappers of these names, inner to outer, with one of Gymnasium's between any two."""
    env: Any = base()
    for name in names:
        kind = type(name, (gymnasium.Wrapper,), {"__module__": f"merchantbench_gym.wrappers.{name.lower()}"})
        env = gymnasium.wrappers.OrderEnforcing(kind(env))
    return env


FULL = ("FaultInjection", "SeedGuard", "Reward", "MemoryDoc", "ToolBan", "NotesIntervention", "Chat")
FULL += ("ContextTrim", "RecordRun")


def test_the_right_order_is_accepted() -> None:
    assert set(FULL) == set(RANKS)
    for number, name in enumerate(FULL):
        check_order(stacked(*FULL[:number]), name)


@pytest.mark.parametrize(("inner", "outer"), [p for p in pairwise(FULL) if RANKS[p[0]] < RANKS[p[1]]])
def test_the_wrong_order_names_both_and_the_right_one(inner: str, outer: str) -> None:
    with pytest.raises(ValueError, match=inner) as error:
        check_order(stacked(outer), inner)
    assert outer in str(error.value)
    assert order.right_order() in str(error.value)
    assert "Reward and SeedGuard, MemoryDoc" in order.right_order()


@pytest.mark.parametrize("name", FULL)
def test_no_wrapper_twice(name: str) -> None:
    between = [] if name == "RecordRun" else ["Chat"] if name == "ContextTrim" else []
    with pytest.raises(ValueError, match=f"{name} is in this stack already"):
        check_order(stacked(*between, name), name)


def test_trimming_needs_a_chat() -> None:
    with pytest.raises(ValueError, match="ContextTrim needs Chat"):
        check_order(stacked("MemoryDoc"), "ContextTrim")


@pytest.mark.parametrize("name", FULL)
def test_what_goes_with_numbers(name: str) -> None:
    env = stacked(base=FlatEnv)
    if name in ("FaultInjection", "Reward", "SeedGuard", "RecordRun"):
        check_order(env, name)
    else:
        with pytest.raises(ValueError, match=name):
            check_order(env, name)


def test_foreign_wrappers_of_the_same_name_do_not_count() -> None:
    class Chat(gymnasium.Wrapper[Any, Any, Any, Any]):
        pass

    check_order(Chat(Bare()), "Reward")


def test_subclasses_count_as_what_they_are_made_of() -> None:
    chat = type("Chat", (gymnasium.Wrapper,), {"__module__": "merchantbench_gym.wrappers.chat"})
    mine = type("MyChat", (chat,), {"__module__": "elsewhere"})
    with pytest.raises(ValueError, match="Chat"):
        check_order(mine(Bare()), "Reward")
