"""Sweeps over policies and seeds, in one process and in several."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from sweep_policies import Chatting, Interrupting, Killed, Smelling, Stopping, Unmakeable

from merchantbench_gym.baselines import PassivePolicy
from merchantbench_gym.evaluation import DEV_SEEDS, EVAL_SEEDS, Sweep, evaluate
from merchantbench_gym.evaluation.groups import ROW_KEYS
from merchantbench_gym.evaluation.published import NOT_COMPARABLE, PUBLISHED
from merchantbench_gym.scenario import load_scenario

DAY = {"extends": "smoke", "name": "day", "run": {"horizon_days": 2}}


def without_times(sweep: Sweep) -> Any:
    return [record | {"wall_s": 0} for record in sweep.records]


def names(sweep: Sweep) -> list[tuple[str, int]]:
    return [(record["label"] or record["policy"]["name"], record["seed"]) for record in sweep.records]


def test_policies_for_scale_are_added_unless_bare() -> None:
    sweep = evaluate(["random"], DAY, [1, 2])
    assert names(sweep) == [(n, s) for s in (1, 2) for n in ("random", "passive", "rule_based")]
    assert names(evaluate("random", DAY, [1], bare=True)) == [("random", 1)]
    assert sweep.valid and not sweep.interrupted and sweep.lost == ()


def test_records_and_table_are_written(tmp_path: Path) -> None:
    seen = []
    out = tmp_path / "new" / "folder"

    def on_run(run: Any, record: Any, total: int) -> None:
        # The record is on disk as soon as its run has ended.
        path = out / f"{run.policy}-{run.seed}.json"
        assert json.loads(path.read_text(encoding="utf-8")) == record
        seen.append((run.policy, run.seed, total))

    evaluate(["passive"], DAY, [3, 4], out=out, bare=True, on_run=on_run)
    assert seen == [("passive", 3, 2), ("passive", 4, 2)]
    assert sorted(path.name for path in out.iterdir()) == ["passive-3.json", "passive-4.json", "table.csv"]
    with open(out / "table.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == ROW_KEYS
    assert (rows[0]["mean"], rows[0]["low"]) == ("3000.0", "")  # unknown is empty


def test_policies_of_conversations_get_the_standard_stack() -> None:
    (record,) = evaluate({"chatting": Chatting}, DAY, [1], bare=True).records
    assert record["valid"] and record["score"] == 3000.0
    assert record["harness"] == ["MemoryDoc", "Chat", "ContextTrim"]


def test_workers_change_nothing_but_the_time() -> None:
    alone = evaluate(["random"], DAY, [5, 6])
    spread = evaluate(["random"], DAY, [5, 6], workers=2)
    assert without_times(alone) == without_times(spread)
    assert alone.table == spread.table


def test_a_killed_worker_loses_its_run_only(tmp_path: Path) -> None:
    policies = {"killed": Killed}
    sweep = evaluate(policies, DAY, [1, 2, 3], workers=2, out=tmp_path, bare=True)
    assert [(lost.policy, lost.seed) for lost in sweep.lost] == [("killed", 2)]
    assert str(sweep.lost[0]) == "killed, seed 2: its process ended with exit code -9"
    assert [record["valid"] for record in sweep.records] == [True, False, True]
    lost = json.loads((tmp_path / "killed-2.json").read_text(encoding="utf-8"))
    assert (lost["reason"], lost["score"], lost["wall_s"]) == ("not_finished", None, None)
    assert set(lost) == set(sweep.records[0])
    (row,) = sweep.table
    assert (row["ranked"], row["n"], row["n_valid"]) == (False, 3, 2)
    assert not sweep.valid


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_that_cannot_begin_is_named(workers: int) -> None:
    sweep = evaluate({"unmakeable": Unmakeable}, DAY, [1], workers=workers)
    assert [str(lost) for lost in sweep.lost] == ["unmakeable, seed 1: RuntimeError: no such thing"]
    assert sum(record["valid"] for record in sweep.records) == 2  # those added for scale
    assert len({row["group"] for row in sweep.table}) == 1


def test_a_stopped_policy_has_a_record_of_its_own() -> None:
    sweep = evaluate({"stopping": Stopping}, DAY, [1, 2], bare=True)
    assert sweep.lost == ()
    assert [record["reason"] for record in sweep.records] == ["", "policy_stopped:enough"]


def test_an_interrupt_ends_the_sweep_but_keeps_what_was_reached(tmp_path: Path) -> None:
    sweep = evaluate({"interrupting": Interrupting}, DAY, [1, 2, 3], bare=True, out=tmp_path)
    assert sweep.interrupted
    assert [record["reason"] for record in sweep.records] == ["", "interrupted", "interrupted"]
    assert (tmp_path / "table.csv").exists()
    assert not (tmp_path / "interrupting-3.json").exists()  # it was not played
    assert sweep.table[0]["n_valid"] == 1


def test_own_names_label_the_records() -> None:
    sweep = evaluate({"idle": PassivePolicy, "passive": PassivePolicy}, DAY, [1], bare=True)
    assert [record["label"] for record in sweep.records] == ["idle", ""]
    assert {row["policy"] for row in sweep.table} == {"idle", "passive"}


def test_privileged_policies_are_refused_or_unranked() -> None:
    with pytest.raises(ValueError, match="sees hidden state"):
        evaluate(["oracle"], DAY, [1])
    sweep = evaluate(["oracle"], DAY, [1], allow_privileged=True)
    assert {row["policy"]: row["ranked"] for row in sweep.table} == {
        "oracle": False,
        "passive": True,
        "rule_based": True,
    }
    assert sweep.valid


def test_splits_are_labelled() -> None:
    sweep = evaluate(["passive"], DAY, [EVAL_SEEDS[0], DEV_SEEDS[0], 99], bare=True)
    assert [record["split"] for record in sweep.records] == ["eval", "dev", None]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"policies": ["nobody"]}, "unknown policy 'nobody'"),
        ({"policies": []}, "no policy"),
        ({"policies": {"a/b": PassivePolicy}}, "must consist of letters"),
        ({"policies": {"smelling": Smelling}}, "reads 'scent' observations"),
        ({"seeds": []}, "no seed"),
        ({"seeds": [1, 2, 1]}, "named twice"),
        ({"workers": 0}, "workers must be at least 1"),
    ],
)
def test_nonsense_is_refused_before_anything_is_played(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    arguments: dict[str, Any] = {
        "policies": ["passive"],
        "scenario": DAY,
        "seeds": [1],
        "out": tmp_path / "out",
    } | change
    with pytest.raises(ValueError, match=message):
        evaluate(**arguments)
    assert not (tmp_path / "out").exists()


def test_a_policy_made_in_a_function_needs_this_process() -> None:
    class Made(PassivePolicy):
        name = "made"

    assert evaluate({"made": Made}, DAY, [1], bare=True).valid
    with pytest.raises(ValueError, match="define it in a module"):
        evaluate({"made": Made}, DAY, [1], bare=True, workers=2)


def test_scenario_may_be_given_in_every_form() -> None:
    scenario = load_scenario(DAY)
    assert evaluate("passive", scenario, [1]).records[0]["scenario_hash"] == scenario.hash


def test_published_figures_and_their_sentence() -> None:
    assert list(PUBLISHED.values()) == [217.61, 59.46, 24.48, 6.56]
    assert "not comparable" in NOT_COMPARABLE


@pytest.mark.slow
@pytest.mark.parametrize("scenario", ["month", "default"])
def test_the_order_of_the_ladder(scenario: str) -> None:
    sweep = evaluate(["random", "oracle"], scenario, DEV_SEEDS, workers=2, allow_privileged=True)
    means = {row["policy"]: row["mean"] for row in sweep.table}
    assert means["passive"] < means["random"] < means["rule_based"] < means["oracle"]
    assert means["passive"] == 3000
