"""Executing the calls of a batch: resolve and check all of them, then run them in order.

Each call is one undo scope. How effects are undone is the caller's business: it hands in a function that
marks the state before a WRITE call and returns the function that goes back to the mark.
"""

from __future__ import annotations

import difflib
import traceback
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from merchantbench_gym.tools.calls import Batch, Call, KnownCall
from merchantbench_gym.tools.context import Context
from merchantbench_gym.tools.registry import Registry, Tool, invalid_arguments
from merchantbench_gym.tools.results import MAX_CONTENT, ToolError, dumps, failure

#: Marks the state before a call of a tool and returns what goes back to it.
Mark = Callable[[Tool], Callable[[], None]]

Resolved = tuple[Tool, dict[str, Any]]

_NARROWING = ("page_size", "limit", "window_days", "day_from", "statuses", "items")


class Outcome(NamedTuple):
    """What became of one call.

    Attributes:
        call: The call.
        kind: Kind of its tool, "" if it has none.
        code: Error code, "" if the call succeeded.
        content: Serialised result.
        applied: Items applied by a batch tool, else 0.
        rejected: Items rejected by a batch tool, else 0.
        fault: Class and traceback of an exception in the tool, for the private record only.
    """

    call: Call
    kind: str
    code: str
    content: str
    applied: int = 0
    rejected: int = 0
    fault: dict[str, str] | None = None


def resolve(registry: Registry, denied: Collection[str], call: Call) -> Resolved | ToolError:
    """Find a call's tool and check its arguments; a failure is returned, not raised."""
    fault = call.fault
    if fault is not None and fault.code == "malformed_action":
        return fault
    tool = registry.get(call.name)
    if tool is None:
        granted = [name for name in registry.names if name not in denied]
        near = difflib.get_close_matches(call.name, granted, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        return ToolError("unknown_tool", f"there is no tool with this name{hint}")
    if call.name in denied:
        return ToolError("tool_denied", "this tool is not available in this run")
    if isinstance(call, KnownCall) and call.checked is not None and call.checked[0] is tool:
        return call.checked
    if fault is not None and call.arguments is None:
        return fault
    try:
        checked = tool.validate(call.arguments or {})
    except ToolError as error:
        return error if fault is None else _merged(fault, error)
    if fault is not None:
        return fault
    resolved = tool, checked
    if isinstance(call, KnownCall):
        call.checked = resolved
    return resolved


def _merged(first: ToolError, second: ToolError) -> ToolError:
    """Report the problems of both; a value that could not be read is not also reported by the schema."""
    problems = list(first.errors or ())
    known = {problem["path"] for problem in problems}
    return invalid_arguments([*problems, *(p for p in second.errors or () if p["path"] not in known)])


def failed(call: Call, kind: str, error: ToolError, fault: dict[str, str] | None = None) -> Outcome:
    """Return the outcome of a call that failed."""
    return Outcome(call, kind, error.code, dumps(failure(error)), fault=fault)


def execute(
    batch: Batch, registry: Registry, denied: Collection[str], ctx: Context, mark: Mark
) -> list[Outcome]:
    """Run a batch; every call is resolved and checked before the first handler runs.

    Raises:
        BaseException: Only what is not an `Exception`, such as KeyboardInterrupt; nothing is undone then.
    """
    resolved = [resolve(registry, denied, call) for call in batch.calls]
    outcomes = []
    for call, found in zip(batch.calls, resolved, strict=True):
        if isinstance(found, ToolError):
            tool = None if found.code == "unknown_tool" else registry.get(call.name)
            outcomes.append(failed(call, tool.kind if tool else "", found))
        else:
            outcomes.append(_run(call, *found, ctx, mark))
    return outcomes


def _run(call: Call, tool: Tool, arguments: Mapping[str, Any], ctx: Context, mark: Mark) -> Outcome:
    undo = mark(tool) if tool.kind == "WRITE" else None
    fault = None
    try:
        result = tool.run(ctx, arguments)
        content = dumps(result)
        if len(content) > MAX_CONTENT:
            raise _too_large(tool, len(content))
        if not content.isascii():
            content.encode()  # a lone surrogate would be a fault of the tool
        return Outcome(call, tool.kind, "", content, _count(result, "applied"), _count(result, "rejected"))
    except ToolError as refused:
        error = refused
    except Exception as broken:
        error = ToolError("internal", "the tool failed; the call had no effect")
        fault = {"class": type(broken).__name__, "traceback": traceback.format_exc()}
    if undo is not None:
        undo()
    return failed(call, tool.kind, error, fault)


def _count(result: Mapping[str, Any], key: str) -> int:
    value = result.get(key, 0)
    return value if type(value) is int else 0


def _too_large(tool: Tool, size: int) -> ToolError:
    narrowing = next((name for name in _NARROWING if name in tool.parameters), None)
    advice = f"narrow it by {narrowing}" if narrowing else "this tool has no parameter that narrows it"
    message = f"the result has {size} characters, the limit is {MAX_CONTENT}; {advice}"
    return ToolError("result_too_large", message)
