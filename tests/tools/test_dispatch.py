"""What was found out about a call made before holds only for the same tool, while it is granted."""

from __future__ import annotations

from typing import Any

from merchantbench_gym.tools.calls import KnownCall, normalise
from merchantbench_gym.tools.dispatch import resolve
from merchantbench_gym.tools.registry import Registry, tool
from merchantbench_gym.tools.results import ToolError


def probe(ctx: Any, *, number: int = 1) -> dict[str, Any]:
    """Do nothing.

    Args:
        number: A number.
    """
    return {"number": number}


def other_probe(ctx: Any, *, number: str = "1", flag: bool = True) -> dict[str, Any]:
    """Do nothing else.

    Args:
        number: A text.
        flag: A flag.
    """
    return {"number": number}


def test_a_known_call_is_checked_by_the_tool_that_runs_it() -> None:
    first = tool(kind="READ", examples=[{}])(probe)
    other_probe.__name__ = "probe"
    second = tool(kind="READ", examples=[{}])(other_probe)
    registries = Registry([first]), Registry([second])
    call = normalise([{"id": "a", "name": "probe", "arguments": {"number": 2.0}}]).calls[0]
    blank = normalise([{"id": "a", "name": "probe", "arguments": {"number": None}}]).calls[0]
    assert isinstance(call, KnownCall)
    for _ in range(2):
        assert resolve(registries[0], (), call) == (first, {"number": 2})
        refused = resolve(registries[1], (), call)
        assert isinstance(refused, ToolError) and refused.code == "invalid_arguments"
        assert resolve(registries[0], (), blank) == (first, {"number": 1})
        assert resolve(registries[1], (), blank) == (second, {"number": "1", "flag": True})
        denied = resolve(registries[0], {"probe"}, call)
        assert isinstance(denied, ToolError) and denied.code == "tool_denied"
        unknown = resolve(Registry([]), (), call)
        assert isinstance(unknown, ToolError) and unknown.code == "unknown_tool"
    assert call.arguments == {"number": 2.0} and type(call.arguments["number"]) is float
