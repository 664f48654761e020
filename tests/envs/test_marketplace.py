"""Several merchants in one market: PettingZoo's checkers, rewards, ends, waiting, refusals, copies."""

from __future__ import annotations

import copy
import json
import pickle
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from hypothesis import given, settings
from hypothesis import strategies as st

from merchantbench_gym.envs import MarketplaceEnv, MerchantEnv, marketplace
from merchantbench_gym.market import MarketError
from merchantbench_gym.scenario import ScenarioError
from merchantbench_gym.session import TurnRefused
from merchantbench_gym.tools.calls import normalise
from merchantbench_gym.tools.registry import tool

TERMS = ("gross", "refunds", "fines", "fees", "other")
# A shop that sells far below cost, with hardly any money, closes within days; an idle one does not.
DOOMED = {"merchant": {"initial_cash": 300, "initial_deposit": 20}, "demand": {"scale": 20.0}}
SHORT = {"run": {"horizon_days": 2}}
END = ({"id": "end", "name": "end_of_step", "arguments": "{}"},)
ADVICE = (
    "Observation is not a NumPy array",
    "Observation space for each agent probably should be gymnasium.spaces.box or gymnasium.spaces.discrete",
    "Action space for each agent probably should be gymnasium.spaces.box or gymnasium.spaces.discrete",
)
"""PettingZoo's notes on observations and actions that are no arrays."""


def listing(price: float, count: int = 20) -> Any:
    items = [{"product_id": f"P{i:05d}", "sale_price": price} for i in range(count)]
    return ({"id": "list", "name": "list_product", "arguments": json.dumps({"items": items})},)


def cents(amount: float) -> int:
    return round(100 * amount)


@pytest.fixture
def market() -> MarketplaceEnv:
    """A week for three merchants, not yet reset."""
    return MarketplaceEnv("smoke", merchants=3)


def doomed(merchants: int = 3, **arguments: Any) -> MarketplaceEnv:
    """A market whose first merchant samples nothing but ruinous offers."""
    made = MarketplaceEnv("smoke", DOOMED, merchants=merchants, max_turns_per_window=2, **arguments)
    ruin = (*listing(0.01, 50), *END)
    made.action_space("merchant_0").sample = lambda *_: ruin  # type: ignore[assignment]
    for agent in made.possible_agents[1:]:
        made.action_space(agent).sample = lambda *_: END  # type: ignore[assignment]
    return made


def play(market: MarketplaceEnv, first: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Act once, then end every window until the market is empty."""
    steps = [market.step(first)]
    while market.agents:
        steps.append(market.step(dict.fromkeys(market.agents, END)))
    return steps


# Checkers


@pytest.fixture
def strict() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for note in ADVICE:
            warnings.filterwarnings("ignore", message=note)
        yield


@pytest.mark.usefixtures("strict")
@pytest.mark.parametrize("merchants", [2, 8])
def test_pettingzoo_checkers(merchants: int, capsys: pytest.CaptureFixture[str]) -> None:
    from pettingzoo.test import api_test, parallel_api_test, parallel_seed_test, render_test, seed_test

    few = {"merchants": merchants, "max_turns_per_window": 2}
    parallel = partial(marketplace.parallel_env, "smoke", SHORT, **few)  # type: ignore[arg-type]
    turns = partial(marketplace.env, "smoke", SHORT, **few)  # type: ignore[arg-type]
    parallel_api_test(parallel(), num_cycles=40)
    api_test(turns(), num_cycles=20)
    parallel_seed_test(parallel, num_cycles=20)
    seed_test(turns, num_cycles=20)
    seed_test(partial(marketplace.raw_env, "smoke", SHORT, **few), num_cycles=5)  # type: ignore[arg-type]
    if merchants == 2:
        render_test(turns)
    assert "Passed" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.usefixtures("strict")
@pytest.mark.parametrize("merchants", [3, 4, 5, 6, 7])
def test_pettingzoo_checkers_on_other_sizes(merchants: int, capsys: pytest.CaptureFixture[str]) -> None:
    test_pettingzoo_checkers(merchants, capsys)


@pytest.mark.usefixtures("strict", "capsys")
@pytest.mark.parametrize("merchants", [2, 4])
def test_pettingzoo_checkers_while_a_shop_closes(merchants: int) -> None:
    from pettingzoo.test import api_test, parallel_api_test, parallel_seed_test, seed_test
    from pettingzoo.utils import parallel_to_aec

    parallel = partial(doomed, merchants)
    market = parallel()
    parallel_api_test(market, num_cycles=40)
    assert market.agents == []
    assert market.session.end_reason(0) == "shop_closed"
    assert market.session.end_reason(1) == "horizon"
    api_test(parallel_to_aec(parallel()), num_cycles=20)
    parallel_seed_test(parallel, num_cycles=20)
    seed_test(lambda: parallel_to_aec(parallel()), num_cycles=20)


def test_the_agent_by_agent_form_plays_the_same_market(market: MarketplaceEnv) -> None:
    steps = []
    market.reset(seed=3)
    first = {agent: listing(120.0 + 20 * i) for i, agent in enumerate(market.agents)}
    steps = play(market, first)
    turns = marketplace.env("smoke", merchants=3)
    turns.reset(seed=3)
    acted: set[str] = set()
    paid = dict.fromkeys(market.possible_agents, 0)
    for agent in turns.agent_iter():
        observation, reward, terminated, _, info = turns.last()
        paid[agent] += cents(reward)
        if terminated:
            expected = (steps[-1][0][agent], steps[-1][4][agent])
            np.testing.assert_equal((observation, info), expected)
        turns.step(None if terminated else END if agent in acted else first[agent])
        acted.add(agent)
    assert turns.unwrapped.session.world.digest() == market.session.world.digest()
    assert paid == {agent: sum(cents(step[1][agent]) for step in steps) for agent in paid}


# Constructor, spaces, seeds


def test_constructor_arguments() -> None:
    for merchants in (0, 65, 2.0, True, "2"):
        with pytest.raises(ValueError, match="1 to 64"):
            MarketplaceEnv("smoke", merchants=merchants)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="ansi, human, rgb_array"):
        MarketplaceEnv("smoke", render_mode="depth")
    with pytest.raises(ScenarioError):
        MarketplaceEnv("smoke", {"run": {"horizon_days": -1}})
    market = MarketplaceEnv("smoke", {"merchant": {"max_listings": 7}}, max_turns_per_window=3)
    assert market.possible_agents == ["merchant_0", "merchant_1"]
    assert market.metadata["name"] == "MerchantBenchMarketplace-v0"
    _, infos = market.reset(seed=1)
    assert {info["turns_left"] for info in infos.values()} == {3}


def test_nothing_is_live_before_the_first_reset(market: MarketplaceEnv, call: Any) -> None:
    assert market.agents == []
    assert market.num_agents == 0
    assert market.max_num_agents == 3
    for use in (lambda: market.step({}), lambda: market.observe("merchant_0"), market.snapshot):
        with pytest.raises(ResetNeeded):
            use()


def test_extras_are_those_of_one_seat(market: MarketplaceEnv) -> None:
    single = MerchantEnv("smoke")
    single.reset(seed=2)
    market.reset(seed=2)
    assert market.system_prompt == single.system_prompt
    assert market.tool_schemas == single.tool_schemas
    assert market.hashes == single.hashes
    assert market.scenario == single.scenario
    assert market.observation_space("merchant_2") == single.observation_space
    assert market.action_space("merchant_2") == single.action_space
    assert list(market.observe("merchant_1")[1]) == list(single.observe()[1])
    with pytest.raises(ValueError, match="merchant_3"):
        market.observe("merchant_3")


def test_one_seat_is_the_single_environment(fill: Any, end: Any) -> None:
    market, single = MarketplaceEnv("smoke", merchants=1), MerchantEnv("smoke")
    observations, infos = market.reset(seed=4)
    np.testing.assert_equal((observations["merchant_0"], infos["merchant_0"]), single.reset(seed=4))
    action: Any = fill
    while market.agents:
        step = market.step({"merchant_0": action})
        np.testing.assert_equal(tuple(part["merchant_0"] for part in step), single.step(action))
        action = end
    single.restore(market.snapshot())


def test_the_chain_of_resets_is_that_of_one_seat(market: MarketplaceEnv) -> None:
    single = MerchantEnv("smoke")
    for seed in (5, None, None):
        market.reset(seed=seed)
        single.reset(seed=seed)
        assert market.session.world.seed == single.session.world.seed
    market.reset(seed=5)
    market.reset()
    chain = market.session.world.seed
    single.reset(seed=5)
    single.reset()
    assert chain == single.session.world.seed


def test_options(market: MarketplaceEnv) -> None:
    market.reset(seed=1, options={"overrides": SHORT})
    assert market.scenario.run.horizon_days == 2
    with pytest.warns(UserWarning, match="'sceanrio' is unknown"):
        market.reset(seed=1, options={"sceanrio": "month"})
    assert market.scenario.run.horizon_days == 7


# Steps


def test_the_clock_runs_when_every_merchant_has_ended(market: MarketplaceEnv) -> None:
    market.reset(seed=1)
    infos = market.step({"merchant_0": END, "merchant_1": listing(150.0), "merchant_2": None})[4]
    assert [(info["t"], info["turns_left"]) for info in infos.values()] == [(0, 0), (0, 29), (0, 29)]
    assert infos["merchant_0"]["window_closed_by"] == "end_of_step"
    infos = market.step({"merchant_1": END})[4]
    assert [(info["t"], info["turns_left"]) for info in infos.values()] == [(0, 0), (0, 0), (0, 28)]
    assert [info["window_closed_by"] for info in infos.values()] == ["end_of_step", "end_of_step", ""]
    infos = market.step({"merchant_2": END})[4]
    assert [(info["t"], info["turns_left"]) for info in infos.values()] == [(12, 30)] * 3
    assert [info["window_closed_by"] for info in infos.values()] == ["end_of_step"] * 3


def test_a_missing_action_is_a_thought_turn_and_ignored_afterwards(market: MarketplaceEnv) -> None:
    records: list[dict[str, Any]] = []
    market.add_listener(records.append)
    market.reset(seed=1)
    infos = market.step({})[4]
    assert [info["turns_left"] for info in infos.values()] == [29] * 3
    assert [(r["merchant"], r["turn_id"], r["calls"]) for r in records] == [(m, "0.1", []) for m in range(3)]
    market.step({"merchant_0": END})
    records.clear()
    for nothing in ({}, {"merchant_0": None}, {"merchant_0": ()}, {"merchant_0": {"role": "assistant"}}):
        observations = market.step(nothing)[0]
        assert observations["merchant_0"]["tool_results"] == ()
    assert {record["merchant"] for record in records} == {1, 2}


@pytest.mark.parametrize(
    ("action", "answered"),
    [(listing(10.0), [("list", "list_product")]), ("gibberish", [("", "")]), ([{"name": "x"}] * 2, None)],
)
def test_calls_of_a_waiting_merchant_are_answered(action: Any, answered: Any, market: MarketplaceEnv) -> None:
    market.reset(seed=1)
    market.step({"merchant_0": END})
    before = market.session.world.digest()
    observations, _, _, _, infos = market.step({"merchant_0": action})
    results = observations["merchant_0"]["tool_results"]
    expected = answered or [("auto_0", "x"), ("auto_1", "x")]
    assert [(result["tool_call_id"], result["name"]) for result in results] == expected
    assert all(json.loads(r["content"])["error"]["code"] == "not_deciding" for r in results)
    assert observations["merchant_0"] in market.observation_space("merchant_0")
    assert infos["merchant_0"]["turns_left"] == 0
    assert market.session.world.digest() == before


@pytest.mark.parametrize("overrides", [{}, {"fees": {"enabled": True}}, DOOMED])
def test_rewards_of_every_seat_telescope(overrides: dict[str, Any]) -> None:
    market = MarketplaceEnv("smoke", overrides, merchants=4)
    _, infos = market.reset(seed=2)
    start = {agent: cents(info["net_assets"]) for agent, info in infos.items()}
    prices = dict(zip(market.agents, (0.01, 90.0, 150.0, 10_000.0), strict=True))
    paid, last = dict.fromkeys(market.agents, 0), {}
    steps = play(market, {agent: listing(price, 50) for agent, price in prices.items()})
    for _, rewards, terminations, truncations, infos in steps:
        assert not any(truncations.values())
        for agent, reward in rewards.items():
            assert type(reward) is float
            assert cents(reward) == sum(cents(infos[agent][term]) for term in TERMS)
            paid[agent] += cents(reward)
            last[agent] = cents(infos[agent]["net_assets"])
            assert terminations[agent] is (infos[agent]["end_reason"] != "")
    assert {agent: last[agent] - start[agent] for agent in paid} == paid
    assert any(paid.values())
    assert last == {a: market.session.world.net_assets(m) for m, a in enumerate(market.possible_agents)}


def test_a_closed_merchant_leaves_after_the_step_that_carries_all_it_gets() -> None:
    market = MarketplaceEnv("smoke", DOOMED, merchants=3)
    market.reset(seed=1)
    steps = play(market, {"merchant_0": listing(0.01, 50)})
    closing = next(i for i, step in enumerate(steps) if step[2]["merchant_0"])
    assert closing < len(steps) - 1
    observations, _, terminations, truncations, infos = steps[closing]
    assert set(observations) == set(market.possible_agents)
    assert terminations == {"merchant_0": True, "merchant_1": False, "merchant_2": False}
    assert truncations == dict.fromkeys(market.possible_agents, False)
    info = infos["merchant_0"]
    assert (info["end_reason"], info["in_transit"], info["receivable"]) == ("shop_closed", 0.0, 0.0)
    assert "Shop closed at" in observations["merchant_0"]["text"]
    for step in steps[closing + 1 :]:
        assert all(set(part) == {"merchant_1", "merchant_2"} for part in step)
    assert info["net_assets"] == market.session.world.net_assets(0) / 100
    assert market.observe("merchant_0")[1] == info
    assert steps[-1][2] == {"merchant_1": True, "merchant_2": True}


def test_observations_and_infos_stay_in_form() -> None:
    market = doomed(3)
    _, infos = market.reset(seed=1)
    keys = list(infos["merchant_1"])
    while market.agents:
        step = market.step({agent: market.action_space(agent).sample() for agent in market.agents})
        for agent, observation in step[0].items():
            assert observation in market.observation_space(agent)
            assert list(step[4][agent]) == keys


def test_after_the_end_a_reset_is_needed(market: MarketplaceEnv) -> None:
    market.reset(seed=1, options={"overrides": SHORT})
    play(market, {})
    for actions in ({}, {"merchant_0": END}):
        with pytest.raises(ResetNeeded, match="ended"):
            market.step(actions)
    with pytest.raises(TurnRefused, match="run_finished"):
        market.step({"merchant_0": named(END, turn_id="new")})
    market.reset(seed=1)
    assert market.agents == market.possible_agents


# Refusals and repeated turns


def named(calls: Any, **names: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": "", "tool_calls": list(calls), **names}


@pytest.mark.parametrize(
    ("actions", "code"),
    [
        ({"merchant_2": named(END, window=7)}, "stale_window"),
        ({"merchant_1": named(END, turn_id="not fit!")}, "invalid_turn"),
        ({"merchant_1": named(END, note={1})}, "invalid_turn"),
        ({"merchant_1": named(END, turn_id="used")}, "turn_conflict"),
        ({"merchant_0": named(END, turn_id="late")}, "not_deciding"),
        ({"merchant_3": END}, "unknown_merchant"),
    ],
)
def test_a_refused_action_stops_the_whole_step(
    actions: dict[str, Any], code: str, market: MarketplaceEnv
) -> None:
    market.reset(seed=1)
    market.step({"merchant_0": END, "merchant_1": named([], turn_id="used")})
    state = market.snapshot()
    for agent in ("merchant_1", "merchant_2"):
        actions = {agent: listing(50.0), **actions}
    with pytest.raises(TurnRefused) as refusal:
        market.step(actions)
    assert refusal.value.code == code
    assert market.snapshot() == state


def test_calls_for_a_closed_shop_are_refused() -> None:
    market = doomed(2)
    market.reset(seed=1)
    while len(market.agents) == 2:
        market.step({agent: market.action_space(agent).sample() for agent in market.agents})
    state = market.snapshot()
    with pytest.raises(TurnRefused, match="shop_closed"):
        market.step({"merchant_0": END, "merchant_1": END})
    assert market.snapshot() == state
    assert set(market.step({"merchant_0": None, "merchant_1": END})[0]) == {"merchant_1"}


def test_a_repeated_step_has_no_second_effect() -> None:
    market = MarketplaceEnv("smoke", DOOMED, merchants=3)
    market.reset(seed=1)
    market.step({"merchant_0": listing(0.01, 50), "merchant_1": END})
    number = 0
    while market.agents:
        live = [agent for agent in market.agents if agent != "merchant_1" or number % 3]
        calls = {agent: [] if agent == "merchant_2" and number % 2 == 0 else END for agent in live}
        actions = {a: named(c, turn_id=f"{a}-{number}") for a, c in calls.items()}
        waiting = [a for a in live if market.observe(a)[1]["turns_left"] == 0]
        actions = {agent: None if agent in waiting else action for agent, action in actions.items()}
        first = market.step(actions)
        state = market.snapshot()
        np.testing.assert_equal(market.step(copy.deepcopy(actions)), first)
        assert market.snapshot() == state
        twin = pickle.loads(pickle.dumps(market))
        np.testing.assert_equal(twin.step(actions), first)
        number += 1
    assert number > 14


def test_a_step_that_broke_off_can_be_sent_again(market: MarketplaceEnv) -> None:
    def fail_once(record: dict[str, Any]) -> None:
        if record["merchant"] == 1 and record["window"] == 3 and failures:
            raise failures.pop()

    failures: list[Exception] = []
    market.add_listener(fail_once)
    control = MarketplaceEnv("smoke", merchants=3)
    control.reset(seed=1)
    market.reset(seed=1)
    failures.append(OSError("disk full"))
    for window in range(6):
        calls = listing(150.0) + END if window == 0 else END
        actions = {agent: named(calls, turn_id=f"t{window}") for agent in market.agents}
        expected = control.step(actions)
        if window == 3:
            with pytest.raises(OSError, match="disk full"):
                market.step(actions)
        np.testing.assert_equal(market.step(actions), expected)
    assert market.snapshot() == control.snapshot()


def test_an_interrupted_clock_is_made_up_for(market: MarketplaceEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    market.reset(seed=1)
    market.step(dict.fromkeys(market.agents, listing(150.0)))
    for _ in range(4):
        market.step(dict.fromkeys(market.agents, END))
    control = market.clone()
    actions = {agent: named(END, turn_id="x") for agent in market.agents}
    expected = control.step(actions)
    with monkeypatch.context() as patch:
        patch.setattr(market.session, "advance", interrupt)
        with pytest.raises(KeyboardInterrupt):
            market.step(actions)
    unnamed = market.clone()
    np.testing.assert_equal(market.step(actions), expected)
    # A refusal after the clock was made up for must not swallow what it paid.
    with pytest.raises(TurnRefused):
        unnamed.step({"merchant_0": named(END, window=99)})
    rewards = unnamed.step({})[1]
    assert rewards == expected[1]


# Copies


COPIES: dict[str, Callable[[MarketplaceEnv], MarketplaceEnv]] = {
    "clone": MarketplaceEnv.clone,
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda market: pickle.loads(pickle.dumps(market)),
}


def busy() -> MarketplaceEnv:
    """In mid-window, one shop closed, one merchant waiting."""
    market = MarketplaceEnv("smoke", DOOMED, merchants=4)
    market.reset(seed=1)
    market.step({"merchant_0": listing(0.01, 50), "merchant_1": listing(150.0)})
    while "merchant_0" in market.agents:
        market.step(dict.fromkeys(market.agents, END))
    market.step({"merchant_1": END, "merchant_2": listing(80.0)})
    return market


def drive(market: MarketplaceEnv) -> list[Any]:
    for m, agent in enumerate(market.possible_agents):
        market.action_space(agent).seed(m)
    steps = []
    while market.agents and len(steps) < 12:
        actions = {agent: market.action_space(agent).sample() for agent in market.agents}
        steps.append(market.step(actions))
    return steps


@pytest.mark.parametrize("way", list(COPIES))
def test_copies_continue_identically_and_independently(way: str) -> None:
    market = busy()
    state = market.snapshot()
    twin = COPIES[way](market)
    assert twin.agents == market.agents == ["merchant_1", "merchant_2", "merchant_3"]
    future = drive(twin)
    assert market.snapshot() == state
    np.testing.assert_equal(drive(market), future)
    assert twin.snapshot() == market.snapshot()
    twin.reset()
    market.reset()
    assert twin.session.world.seed == market.session.world.seed


def test_snapshot_and_restore() -> None:
    market = busy()
    state, future = market.snapshot(), drive(market)
    fresh = MarketplaceEnv("month", merchants=4)
    for other in (market, fresh):
        other.restore(state)
        assert other.snapshot() == state
        assert other.agents == ["merchant_1", "merchant_2", "merchant_3"]
        np.testing.assert_equal(drive(other), future)
    with pytest.raises(MarketError):
        MarketplaceEnv("smoke", merchants=3).restore(state)
    with pytest.raises(MarketError):
        MerchantEnv("smoke").restore(state)


@pytest.mark.parametrize("way", ["deepcopy", "pickle"])
def test_copies_of_the_agent_by_agent_form(way: str) -> None:
    turns = marketplace.env("smoke", SHORT, merchants=3)
    turns.reset(seed=1)
    for _ in range(4):
        turns.step(listing(150.0))
    twin = copy.deepcopy(turns) if way == "deepcopy" else pickle.loads(pickle.dumps(turns))
    seen: list[list[Any]] = [[], []]
    for one, log in zip((turns, twin), seen, strict=True):
        for agent in one.agent_iter():
            log.append((agent, copy.deepcopy(one.last())))
            one.step(None if log[-1][1][2] else END)
    assert len(seen[0]) > 10
    np.testing.assert_equal(seen[0], seen[1])


@pytest.mark.parametrize("way", list(COPIES))
def test_copies_have_samples_of_their_own(way: str) -> None:
    market = MarketplaceEnv("smoke", merchants=2)
    market.action_space("merchant_0").seed(5)
    twin = COPIES[way](market)
    samples = [[one.action_space("merchant_0").sample() for _ in range(5)] for one in (market, twin)]
    assert samples[0] == samples[1]
    assert market.action_space("merchant_0") is not twin.action_space("merchant_0")


# Providers


class Knocks:
    """One tool that counts per merchant, and a ban on another in window 1."""

    def __init__(self, counts: dict[int, int]) -> None:
        self.counts = counts

    @property
    def tools(self) -> list[Any]:
        return [tool(kind="WRITE", examples=[{}])(self.knock)]

    def knock(self, ctx: Any) -> dict[str, Any]:
        """Count the knocks."""
        self.counts[ctx.merchant] = self.counts.get(ctx.merchant, 0) + 1
        return {"count": self.counts[ctx.merchant]}

    def denied(self, window: int) -> tuple[str, ...]:
        return ("query_balance",) if window == 1 else ()

    def snapshot(self) -> bytes:
        return json.dumps(sorted(self.counts.items())).encode()

    def restore(self, data: bytes) -> None:
        self.counts = dict(json.loads(data))

    def clone(self) -> Knocks:
        return Knocks(dict(self.counts))


def test_a_provider_serves_every_seat(market: MarketplaceEnv, call: Any) -> None:
    market.add_provider(Knocks({}))
    for _ in range(2):  # every episode starts afresh
        market.reset(seed=1)
        assert all("knock" in market.action_space(agent).tools for agent in market.agents)
        market.step({"merchant_0": call("knock")})
        twin = market.clone()
        for one in (market, twin):
            results = one.step(dict.fromkeys(one.agents, call("knock")))[0]
            counts = [json.loads(seen["tool_results"][0]["content"])["count"] for seen in results.values()]
            assert counts == [2, 1, 1]


def test_samples_of_every_seat_follow_what_a_provider_denies(market: MarketplaceEnv) -> None:
    market.add_provider(Knocks({}))
    market.reset(seed=1)
    offered = []
    for _ in range(3):
        offered.append({"query_balance" in market.action_space(agent).tools for agent in market.agents})
        market.step(dict.fromkeys(market.agents, END))
    assert offered == [{True}, {False}, {True}]


# Pictures


def test_pictures_show_every_seat(capsys: pytest.CaptureFixture[str]) -> None:
    market = MarketplaceEnv("smoke", render_mode="ansi")
    observations, _ = market.reset(seed=1)
    assert "merchant_0" in market.render()
    assert market.render().count(observations["merchant_1"]["text"]) == 2
    market = MarketplaceEnv("smoke", render_mode="rgb_array", merchants=3)
    market.reset(seed=1)
    assert (market.render().shape, market.render().dtype) == ((1080, 1920, 3), np.uint8)
    market = MarketplaceEnv("smoke", render_mode="human")
    market.reset(seed=1)
    market.step({})
    assert capsys.readouterr().out.count("merchant_1") == 2
    assert market.render() is None


# Any mixture of turns


@settings(max_examples=20)
@given(
    st.lists(st.lists(st.integers(0, 8), min_size=3, max_size=3), min_size=4, max_size=30),
    st.booleans(),
    st.integers(0, 3),
)
def test_any_mixture_of_turns_keeps_the_contract(choices: list[list[int]], broke: bool, seed: int) -> None:
    overrides = {"run": {"horizon_days": 3}, **(DOOMED if broke else {})}
    market = MarketplaceEnv("smoke", overrides, merchants=3, max_turns_per_window=4)
    _, infos = market.reset(seed=seed)
    start = {agent: cents(info["net_assets"]) for agent, info in infos.items()}
    paid = dict.fromkeys(start, 0)
    for agent in market.agents:
        market.action_space(agent).seed(seed)
    for number, row in enumerate(choices):
        live, actions = market.agents, {}
        for agent, choice in zip(start, row, strict=True):
            sample = market.action_space(agent).sample()
            options = [None, END, END, (), sample, "gibberish", [{"name": 3}], listing(0.01, 50), sample]
            if agent in live and choice:
                actions[agent] = options[choice]
        if all(agent in actions for agent in live) and number % 2:
            waiting = [a for a in live if market.observe(a)[1]["turns_left"] == 0]
            normal = {a: normalise(actions[a]) for a in live}
            actions = {
                a: None if a in waiting or normal[a].fault else named(actions[a] or (), turn_id=f"t{number}")
                for a in live
            }
        steps = market.step(actions)
        assert all(set(part) == set(live) for part in steps)
        kinds = {type(action) for action in actions.values()}
        if dict in kinds <= {dict, type(None)}:
            state = market.snapshot()
            np.testing.assert_equal(market.step(actions), steps)
            assert market.snapshot() == state
        observations, rewards, terminations, _, infos = steps
        for agent in live:
            assert observations[agent] in market.observation_space(agent)
            paid[agent] += cents(rewards[agent])
            assert cents(infos[agent]["net_assets"]) == start[agent] + paid[agent]
        assert market.agents == [agent for agent in live if not terminations[agent]]
        if not market.agents:
            break
    for m, agent in enumerate(start):
        assert start[agent] + paid[agent] == market.session.world.net_assets(m)
