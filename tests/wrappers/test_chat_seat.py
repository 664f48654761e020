"""A policy of conversations on raw observations: the same requests as through the wrappers."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merchantbench_gym.baselines import PassivePolicy, run_episode, run_parallel
from merchantbench_gym.envs.marketplace import MarketplaceEnv
from merchantbench_gym.wrappers import (
    Chat,
    ChatSeat,
    ContextTrim,
    FaultInjection,
    FocalSeat,
    MemoryDoc,
    NotesProvider,
)
from merchantbench_gym.wrappers.seat import Seat
from tests.wrappers.chat_kit import DAYS, END, Talker, make

TIGHT: dict[str, Any] = {"context_window": 40_000, "output_reserve": 2_000, "trigger": 12_000, "keep": 3_000}
WEEK = {"run": {"horizon_days": 6}}


def stacked(**context: Any) -> Any:
    return ContextTrim(Chat(MemoryDoc(make(overrides=WEEK))), **context)


@settings(deadline=None, max_examples=8)
@given(seed=st.integers(0, 2**32))
def test_both_fronts_send_the_same(seed: int) -> None:
    wrapped, seated = Talker(), Talker()
    first = run_episode(stacked(**TIGHT), wrapped, seed=1, policy_seed=seed)
    env = MemoryDoc(make(overrides=WEEK))
    player = ChatSeat(seated, context=TIGHT, notes=lambda: env.served_notes())
    second = run_episode(env, player, seed=1, policy_seed=seed)
    assert wrapped.asked == seated.asked and wrapped.infos == seated.infos
    assert first.last_net_assets == second.last_net_assets and first.counters == second.counters
    assert first.reason == second.reason == ""
    assert second.policy["name"] == "talker"


def test_the_runner_puts_it_in_between() -> None:
    wrapped, seated, apart = Talker(), Talker(), Talker()
    run_episode(stacked(), wrapped, seed=1, policy_seed=3)
    result = run_episode(MemoryDoc(make(overrides=WEEK)), seated, seed=1, policy_seed=3)
    assert wrapped.asked == seated.asked and result.policy["name"] == "talker"
    bare = make(overrides=WEEK)
    bare.unwrapped.add_provider(NotesProvider())
    run_episode(bare, apart, seed=1, policy_seed=3)
    assert apart.asked == wrapped.asked


def test_one_seat_of_a_market_of_one() -> None:
    wrapped, seated = Talker(), Talker()
    run_episode(stacked(), wrapped, seed=1, policy_seed=3)
    market = MarketplaceEnv("smoke", overrides=WEEK, merchants=1)
    market.add_provider(NotesProvider())
    run_parallel(market, {"merchant_0": seated}, seed=1, policy_seed=3)
    assert seated.asked == wrapped.asked


def test_seats_of_a_market_have_conversations_and_notes_of_their_own() -> None:
    market = MarketplaceEnv("smoke", overrides=DAYS, merchants=3)
    market.add_provider(NotesProvider())
    talkers = [Talker(), Talker()]
    policies = {"merchant_0": talkers[0], "merchant_1": PassivePolicy(), "merchant_2": talkers[1]}
    results = run_parallel(market, policies, seed=1, policy_seed=4)
    assert not any(result.reason for result in results.values())
    focal = Talker()
    twin = MarketplaceEnv("smoke", overrides=DAYS, merchants=3)
    twin.add_provider(NotesProvider())
    others = {"merchant_1": PassivePolicy(), "merchant_2": PassivePolicy()}
    run_episode(FocalSeat(twin, "merchant_0", others), focal, seed=1, policy_seed=4)
    assert focal.asked == talkers[0].asked  # nobody buys from another: what the others do is not seen here
    notes = [[note["content"] for note in market.providers[0].notes(m)] for m in range(3)]
    assert notes[0] == [note["content"] for note in twin.providers[0].notes(0)]
    assert notes[1] == []


def test_a_failing_policy_ends_its_seat_alone() -> None:
    result = run_episode(make(), Talker(fails=3), seed=1)
    assert result.reason == "policy_error:RuntimeError"
    market = MarketplaceEnv("smoke", overrides=DAYS, merchants=2)
    results = run_parallel(market, {"merchant_0": Talker(fails=3), "merchant_1": Talker()}, seed=1)
    assert results["merchant_0"].reason == "policy_error:RuntimeError"
    assert results["merchant_1"].reason == ""
    tiny = ChatSeat(Talker(), context={"context_window": 300, "output_reserve": 10, "trigger": 200})
    assert run_episode(make(), tiny, seed=1).reason == "policy_error:ContextBudgetError"


def test_a_lost_response_is_asked_for_again() -> None:
    control, talker = Talker(), Talker()
    whole = run_episode(make(), control, seed=1, policy_seed=2)
    result = run_episode(FaultInjection(make(), "drop_response", at=[1, 4, 5]), talker, seed=1, policy_seed=2)
    assert talker.asked == control.asked
    assert (result.reason, result.last_net_assets) == ("", whole.last_net_assets)


def test_act_alone_is_enough() -> None:
    control, talker = Talker(), Talker()
    run_episode(make(), control, seed=1, policy_seed=2)
    env, seat = make(), ChatSeat(talker)
    observation, info = env.reset(seed=1)
    seat.reset(Seat.from_env(env), seed=2)
    done = False
    while not done:
        before = copy.deepcopy((observation, info))
        action = seat.act(observation, info)
        np.testing.assert_equal((observation, info), before)
        observation, _, done, _, info = env.step(action)
    assert talker.asked == control.asked
    seat.take(observation, info)
    assert seat.transcript.ended and seat.transcript.messages[-1]["content"] == observation["text"]


def test_settings_of_the_policy_count() -> None:
    class Careful(Talker):
        context = TIGHT

    class Reference(Talker):
        context = {"mode": "reference"}  # noqa: RUF012

    assert ChatSeat(Careful())._manager.settings.trigger == 12_000
    assert ChatSeat(Careful(), context={})._manager.settings.trigger == 160_000
    assert ChatSeat(Reference()).transcript._reasoning == "all"
    assert not ChatSeat(Reference()).transcript._harness
    with pytest.raises(TypeError, match="passive"):
        ChatSeat(PassivePolicy())
    with pytest.raises(ValueError, match="keep"):
        ChatSeat(Talker(), context={"keep": 0})
    with pytest.raises(TypeError, match="gives 'chat'"):
        run_episode(Chat(make()), PassivePolicy(), seed=1)


def test_a_seat_beside_goes_along_with_a_snapshot() -> None:
    market = MarketplaceEnv("smoke", overrides=DAYS, merchants=2)
    beside = Talker()
    env = FocalSeat(market, "merchant_0", {"merchant_1": ChatSeat(beside, context=TIGHT)})
    env.reset(seed=1)
    for _ in range(2):
        env.step([END])
    state, known = env.snapshot(), len(beside.asked)

    def rest(env: Any) -> list[Any]:
        return [env.step([END]) for _ in range(3)]

    twin = env.clone()
    expected, asked = rest(env), beside.asked[known:]
    assert asked
    env.restore(state)
    np.testing.assert_equal(rest(env), expected)
    assert beside.asked == asked  # a policy that was reset has forgotten what it had been asked before
    np.testing.assert_equal(rest(twin), expected)
    assert twin._others["merchant_1"].policy.asked[known:] == asked
