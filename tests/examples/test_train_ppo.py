"""The training example learns, saves, compares and draws; it needs the extra `rl`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.examples.test_examples import example

pytestmark = pytest.mark.slow


def test_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sb3_contrib", reason="training needs the extra rl")
    module = example("train_ppo")
    monkeypatch.setattr(module, "HELD_OUT", range(1001, 1004))
    curve = module.train(1, 600, tmp_path, envs=1)
    assert len(curve) == 12 and all(assets > 0 for _, assets in curve)
    rows = module.compare({1: module.MaskablePPO.load(tmp_path / "model-1", device="cpu")})
    assert [row["policy"] for row in rows] == ["passive", "random", "rule_based", "ppo, training seed 1"]
    assert all(row["n_valid"] == 3 for row in rows)
    module.plot({1: curve}, rows, tmp_path / "curve.png")
    assert (tmp_path / "curve.png").stat().st_size > 10_000


def test_reserved_seeds_are_refused_in_training() -> None:
    pytest.importorskip("sb3_contrib", reason="training needs the extra rl")
    env = example("train_ppo").make_env(5)()
    with pytest.raises(ValueError, match="reserved"):
        env.reset(seed=7_000_001)
