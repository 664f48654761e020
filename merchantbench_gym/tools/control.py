"""Control and discovery: ending the window, reading the observation, listing the tools."""

from __future__ import annotations

from typing import Any

from merchantbench_gym.tools.context import Context
from merchantbench_gym.tools.registry import tool
from merchantbench_gym.tools.results import stamp

END_OF_STEP = "end_of_step"


@tool(kind="CONTROL", examples=[{}])
def end_of_step(ctx: Context) -> dict[str, Any]:
    """Finish this decision window.

    The clock then runs to the next window. Must be the last call of a turn.
    """
    return {"time": stamp(ctx.window.to_t), "window": ctx.window.index + 1}


@tool(kind="READ", examples=[{}])
def get_observation(ctx: Context) -> dict[str, Any]:
    """Return the observation text as of now, own changes of this turn included."""
    return {"text": ctx.text()}


@tool(kind="READ", examples=[{}])
def list_tools(ctx: Context) -> dict[str, Any]:
    """List the available tools with their parameters."""
    schemas = ctx.schemas()
    return {"count": len(schemas), "tools": schemas}
