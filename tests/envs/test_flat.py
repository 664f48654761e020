"""The numeric environment as Gymnasium and learners see it."""

from __future__ import annotations

import ast
import inspect
import json
from decimal import Decimal
from fractions import Fraction
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

from merchantbench_gym.envs import FlatEnv, MerchantEnv
from merchantbench_gym.envs.flat_view import EMPTY, layout_of, settled, shown_ages, shown_ratings
from merchantbench_gym.market import World
from merchantbench_gym.scenario import ScenarioError
from merchantbench_gym.session import Turn
from merchantbench_gym.tools.calls import normalise
from merchantbench_gym.tools.results import rounded
from merchantbench_gym.tools.shelf import shown_age

DOOMED = {"merchant": {"initial_cash": 300, "initial_deposit": 20}, "demand": {"scale": 20.0}}
RICH = {"merchant": {"initial_cash": 9_000_000.0, "initial_deposit": 9_000_000.0}}
POOR = {"merchant": {"initial_cash": 0.5, "initial_deposit": 0.01}}


def listing(count: int, markup: int = 1) -> list[int]:
    """List the first candidates."""
    return [0] * 50 + [markup] * count + [0] * (20 - count)


def play(env: FlatEnv, seed: int = 1, wild: float = 0.1) -> list[Any]:
    """An episode of random actions."""
    rng, widths = np.random.default_rng(seed), env.action_space.nvec  # type: ignore[attr-defined]
    steps: list[Any] = [env.reset(seed=seed)]
    while len(steps) == 1 or not steps[-1][2]:
        steps.append(env.step(np.where(rng.random(len(widths)) < wild, rng.integers(widths), 0)))
    return steps


# Checkers


@pytest.mark.parametrize("form", ["multi", "discrete"])
@pytest.mark.parametrize("name", ["Smoke", "Fees", "Market1"])
def test_check_env_of_registered_ids(name: str, form: str, capsys: pytest.CaptureFixture[str]) -> None:
    env = gymnasium.make(f"merchantbench_gym:MerchantBenchFlat{name}-v0", action=form)
    check_env(env.unwrapped)
    assert env.spec is not None
    assert json.loads(env.spec.to_json())["kwargs"]["action"] == form
    assert gymnasium.make(env.spec).unwrapped.arguments["action"] == form  # type: ignore[attr-defined]
    env.close()
    assert "Day 1" in capsys.readouterr().out


def test_an_episode_through_make_and_its_passive_checker() -> None:
    env = gymnasium.make("merchantbench_gym:MerchantBenchFlatSmoke-v0", action="discrete")
    _, info = env.reset(seed=1)
    rewards, terminated = 0, False
    env.action_space.seed(1)
    while not terminated:
        action = env.action_space.sample(mask=info["action_mask"])
        _, reward, terminated, truncated, info = env.step(action)
        assert info["flat_invalid"] == 0 and not truncated
        rewards += round(100 * float(reward))
    assert rewards == round(100 * info["net_assets"]) - 300_000


# Observations and infos


@pytest.mark.parametrize("overrides", [{}, RICH, POOR, DOOMED], ids=["plain", "rich", "poor", "doomed"])
def test_shape_type_and_bounds(overrides: dict[str, Any]) -> None:
    env = FlatEnv("smoke", overrides)
    plain = MerchantEnv("smoke", overrides)
    keys = [*plain.reset(seed=1)[1], "action_mask", "flat_invalid", "flat_dropped"]
    assert env.observation_space.shape == (28 + 14 * 50 + 10 * 20,) == (928,)
    steps = play(env)
    for step in steps:
        observation, info = step[0], step[-1]
        assert observation in env.observation_space
        assert observation.dtype == np.float32
        assert np.isfinite(observation).all()
        assert list(info) == keys
        mask = info["action_mask"]
        assert mask.dtype == np.int8 and mask.shape == (540,) and set(mask.tolist()) <= {0, 1}
        assert type(info["flat_invalid"]) is type(info["flat_dropped"]) is int
    assert all(type(step[1]) is float and type(step[2]) is bool and step[3] is False for step in steps[1:])
    assert steps[-1][4]["end_reason"] == ("shop_closed" if overrides is DOOMED else "horizon")


def test_the_final_observation_has_the_store_figures_alone() -> None:
    env = FlatEnv("smoke")
    env.reset(seed=1)
    step = env.step(listing(20))
    assert step[0][28:].any()
    while not step[2]:
        step = env.step([0] * 70)
    assert env.session.view(0).shelf_size() == 20
    assert step[0][:28].any() and not step[0][28:].any()
    mask = env.action_masks()
    assert mask[:400].reshape(50, 8)[:, 0].all() and mask[400:].reshape(20, 7)[:, 0].all()
    assert mask.sum() == 70
    np.testing.assert_array_equal(step[4]["action_mask"], mask)
    assert np.flatnonzero(_discrete(env).action_masks()).tolist() == [0]
    with pytest.raises(ResetNeeded):
        env.step([0] * 70)


def _discrete(env: FlatEnv) -> FlatEnv:
    """The same episode seen by the other action form."""
    twin = FlatEnv("smoke", action="discrete")
    twin.restore(env.snapshot())
    return twin


def test_figures_beyond_the_bounds_are_clipped() -> None:
    env = FlatEnv("smoke", {**RICH, "catalog": {"max_stock": (999_999, 1_000_000)}}, markups=(1000,))
    env.reset(seed=1)
    env.step([0] * 50 + [1] * 20)
    slot = env.observe()[0][28:42]
    assert slot[2] == 4.0
    assert np.abs(slot).max() == 4.0


def test_what_is_handed_out_is_fresh() -> None:
    env = FlatEnv("smoke")
    step = env.reset(seed=1)
    state = env.snapshot()
    for _ in range(2):
        step[0][:] = 9
        step[-1]["action_mask"][:] = 9
        step[-1].clear()
        env.action_masks()[:] = False
        seen, info = env.observe()
        assert seen.max() < 4 and info["action_mask"].max() == 1
        assert env.snapshot() == state
        step = env.step(listing(3))
        state = env.snapshot()


def test_observe_has_no_effect_and_tells_of_the_last_step() -> None:
    env = FlatEnv("smoke")
    for seed in (3, 4):
        step: Any = env.reset(seed=seed)
        np.testing.assert_equal(env.observe(), step)
        for action in ([1, *listing(9)[1:]], listing(20), [1] * 70):
            step = env.step(action)
            state = env.snapshot()
            np.testing.assert_equal(env.observe(), (step[0], step[4]))
            assert env.snapshot() == state
        assert step[4]["flat_invalid"] > 0


def test_seeds() -> None:
    first, second = FlatEnv("smoke"), FlatEnv("smoke", action="discrete")
    for seed in (5, None, None, 0, None):
        np.testing.assert_array_equal(first.reset(seed=seed)[0], second.reset(seed=seed)[0])
        assert first.session.world.seed == second.session.world.seed
    np.testing.assert_equal(play(first, 3), play(FlatEnv("smoke"), 3))


# Turns


def test_a_step_is_one_turn_of_one_call_per_kind() -> None:
    env = FlatEnv("smoke")
    records: list[Any] = []
    env.add_listener(records.append)
    env.reset(seed=1)
    actions = [
        listing(20),
        [1, 2, 3, 1, *listing(4)[4:]],
        [0, 4, *[0] * 68],
        [0, 1, *[0] * 68],
        [0] * 70,
        [1] * 70,
    ]
    for action in actions:
        env.step(action)
    names = [[call["name"] for call in record["calls"]] for record in records]
    delist, adjust, put, end = "delist_product", "adjust_price", "list_product", "end_of_step"
    assert names == [
        [put, end],
        [delist, adjust, put, end],
        [adjust, end],
        [delist, end],
        [end],
        [delist, put, end],
    ]
    assert [record["window"] for record in records] == list(range(6))
    assert {record["window_closed_by"] for record in records} == {"end_of_step"}
    assert [record["charged"] for record in records] == [True] * 4 + [False, True]
    assert all(call["ok"] and not call["rejected"] for record in records for call in record["calls"])


def test_a_listener_that_fails_undoes_the_step() -> None:
    env, control = FlatEnv("smoke"), FlatEnv("smoke")

    def listener(record: Any) -> None:
        if record["window"] == 1 and failing:
            raise OSError("the disk is full")

    env.add_listener(listener)
    for each in (env, control):
        each.reset(seed=1)
        each.step(listing(5))
    failing, state = True, env.snapshot()
    with pytest.raises(OSError, match="disk"):
        env.step([1, 2, *listing(9)[2:]])
    assert env.snapshot() == state
    failing = False
    np.testing.assert_equal(env.step([1, 2, *listing(9)[2:]]), control.step([1, 2, *listing(9)[2:]]))


def test_an_interrupted_clock_runs_on_with_the_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    env = FlatEnv("smoke")
    env.reset(seed=1)
    with monkeypatch.context() as patch:

        def interrupt(*_: Any) -> None:
            raise KeyboardInterrupt

        patch.setattr(World, "advance", interrupt)
        with pytest.raises(KeyboardInterrupt):
            env.step(listing(5))
    mask = env.observe()[1]["action_mask"]
    assert mask.sum() == 70
    step = env.step([1] * 70)
    assert step[4]["window"] == 2
    assert step[4]["flat_invalid"] == 45


def test_turns_of_another_driver_are_seen() -> None:
    env = FlatEnv("smoke")
    env.reset(seed=1)
    env.step(listing(3))
    products = env._look().scene.slots[:3].tolist()
    ids = [f"P{product:05d}" for product in products]
    calls = [
        {"name": "delist_product", "arguments": {"items": [{"product_id": ids[1]}]}},
        {
            "name": "list_product",
            "arguments": {"items": [{"product_id": p, "sale_price": 9} for p in ("P00900", "P00899")]},
        },
    ]
    env.session.submit(0, Turn(batch=normalise(calls)))
    assert env._look().scene.slots[:5].tolist() == [products[0], 899, products[2], 900, EMPTY]
    assert env.observe()[0][28 : 28 + 14 * 5 : 14].tolist() == [1, 1, 1, 1, 0]


# What is refused


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"action": "box"}, "multi, discrete"),
        ({"candidates": 0}, "candidates"),
        ({"candidates": 2.0}, "candidates"),
        ({"markups": ()}, "markups"),
        ({"markups": (1.5, 1.5)}, "markups"),
        ({"markups": (0,)}, "markup"),
        ({"markups": (1.00001,)}, "4 decimals"),
        ({"markups": (float("nan"),)}, "markup"),
        ({"overrides": {"merchant": {"max_listings": 101}}}, "at most 100"),
        ({"overrides": {"turns": {"max_calls_per_turn": 3}}}, "max_calls_per_turn"),
        ({"render_mode": "no"}, "render_mode"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FlatEnv("smoke", **arguments)


@pytest.mark.parametrize(
    "action",
    [
        [0] * 69,
        [8, *[0] * 69],
        [0] * 69 + [7],
        [-1, *[0] * 69],
        [0.0] * 70,
        None,
        "x",
        {"turn_id": "x"},
        3,
        [2**63] * 70,
        [2**99],
    ],
)
def test_actions_outside_the_space(action: Any) -> None:
    env = FlatEnv("smoke")
    env.reset(seed=1)
    state = env.snapshot()
    with pytest.raises(ValueError, match=r"must|take"):
        env.step(action)
    assert env.snapshot() == state


@pytest.mark.parametrize("action", [21, -1, 1.0, [1, 2], True, None, [[1], [2]]])
def test_one_number_outside_the_space(action: Any) -> None:
    env = FlatEnv("smoke", action="discrete")
    env.reset(seed=1)
    with pytest.raises(ValueError, match="must"):
        env.step(action)
    for fine in (3, np.int64(3), np.array(3), np.array([3]), np.uint8(3)):
        env.step(fine)


def test_a_reset_that_changes_the_slots() -> None:
    env = FlatEnv("smoke")
    env.reset(seed=1)
    env.step(listing(3))
    state = env.snapshot()
    for overrides in ({"merchant": {"max_listings": 49}}, {"turns": {"max_calls_per_turn": 3}}):
        with pytest.raises(ValueError, match="max_"):
            env.reset(seed=2, options={"overrides": overrides})
    with pytest.raises(ScenarioError):
        env.reset(seed=2, options={"scenario": "no such"})
    with pytest.raises((ValueError, gymnasium.error.Error)):
        env.reset(seed=-1)
    assert env.snapshot() == state
    env.reset(seed=2, options={"scenario": "month", "overrides": {"run": {"horizon_days": 3}}})
    assert env.scenario.run.horizon_days == 3
    with pytest.warns(UserWarning, match="unknown"):
        env.reset(seed=2, options={"colour": "red"})
    assert env.scenario.run.horizon_days == 7


def test_nothing_goes_before_the_first_reset() -> None:
    env = FlatEnv("smoke")
    for call in (lambda: env.step([0] * 70), env.observe, env.action_masks, env.snapshot):
        with pytest.raises(ResetNeeded):
            call()


# Rendering


@pytest.mark.parametrize("mode", ["ansi", "human", "rgb_array"])
def test_pictures_are_those_of_the_tool_environment(mode: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = []
    for env, action in (
        (FlatEnv("smoke", render_mode=mode), [0] * 70),
        (
            MerchantEnv("smoke", render_mode=mode),
            [{"id": "end_of_step", "name": "end_of_step", "arguments": "{}"}],
        ),
    ):
        env.reset(seed=1)
        env.step(action)
        shown.append((env.render(), capsys.readouterr().out))  # type: ignore[attr-defined]
    np.testing.assert_equal(shown[0], shown[1])


def test_the_card_says_what_there_is() -> None:
    card = inspect.getdoc(FlatEnv) or ""
    headings = [line for line in card.splitlines() if line.startswith("## ")]
    assert headings == [
        f"## {name}"
        for name in (
            "Description",
            "Action Space",
            "Observation Space",
            "Rewards",
            "Starting State",
            "Episode End",
            "Arguments",
            "Version History",
        )
    ]
    code = card.partition("```python\n")[2].partition("```")[0]
    ast.parse(code)
    exec(code, {})


# Slots


@given(st.data())
def test_slots_are_stable(data: st.DataObject) -> None:
    size, count = 30, 8
    slots, shelf = np.full(count, EMPTY), set[int]()
    for _ in range(6):
        off = data.draw(st.sets(st.sampled_from(sorted(shelf)))) if shelf else set()
        room = count - len(shelf) + len(off)
        fresh = st.sampled_from(sorted(set(range(size)) - shelf))
        new = data.draw(st.lists(fresh, unique=True, max_size=room))
        known = data.draw(st.integers(0, len(new)))
        expected = [EMPTY if product in off else product for product in slots.tolist()]
        for product in [*new[:known], *sorted(new[known:])]:
            expected[expected.index(EMPTY)] = product
        shelf = (shelf - off) | set(new)
        listed = np.array(data.draw(st.permutations(sorted(shelf))), dtype=np.int64)
        before = slots.tolist()
        after = settled(slots, listed, [*new[:known], *off], size)
        assert slots.tolist() == before
        assert after.tolist() == expected
        slots = after


# Shown figures


@given(st.integers(1, 10**8), st.lists(st.decimals("0.01", "1000", places=4), min_size=1, unique=True))
@settings(max_examples=300)
def test_prices_are_rounded_half_even(cents: int, markups: list[Decimal]) -> None:
    layout = layout_of(1, 1, [float(markup) for markup in markups])
    shown = layout.prices(np.array([cents])).tolist()[0]
    for price, markup in zip(shown, markups, strict=True):
        if price <= 10**8:
            assert price == round(Fraction(markup) * cents)


def test_ages_are_those_of_the_tools() -> None:
    hours = np.arange(90_000)
    assert shown_ages(hours).tolist() == [float(shown_age(age)) for age in hours.tolist()]


@given(st.lists(st.floats(1, 5) | st.decimals("1", "5", places=3).map(float), min_size=1))
def test_ratings_are_those_of_the_tools(ratings: list[float]) -> None:
    assert shown_ratings(ratings).tolist() == [rounded(rating, 2) for rating in ratings]
