"""Arms that branch off from a recorded run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import openai
import pytest
from arms import Moody, Noting, Without

from merchantbench_gym.baselines import (
    ModelServer,
    PassivePolicy,
    ReActPolicy,
    Reply,
    RuleBasedPolicy,
    SwitchPolicy,
    run_episode,
)
from merchantbench_gym.baselines.react.model_server import ModelRequest
from merchantbench_gym.envs.marketplace import MarketplaceEnv
from merchantbench_gym.evaluation import Arm, Paired, interval, paired_experiment
from merchantbench_gym.evaluation.paired import ROW_KEYS
from merchantbench_gym.recording import JournalMismatch, attach, replay, resume
from merchantbench_gym.wrappers import (
    Chat,
    ContextTrim,
    MemoryDoc,
    NotesIntervention,
    RecordRun,
    Reward,
    ToolBan,
)
from merchantbench_gym.wrappers.chat_seat import ChatSeat

ENV = "merchantbench_gym:MerchantBenchSmoke-v0"
AT = 6


def record_run(
    path: Path, policy: Any = None, seed: int = 1, wrap: Any = lambda env: env, **more: Any
) -> Any:
    env: Any = RecordRun(wrap(gymnasium.make(ENV)), path)
    result = run_episode(env, policy or RuleBasedPolicy(), seed=seed, **more)
    env.close()
    return result


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    path = tmp_path_factory.mktemp("run") / "run.db"
    return path, record_run(path)


def test_arms_without_a_difference_differ_by_exactly_zero(recorded: tuple[Path, Any]) -> None:
    path, original = recorded
    before = hashlib.sha256(path.read_bytes()).digest()
    outcome = paired_experiment(path, AT, {"the same": Arm(), "again": lambda env: env})
    assert hashlib.sha256(path.read_bytes()).digest() == before
    scores = {name: [record["score"] for record in runs] for name, runs in outcome.records.items()}
    own = original.last_net_assets / 100
    assert scores == {"control": [own], "the same": [own], "again": [own]}
    assert [row["difference"] for row in outcome.table] == [0.0, 0.0, 0.0]
    assert all(record["valid"] for runs in outcome.records.values() for record in runs)
    assert outcome.records["control"][0]["calls"]["by_tool"] == original.counters["by_tool"]


def test_other_players_take_over_at_the_window(recorded: tuple[Path, Any]) -> None:
    path, original = recorded
    outcome = paired_experiment(
        path,
        AT,
        {
            "passive": Arm(policy=PassivePolicy.for_env),
            "switch": Arm(policy=lambda env: SwitchPolicy(RuleBasedPolicy(), PassivePolicy(), AT)),
            "cheaper": Arm(policy=lambda env: RuleBasedPolicy(markup=1.1)),
        },
    )
    played = run_episode(gymnasium.make(ENV), SwitchPolicy(RuleBasedPolicy(), PassivePolicy(), AT), seed=1)
    [passive], [switch] = outcome.values("passive"), outcome.values("switch")
    assert played.last_net_assets is not None
    assert passive == switch == played.last_net_assets / 100
    control = original.last_net_assets / 100
    assert outcome.differences("passive") == [passive - control] != [0.0]
    assert outcome.differences("cheaper") != [0.0]
    assert [record["policy"]["name"] for record in outcome.records["passive"]] == ["passive"]


def test_a_player_of_the_recorded_kind_has_its_state(recorded: tuple[Path, Any], tmp_path: Path) -> None:
    """A fresh rule-based merchant would read the report of the day once more in the middle of the day."""
    path, original = recorded
    calls = paired_experiment(path, 7, {}).records["control"][0]["calls"]["by_tool"]
    assert calls == original.counters["by_tool"]

    class Forgetful(RuleBasedPolicy):
        def load_state_dict(self, state: Any) -> None:
            pass

    again = paired_experiment(path, 7, {}, policy=lambda env: Forgetful()).records["control"][0]
    assert again["calls"]["by_tool"]["get_daily_report"] == calls["get_daily_report"] + 1


def test_wrappers_of_an_arm_act_from_the_window_on(recorded: tuple[Path, Any], tmp_path: Path) -> None:
    path, original = recorded
    arms = {"no new products": lambda env: Without(env, "list_product", AT)}
    outcome = paired_experiment(path, AT, arms, out=tmp_path)
    assert outcome.differences("no new products") != [0.0]
    listed = [runs[0]["calls"]["by_tool"]["list_product"] for runs in outcome.records.values()]
    assert listed[0] == original.counters["by_tool"]["list_product"] > listed[1] >= 1
    files = sorted(file.name for file in tmp_path.glob("*.db"))
    assert files == ["0-0-control.db", "0-0-no_new_products.db"]
    assert replay(tmp_path / files[0]).identical
    env, _, info = resume(tmp_path / files[1])
    assert info["end_reason"] == "horizon"
    assert env.get_wrapper_attr("tool") == "list_product"
    env.close()


def test_an_arm_that_changes_the_past_is_found_out(recorded: tuple[Path, Any]) -> None:
    with pytest.raises(JournalMismatch, match="window 0"):
        paired_experiment(recorded[0], AT, {"too early": lambda env: Without(env, "list_product", 0)})


def test_wrappers_of_an_arm_come_inside_the_chat(tmp_path: Path) -> None:
    class Chatting(PassivePolicy):
        observes = "chat"

    path = tmp_path / "chat.db"
    record_run(path, Chatting(), wrap=lambda env: Chat(Reward(env, "scaled")))
    arms = {"x": lambda env: Without(env, "list_product", 999)}
    paired_experiment(path, AT, arms, policy=lambda env: Chatting(), out=tmp_path / "out")
    env, _, _ = resume(tmp_path / "out" / "0-0-x.db")
    assert list(layers(env)) == ["RecordRun", "Chat", "Without", "Reward"]
    env.close()


@pytest.mark.parametrize("kind", [{"kind": "blank"}, {"kind": "swap", "text": "work"}], ids=str)
def test_notes_served_differently(tmp_path: Path, kind: dict[str, Any]) -> None:
    path = tmp_path / "notes.db"
    record_run(path, Noting(), wrap=MemoryDoc)
    outcome = paired_experiment(
        path,
        AT,
        {"other notes": lambda env: NotesIntervention(env, windows=(AT, None), **kind), "same": Arm()},
        metric="calls.by_tool.query_balance",
        policy=lambda env: Noting(),
        out=tmp_path / "out",
    )
    assert outcome.values("control") == outcome.values("same") == [0]
    assert outcome.values("other notes") == [14 - AT]
    assert replay(tmp_path / "out" / "0-0-other_notes.db").identical


def test_tools_taken_away(recorded: tuple[Path, Any], tmp_path: Path) -> None:
    arms = {"no search": lambda env: ToolBan(env, ["search_products"], windows=(AT, None))}
    outcome = paired_experiment(recorded[0], AT, arms, out=tmp_path, metric="calls.invalid")
    assert outcome.values("no search")[0] != outcome.values("control")[0]
    assert replay(tmp_path / "0-0-no_search.db").identical
    with pytest.raises(JournalMismatch, match="window 0"):
        paired_experiment(recorded[0], AT, {"too early": lambda env: ToolBan(env, ["search_products"])})


def layers(env: Any) -> Iterator[str]:
    while env is not env.unwrapped:
        if not type(env).__module__.startswith("gymnasium."):
            yield type(env).__name__
        env = env.env


def test_repeats_are_paired_and_have_an_interval(recorded: tuple[Path, Any]) -> None:
    path, original = recorded
    Moody.made = 0
    outcome = paired_experiment(path, AT, {"moody": Arm(policy=lambda env: Moody())}, repeats=4)
    control, moody = outcome.table
    assert list(control) == list(ROW_KEYS)
    own = original.last_net_assets / 100
    assert control == {
        "arm": "control",
        "n": 4,
        "n_valid": 4,
        "mean": own,
        "difference": 0.0,
        "low": 0.0,
        "high": 0.0,
    }
    gaps = outcome.differences("moody")
    assert len(set(gaps)) > 1
    assert (moody["low"], moody["high"]) == interval(gaps)
    assert moody["low"] <= moody["difference"] <= moody["high"]
    assert moody["mean"] == pytest.approx(own + moody["difference"])


def test_several_runs_are_pairs_of_their_own(recorded: tuple[Path, Any], tmp_path: Path) -> None:
    second = tmp_path / "second.db"
    record_run(second, seed=2)
    outcome = paired_experiment(
        [recorded[0], second], AT, {"p": Arm(policy=PassivePolicy.for_env)}, repeats=2
    )
    assert [record["seed"] for record in outcome.records["p"]] == [1, 1, 2, 2]
    gaps = outcome.differences("p")
    assert gaps[0] == gaps[1] != gaps[2] == gaps[3]


def test_other_metrics(recorded: tuple[Path, Any]) -> None:
    arms = {"p": Arm(policy=PassivePolicy.for_env)}
    outcome = paired_experiment(recorded[0], AT, arms, metric="calls.by_tool.query_balance")
    assert outcome.differences("p")[0] < 0
    assert paired_experiment(recorded[0], AT, arms, metric="model.calls").table[1]["difference"] is None
    with pytest.raises(KeyError, match="happiness"):
        paired_experiment(recorded[0], AT, arms, metric="happiness")


def test_invalid_runs_make_no_pair(recorded: tuple[Path, Any]) -> None:
    class Failing(PassivePolicy):
        def act(self, observation: Any, info: Any) -> Any:
            raise RuntimeError

    outcome = paired_experiment(recorded[0], AT, {"failing": Arm(policy=lambda env: Failing())})
    row = outcome.table[1]
    assert (row["n"], row["n_valid"], row["mean"], row["difference"]) == (1, 0, None, None)
    assert outcome.records["failing"][0]["reason"] == "policy_error:RuntimeError"
    assert json.loads(json.dumps(outcome.as_json()))["table"] == outcome.table


def test_the_control_arm_can_be_given(recorded: tuple[Path, Any]) -> None:
    arms = {"control": Arm(policy=PassivePolicy.for_env), "rules": Arm(policy=lambda env: RuleBasedPolicy())}
    outcome = paired_experiment(recorded[0], AT, arms)
    assert list(outcome.records) == ["control", "rules"]
    assert outcome.records["control"][0]["policy"]["name"] == "passive"


def test_players_that_are_not_known_must_be_given(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    record_run(path, Moody())
    with pytest.raises(ValueError, match="'moody', which is not in POLICIES"):
        paired_experiment(path, AT, {})
    outcome = paired_experiment(path, AT, {}, policy=lambda env: Moody())
    assert isinstance(outcome, Paired)


def test_impossible_experiments(recorded: tuple[Path, Any], tmp_path: Path) -> None:
    path = recorded[0]
    with pytest.raises(ValueError, match="repeats"):
        paired_experiment(path, AT, {}, repeats=0)
    with pytest.raises(ValueError, match="run file"):
        paired_experiment([], AT, {})
    with pytest.raises(ValueError, match="window 99"):
        paired_experiment(path, 99, {})
    with pytest.raises(ValueError, match="plain data"):
        paired_experiment(path, AT, {"x": lambda env: Without(env, object(), AT)})  # type: ignore[arg-type]
    paired_experiment(path, AT, {}, out=tmp_path)
    with pytest.raises(FileExistsError):
        paired_experiment(path, AT, {}, out=tmp_path)


def test_markets_of_several_seats_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "market.db"
    penv = MarketplaceEnv("smoke", merchants=2)
    recorder = attach(penv, path)
    penv.reset(seed=1)
    penv.step({agent: [{"name": "end_of_step", "arguments": {}}] for agent in penv.agents})
    recorder.close()
    with pytest.raises(ValueError, match="one seat"):
        paired_experiment(path, 0, {})


# -- with a model --------------------------------------------------------------------------------------

NOTE = "sup_0007 delivers late"


def model(request: ModelRequest, number: int) -> Reply:
    """Writes a note in the first window, reads it in the tenth, and rests in all others."""
    *_, last = (m for m in request.body["messages"] if not str(m["content"]).startswith("[context]"))
    if last["role"] == "user" and "| window 1 of" in last["content"]:
        return Reply(calls=[("write_memory_doc", {"content": NOTE}, "w")])
    if last["role"] == "user" and "| window 10 of" in last["content"]:
        return Reply(calls=[("read_memory_doc", {}, "r")])
    return Reply(text="resting")


@pytest.mark.parametrize("reinject", ["after_trim", "each_window"])
def test_blank_notes_change_only_requests_with_notes(tmp_path: Path, reinject: str) -> None:
    path = tmp_path / "model.db"
    arms = {"blank": lambda env: NotesIntervention(env, "blank", windows=(AT, None)), "same": Arm()}
    with ModelServer(model) as server, openai.OpenAI(base_url=server.url, api_key="k") as client:

        def player(env: Any) -> Any:
            return ReActPolicy(client, "m")

        record_run(path, player(None), wrap=lambda env: ContextTrim(Chat(MemoryDoc(env)), reinject=reinject))
        before = len(server.requests)
        outcome = paired_experiment(path, AT, arms, policy=player)
        asked = [request.body["messages"] for request in server.requests[before:]]
    assert [row["difference"] for row in outcome.table] == [0.0, 0.0, 0.0]
    control, blank, same = (asked[i * len(asked) // 3 : (i + 1) * len(asked) // 3] for i in range(3))
    assert control == same
    carrying = [served(messages) != [] for messages in control]
    assert (carrying[0], carrying[-1]) == (reinject == "each_window", True)
    for had, with_notes, without in zip(carrying, control, blank, strict=True):
        assert (with_notes != without) == had
        assert [m for m in with_notes if not carries(m)] == [m for m in without if not carries(m)]
        assert not any(NOTE in message["content"] for message in served(without))


def carries(message: Any) -> bool:
    """Whether a message of a request is a place in which notes are served."""
    if message["role"] == "tool":
        return bool(message["name"] == "read_memory_doc")
    return str(message["content"]).startswith("[context]")


def served(messages: list[Any]) -> list[Any]:
    """Messages in which the note is served; the call that wrote it is the model's own."""
    return [m for m in messages if m["role"] in ("tool", "user") and NOTE in (m["content"] or "")]


@pytest.mark.parametrize("seat", [lambda policy: policy, ChatSeat])
def test_a_conversation_of_its_own_goes_on(tmp_path: Path, seat: Any) -> None:
    path = tmp_path / "model.db"
    with ModelServer(model) as server, openai.OpenAI(base_url=server.url, api_key="k") as client:
        record_run(path, ReActPolicy(client, "m"), wrap=MemoryDoc)
        sent = [request.body for request in server.requests]
        outcome = paired_experiment(
            path, AT, {"same": Arm()}, policy=lambda env: seat(ReActPolicy(client, "m"))
        )
        asked = [request.body for request in server.requests[len(sent) :]]
    rest = sent[len(sent) - len(asked) // 2 :]
    assert asked == [*rest, *rest] and len(rest) < len(sent)
    assert outcome.values("same") == outcome.values("control") != [None]
    assert [record["valid"] for record in outcome.records["same"]] == [True]


def test_a_conversation_may_begin_with_the_turns_of_another_player(recorded: tuple[Path, Any]) -> None:
    with ModelServer(model) as server, openai.OpenAI(base_url=server.url, api_key="k") as client:
        arm = Arm(policy=lambda env: ReActPolicy(client, "m"))
        outcome = paired_experiment(recorded[0], AT, {"model": arm})
        first = server.requests[0].body["messages"]
    assert outcome.records["model"][0]["policy"]["name"] == "react"
    assert sum("| window" in m["content"] for m in first if m["role"] == "user") == AT + 1
    assert any(m.get("name") == "list_product" for m in first)


def test_an_arm_without_compaction(tmp_path: Path) -> None:
    path, sizes = (
        tmp_path / "model.db",
        {"context_window": 30_000, "output_reserve": 2_000, "trigger": 10_000},
    )
    arms = {"off": lambda env: ContextTrim(Chat(env), mode="off", **sizes)}

    def busy(request: ModelRequest, number: int) -> Reply:
        return Reply(calls=[("search_products", {"page_size": 20}, f"c{number}"), ("end_of_step", {})])

    with ModelServer(busy) as server, openai.OpenAI(base_url=server.url, api_key="k") as client:
        record_run(path, ReActPolicy(client, "m"), wrap=lambda env: ContextTrim(Chat(env), **sizes))
        before = len(server.requests)
        outcome = paired_experiment(path, 2, arms, policy=lambda env: ReActPolicy(client, "m"))
        asked = [request.body["messages"] for request in server.requests[before:]]
    control, off = asked[: len(asked) // 2], asked[len(asked) // 2 :]
    assert control[0] == off[0]  # nothing had been cut before the window
    assert any(m["content"].startswith("[context]") for m in control[-1] if m["role"] == "user")
    assert len(off[-1]) > len(control[-1])
    interventions = {name: records[0]["interventions"] for name, records in outcome.records.items()}
    assert interventions == {"control": [], "off": ["context:off"]}
    assert outcome.records["off"][0]["harness"] == ["Chat", "ContextTrim", "RecordRun"]
