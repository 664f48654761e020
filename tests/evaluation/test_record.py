"""The result record: fixed keys, validity, unknown is not zero."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import gymnasium
import pytest

from merchantbench_gym.baselines import (
    PassivePolicy,
    PolicyStop,
    RuleBasedPolicy,
    ScriptedPolicy,
    run_episode,
)
from merchantbench_gym.evaluation import result_record

KEYS = [
    "format",
    "package_version",
    "env_id",
    "merchants",
    "agent",
    "scenario",
    "scenario_hash",
    "catalog_hash",
    "tool_schema_hash",
    "seed",
    "split",
    "policy",
    "harness",
    "interventions",
    "label",
    "valid",
    "reason",
    "end_reason",
    "windows_total",
    "windows_offered",
    "windows_acted",
    "windows_idle",
    "windows_forced",
    "degraded",
    "score",
    "final_net_assets",
    "initial_net_assets",
    "net_profit",
    "growth",
    "last_net_assets",
    "swr",
    "swr_any",
    "swr_span",
    "survived",
    "days_survived",
    "fines",
    "orders",
    "anomaly_rate",
    "late_rate",
    "rating",
    "mean_active_listings",
    "calls",
    "model",
    "wall_s",
    "model_s",
]
CALLS = {
    "by_tool",
    "ok",
    "business_errors",
    "invalid",
    "rejected_turns",
    "partially_applied",
    "internal_faults",
}
SCORES = ("score", "final_net_assets", "net_profit", "growth", "survived", "days_survived")


def played(policy: Any, env_id: str = "MerchantBenchSmoke-v0", seed: int = 1, **how: Any) -> dict[str, Any]:
    env = gymnasium.make(env_id, **how.pop("settings", {}))
    record = result_record(run_episode(env, policy, seed=seed, **how))
    assert list(record) == KEYS
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    return record


def test_a_finished_run_is_valid() -> None:
    record = played(RuleBasedPolicy(), seed=3)
    assert (record["valid"], record["reason"], record["end_reason"]) == (True, "", "horizon")
    assert record["env_id"] == "MerchantBenchSmoke-v0"
    assert (record["merchants"], record["agent"], record["scenario"]) == (1, "merchant_0", "smoke")
    assert (record["seed"], record["split"]) == (3, "dev")
    assert record["policy"] == {
        "name": "rule_based",
        "version": "1",
        "privileged": False,
        "model": None,
        "config_hash": None,
    }
    assert record["score"] == record["final_net_assets"] == record["last_net_assets"]
    assert record["initial_net_assets"] == 3000.0
    assert record["net_profit"] == pytest.approx(record["score"] - 3000.0)
    assert record["growth"] == pytest.approx(record["net_profit"] / 3000.0)
    assert (record["survived"], record["days_survived"]) == (True, 7)
    assert record["windows_total"] == record["windows_offered"] == record["windows_acted"] == 14
    assert (record["windows_idle"], record["windows_forced"], record["degraded"]) == (0, 0, False)
    assert (record["swr"], record["swr_any"], record["swr_span"]) == (1.0, 1.0, 14)
    assert set(record["calls"]) == CALLS
    assert record["wall_s"] > 0


def test_figures_are_those_of_the_market() -> None:
    env: Any = gymnasium.make("MerchantBenchMonth-v0")
    record = result_record(run_episode(env, RuleBasedPolicy(), seed=3))
    world = env.unwrapped.session.world
    metrics = world.metrics(0)
    assert tuple(record["orders"].values()) == world.status_counts(0)
    assert record["fines"]["total"] == -metrics["fines"] / 100
    kinds = {kind: amount for kind, amount in record["fines"].items() if kind != "total"}
    assert sum(kinds.values()) == pytest.approx(record["fines"]["total"])
    assert kinds["stockout"] == metrics["fine_collected_stockout"] / 100
    finished = sum(record["orders"].values())  # nothing is open after the drain
    assert record["anomaly_rate"] == pytest.approx(1 - record["orders"]["settled_normal"] / finished)
    assert record["late_rate"] == pytest.approx(metrics["late"] / metrics["orders_procured"])
    assert record["rating"] == metrics["rating"]
    assert 0 < record["mean_active_listings"] <= 50


def test_passive_record_has_unknown_rates() -> None:
    record = played(PassivePolicy())
    assert record["score"] == 3000.0
    assert record["growth"] == 0.0
    assert record["anomaly_rate"] is None
    assert record["late_rate"] is None
    assert (record["swr"], record["windows_idle"]) == (0.0, 14)
    assert record["mean_active_listings"] == 0.0


@pytest.mark.parametrize(
    ("seed", "split"), [(1, "dev"), (10, "dev"), (11, None), (7_000_001, "eval"), (0, None)]
)
def test_split(seed: int, split: str | None) -> None:
    assert played(PassivePolicy(), seed=seed)["split"] == split


class Bankrupt(ScriptedPolicy):
    """Gives everything away until the fines have eaten the deposit."""

    def __init__(self) -> None:
        items = [{"product_id": f"P{index:05d}", "sale_price": 0.01} for index in range(60)]
        super().__init__([[{"id": "list", "name": "list_product", "arguments": {"items": items}}]])


def test_a_closed_shop_is_a_valid_result_with_its_day() -> None:
    record = played(Bankrupt(), "MerchantBenchMarket1-v0", seed=42)
    assert (record["valid"], record["end_reason"]) == (True, "shop_closed")
    assert record["survived"] is False
    assert record["score"] == 0.0
    assert record["growth"] == -1.0
    assert record["days_survived"] == 14  # this run closes in hour 328
    assert record["windows_offered"] < record["windows_total"] == 730


class Stopping(PassivePolicy):
    """Stops at a given turn."""

    def __init__(self, turn: int, error: BaseException) -> None:
        self.turn, self.error = turn, error

    def act(self, observation: Any, info: Mapping[str, Any]) -> Any:
        if self.turn == 0:
            raise self.error
        self.turn -= 1
        return super().act(observation, info)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (PolicyStop("auth"), "policy_stopped:auth"),
        (ValueError("x"), "policy_error:ValueError"),
        (KeyboardInterrupt(), "interrupted"),
    ],
)
def test_a_stopped_run_has_no_score(error: BaseException, reason: str) -> None:
    record = played(Stopping(6, error), "MerchantBenchMonth-v0")
    assert (record["valid"], record["reason"]) == (False, reason)
    assert all(record[key] is None for key in SCORES)
    assert record["last_net_assets"] == record["initial_net_assets"] == 3000.0
    assert (record["windows_offered"], record["windows_total"]) == (7, 60)


def test_a_run_that_reached_a_limit_has_no_score() -> None:
    record = played(PassivePolicy(), limits={"windows": 2})
    assert (record["valid"], record["reason"], record["score"]) == (False, "budget:windows", None)


def test_a_run_that_never_began_is_invalid_whatever_it_holds() -> None:
    class Unable(PassivePolicy):
        def reset(self, seat: Any, *, seed: int | None = None) -> None:
            raise LookupError

    record = played(Unable())
    assert (record["valid"], record["reason"]) == (False, "policy_error:LookupError")
    assert record["last_net_assets"] == 3000.0
    assert record["score"] is None


def test_an_interrupt_during_reset_leaves_a_record() -> None:
    class Slow(gymnasium.Wrapper[Any, Any, Any, Any]):
        def reset(self, **arguments: Any) -> Any:
            raise KeyboardInterrupt

    env = Slow(gymnasium.make("MerchantBenchSmoke-v0"))
    record = result_record(run_episode(env, PassivePolicy(), seed=1))
    assert list(record) == KEYS
    assert (record["valid"], record["reason"]) == (False, "interrupted")
    assert record["windows_offered"] == 0
    assert all(
        record[key] is None for key in (*SCORES, "swr", "orders", "fines", "rating", "last_net_assets")
    )


def test_tampered_reward_terms_are_found() -> None:
    class Generous(gymnasium.Wrapper[Any, Any, Any, Any]):
        def step(self, action: Any) -> Any:
            *rest, info = self.env.step(action)
            return (*rest, {**info, "gross": info["gross"] + 0.01})

    env = Generous(gymnasium.make("MerchantBenchSmoke-v0"))
    record = result_record(run_episode(env, PassivePolicy(), seed=1))
    assert (record["valid"], record["reason"], record["score"]) == (False, "inconsistent_ledger", None)


def test_windows_ended_without_a_decision() -> None:
    def forced(cause: str) -> dict[str, Any]:
        call = {"id": "end", "name": "end_of_step", "arguments": {}}
        return {"role": "assistant", "content": "", "tool_calls": [call], "note": {"forced": cause}}

    record = played(ScriptedPolicy({(1, 0): forced("hop_budget")}))
    assert (record["windows_forced"], record["degraded"]) == (1, False)
    record = played(ScriptedPolicy({(1, 0): forced("provider:rate")}))
    assert (record["windows_forced"], record["degraded"]) == (1, True)


def test_model_figures_are_the_policys_own() -> None:
    class Modelled(PassivePolicy):
        def report(self) -> dict[str, Any]:
            return {"model": "m-1", "config_hash": "abc", "calls": 4, "cost_micro_usd": None, "model_s": 2.5}

    record = played(Modelled())
    assert record["policy"]["model"] == "m-1"
    assert record["policy"]["config_hash"] == "abc"
    assert record["model"]["calls"] == 4
    assert record["model"]["cost_micro_usd"] is None
    assert record["model"]["tokens"] is None
    assert record["model_s"] == 2.5
    assert set(played(PassivePolicy())["model"].values()) == {None}
