"""The run loop: what it calls, how it ends, what it counts."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import gymnasium
import pytest

from merchantbench_gym.baselines import (
    POLICIES,
    BasePolicy,
    PassivePolicy,
    PolicyStop,
    RuleBasedPolicy,
    ScriptedPolicy,
    run_episode,
)
from merchantbench_gym.wrappers import ResponseLost

END = {"id": "end", "name": "end_of_step", "arguments": {}}


def query(name: str = "query_balance", **arguments: Any) -> dict[str, Any]:
    return {"id": name, "name": name, "arguments": arguments}


@pytest.fixture
def env() -> Any:
    return gymnasium.make("MerchantBenchSmoke-v0")


class Watched(BasePolicy):
    """Plays another policy and writes down every call of the protocol."""

    name = "watched"

    def __init__(self, inner: BasePolicy) -> None:
        self.inner = inner
        self.log: list[str] = []
        self.turns_left: list[int] = []
        self.actions: list[Any] = []

    def reset(self, seat: Any, *, seed: int | None = None) -> None:
        self.log.append(f"reset:{seed}")
        self.inner.reset(seat, seed=seed)

    def act(self, observation: Any, info: Mapping[str, Any]) -> Any:
        self.log.append("act")
        self.turns_left.append(info["turns_left"])
        self.actions.append(self.inner.act(observation, info))
        return self.actions[-1]

    def close(self) -> None:
        self.log.append("close")


@pytest.mark.parametrize("name", sorted(set(POLICIES) - {"react"}))
def test_every_policy_plays_a_week(env: Any, name: str) -> None:
    policy = Watched(POLICIES[name].for_env(env))
    result = run_episode(env, policy, seed=3)
    assert result.reason == ""
    assert result.end_reason == "horizon"
    assert result.ledger_holds
    assert policy.log == ["reset:3", *["act"] * result.counters["turns"], "close"]
    assert min(policy.turns_left) > 0
    assert result.windows_offered == len(result.active) == 14


def test_same_seed_same_actions_under_any_hash_seed() -> None:
    code = (
        "import gymnasium, hashlib, json\n"
        "from merchantbench_gym.baselines import RuleBasedPolicy, run_episode\n"
        "env = gymnasium.make('MerchantBenchSmoke-v0')\n"
        "step, seen = env.step, hashlib.sha256()\n"
        "def spy(action):\n"
        "    seen.update(json.dumps(action).encode())\n"
        "    return step(action)\n"
        "env.step = spy\n"
        "result = run_episode(env, RuleBasedPolicy(), seed=5)\n"
        "print(seen.hexdigest(), result.last_net_assets)\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


def test_passive_keeps_its_net_assets(env: Any) -> None:
    result = run_episode(env, PassivePolicy(), seed=1)
    assert result.last_net_assets == result.initial_net_assets == 300_000
    assert not any(result.terms.values())


def test_policy_seed_defaults_to_seed(env: Any) -> None:
    policy = Watched(PassivePolicy())
    run_episode(env, policy, seed=1, policy_seed=77)
    assert policy.log[0] == "reset:77"


class Failing(PassivePolicy):
    """Does what it is told to at its third turn."""

    name = "failing"

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.turns = 0
        self.closed = 0

    def act(self, observation: Any, info: Mapping[str, Any]) -> Any:
        self.turns += 1
        if self.turns == 3:
            raise self.error
        return super().act(observation, info)

    def close(self) -> None:
        self.closed += 1


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ZeroDivisionError("oops"), "policy_error:ZeroDivisionError"),
        (PolicyStop("auth", "no key"), "policy_stopped:auth"),
        (KeyboardInterrupt(), "interrupted"),
    ],
)
def test_a_failing_policy_ends_the_run(env: Any, error: BaseException, reason: str) -> None:
    policy = Failing(error)
    result = run_episode(env, policy, seed=1)
    assert result.reason == reason
    assert result.end_reason == ""
    assert result.windows_offered == 3
    assert result.counters["turns"] == 2
    assert policy.closed == 1
    assert run_episode(env, PassivePolicy(), seed=1).end_reason == "horizon"  # the environment is usable


def test_on_error_raise(env: Any) -> None:
    policy = Failing(ZeroDivisionError("oops"))
    with pytest.raises(ZeroDivisionError, match="oops"):
        run_episode(env, policy, seed=1, on_error="raise")
    assert policy.closed == 1
    with pytest.raises(ValueError, match="on_error"):
        run_episode(env, policy, seed=1, on_error="ignore")


def test_an_error_in_reset_is_the_policys(env: Any) -> None:
    class Unable(PassivePolicy):
        def reset(self, seat: Any, *, seed: int | None = None) -> None:
            raise LookupError("no model")

    result = run_episode(env, Unable(), seed=1)
    assert result.reason == "policy_error:LookupError"


def test_an_error_of_the_environment_is_raised(env: Any) -> None:
    class Broken(gymnasium.Wrapper[Any, Any, Any, Any]):
        def step(self, action: Any) -> Any:
            raise OSError("disk full")

    policy = Failing(ZeroDivisionError())
    with pytest.raises(OSError, match="disk full"):
        run_episode(Broken(env), policy, seed=1)
    assert policy.closed == 1


class Lossy(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Loses the answers of some turns, after these took effect; gives each turn an id of its own."""

    def __init__(self, env: Any, turn: int, times: int) -> None:
        super().__init__(env)
        self.turn, self.times = turn, times
        self.sent: list[Any] = []
        self.numbers = itertools.count()
        self.named: dict[str, Any] = {}

    def step(self, action: Any) -> Any:
        if not self.sent or self.sent[-1] is not action:
            self.named = {"role": "assistant", "tool_calls": action, "turn_id": f"t{next(self.numbers)}"}
        self.sent.append(action)
        step = self.env.step(self.named)
        if self.named["turn_id"] == f"t{self.turn}" and self.times > 0:
            self.times -= 1
            raise ResponseLost
        return step


@pytest.mark.parametrize("turn", [0, 1, 2, 7])
def test_a_lost_response_is_asked_for_again(env: Any, turn: int) -> None:
    control = run_episode(env, RuleBasedPolicy(), seed=2)
    digest = env.unwrapped.session.world.digest()
    lossy = Lossy(env, turn, times=3)
    result = run_episode(lossy, RuleBasedPolicy(), seed=2)
    assert len(lossy.sent) == control.counters["turns"] + 3
    assert lossy.sent[turn] is lossy.sent[turn + 1] is lossy.sent[turn + 3]
    assert env.unwrapped.session.world.digest() == digest
    assert (result.terms, result.counters, result.active) == (control.terms, control.counters, control.active)
    assert result.ledger_holds


def test_a_response_lost_four_times_ends_the_run(env: Any) -> None:
    result = run_episode(Lossy(env, 2, times=4), RuleBasedPolicy(), seed=2)
    assert result.reason == "response_lost"


@pytest.mark.parametrize(
    ("limit", "value", "windows"), [("turns", 5, 6), ("windows", 3, 4), ("wall_s", 0.0, 1)]
)
def test_limits_end_the_run_and_leave_it_resumable(env: Any, limit: str, value: float, windows: int) -> None:
    policy = PassivePolicy()
    result = run_episode(env, policy, seed=1, limits={limit: value, "model_calls": None})
    assert result.reason == f"budget:{limit}"
    assert result.windows_offered == windows
    rest = run_episode(env, policy, seed=1, start=env.unwrapped.observe())
    assert rest.end_reason == "horizon"
    assert rest.windows_offered == 14 - windows + 1


@pytest.mark.parametrize(("limit", "key"), [("model_calls", "calls"), ("cost_micro_usd", "cost_micro_usd")])
def test_model_limits_come_from_the_policys_report(env: Any, limit: str, key: str) -> None:
    class Paid(PassivePolicy):
        turns = 0

        def act(self, observation: Any, info: Mapping[str, Any]) -> Any:
            self.turns += 1
            return super().act(observation, info)

        def report(self) -> dict[str, Any]:
            return {key: 100 * self.turns}

    result = run_episode(env, Paid(), seed=1, limits={limit: 400})
    assert result.reason == f"budget:{limit}"
    assert result.counters["turns"] == 4
    assert result.report == {key: 400}


def test_unknown_limits_are_refused(env: Any) -> None:
    with pytest.raises(ValueError, match="hours"):
        run_episode(env, PassivePolicy(), seed=1, limits={"hours": 3})


def test_continuing_equals_playing_through(env: Any) -> None:
    whole = run_episode(env, RuleBasedPolicy(), seed=4)
    policy = RuleBasedPolicy()
    first = run_episode(env, policy, seed=4, limits={"turns": 12})
    second = run_episode(env, policy, seed=4, start=env.unwrapped.observe())
    assert second.last_net_assets == whole.last_net_assets
    assert first.counters["turns"] + second.counters["turns"] == whole.counters["turns"]
    assert second.initial_net_assets == first.last_net_assets


def test_privileged_policies_need_permission(env: Any) -> None:
    class Seer(PassivePolicy):
        privileged = True

    with pytest.raises(ValueError, match="allow_privileged"):
        run_episode(env, Seer(), seed=1)
    assert run_episode(env, Seer(), seed=1, allow_privileged=True).policy["privileged"]


def test_observation_form_must_fit(env: Any) -> None:
    class Numeric(PassivePolicy):
        observes = "flat"

    policy = Watched(Numeric())
    policy.observes = "flat"
    with pytest.raises(TypeError, match="flat"):
        run_episode(env, policy, seed=1)
    assert policy.log == []


def test_on_turn_sees_every_turn(env: Any) -> None:
    seen: list[tuple[float, int]] = []
    result = run_episode(
        env,
        RuleBasedPolicy(),
        seed=1,
        on_turn=lambda obs, reward, info: seen.append((reward, info["window"])),
    )
    assert len(seen) == result.counters["turns"]
    assert round(sum(reward for reward, _ in seen) * 100) == sum(result.terms.values())


def test_calls_are_counted_by_what_became_of_them(env: Any) -> None:
    good = {"product_id": "P00000", "sale_price": 10}
    script = [
        [query("list_product", items=[good, {"product_id": "P99999", "sale_price": 10}])],
        [query("delist_product", items=[{"product_id": "P99998"}])],  # all rejected: still a success
        [query("get_product_detail", product_id="P99999")],  # business error
        [query("no_such_tool"), query("market_brief"), query("query_balance", extra=1)],
        [END, END],
        "gibberish",
        [],
    ]
    result = run_episode(env, ScriptedPolicy(script), seed=1)
    counters = result.counters
    assert counters["by_tool"] == {
        "delist_product": 1,
        "end_of_step": 14,
        "get_product_detail": 1,
        "list_product": 1,
    }
    assert counters["ok"] == 16
    assert counters["partially_applied"] == 1
    assert counters["business_errors"] == 1
    assert counters["invalid"] == 3
    assert counters["rejected_turns"] == 2
    assert counters["internal_faults"] == 0
    assert counters["turns"] == 21


@pytest.mark.parametrize(
    ("action", "active"),
    [
        ([query("query_balance")], True),
        ([query("get_product_detail", product_id="P99999")], True),  # a business error is work too
        ([query("list_tools")], True),
        ([query("no_such_tool")], False),
        ([query("market_brief")], False),  # denied
        ([query("query_balance", extra=1)], False),
        ([END, query("query_balance")], False),  # rejected turn
        ([query("read_memory_doc")], False),  # unknown without its provider
        ([], False),
        ("gibberish", False),
    ],
)
def test_which_calls_make_a_window_active(env: Any, action: Any, active: bool) -> None:
    result = run_episode(env, ScriptedPolicy({(2, 0): action}), seed=1)
    assert result.active == tuple(active and window == 2 for window in range(14))


def test_forced_ends_are_noted(env: Any) -> None:
    def forced(cause: str) -> dict[str, Any]:
        return {"role": "assistant", "content": "", "tool_calls": [END], "note": {"forced": cause}}

    script = {(1, 0): forced("hop_budget"), (2, 0): forced("no_call"), (3, 0): forced("provider:rate")}
    result = run_episode(env, ScriptedPolicy(script), seed=1)
    assert result.forced == {1: "hop_budget", 3: "provider:rate"}


def test_an_undone_turn_is_not_counted(env: Any) -> None:
    """A listener that fails after ours undoes the turn; its repetition counts once."""
    failures = iter([True, False])

    def commit(record: dict[str, Any]) -> None:
        if record["window"] == 1 and next(failures, False):
            raise ResponseLost  # as a wrapper over a broken recorder would

    run_episode(env, PassivePolicy(), seed=1)  # our listener stands before the recorder's
    env.unwrapped.add_listener(commit)
    result = run_episode(env, PassivePolicy(), seed=1)
    assert result.reason == ""
    assert result.counters["by_tool"] == {"end_of_step": 14}


def test_listeners_do_not_pile_up(env: Any) -> None:
    added: list[Any] = []
    bare = env.unwrapped
    add = bare.add_listener

    def watch(listener: Any) -> None:
        added.append(listener)
        add(listener)

    bare.add_listener = watch
    for seed in range(3):
        run_episode(env, PassivePolicy(), seed=seed)
    assert len(added) == 1


def test_scripts_by_turn_and_by_window(env: Any) -> None:
    policy = ScriptedPolicy([[query()], [END]], then="raise")
    assert run_episode(env, policy, seed=1).reason == "policy_stopped:script_exhausted"
    result = run_episode(env, ScriptedPolicy({(0, 1): [query()], (0, 0): [query("list_tools")]}), seed=1)
    assert result.counters["by_tool"] == {"end_of_step": 14, "list_tools": 1, "query_balance": 1}
    with pytest.raises(ValueError, match="then"):
        ScriptedPolicy([], then="loop")


def test_a_script_continues_from_its_state(env: Any) -> None:
    script = {(1, 1): [query("list_tools")]}
    policy = ScriptedPolicy(script)
    run_episode(env, policy, seed=1, limits={"turns": 1})
    copy = ScriptedPolicy(script)
    copy.load_state_dict(policy.state_dict())
    env.step([query()])
    observation, info = env.unwrapped.observe()
    policy.act(observation, info)
    copy.act(observation, info)
    assert copy.state_dict() == policy.state_dict()


def test_more_orders_for_the_merchant_who_works() -> None:
    env = gymnasium.make("MerchantBenchMonth-v0")
    passive = run_episode(env, PassivePolicy(), seed=1).last_net_assets
    active = run_episode(env, RuleBasedPolicy(), seed=1).last_net_assets
    assert passive is not None and active is not None and active > passive
