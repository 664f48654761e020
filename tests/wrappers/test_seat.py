"""The seat: right values, and no way back to the market."""

from __future__ import annotations

import dataclasses
import gc
import types
from typing import Any

import gymnasium
import pytest

from merchantbench_gym.scenario import load_scenario
from merchantbench_gym.wrappers import Seat


@pytest.fixture
def env() -> Any:
    settings = {
        "run": {"horizon_days": 9, "activation_period": 6},
        "merchant": {"max_listings": 17, "promised_ship_hours": 36},
        "turns": {"max_turns_per_window": 5},
    }
    env = gymnasium.make("MerchantBench-v0", overrides=settings)
    env.reset(seed=1)
    return env


def test_values_come_from_the_scenario(env: Any) -> None:
    seat = Seat.from_env(env)
    assert seat.agent == "merchant_0"
    assert seat.language == "en"
    assert (seat.horizon_hours, seat.window_hours) == (216, 6)
    assert (seat.max_listings, seat.promise_hours, seat.max_turns_per_window) == (17, 36, 5)
    assert seat.system_prompt == env.unwrapped.system_prompt
    assert list(seat.tools) == env.unwrapped.tool_schemas
    assert seat.journal is None


def test_the_environments_own_turn_limit_counts() -> None:
    env = gymnasium.make("MerchantBenchSmoke-v0", max_turns_per_window=2)
    env.reset(seed=1)
    assert Seat.from_env(env).max_turns_per_window == 2


def test_extras_are_read_through_wrappers(env: Any) -> None:
    class Prompted(gymnasium.Wrapper[Any, Any, Any, Any]):
        system_prompt = "other words"

    assert Seat.from_env(Prompted(env)).system_prompt == "other words"


def test_a_seat_is_frozen_and_its_schemas_are_copies(env: Any) -> None:
    seat = Seat.from_env(env)
    with pytest.raises(dataclasses.FrozenInstanceError):
        seat.agent = "merchant_1"  # type: ignore[misc]
    seat.tools[0]["function"]["name"] = "spoiled"
    assert env.unwrapped.tool_schemas[0]["function"]["name"] != "spoiled"
    assert Seat.from_env(env).tools[0]["function"]["name"] != "spoiled"


def test_plain_attributes_are_enough_for_many_seats() -> None:
    scenario = load_scenario("smoke")
    market = types.SimpleNamespace(
        possible_agents=["merchant_0", "merchant_1"],
        scenario=scenario,
        system_prompt="brief",
        tool_schemas=[{"a": 1}],
    )
    seat = Seat.from_env(market, "merchant_1")
    assert (seat.agent, seat.system_prompt, seat.tools) == ("merchant_1", "brief", ({"a": 1},))


def test_an_unknown_seat_is_named(env: Any) -> None:
    with pytest.raises(ValueError, match="merchant_7"):
        Seat.from_env(env, "merchant_7")


def test_no_object_of_the_market_can_be_reached(env: Any) -> None:
    seen: dict[int, Any] = {}
    waiting: list[Any] = [Seat.from_env(env)]
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen or isinstance(thing, (type, types.ModuleType, types.FunctionType)):
            continue
        seen[id(thing)] = thing
        waiting += gc.get_referents(thing)
    foreign = {
        type(thing).__name__
        for thing in seen.values()
        if type(thing).__module__.startswith(("merchantbench_gym", "gymnasium", "numpy"))
    }
    assert foreign == {"Seat"}
