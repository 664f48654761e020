"""The comparison of short and long scenarios: its figures by hand, and that the whole of it runs."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

# The study is a script; its modules lie beside it.
sys.path.insert(0, str(Path(__file__).parent))

import lite_study
from heuristics import heuristics


def test_ranks() -> None:
    assert lite_study.ranks([30, 10, 20]).tolist() == [3, 1, 2]
    assert lite_study.ranks([5, 1, 5, 5]).tolist() == [3, 1, 3, 3]


def test_rank_correlation() -> None:
    assert lite_study.spearman([1, 2, 3], [10, 20, 90]) == pytest.approx(1)
    assert lite_study.spearman([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    # Squared rank differences 0, 1, 1, 0 of four: 1 − 6 · 2 / (4 · 15).
    assert lite_study.spearman([1, 2, 3, 4], [1, 3, 2, 4]) == pytest.approx(0.8)


def test_agreement_is_that_of_the_means_of_the_named() -> None:
    first = {"a": np.array([1.0, 9.0]), "b": np.array([4.0, 4.0]), "c": np.array([0.0, 0.0])}
    second = {"a": np.array([2.0, 2.0]), "b": np.array([3.0, 3.0]), "c": np.array([1.0, 1.0])}
    assert lite_study.agreement(first, second, ["a", "b"]) == pytest.approx(-1)
    assert lite_study.agreement(first, second, ["a", "c"]) == pytest.approx(1)


def test_the_whole_study_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    players = {name: lite_study.PLAYERS[name] for name in ("passive", "rule_based @ 1.6", "oracle")}
    merchants = {name: heuristics()[name] for name in ("trust @ 1.5", "random @ 2.5")}
    monkeypatch.setattr(lite_study, "PLAYERS", players)
    monkeypatch.setattr(lite_study, "heuristics", lambda: merchants)
    short = tmp_path / "short.toml"
    short.write_text('extends = "smoke"\nname = "short"\n[run]\nhorizon_days = 4\n', encoding="utf-8")
    scores = lite_study.main(
        [str(short), "--against", "smoke", "--seeds", "1-2", "--workers", "1"],
    )
    assert {name: set(own) for name, own in scores.items()} == {
        "short": {*players, *merchants},
        "smoke": {*players, *merchants},
    }
    assert scores["smoke"]["passive"].tolist() == [3000.0, 3000.0]
    assert scores["smoke"]["oracle"][0] > scores["smoke"]["trust @ 1.5"][0] > 3000
    out = capsys.readouterr().out
    for heading in ("short against smoke", "one half of the seeds", "all (5)", "Mean final net assets"):
        assert heading in out
