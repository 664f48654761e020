"""A two-ply lookahead: before each window, try candidate markups on clones of the world and keep the best.

The clones know the future, so this is no fair player; it shows what exact, cheap copies make possible.

    python docs/examples/lookahead.py --days 14
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import gymnasium as gym

from merchantbench_gym.envs import MerchantEnv

MARKUPS = (1.3, 1.6, 2.0)
END: dict[str, Any] = {"name": "end_of_step", "arguments": {}}


def shelf(env: MerchantEnv) -> list[dict[str, Any]]:
    """Rows of the shelf, read on a clone so that the run itself is charged nothing."""
    observation, *_ = env.clone().step([{"name": "query_my_listings", "arguments": {"page_size": 50}}])
    table = json.loads(observation["tool_results"][0]["content"])["items"]
    return [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]


def repriced(env: MerchantEnv, markup: float) -> list[dict[str, Any]]:
    """A turn that sets every price to supplier price times markup and ends the window."""
    items = [
        {"product_id": row["product_id"], "new_price": round(row["supplier_price"] * markup, 2)}
        for row in shelf(env)
    ]
    return [{"name": "adjust_price", "arguments": {"items": items}}, END] if items else [END]


def value(env: MerchantEnv, plies: int, horizon: int) -> float:
    """Net assets after the best of all markup sequences of a number of plies, then waiting."""
    if plies == 0:
        done = False
        for _ in range(horizon):
            if not done:
                _, _, done, _, info = env.step([END])
        return float(info["net_assets"])
    best = float("-inf")
    for markup in MARKUPS:
        branch = env.clone()
        _, _, done, _, info = branch.step(repriced(env, markup))
        best = max(best, float(info["net_assets"]) if done else value(branch, plies - 1, horizon))
    return best


def choose(env: MerchantEnv, horizon: int = 4) -> float:
    """The markup whose two-ply value is highest."""
    scores = {}
    for markup in MARKUPS:
        branch = env.clone()
        _, _, done, _, info = branch.step(repriced(env, markup))
        scores[markup] = float(info["net_assets"]) if done else value(branch, 1, horizon)
    return max(scores, key=scores.__getitem__)


def play(days: int, seed: int, fixed: float | None = None) -> float:
    """Final net assets of a run that keeps one markup, or chooses it by lookahead once a day."""
    env = gym.make(
        "merchantbench_gym:MerchantBenchMonth-v0", overrides={"run": {"horizon_days": days}}
    ).unwrapped
    assert isinstance(env, MerchantEnv)
    env.reset(seed=seed)
    search = {"name": "search_products", "arguments": {"sort_by": "supplier_rating", "page_size": 50}}
    observation, *_ = env.step([search])
    table = json.loads(observation["tool_results"][0]["content"])["items"]
    rows = [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]
    items = [{"product_id": r["product_id"], "sale_price": round(1.6 * r["price"], 2)} for r in rows]
    _, _, done, _, info = env.step([{"name": "list_product", "arguments": {"items": items}}])
    markup = fixed or 1.6
    while not done:
        if fixed is None and info["hour"] == 0:
            markup = choose(env)
        _, _, done, _, info = env.step(repriced(env, markup))
    return float(info["net_assets"])


def main(arguments: list[str] | None = None) -> dict[str, float]:
    """Compares fixed markups with the lookahead on one seed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--days", type=int, default=14)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    results = {f"markup {m}": play(options.days, options.seed, m) for m in MARKUPS}
    results["lookahead"] = play(options.days, options.seed)
    for name, net_assets in results.items():
        print(f"{name:12} {net_assets:10,.2f}")
    return results


if __name__ == "__main__":
    main()
