"""Comparable groups, the rows of their tables, and differences within them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import pytest

from merchantbench_gym.evaluation import differences, group_key, table
from merchantbench_gym.evaluation.groups import ROW_KEYS


def record(name: str, seed: int, score: float | None, **changes: Any) -> dict[str, Any]:
    """A result record as far as tables read it; without a score it is invalid."""
    own = {
        "env_id": "MerchantBench-v0",
        "merchants": 1,
        "agent": "merchant_0",
        "scenario_hash": "aa",
        "catalog_hash": f"catalog {seed}",
        "tool_schema_hash": "cc",
        "seed": seed,
        "policy": {"name": name, "version": "1", "privileged": False, "model": None, "config_hash": None},
        "harness": [],
        "interventions": [],
        "label": "",
        "valid": score is not None,
        "reason": "" if score is not None else "not_finished",
        "score": score,
        "survived": None if score is None else score > 0,
        "swr": None if score is None else 0.5,
        "model": {"cost_micro_usd": None},
    }
    return own | changes


def run(name: str, scores: Sequence[float | None], **changes: Any) -> list[dict[str, Any]]:
    return [record(name, seed, score, **changes) for seed, score in enumerate(scores, 1)]


def test_the_key_is_the_hash_of_what_makes_results_comparable() -> None:
    records = run("a", [1.0, 2.0])[::-1]
    parts = ["MerchantBench-v0", 1, "aa", "cc", [[1, "catalog 1"], [2, "catalog 2"]], []]
    text = json.dumps(parts, separators=(",", ":"))
    assert group_key(records) == hashlib.sha256(text.encode()).hexdigest()[:16]


@pytest.mark.parametrize(
    "changes",
    [
        {"env_id": "MerchantBenchFlat-v0"},
        {"merchants": 3},
        {"scenario_hash": "bb"},  # another horizon is another scenario hash
        {"tool_schema_hash": "dd"},
        {"interventions": ["blank notes"]},
        {"catalog_hash": "another"},
    ],
)
def test_what_differs_is_not_compared(changes: dict[str, Any]) -> None:
    records = [*run("a", [1, 2, 3]), *run("b", [4, 5, 6], **changes)]
    rows = table(records)
    assert [row["policy"] for row in rows] == ["a", "b"]  # groups apart, not the better one first
    assert rows[0]["group"] != rows[1]["group"]
    assert differences(records, "a") == []


def test_other_seeds_are_another_group() -> None:
    rows = table([*run("a", [1, 2, 3]), *run("b", [4, 5])])
    assert rows[0]["group"] != rows[1]["group"]


def test_the_harness_is_no_part_of_the_key() -> None:
    rows = table([*run("a", [1, 2, 3]), *run("a", [4, 5, 6], harness=["Chat"])])
    assert [row["mean"] for row in rows] == [5.0, 2.0]
    assert rows[0]["group"] == rows[1]["group"]


def test_a_row() -> None:
    (row,) = table(run("a", [10, 20, 30, 40, 50]))
    assert tuple(row) == ROW_KEYS
    assert row == {
        "policy": "a",
        "group": row["group"],
        "ranked": True,
        "n": 5,
        "n_valid": 5,
        "mean": 30.0,
        "low": 18.0,
        "high": 42.0,
        "median": 30.0,
        "min": 10.0,
        "max": 50.0,
        "std": pytest.approx(15.8113883),
        "survival_rate": 1.0,
        "mean_swr": 0.5,
        "mean_cost_micro_usd": None,
    }


def test_two_runs_have_no_interval_and_one_no_deviation() -> None:
    two, one = table(run("a", [1, 2]))[0], table(run("a", [1]))[0]
    assert (two["low"], two["high"]) == (None, None)
    assert two["std"] is not None
    assert one["std"] is None


def test_ranked_rows_come_first_and_missing_means_last() -> None:
    seeing = {"name": "seeing", "version": "1", "privileged": True, "model": None, "config_hash": None}
    rows = table(
        [
            *run("lost", [None, None, None]),
            *run("seeing", [90, 90, 90], policy=seeing),
            *run("partly", [95, 95, None]),
            *run("poor", [-5, -5, -5]),
            *run("good", [7, 8, 9]),
        ]
    )
    assert [(row["policy"], row["ranked"]) for row in rows] == [
        ("good", True),
        ("poor", True),
        ("partly", False),
        ("seeing", False),
        ("lost", False),
    ]
    partly, lost = rows[2], rows[4]
    assert (partly["n"], partly["n_valid"], partly["mean"]) == (3, 2, 95.0)
    assert all(lost[key] is None for key in ROW_KEYS[5:])  # unknown, not 0
    assert lost["n_valid"] == 0


def test_a_lost_run_stays_in_its_group() -> None:
    rows = table([*run("a", [1, 2, 3]), *run("b", [4, None, 6], catalog_hash=None), *run("c", [None] * 3)])
    assert len({row["group"] for row in rows}) == 1


def test_survival_and_cost() -> None:
    records = run("a", [5, -1, 5, 5])
    for cost, own in zip((10, 20, 30, 40), records, strict=True):
        own["model"] = {"cost_micro_usd": cost}
    (row,) = table(records)
    assert (row["survival_rate"], row["mean_cost_micro_usd"]) == (0.75, 25.0)
    records[2]["model"] = {"cost_micro_usd": None}
    assert table(records)[0]["mean_cost_micro_usd"] is None  # a cost that is unknown is not 0


def test_differences_are_paired_by_seed() -> None:
    base = [100.0, 50, 10, 80, 70, 60, 20, 30, 40, 90]
    deltas = [5, -1, 7, 3, 2, 6, -2, 4, 8, 1]
    scores = [value + delta for value, delta in zip(base, deltas, strict=True)]
    (row,) = differences([*run("base", list(base)), *run("new", list(scores))[::-1]], "base")
    assert (row["policy"], row["against"], row["n"]) == ("new", "base", 10)
    assert row["mean"] == pytest.approx(3.3)
    assert (row["low"], row["high"]) == pytest.approx((1.3, 5.2))


def test_differences_leave_out_seeds_without_both() -> None:
    rows = differences([*run("base", [1, 2, None, 4]), *run("new", [2, None, 9, 7])], "base")
    assert [(row["n"], row["mean"], row["low"]) for row in rows] == [(2, 2.0, None)]
    assert differences([*run("base", [None]), *run("new", [1])], "base")[0]["mean"] is None


def test_a_label_names_the_row() -> None:
    rows = table([*run("a", [1, 2, 3]), *run("a", [4, 5, 6], label="a with notes")])
    assert [row["policy"] for row in rows] == ["a with notes", "a"]
