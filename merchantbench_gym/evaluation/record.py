"""The result record: what one seat reached, under fixed keys, as JSON data.

``None`` means unknown and never stands for zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from merchantbench_gym.evaluation.swr import swr
from merchantbench_gym.scenario import DEV_SEEDS, EVAL_SEEDS

if TYPE_CHECKING:
    from merchantbench_gym.baselines.runner import EpisodeResult

FORMAT = 1
FINISHED = (
    "cancelled",
    "stockout",
    "insufficient_balance",
    "settled_normal",
    "settled_refund",
    "settled_only_refund",
    "settled_bad_review",
)
MODEL_KEYS = (
    "calls",
    "attempts",
    "tokens",
    "missing_usage",
    "cost_micro_usd",
    "compactions",
    "notes_versions",
    "redactions",
    "recoveries",
)


def result_record(result: EpisodeResult) -> dict[str, Any]:
    """Make the record of one seat.

    Args:
        result: What the run loop returned.

    Returns:
        JSON data with fixed keys; amounts in currency units.
    """
    validity = _validity(result)
    return {
        **_identity(result),
        **validity,
        **_score(result, valid=validity["valid"]),
        **_behaviour(result, valid=validity["valid"]),
        "calls": {key: value for key, value in result.counters.items() if key != "turns"},
        "model": {key: result.report.get(key) for key in MODEL_KEYS},
        "wall_s": result.wall_s,
        "model_s": result.report.get("model_s"),
    }


def _identity(result: EpisodeResult) -> dict[str, Any]:
    policy = {**result.policy, "model": None, "config_hash": None}
    policy |= {key: result.report[key] for key in ("model", "config_hash") if key in result.report}
    return {
        "format": FORMAT,
        "package_version": result.package_version,
        "env_id": result.env_id,
        "merchants": result.merchants,
        "agent": result.agent,
        "scenario": result.scenario,
        "scenario_hash": result.hashes["scenario_hash"],
        "catalog_hash": result.hashes["catalog_hash"],
        "tool_schema_hash": result.hashes["tool_schema_hash"],
        "seed": result.seed,
        "split": "dev" if result.seed in DEV_SEEDS else "eval" if result.seed in EVAL_SEEDS else None,
        "policy": policy,
        "harness": list(result.harness),
        "interventions": list(result.interventions),
        "label": result.label,
    }


def _validity(result: EpisodeResult) -> dict[str, Any]:
    reason = result.reason
    if not reason and not result.end_reason:
        reason = "not_finished"
    if not reason and not result.ledger_holds:
        reason = "inconsistent_ledger"
    acted = sum(result.active)
    return {
        "valid": not reason,
        "reason": reason,
        "end_reason": result.end_reason,
        "windows_total": -(-result.horizon_hours // result.window_hours),
        "windows_offered": result.windows_offered,
        "windows_acted": acted,
        "windows_idle": result.windows_offered - acted,
        "windows_forced": len(result.forced),
        "degraded": any(cause.startswith("provider:") for cause in result.forced.values()),
    }


def _score(result: EpisodeResult, *, valid: bool) -> dict[str, Any]:
    initial, last = result.initial_net_assets, result.last_net_assets
    profit = last - initial if valid and last is not None and initial is not None else None
    return {
        "score": _currency(last) if valid else None,
        "final_net_assets": _currency(last) if valid else None,
        "initial_net_assets": _currency(initial),
        "net_profit": _currency(profit),
        "growth": profit / initial if profit is not None and initial else None,
        "last_net_assets": _currency(last),
    }


def _behaviour(result: EpisodeResult, *, valid: bool) -> dict[str, Any]:
    core, span = swr(result.active, result.window_hours)
    figures = result.metrics or {}
    orders: dict[str, int] | None = figures.get("orders")
    fines: dict[str, int] | None = figures.get("fines")
    finished = sum(orders[status] for status in FINISHED) if orders else 0
    procured = figures.get("procured", 0)
    days = None
    if valid:
        closed = figures.get("closed_t") if result.end_reason == "shop_closed" else None
        days = result.horizon_hours // 24 if closed is None else closed // 24 + 1
    return {
        "swr": core,
        "swr_any": swr(result.active_any, result.window_hours)[0],
        "swr_span": span,
        "survived": result.end_reason == "horizon" if valid else None,
        "days_survived": days,
        "fines": {kind: cents / 100 for kind, cents in fines.items()} if fines is not None else None,
        "orders": orders,
        "anomaly_rate": 1 - orders["settled_normal"] / finished if orders and finished else None,
        "late_rate": figures["late"] / procured if procured else None,
        "rating": figures.get("rating"),
        "mean_active_listings": result.mean_active_listings,
    }


def _currency(cents: int | None) -> float | None:
    return None if cents is None else cents / 100
