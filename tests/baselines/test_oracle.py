"""The oracle: who may use it, what it expects of a product, and the shelf it fills."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from merchantbench_gym.baselines import OraclePolicy, PassivePolicy, run_episode
from merchantbench_gym.baselines.oracle import privileged_view
from merchantbench_gym.evaluation import result_record
from merchantbench_gym.market import World
from merchantbench_gym.wrappers.seat import Seat

ROOT = Path(__file__).resolve().parents[2]


def make(scenario: str = "month", **overrides: Any) -> Any:
    return gymnasium.make(
        "MerchantBench-v0", scenario=scenario, overrides=overrides, disable_env_checker=True
    )


def first_turn(env: Any, seed: int = 1) -> tuple[World, dict[str, list[dict[str, Any]]]]:
    """The market of a fresh episode and the items of the oracle's first calls by tool."""
    observation, info = env.reset(seed=seed)
    policy = OraclePolicy.for_env(env)
    policy.reset(Seat.from_env(env), seed=seed)
    action = policy.act(observation, info)
    assert action[-1]["name"] == "end_of_step"
    items: dict[str, list[dict[str, Any]]] = {}
    for call in action[:-1]:
        items.setdefault(call["name"], []).extend(call["arguments"]["items"])
    return privileged_view(env).world, items


def listings(world: World, items: dict[str, list[dict[str, Any]]]) -> dict[int, int]:
    """Products that are to be listed, and their prices in cents."""
    pairs = [(world.catalog.product_index(i["product_id"]), i["sale_price"]) for i in items["list_product"]]
    return {product: round(100 * price) for product, price in pairs if product is not None}


# -- who may use it ------------------------------------------------------------------------------------


def test_it_is_flagged_and_refused_unless_allowed() -> None:
    env = make("smoke")
    policy = OraclePolicy.for_env(env)
    with pytest.raises(ValueError, match="allow_privileged"):
        run_episode(env, policy, seed=1)
    record = result_record(run_episode(env, policy, seed=1, allow_privileged=True))
    assert record["valid"]
    assert record["policy"]["privileged"] is True


def test_only_this_module_reads_hidden_state() -> None:
    """Policies and wrappers may import the oracle, but neither its view nor any part of the market."""
    offending = []
    for folder in ("baselines", "wrappers"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if path.name == "oracle.py":
                continue
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                names: list[str] = []
                if isinstance(node, ast.Import):
                    names = [alias.name for alias in node.names]
                elif isinstance(node, ast.ImportFrom):
                    names = [f"{node.module}.{alias.name}" for alias in node.names]
                elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                    names = ["hidden state"] if node.func.attr == "privileged" else []
                offending += [
                    f"{path.name}: {name}"
                    for name in names
                    if name == "hidden state"
                    or name.startswith("merchantbench_gym.market")
                    or "rivileged_view" in name
                    or "PrivilegedView" in name
                ]
    assert offending == []


# -- what it expects -----------------------------------------------------------------------------------


def best_listings(world: World, shadow: float = 0.0) -> dict[int, tuple[float, int]]:
    """Value and price of every product worth listing in the first window, one product at a time."""
    catalog, rules, found = world.catalog, world.rules, {}
    promise, until = rules.promise, world.t + 12
    life = rules.lifecycle[:336].mean()
    world.timelines.ensure(until)
    states = [world.timelines.at(slice(None), hour) for hour in range(world.t, until + 1)]
    for p in range(catalog.size):
        cost = int(states[0].price[p])
        on_offer = all(state.listed[p] and state.ship_hours[p] <= promise for state in states)
        if not on_offer or cost > world.accounts(0).balance:
            continue
        cancel, refund = catalog.cancel_rate[p], catalog.refund_rate[p]
        only, bad = catalog.only_refund_rate[p], catalog.bad_review_rate[p]
        a = 1 - cancel - refund - only
        k = a * cost + 500 * bad + 800 * refund + only * cost
        eps = catalog.elasticity[p]
        price = round(eps / (eps - 1) * (k + shadow * cost) / a)
        factor = min((price / catalog.ref_price[p]) ** -eps, rules.ces_cap)
        demand = catalog.curves([p], 0)[0] * factor
        value = demand * life * (a * price - k - shadow * cost)
        if value > 0:
            found[p] = (float(value), price)
    return dict(sorted(found.items(), key=lambda entry: -entry[1][0])[: rules.max_listings])


def test_a_rich_merchant_lists_the_best_values() -> None:
    env = make(merchant={"initial_cash": 1_000_000, "max_listings": 40})
    world, items = first_turn(env, seed=4)
    listed = listings(world, items)
    assert listed == {product: price for product, (_, price) in best_listings(world).items()}
    assert set(items) == {"list_product"}


def test_cash_is_charged_just_enough_to_pay_for_two_days() -> None:
    world, items = first_turn(make(merchant={"initial_cash": 400}), seed=2)
    listed = listings(world, items)
    limit = 0.8 * world.accounts(0).balance

    def outlay(prices: dict[int, int]) -> float:
        hidden, total = world.privileged(), 0.0
        for p, price in prices.items():
            orders = world.catalog.curves([p], 0)[0] * hidden.price_factor(p, price)
            total += 2 * float(world.catalog_view().price[p]) * orders * world.rules.lifecycle[0]
        return total

    assert 0.95 * limit < outlay(listed) <= limit
    # Without a charge the shelf would cost more than it may.
    assert outlay({p: price for p, (_, price) in best_listings(world).items()}) > limit


def test_fees_enter_the_price() -> None:
    env = make("fees", merchant={"initial_cash": 1_000_000}, run={"horizon_days": 20})
    world, items = first_turn(env)
    catalog, rules = world.catalog, world.rules
    assert rules.fees_enabled and rules.reverse_logistics
    for item in items["list_product"]:
        p = catalog.product_index(item["product_id"])
        assert p is not None
        cost, kind = float(world.catalog_view().price[p]), int(catalog.category[p])
        refund, only, bad = (
            float(rates[p])
            for rates in (catalog.refund_rate, catalog.only_refund_rate, catalog.bad_review_rate)
        )
        sold = 1 - float(catalog.cancel_rate[p]) - refund - only
        fixed = 500 * bad + 800 * refund + rules.fulfilment[kind] * (1 + refund)
        charge = (sold + only + refund * (1 - rules.recovery / 1e4)) * cost + fixed
        eps = catalog.elasticity[p]
        price = eps / (eps - 1) * charge / (sold * (1 - rules.take_rates[kind] / 1e4))
        assert abs(item["sale_price"] * 100 - price) <= 0.51


# -- how it plays --------------------------------------------------------------------------------------


def test_one_turn_brings_the_shelf_to_the_best_one() -> None:
    env = make("smoke")
    observation, info = env.reset(seed=3)
    policy = OraclePolicy.for_env(env)
    policy.reset(Seat.from_env(env), seed=3)
    ended, kinds = False, set()
    while not ended:
        action = policy.act(observation, info)
        kinds |= {call["name"] for call in action}
        world, best = privileged_view(env).world, policy._best_shelf(privileged_view(env).world)
        before = world.t
        observation, _, ended, _, info = env.step(action)
        results = [json.loads(result["content"]) for result in observation["tool_results"]]
        assert all(result["ok"] and not result.get("rejected") for result in results)
        assert ended or world.t > before
        if not ended and world.alive(0):
            assert world.shelf_products(0) == sorted(best.products.tolist())
            prices = {p: world.sale_price(0, p) for p in best.products.tolist()}
            assert prices == dict(zip(best.products.tolist(), best.prices.tolist(), strict=True))
    assert kinds == {"list_product", "delist_product", "adjust_price", "end_of_step"}


def failures(env: Any) -> set[str]:
    world = privileged_view(env).world
    return {order.reason for order in world.orders(0) if order.status == "stockout"}


def test_it_never_sells_what_is_withdrawn_or_ships_late() -> None:
    env = make(difficulty={"delist": 10, "slow": 10})
    result = run_episode(env, OraclePolicy.for_env(env), seed=1, allow_privileged=True)
    assert result.metrics is not None and result.metrics["procured"] > 50
    assert failures(env) <= {"out_of_stock"}
    assert result.metrics["late"] == 0


@pytest.mark.slow
def test_a_year_without_an_order_for_a_withdrawn_product() -> None:
    env = make("default")
    run_episode(env, OraclePolicy.for_env(env), seed=3, allow_privileged=True)
    assert failures(env) <= {"out_of_stock"}


def test_it_follows_its_environment_over_resets() -> None:
    env = make("smoke")
    policy = OraclePolicy.for_env(env)
    scores = [run_episode(env, policy, seed=s, allow_privileged=True).last_net_assets for s in (1, 2, 1)]
    assert scores[0] == scores[2] != scores[1]


def test_it_lets_a_closed_shop_be() -> None:
    env = make("smoke", merchant={"initial_cash": 0, "initial_deposit": 0.01})
    result = run_episode(env, OraclePolicy.for_env(env), seed=1, allow_privileged=True)
    assert result.reason == ""
    passive = run_episode(env, PassivePolicy(), seed=1)
    assert result.last_net_assets == passive.last_net_assets


def test_it_plays_a_seat_of_a_market() -> None:
    from merchantbench_gym.baselines import run_parallel
    from merchantbench_gym.envs.marketplace import parallel_env

    penv = parallel_env("smoke", merchants=2)
    policies = {"merchant_0": PassivePolicy(), "merchant_1": OraclePolicy(privileged_view(penv))}
    results = run_parallel(penv, policies, seed=1, allow_privileged=True)
    growth = {name: result_record(result)["net_profit"] for name, result in results.items()}
    assert growth["merchant_0"] == 0
    assert growth["merchant_1"] > 0


def test_many_writes_are_split_into_calls_of_a_hundred() -> None:
    env = make("smoke", merchant={"initial_cash": 1_000_000, "max_listings": 250})
    observation, info = env.reset(seed=1)
    policy = OraclePolicy.for_env(env)
    policy.reset(Seat.from_env(env))
    sizes = [len(call["arguments"].get("items", [])) for call in policy.act(observation, info)]
    assert sizes == [100, 100, 50, 0]
    assert np.sum(sizes) == 250
