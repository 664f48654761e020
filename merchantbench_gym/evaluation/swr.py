"""Sustained work: in what share of its windows an agent does something, at its weakest."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

SPAN_HOURS = 720


def swr(active: Sequence[bool], window_hours: int) -> tuple[float | None, int]:
    """Smallest share of active windows over all runs of consecutive windows that cover 30 days.

    Args:
        active: One flag per offered window, in order.
        window_hours: Hours between two windows.

    Returns:
        The share and the number of windows it is over. With fewer windows than 30 days hold, the share
        over all of them; None and 0 without any.

    Raises:
        ValueError: ``window_hours`` is not positive.
    """
    if window_hours < 1:
        raise ValueError(f"window_hours must be positive, not {window_hours}")
    if len(active) == 0:
        return None, 0
    span = min(max(1, SPAN_HOURS // window_hours), len(active))
    totals = np.concatenate(([0], np.cumsum(np.asarray(active, dtype=np.int64))))
    return int((totals[span:] - totals[:-span]).min()) / span, span
