"""The environment as Gymnasium sees it: checkers, seeding, rewards, ends, rendering."""

from __future__ import annotations

import ast
import copy
import inspect
import json
import random
import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env

import merchantbench_gym  # noqa: F401  (registers the ids)
from merchantbench_gym.envs import MerchantEnv
from merchantbench_gym.scenario import TOOL_NAMES, ScenarioError, load_scenario

INFO_KEYS = [
    "day",
    "hour",
    "t",
    "window",
    "turns_left",
    "net_assets",
    "balance",
    "deposit",
    "in_transit",
    "receivable",
    "window_closed_by",
    "end_reason",
    "gross",
    "refunds",
    "fines",
    "fees",
    "other",
]
TERMS = INFO_KEYS[-5:]
# A shop that sells far below cost, with hardly any money: it closes within days.
DOOMED = {"merchant": {"initial_cash": 300, "initial_deposit": 20}, "demand": {"scale": 20.0}}


def play(env: Any, first: Any, end: Any) -> list[tuple[Any, ...]]:
    """Act once, then end every window until the episode ends."""
    steps = [env.step(first)]
    while not steps[-1][2]:
        steps.append(env.step(end))
    return steps


def cents(amount: float) -> int:
    return round(100 * amount)


# Checkers


def test_check_env() -> None:
    check_env(MerchantEnv("smoke"), skip_render_check=True)


@pytest.mark.parametrize("name", ["", "Smoke", "Month", "Fees", "Uncoupled"])
def test_check_env_of_registered_ids(name: str) -> None:
    env = gymnasium.make(f"MerchantBench{name}-v0")
    try:
        check_env(env.unwrapped)
        assert env.spec is not None
        assert env.spec.max_episode_steps is None
        assert env.spec.nondeterministic is False
        assert json.loads(env.spec.to_json())
    finally:
        env.close()


def test_an_episode_through_make_and_its_passive_checker(end: Any) -> None:
    env = gymnasium.make("MerchantBenchSmoke-v0")
    env.reset(seed=1)
    for _ in range(14):
        _, _, terminated, truncated, _ = env.step(end)
    assert (terminated, truncated) == (True, False)
    env.close()
    env.close()


def test_extras_are_reachable_through_wrappers(env: MerchantEnv) -> None:
    wrapped = gymnasium.wrappers.RecordEpisodeStatistics(env)
    wrapped.reset(seed=1)
    names = [
        "system_prompt",
        "tool_schemas",
        "scenario",
        "hashes",
        "observe",
        "snapshot",
        "restore",
        "clone",
        "add_provider",
        "add_listener",
    ]
    for name in names:
        assert wrapped.get_wrapper_attr(name) is not None


def test_the_class_docstring_is_an_env_card() -> None:
    card = inspect.getdoc(MerchantEnv) or ""
    headings = [line.removeprefix("## ") for line in card.splitlines() if line.startswith("## ")]
    assert headings == [
        "Description",
        "Action Space",
        "Observation Space",
        "Rewards",
        "Starting State",
        "Episode End",
        "Arguments",
        "Version History",
    ]
    ast.parse(card.split("```python")[1].split("```")[0])


# Constructor and options


def test_constructor_arguments() -> None:
    env = MerchantEnv("smoke", {"merchant": {"max_listings": 7}}, max_turns_per_window=3)
    assert env.scenario.merchant.max_listings == 7
    assert env.scenario.turns.max_turns_per_window == 3
    _, info = env.reset(seed=1)
    assert info["turns_left"] == 3
    assert "up to 3 turns" in env.system_prompt
    assert MerchantEnv(env.scenario).scenario == env.scenario
    with pytest.raises(ScenarioError, match="max_turns_per_window"):
        MerchantEnv("smoke", max_turns_per_window=0)
    with pytest.raises(ValueError, match="ansi, human, rgb_array"):
        MerchantEnv("smoke", render_mode="depth")


def test_options_hold_for_one_episode(env: MerchantEnv) -> None:
    own = env.scenario
    env.reset(seed=1, options={"overrides": {"run": {"horizon_days": 2}}})
    assert env.scenario.run.horizon_days == 2
    assert "2 days" in env.system_prompt
    env.reset(seed=1, options={"scenario": "month", "overrides": {"merchant": {"initial_cash": 5.0}}})
    assert (env.scenario.name, env.scenario.merchant.initial_cash) == ("month", 500)
    env.reset(seed=1)
    assert env.scenario == own


def test_max_turns_also_hold_for_scenarios_of_options() -> None:
    env = MerchantEnv("smoke", max_turns_per_window=2)
    _, info = env.reset(seed=1, options={"scenario": "month"})
    assert info["turns_left"] == 2


def test_denied_tools_of_options_shape_schemas_and_samples(env: MerchantEnv) -> None:
    denied = [name for name in TOOL_NAMES if name != "end_of_step"]
    env.reset(seed=1, options={"overrides": {"tools": {"denied": denied}}})
    assert [schema["function"]["name"] for schema in env.tool_schemas] == ["end_of_step"]
    assert {one["name"] for _ in range(20) for one in env.action_space.sample()} == {"end_of_step"}
    env.reset(seed=1)
    assert len(env.tool_schemas) > 1


def test_unknown_options_are_ignored_with_a_warning(env: MerchantEnv) -> None:
    with pytest.warns(UserWarning, match="'sceanrio' is unknown"):
        observation, _ = env.reset(seed=1, options={"sceanrio": "month"})
    assert observation["text"] == env.reset(seed=1)[0]["text"]


def test_invalid_options_change_nothing(env: MerchantEnv, fill: Any) -> None:
    env.reset(seed=1)
    env.step(fill)
    state = env.snapshot()
    with pytest.raises(ScenarioError, match="horizon_days"):
        env.reset(options={"overrides": {"run": {"horizon_days": -1}}})
    assert env.snapshot() == state


# Seeding


def first_figures(env: MerchantEnv) -> tuple[int, Any]:
    return env.session.world.seed, env.hashes["catalog_hash"]


def test_a_seed_is_the_master_seed(env: MerchantEnv) -> None:
    env.reset(seed=5)
    assert env.session.world.seed == 5


def test_the_chain_of_resets_after_a_seed_is_repeatable(env: MerchantEnv) -> None:
    chains = []
    for _ in range(2):
        env.reset(seed=5)
        chain = [first_figures(env)]
        for _ in range(3):
            env.reset()
            chain.append(first_figures(env))
        chains.append(chain)
    assert chains[0] == chains[1]
    assert len({seed for seed, _ in chains[0]}) == 4
    generator = np.random.Generator(np.random.PCG64(5))
    assert [seed for seed, _ in chains[0][1:]] == [int(generator.integers(2**63)) for _ in range(3)]


def test_turns_and_options_do_not_disturb_the_chain(env: MerchantEnv, fill: Any, end: Any) -> None:
    env.reset(seed=5)
    env.reset()
    expected = first_figures(env)
    env.reset(seed=5)
    env.step(fill)
    env.step(end)
    env.observe()
    env.action_space.sample()
    env.reset(options={})
    assert first_figures(env) == expected


def test_a_first_reset_without_a_seed_draws_one() -> None:
    seeds = set()
    for _ in range(3):
        env = MerchantEnv("smoke")
        env.reset()
        seeds.add(env.session.world.seed)
    assert len(seeds) == 3


def test_same_seed_and_actions_same_run(env: MerchantEnv) -> None:
    runs = []
    for _ in range(2):
        env.reset(seed=11)
        env.action_space.seed(3)
        runs.append([repr(env.step(env.action_space.sample())) for _ in range(14)])
    assert runs[0] == runs[1]


def test_global_generators_are_left_alone(monkeypatch: pytest.MonkeyPatch, fill: Any, end: Any) -> None:
    random.seed(1)
    np.random.seed(1)
    states = random.getstate(), np.random.get_state()[1].tolist()
    env = MerchantEnv("smoke")
    env.reset(seed=3)
    expected = [step[0]["text"] for step in play(env, fill, end)]
    assert states == (random.getstate(), np.random.get_state()[1].tolist())

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a global generator was used")

    for name in ("random", "randint", "choice", "uniform", "shuffle", "sample"):
        monkeypatch.setattr(random, name, refuse)
    for name in ("random", "randint", "choice", "uniform", "shuffle", "poisson", "normal", "default_rng"):
        monkeypatch.setattr(np.random, name, refuse)
    env.reset(seed=3)
    assert [step[0]["text"] for step in play(env, fill, end)] == expected


SCRIPT = """
import json
from merchantbench_gym.envs import MerchantEnv
env = MerchantEnv("smoke")
observation, info = env.reset(seed=11)
env.action_space.seed(3)
print(env.system_prompt, json.dumps(env.tool_schemas), json.dumps(env.hashes))
for _ in range(60):
    action = env.action_space.sample()
    observation, reward, terminated, _, info = env.step(action)
    print(action, observation["text"], observation["tool_results"], observation["store"].tolist())
    print(reward, info)
    if terminated:
        env.reset()
print(env.snapshot())
"""


def test_hash_seeds_do_not_matter() -> None:
    outputs = [
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path), "PYTHONIOENCODING": "utf-8"},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert len(outputs[0]) > 50_000
    assert outputs[0] == outputs[1]


# Observations, infos, rewards


def test_info_keys_are_fixed_and_plain(env: MerchantEnv, fill: Any, end: Any) -> None:
    _, info = env.reset(seed=1)
    infos = [info, *(step[4] for step in play(env, fill, end))]
    kinds = {name: {type(one[name]) for one in infos} for name in INFO_KEYS}
    assert all(list(one) == INFO_KEYS for one in infos)
    assert all(kinds[name] == {int} for name in INFO_KEYS[:5])
    assert all(kinds[name] == {str} for name in ("window_closed_by", "end_reason"))
    assert all(kinds[name] == {float} for name in (*INFO_KEYS[5:10], *TERMS))
    assert infos[0] == {
        **{"day": 1, "hour": 0, "t": 0, "window": 0, "turns_left": 30},
        **{"net_assets": 3000.0, "balance": 2000.0, "deposit": 1000.0, "in_transit": 0.0, "receivable": 0.0},
        **{"window_closed_by": "", "end_reason": ""},
        **dict.fromkeys(TERMS, 0.0),
    }


def test_info_follows_the_clock(env: MerchantEnv, fill: Any, end: Any) -> None:
    env.reset(seed=1)
    steps = play(env, fill, end)
    infos = [step[4] for step in steps]
    assert infos[0]["turns_left"] == 29
    assert [info["window"] for info in infos] == [0, *range(1, 14), 13]
    assert [info["t"] for info in infos[:-1]] == [12 * info["window"] for info in infos[:-1]]
    assert all(info["t"] == 24 * (info["day"] - 1) + info["hour"] for info in infos)
    assert [info["window_closed_by"] for info in infos] == ["", *["end_of_step"] * 14]
    assert infos[-1]["t"] >= 7 * 24 - 1
    assert infos[-1]["turns_left"] == 0
    world = env.session.world
    assert cents(infos[-1]["net_assets"]) == world.net_assets(0)
    assert infos[-1]["t"] == world.final_hour(0)


def test_a_quota_closes_the_window(env: MerchantEnv) -> None:
    env.reset(seed=1, options={"overrides": {"turns": {"max_turns_per_window": 2}}})
    assert env.step(None)[4]["window_closed_by"] == ""
    _, _, _, _, info = env.step(None)
    assert (info["window_closed_by"], info["window"], info["turns_left"]) == ("quota", 1, 2)


@pytest.mark.parametrize("overrides", [{}, {"fees": {"enabled": True}}, DOOMED])
def test_rewards_telescope_and_split_into_terms(
    overrides: dict[str, Any], env: MerchantEnv, fill: Any, end: Any
) -> None:
    _, info = env.reset(seed=2, options={"overrides": overrides})
    start = cents(info["net_assets"])
    steps = play(env, fill, end)
    rewards = [cents(step[1]) for step in steps]
    assert all(type(step[1]) is float for step in steps)
    assert all(step[1] == cents(step[1]) / 100 for step in steps)
    assert steps[0][1] == 0.0  # the clock did not run
    assert any(rewards)
    for reward, step in zip(rewards, steps, strict=True):
        assert reward == sum(cents(step[4][name]) for name in TERMS)
    assert sum(rewards) == cents(steps[-1][4]["net_assets"]) - start
    running = np.cumsum(rewards) + start
    assert running.tolist() == [cents(step[4]["net_assets"]) for step in steps]


def test_a_passive_week_earns_nothing(env: MerchantEnv, end: Any) -> None:
    env.reset(seed=2)
    assert [step[1] for step in play(env, end, end)] == [0.0] * 14


def test_observations_lie_in_their_space(env: MerchantEnv) -> None:
    observation, _ = env.reset(seed=4)
    assert observation in env.observation_space
    env.action_space.seed(4)
    for _ in range(150):
        observation, _, terminated, _, _ = env.step(env.action_space.sample())
        assert observation in env.observation_space
        if terminated:
            env.reset()


def test_results_answer_their_calls(env: MerchantEnv, call: Any) -> None:
    observation, _ = env.reset(seed=4)
    assert observation["tool_results"] == ()
    action = (*call("query_balance"), *call("no_such_tool"))
    observation, *_ = env.step(action)
    results = observation["tool_results"]
    assert [(r["tool_call_id"], r["name"]) for r in results] == [(c["id"], c["name"]) for c in action]
    contents = [json.loads(result["content"]) for result in results]
    assert contents[0]["ok"] is True
    assert contents[1]["error"]["code"] == "unknown_tool"
    assert env.step(None)[0]["tool_results"] == ()


def test_objects_are_fresh(env: MerchantEnv, call: Any) -> None:
    env.reset(seed=4)
    one = env.step(call("query_balance"))
    kept = copy.deepcopy(one)
    seen = env.observe()
    one[0]["store"][:] = 3
    one[0]["tool_results"][0]["content"] = "changed"
    one[0]["text"] = ""
    one[4].clear()
    again = env.observe()
    np.testing.assert_equal(again, seen)
    np.testing.assert_equal(again, (kept[0], kept[4]))


def test_observe_has_no_effect(env: MerchantEnv, fill: Any, end: Any) -> None:
    env.reset(seed=4)
    env.step(fill)
    state = env.snapshot()
    np.testing.assert_equal(env.observe(), env.observe())
    assert env.snapshot() == state
    observation, _, _, _, info = env.step(end)
    np.testing.assert_equal(env.observe(), (observation, info))


def test_actions_are_not_changed(env: MerchantEnv, fill: Any) -> None:
    env.reset(seed=4)
    action = {"role": "assistant", "tool_calls": [dict(one) for one in fill], "note": {"a": [1]}}
    kept = copy.deepcopy(action)
    env.step(action)
    assert action == kept


# Ends


def test_the_horizon_terminates(env: MerchantEnv, end: Any) -> None:
    env.reset(seed=1)
    steps = play(env, end, end)
    assert len(steps) == 14
    assert [step[2] for step in steps] == [False] * 13 + [True]
    assert not any(step[3] for step in steps)
    assert all(type(step[2]) is bool and type(step[3]) is bool for step in steps)
    assert steps[-1][4]["end_reason"] == "horizon"
    assert "Run finished (horizon)" in steps[-1][0]["text"]


def test_bankruptcy_terminates(env: MerchantEnv, call: Any, end: Any) -> None:
    env.reset(seed=1, options={"overrides": DOOMED})
    dumped = call("list_product", items=[{"product_id": f"P{i:05d}", "sale_price": 0.01} for i in range(50)])
    steps = play(env, dumped, end)
    assert len(steps) < 14
    *_, (observation, _, terminated, truncated, info) = steps
    assert (terminated, truncated, info["end_reason"]) == (True, False, "shop_closed")
    assert (info["turns_left"], info["in_transit"], info["receivable"]) == (0, 0.0, 0.0)
    assert "Shop closed at" in observation["text"]
    assert observation in env.observation_space


def test_stepping_needs_a_reset(env: MerchantEnv, end: Any) -> None:
    for use in (lambda: env.step(end), env.observe, env.snapshot, lambda: env.session):
        with pytest.raises(ResetNeeded):
            use()
    env.reset(seed=1)
    play(env, end, end)
    with pytest.raises(ResetNeeded, match="ended"):
        env.step(end)
    with pytest.raises(ResetNeeded):
        env.step({"role": "assistant", "tool_calls": [], "note": "after the end"})
    info = env.observe()[1]
    assert info["end_reason"] == "horizon"
    env.reset()
    assert env.step(end)[2] is False


def test_closing_twice_is_fine(env: MerchantEnv) -> None:
    env.close()
    env.reset(seed=1)
    env.close()
    env.close()


# Extras


def test_extras_before_and_after_a_reset(env: MerchantEnv) -> None:
    before = env.hashes
    schemas = env.tool_schemas
    assert before["catalog_hash"] is None
    env.reset(seed=1)
    assert env.hashes == {**before, "catalog_hash": env.session.world.catalog.hash}
    assert env.hashes["scenario_hash"] == load_scenario("smoke").hash
    assert env.tool_schemas == schemas
    assert "end_of_step" in [schema["function"]["name"] for schema in schemas]
    env.tool_schemas[0]["function"]["name"] = "changed"
    assert env.tool_schemas == schemas
    assert env.system_prompt == env.system_prompt
    assert "net assets" in env.system_prompt


# Rendering


def test_ansi_shows_text_shelf_and_last_turn(fill: Any) -> None:
    env = MerchantEnv("smoke", render_mode="ansi")
    with pytest.raises(ResetNeeded):
        env.render()
    observation, _ = env.reset(seed=1)
    assert observation["text"] in env.render()
    observation, *_ = env.step((*fill, {"id": "x", "name": "nothing", "arguments": "{}"}))
    picture = env.render()
    assert observation["text"] in picture
    assert "P00013" in picture
    assert "Last turn: list_product ok, nothing failed" in picture


def test_human_prints_by_itself(capsys: pytest.CaptureFixture[str], end: Any) -> None:
    env = MerchantEnv("smoke", render_mode="human")
    observation, _ = env.reset(seed=1)
    assert observation["text"] in capsys.readouterr().out
    observation, *_ = env.step(end)
    assert observation["text"] in capsys.readouterr().out
    assert env.render() is None
    assert capsys.readouterr().out == ""


def test_rendering_without_a_mode_warns(env: MerchantEnv) -> None:
    env.reset(seed=1)
    with pytest.warns(UserWarning, match="render_mode"):
        assert env.render() is None
