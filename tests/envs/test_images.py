"""The image of a store, as environments and Gymnasium's recorder show it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from merchantbench_gym import rendering
from merchantbench_gym.envs import MerchantEnv


def test_rgb_array_is_an_image(fill: Any, end: Any) -> None:
    env = MerchantEnv("smoke", render_mode="rgb_array")
    env.reset(seed=1)
    first = env.render()
    env.step(fill)
    for _ in range(8):
        env.step(end)
    later = env.render()
    assert (later.shape, later.dtype) == ((540, 960, 3), np.uint8)
    assert first.shape == later.shape
    assert not np.array_equal(first, later)
    np.testing.assert_array_equal(later, env.render())
    np.testing.assert_array_equal(later, env.clone().render())


def test_an_image_shows_the_past_of_the_store(fill: Any, end: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    env = MerchantEnv("smoke", render_mode="rgb_array")
    env.reset(seed=1)
    pasts = []
    monkeypatch.setattr(rendering, "frame", lambda packet, past, name: pasts.append(past))
    env.render()
    env.step(fill)
    for _ in range(6):
        env.step(end)
    env.render()
    first, later = pasts
    assert first.days.tolist() == [0, 1 / 24]
    assert first.parts.tolist() == [[1000, 2000, 0, 0]] * 2
    assert later.days.tolist() == [0, 1, 2, 3, 3 + 1 / 24]
    world = env.session.world
    net_assets = [300_000, *world.net_assets_at(0, [1, 2, 3]), world.net_assets(0)]
    assert later.parts.sum(axis=1).tolist() == pytest.approx([cents / 100 for cents in net_assets])
    assert later.parts[-1, 2] > 0
    assert later.rating.tolist() == [4, *(row["rating"] for row in world.day_records(0)), world.rating(0)[0]]


def test_gymnasium_records_videos(end: Any, tmp_path: Path) -> None:
    pytest.importorskip("moviepy", reason="RecordVideo writes with moviepy", exc_type=ImportError)
    env = gymnasium.wrappers.RecordVideo(
        MerchantEnv("smoke", {"run": {"horizon_days": 1}}, render_mode="rgb_array"),
        str(tmp_path / "videos"),
        episode_trigger=lambda episode: True,
        disable_logger=True,
    )
    env.reset(seed=1)
    while not env.step(end)[2]:
        pass
    env.close()
    (video,) = (tmp_path / "videos").glob("*.mp4")
    assert video.stat().st_size > 1000
