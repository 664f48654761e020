"""Contracts of seeding and determinism; each test is named after the bug it would find.

Held elsewhere: reset(seed) then reset() not repeatable, global random state used and PYTHONHASHSEED
dependence in test_merchant.py; the chain of resets of several seats in test_marketplace.py.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest

from merchantbench_gym.envs import MarketplaceEnv, MerchantEnv
from merchantbench_gym.wrappers import Reward, SeedGuard

END = ({"id": "end", "name": "end_of_step", "arguments": "{}"},)


def test_seed_dropped_by_a_wrapper() -> None:
    stack: Any = gymnasium.make("merchantbench_gym:MerchantBenchSmoke-v0")
    for wrap in (
        gymnasium.wrappers.RecordEpisodeStatistics,
        lambda env: Reward(env, "log"),
        SeedGuard,
        lambda env: gymnasium.wrappers.TimeLimit(env, 1000),
    ):
        stack = wrap(stack)
    bare = MerchantEnv("smoke")
    for seed in (5, None, None, 0, None):
        observation, info = stack.reset(seed=seed)
        np.testing.assert_equal((observation, info), bare.reset(seed=seed))
        assert stack.unwrapped.session.world.seed == bare.session.world.seed


def test_global_random_state_used_by_a_market(monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> list[Any]:
        market = MarketplaceEnv("smoke", merchants=3)
        market.reset(seed=4)
        for m, agent in enumerate(market.agents):
            market.action_space(agent).seed(m)
        steps = []
        for _ in range(10):
            steps.append(market.step({a: market.action_space(a).sample() for a in market.agents}))
        market.reset()
        return [*steps, market.snapshot()]

    expected = run()

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a global generator was used")

    for name in ("random", "randint", "randrange", "choice", "uniform", "shuffle", "sample", "seed"):
        monkeypatch.setattr(random, name, refuse)
    for name in ("random", "randint", "choice", "uniform", "shuffle", "normal", "poisson", "rand", "seed"):
        monkeypatch.setattr(np.random, name, refuse)
    np.testing.assert_equal(run(), expected)


def test_wall_clock_in_info_or_observation(monkeypatch: pytest.MonkeyPatch, fill: Any) -> None:
    def run() -> list[Any]:
        env = MerchantEnv("smoke", render_mode="ansi")
        steps = [env.reset(seed=4), env.step(fill), *(env.step(END) for _ in range(14))]
        return [*steps, env.render(), env.snapshot()]

    expected = run()

    def refuse(*_: Any) -> None:
        raise AssertionError("a clock was read")

    with monkeypatch.context() as patch:
        for name in ("time", "time_ns", "perf_counter", "monotonic", "localtime", "gmtime", "strftime"):
            patch.setattr(time, name, refuse)
        actual = run()
    np.testing.assert_equal(actual, expected)


@pytest.mark.parametrize("face", ["one seat", "several seats"])
def test_state_leaking_over_reset(face: str, call: Any) -> None:
    def make() -> Any:
        return MerchantEnv("smoke") if face == "one seat" else MarketplaceEnv("smoke", merchants=2)

    def act(env: Any, action: Any) -> Any:
        return env.step(action if face == "one seat" else dict.fromkeys(env.agents, action))

    env, fresh = make(), make()
    used = call("list_product", items=[{"product_id": f"P{i:05d}", "sale_price": 60.0} for i in range(50)])
    env.reset(seed=8, options={"overrides": {"run": {"horizon_days": 3}, "brief": {"language": "zh"}}})
    for action in (used, "gibberish", *[END] * 4, {"role": "assistant", "tool_calls": [], "turn_id": "mine"}):
        act(env, action)
    assert env.reset(seed=2)[0] is not None
    fresh.reset(seed=2)
    assert env.snapshot() == fresh.snapshot()
    assert env.system_prompt == fresh.system_prompt
    assert env.tool_schemas == fresh.tool_schemas
    actions = [{"role": "assistant", "tool_calls": list(used), "turn_id": "mine"}, *[END] * 5]
    np.testing.assert_equal([act(env, action) for action in actions], [act(fresh, a) for a in actions])
    assert env.snapshot() == fresh.snapshot()


SHORT_RUN = """
import hashlib, json
from merchantbench_gym.envs import MarketplaceEnv, MerchantEnv

END = ({"id": "end", "name": "end_of_step", "arguments": "{}"},)
items = [{"product_id": f"P{i:05d}", "sale_price": 60.0 + i} for i in range(50)]
listing = ({"id": "list", "name": "list_product", "arguments": json.dumps({"items": items})},)
for preset, seed in (("smoke", 1), ("month", 2), ("fees", 3)):
    env = MerchantEnv(preset, {"run": {"horizon_days": 20}})
    env.reset(seed=seed)
    seen, step = hashlib.sha256(), env.step(listing)
    while not step[2]:
        step = env.step(END)
        seen.update(step[0]["text"].encode() + step[0]["store"].tobytes())
    print(step[4]["net_assets"], env.session.world.digest(), env.hashes, seen.hexdigest())
market = MarketplaceEnv("smoke", merchants=3)
market.reset(seed=4)
market.step(dict.fromkeys(market.agents, listing))
while market.agents:
    market.step(dict.fromkeys(market.agents, END))
print(market.session.world.digest())
"""


def test_results_that_differ_with_simd_features_disabled() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy recommends yaml here
        np_config: Any = np.show_config(mode="dicts")
    found = np_config.get("SIMD Extensions", {}).get("found", [])
    if not found:
        pytest.skip("numpy uses no SIMD features beyond its baseline on this machine")
    outputs = [
        subprocess.run(
            [sys.executable, "-c", SHORT_RUN],
            env={"PYTHONPATH": ":".join(sys.path), "NPY_DISABLE_CPU_FEATURES": " ".join(disabled)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for disabled in ([], found)
    ]
    assert len(outputs[0].splitlines()) == 4
    assert outputs[0] == outputs[1]


def test_the_short_run_trades() -> None:
    """The runs above would agree on anything if nothing was sold in them."""
    env = MerchantEnv("month", {"run": {"horizon_days": 20}})
    env.reset(seed=2)
    items = [{"product_id": f"P{i:05d}", "sale_price": 60.0 + i} for i in range(50)]
    step = env.step(({"id": "list", "name": "list_product", "arguments": json.dumps({"items": items})},))
    while not step[2]:
        step = env.step(END)
    assert env.session.world.order_count(0) > 20
