"""When a failed request is sent again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from merchantbench_gym.baselines.react.errors import Failure

SHORT = (2.0, 5.0, 10.0, 20.0, 40.0, 60.0, 60.0, 60.0)
LONG = (30.0, 60.0, 120.0, 120.0, 120.0, 120.0, 120.0, 120.0)
LONGEST_WAIT = 600.0
"""Seconds; a provider that asks for more is not waited for."""
BAD_RESPONSES = 2
ROOM = 10.0
"""Seconds an attempt must have left before the deadline."""

Waits = tuple[float, ...]


@dataclass(frozen=True)
class Deadline:
    """Until when the attempts of a window may go on.

    Args:
        clock: Seconds now.
        start: When the window began.
        seconds: How long it may take, None for as long as it takes.
    """

    clock: Callable[[], float]
    start: float = 0.0
    seconds: float | None = None

    def allows(self, wait: float = 0.0) -> bool:
        """Whether another attempt may start after a wait in seconds."""
        return self.seconds is None or self.clock() - self.start + wait + ROOM <= self.seconds

    def timeout(self, longest: float) -> float:
        """Seconds the next attempt may take, given the longest any attempt may."""
        left = longest if self.seconds is None else self.seconds - (self.clock() - self.start)
        return min(longest, left)


class Schedule:
    """The waits of one act. All classes of faults share one index into their schedules.

    Args:
        deadline: Until when attempts may go on.
        short: Waits in seconds after throttling and passing failures.
        long: Waits in seconds while an allocation is used up.
    """

    def __init__(self, deadline: Deadline, short: Waits = SHORT, long: Waits = LONG) -> None:
        self._deadline = deadline
        self._waits = {"quota": long, "rate": short, "transient": short, "bad_response": short}
        self._index = 0
        self._bad = 0

    def wait(self, failure: Failure) -> float | None:
        """Seconds to wait after a failure before the next attempt, None to give up."""
        waits = self._waits.get(failure.kind, ())
        if failure.kind == "bad_response":
            self._bad += 1
        if self._index >= len(waits) or self._bad > BAD_RESPONSES:
            return None
        wait = max(waits[self._index], failure.retry_after or 0.0)
        if wait > LONGEST_WAIT or not self._deadline.allows(wait):
            return None
        self._index += 1
        return wait
