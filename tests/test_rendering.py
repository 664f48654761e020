from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from merchantbench_gym.rendering import BANDS, GRID, INK, PAPER, PLOT, chart

TOP, BOTTOM, LEFT, RIGHT = PLOT


def point(t: float, **figures: float) -> dict[str, float]:
    return {"t": t, **dict.fromkeys(BANDS, 0.0), **figures}


def colours(column: Any) -> list[tuple[int, ...]]:
    """Colours of a column of the plot from its bottom, each run once."""
    runs: list[tuple[int, ...]] = []
    for pixel in column[::-1].tolist():
        if not runs or runs[-1] != tuple(pixel):
            runs.append(tuple(pixel))
    return runs


def test_areas_stack_to_net_assets() -> None:
    figures = {"deposit": 1000.0, "balance": 2000.0, "in_transit": 500.0, "receivable": 500.0}
    image = chart([point(0, **figures), point(24 * 10, **figures)], 20, "")
    assert (image.shape, image.dtype) == ((400, 720, 3), np.uint8)
    inside = image[TOP:BOTTOM, LEFT + 100]
    assert colours(inside)[: len(BANDS)] == list(BANDS.values())
    heights = {name: int((inside == colour).all(axis=1).sum()) for name, colour in BANDS.items()}
    assert heights["balance"] == pytest.approx(2 * heights["deposit"], abs=2)
    assert heights["receivable"] == pytest.approx(heights["in_transit"], abs=2)
    assert INK in colours(inside)


def test_the_future_stays_empty() -> None:
    image = chart([point(0, balance=100.0), point(24 * 10, balance=100.0)], 20, "")
    half = (LEFT + RIGHT) // 2
    assert {tuple(p) for p in image[TOP:BOTTOM, half + 5 : RIGHT].reshape(-1, 3).tolist()} <= {PAPER, GRID}
    assert BANDS["balance"] in colours(image[TOP:BOTTOM, half - 5])


def test_the_axis_reaches_over_the_drain_and_over_empty_stores() -> None:
    image = chart([point(0), point(24 * 40, balance=3.0)], 20, "")
    assert BANDS["balance"] in colours(image[TOP:BOTTOM, RIGHT - 2])
    assert chart([point(0)], 365, "").shape == (400, 720, 3)


def test_the_title_is_written_and_cut_at_the_edge() -> None:
    points = [point(0, balance=1.0)]
    plain = chart(points, 7, "")
    assert (plain[: TOP - 8] == PAPER).all()
    titled = chart(points, 7, "day 1 · net")
    assert (titled[: TOP - 8] == INK).all(axis=2).any()
    np.testing.assert_array_equal(titled, chart(points, 7, "DAY 1   NET"))
    assert chart(points, 7, "x" * 500).shape == plain.shape
