"""Percentile-bootstrap intervals of means over seeds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

RESAMPLES = 10_000
FEWEST = 3


def interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Interval that holds the mean with 95 % confidence, by a bootstrap with a fixed seed.

    Args:
        values: One value per seed; for a paired comparison, one difference per seed.

    Returns:
        Lower and upper end; None for fewer than three values.
    """
    count = len(values)
    if count < FEWEST:
        return None
    picks = np.random.Generator(np.random.PCG64(0)).integers(0, count, size=(RESAMPLES, count))
    means = np.asarray(values, dtype=np.float64)[picks].mean(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)
