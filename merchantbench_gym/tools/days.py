"""Day ranges of tools: inclusive day numbers from 1 to the current day."""

from __future__ import annotations

from typing import TYPE_CHECKING

from merchantbench_gym.market.calendar import day_of
from merchantbench_gym.tools.results import ToolError

if TYPE_CHECKING:
    from merchantbench_gym.tools.context import Context


def day_range(ctx: Context, day_from: int | None, day_to: int | None) -> tuple[int, int]:
    """First and last day of a range; an end that is not given is day 1 or the current day.

    Raises:
        ToolError: `invalid_range`; the message names the current day.
    """
    today = day_of(ctx.window.to_t)
    first = 1 if day_from is None else day_from
    last = today if day_to is None else day_to
    if not 1 <= first <= last <= today:
        # The argument that was given and is out of place by itself, or else the first one.
        path = "$.day_to" if day_from is None or (1 <= first <= today and last > today) else "$.day_from"
        raise ToolError(
            "invalid_range",
            f"days must satisfy 1 <= day_from <= day_to <= {today}, the current day",
            path=path,
        )
    return first, last
