"""Bootstrap intervals: vectors and the smallest sample."""

from __future__ import annotations

import pytest

from merchantbench_gym.evaluation.intervals import interval


@pytest.mark.parametrize(
    ("values", "ends"),
    [
        ([10, 20, 30, 40, 50], (18, 42)),
        ([5, -1, 7, 3, 2, 6, -2, 4, 8, 1], (1.3, 5.2)),
        ([4, 4, 4], (4, 4)),
    ],
)
def test_vectors(values: list[float], ends: tuple[float, float]) -> None:
    assert interval(values) == pytest.approx(ends)


@pytest.mark.parametrize("values", [[], [1.0], [1.0, 2.0]])
def test_too_few_values_have_no_interval(values: list[float]) -> None:
    assert interval(values) is None


def test_the_same_every_time() -> None:
    assert interval([1, 5, 9, 2]) == interval([1, 5, 9, 2])
