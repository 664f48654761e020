"""What reading costs an agent: tokens and time of READ tools in mid-year, tokens of brief and schemas.

In each of some windows every tool is called once through ``env.step``, in an order that shifts from window to
window, so that what the first reader of a window computes for the others falls on all of them in turn.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

from merchantbench_gym.baselines import RuleBasedPolicy, run_episode
from merchantbench_gym.market.catalog import CATEGORIES
from merchantbench_gym.scenario import Scenario
from merchantbench_gym.tools import default_registry
from merchantbench_gym.wrappers.tokens import estimate

SEED = 42
ROUNDS = 40
WORDS = ("ceramic", "steel bottle", "lamp", "cotton dress", "wireless", "dog toy", "garden", "notebook", "")
END = [{"id": "end", "name": "end_of_step", "arguments": {}}]

Arguments = dict[str, Any]


def _arguments(name: str, number: int, day: int, session: Any) -> Arguments:
    """Arguments of a call as an agent would make it, others for each number."""
    shelf = session.view(0).shelf().product.tolist() or [0]
    supplier = {"supplier_id": f"sup_{number % session.world.scenario.catalog.suppliers:04d}"}
    days = {"day_from": max(1, day - 6 - number % 24), "day_to": day}
    chosen: dict[str, Arguments] = {
        "hot_search_terms": {"category": CATEGORIES[number % len(CATEGORIES)]} if number % 2 else {},
        "search_products": {"query": WORDS[number % len(WORDS)], "page": 1 + number % 3},
        "get_product_detail": {"product_id": f"P{shelf[number % len(shelf)]:05d}"},
        "get_supplier_profile": supplier,
        "list_supplier_products": supplier,
        "query_order_detail": {"order_id": f"O{max(1, session.view(0).order_count() - number):05d}"},
        "query_store_performance": days,
        "query_product_sales_stats": days,
        "query_supply_chain_anomalies": {"mode": ("new", "now")[number % 2]},
    }
    return chosen.get(name, {})


def read_tools() -> list[str]:
    """Names of the measured tools."""
    return [tool.name for tool in default_registry() if tool.kind == "READ"]


def measure_tools(scenario: Scenario, rounds: int) -> dict[str, Any]:
    """Call every READ tool in windows around the middle of a rule-based run, denied tools included.

    Args:
        scenario: The market.
        rounds: Number of windows.

    Returns:
        ``seconds`` and ``tokens``: by tool lists of the times of a step with its call and of the estimated
        tokens of its results; ``tokens`` also has ``observation``.
    """
    import gymnasium

    settings = {"turns": {"max_turns_per_window": 1000}, "tools": {"denied": []}}
    wrapped = gymnasium.make(
        "MerchantBench-v0", scenario=scenario, overrides=settings, disable_env_checker=True
    )
    env: Any = wrapped.unwrapped
    windows = scenario.run.horizon_days * 24 // scenario.run.activation_period
    run_episode(wrapped, RuleBasedPolicy(), seed=SEED, limits={"windows": max(1, windows // 2 - rounds // 2)})
    seconds: dict[str, list[float]] = defaultdict(list)
    tokens: dict[str, list[int]] = defaultdict(list)
    names = read_tools()
    for number in range(min(rounds, windows - env.session.window - 1)):
        observation, info = env.observe()
        tokens["observation"].append(estimate(observation["text"]))
        shift = number * 7 % len(names)
        for name in names[shift:] + names[:shift]:
            arguments = _arguments(name, number, info["day"], env.session)
            action = [{"id": "read", "name": name, "arguments": arguments}]
            started = perf_counter()
            observation = env.step(action)[0]
            seconds[name].append(perf_counter() - started)
            tokens[name].append(estimate(observation["tool_results"][0]["content"]))
        env.step(END)
    return {"seconds": dict(seconds), "tokens": dict(tokens)}


def token_rows(scenario: Scenario, measured: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of the token table: what an agent reads once, in each window, and by call.

    Args:
        scenario: Its brief and schemas are counted.
        measured: Return of :func:`measure_tools`.

    Returns:
        Dicts of ``name, tokens`` (median) ``, most``.
    """
    from merchantbench_gym.tools.brief import brief

    once = {
        "brief": estimate(brief(scenario)),
        "schemas": estimate(default_registry().schemas(scenario.tools.denied)),
    }
    rows = [{"name": name, "tokens": count, "most": count} for name, count in once.items()]
    for name in ("observation", *read_tools()):
        counts = measured["tokens"][name]
        rows.append({"name": name, "tokens": int(statistics.median(counts)), "most": max(counts)})
    return rows


def time_rows(measured: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of the table of times, in microseconds.

    Args:
        measured: Returns of :func:`measure_tools` by scenario.

    Returns:
        Dicts of ``name, scenario, p50_us, p95_us``.
    """
    rows = []
    for name in read_tools():
        for scenario, figures in measured.items():
            middle, high = np.percentile(figures["seconds"][name], [50, 95]) * 1e6
            rows.append({"name": name, "scenario": scenario, "p50_us": float(middle), "p95_us": float(high)})
    return rows


def measure(say: Callable[[str], None], scenarios: dict[str, Scenario]) -> dict[str, list[dict[str, Any]]]:
    """Both tables.

    Args:
        say: Called with a word about what is being measured.
        scenarios: Scenarios by name; the first one gives the tokens.

    Returns:
        ``tokens`` (see :func:`token_rows`) and ``tools`` (see :func:`time_rows`).
    """
    measured = {}
    for name, scenario in scenarios.items():
        say(f"{name}: reading in mid-year")
        measured[name] = measure_tools(scenario, ROUNDS)
    first = next(iter(scenarios))
    return {"tokens": token_rows(scenarios[first], measured[first]), "tools": time_rows(measured)}
