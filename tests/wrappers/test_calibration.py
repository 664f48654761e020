"""Budgets of a context and the ratio of counted to estimated tokens."""

from __future__ import annotations

import json
from typing import Any

import pytest

from merchantbench_gym.wrappers.calibration import Calibration, ContextSettings


@pytest.mark.parametrize(
    ("window", "reserve", "room", "threshold", "kept"),
    [
        (200_000, 16_384, 174_435, 160_000, 30_000),
        (131_072, 16_384, 108_953, 100_236, 25_059),
        (32_768, 4_096, 27_238, 25_058, 6_264),
    ],
)
def test_sizes_of_a_window(window: int, reserve: int, room: int, threshold: int, kept: int) -> None:
    settings = ContextSettings(context_window=window, output_reserve=reserve)
    assert (settings.room, settings.threshold, settings.kept) == (room, threshold, kept)


def test_the_largest_sample_counts() -> None:
    calibration = Calibration()
    assert calibration.ratio == 1
    for counted in (110, 124, 95):
        calibration.add(counted, 100)
    assert float(calibration.ratio) == 1.24
    assert calibration.size(100_000) == 124_000
    assert calibration.size(1) == 2
    assert calibration.budget(ContextSettings(), 1_500 + 5_200) == 133_973
    assert calibration.budget(ContextSettings(history_limit=9_000), 1_500 + 5_200) == 9_000


def test_samples_are_forgotten_after_sixteen_more() -> None:
    calibration = Calibration()
    calibration.add(3, 1)
    for _ in range(15):
        calibration.add(2, 1)
    assert calibration.ratio == 3
    calibration.add(2, 1)
    assert calibration.ratio == 2


def test_the_ratio_is_limited() -> None:
    calibration = Calibration()
    calibration.add(1, 1_000)
    assert calibration.ratio == 0.5
    calibration.add(1_000, 1)
    assert calibration.ratio == 4


def test_overflows_add_up() -> None:
    calibration = Calibration()
    calibration.overflow()
    assert float(calibration.ratio) == 1.15
    calibration.overflow()
    assert float(calibration.ratio) == 1.3225
    for _ in range(30):
        calibration.overflow()
    assert calibration.ratio == 4


def test_samples_survive_as_json() -> None:
    calibration = Calibration()
    calibration.add(104_729, 99_991)
    calibration.overflow()
    twin = Calibration(json.loads(json.dumps(calibration.samples)))
    assert twin.ratio == calibration.ratio
    assert twin.size(99_991) == calibration.size(99_991)


@pytest.mark.parametrize(
    "settings",
    [
        {"mode": "wild"},
        {"reinject": "sometimes"},
        {"context_window": 0},
        {"context_window": 16_384},
        {"output_reserve": -1},
        {"output_reserve": 200_000},
        {"margin": 1.0},
        {"margin": -0.1},
        {"margin": True},
        {"trigger": 0},
        {"trigger": 3},
        {"keep": 0},
        {"keep": 1.5},
        {"history_limit": 0},
        {"reminders": 0},
        {"reminders": True},
        {"notes_tokens": -1},
        {"hard": 1},
        {"context_window": 10, "output_reserve": 8},
    ],
)
def test_impossible_settings(settings: dict[str, Any]) -> None:
    name = next(iter(settings))
    with pytest.raises(ValueError, match=name):
        ContextSettings(**settings)


def test_only_the_reference_may_never_compact() -> None:
    assert ContextSettings(mode="reference", trigger=0).kept == 30_000
    with pytest.raises(ValueError, match="trigger"):
        ContextSettings(mode="off", trigger=0)
