"""The examples run, on small runs, and say what their text claims."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "examples"


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_lookahead(capsys: pytest.CaptureFixture[str]) -> None:
    results = example("lookahead").main(["--days", "4"])
    assert set(results) == {"markup 1.3", "markup 1.6", "markup 2.0", "lookahead"}
    assert all(net_assets > 0 for net_assets in results.values())
    assert "lookahead" in capsys.readouterr().out


def test_lookahead_leaves_the_run_alone() -> None:
    module = example("lookahead")
    env = module.gym.make("merchantbench_gym:MerchantBenchSmoke-v0").unwrapped
    env.reset(seed=1)
    before = env.snapshot()
    module.choose(env)
    assert env.snapshot() == before


def test_branches(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = example("branches")
    lines = module.branch(days=8, at=4)
    ends = {name: days[-1] for name, (days, _) in lines.items()}
    assert ends.pop("trunk") == 5
    assert min(ends.values()) >= 8
    starts = {(days[0], assets[0]) for name, (days, assets) in lines.items() if name != "trunk"}
    assert starts == {(5, lines["trunk"][1][-1])}, "every branch begins where the trunk ends"
    pytest.importorskip("matplotlib", reason="plots need matplotlib")
    module.main(["--days", "3", "--at", "1", "--out", str(tmp_path / "plot.png")])
    assert (tmp_path / "plot.png").stat().st_size > 10_000
    assert "markup 3.0" in capsys.readouterr().out


def test_scripted_month(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = example("scripted_month")
    played = module.play(days=6, trigger=14_000, keep=2_500)
    assert played.result.reason == "" and len(played.result.active) == 12
    assert played.cuts and played.threshold == 14_000
    for cut in played.cuts:
        assert played.model.prompts[cut] < played.model.prompts[cut - 1] - 4_000
        told = " ".join(message["content"] for message in played.requests[cut].body["messages"])
        assert "Suppliers to buy from: sup_" in told
    actual = sum(played.model.prompts)
    assert abs(played.expected.prompt_tokens - actual) < 0.2 * actual
    module.show(played)
    assert "compaction 1 on day" in capsys.readouterr().out
    pytest.importorskip("matplotlib", reason="plots need matplotlib")
    module.plot(played, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 10_000
