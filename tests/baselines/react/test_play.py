"""The model policy in the market: whole runs, recorded, cut off and taken up again."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from merchantbench_gym import recording
from merchantbench_gym.baselines import ModelServer, ReActPolicy, Reply, run_episode
from merchantbench_gym.wrappers import FaultInjection, RecordRun
from merchantbench_gym.wrappers.chat import Chat
from tests.react_kit import KEY, PRICES
from tests.recording_kit import make


def chat(days: int = 4, **arguments: Any) -> Any:
    return Chat(make(overrides={"run": {"horizon_days": days}}), **arguments)


def player(server: ModelServer, **settings: Any) -> ReActPolicy:
    known = {"model": "m", "api_key": KEY, "base_url": server.url, "prices": PRICES}
    return ReActPolicy(sleep=lambda seconds: None, **{**known, **settings})


def rows(path: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as db:
        return db.execute(query).fetchall()


def steady(request: Any, number: int) -> Reply:
    """A merchant that decides by what it reads: lists what it finds, looks, and ends its windows."""
    last = request.body["messages"][-1]
    usage = (1000 + len(request.body["messages"]), 20, 500)
    if last["role"] == "user":
        return Reply(calls=[("search_products", {"page_size": 3}), ("query_balance", {})], usage=usage)
    if (
        request.body["messages"][-2]["role"] == "tool"
        and '"items"' in request.body["messages"][-2]["content"]
    ):
        found = json.loads(request.body["messages"][-2]["content"])["items"]
        at = found["columns"].index("product_id")
        items = [{"product_id": row[at], "sale_price": 50.0} for row in found["rows"][:2]]
        return Reply(calls=[("list_product", {"items": items}, None)], usage=usage)
    return Reply(text="done for now", usage=usage)


def faulty(request: Any, number: int) -> Reply:
    if number % 7 == 3:
        return Reply(status=503)
    if number % 11 == 5:
        return Reply(choices=0, usage=(77, 1, 0))
    return steady(request, number)


def totals(path: Path) -> dict[str, Any]:
    """What the calls in a run file add up to."""
    calls = [
        (json.loads(usage), cost, status)
        for usage, cost, status in rows(path, "SELECT usage, cost_micro_usd, http_status FROM model_call")
    ]
    known = [usage for usage, _, _ in calls if usage]
    return {
        "calls": rows(path, "SELECT COUNT(DISTINCT window || '.' || turn) FROM model_call")[0][0],
        "attempts": len(calls),
        "tokens": {
            kind: sum(usage[kind] for usage in known)
            for kind in ("input", "output", "cache_read", "cache_write", "reasoning")
        },
        "missing_usage": sum(status == 200 and usage is None for usage, _, status in calls),
        "cost_micro_usd": sum(cost or 0 for _, cost, _ in calls),
    }


def notes(path: Path) -> list[Any]:
    return [json.loads(note) for (note,) in rows(path, "SELECT note FROM turn ORDER BY seq")]


def test_the_figures_of_a_run_are_the_sums_of_its_calls(tmp_path: Path) -> None:
    path = tmp_path / "a.run"
    with ModelServer(faulty) as server:
        policy = player(server)
        env = RecordRun(chat(), path)
        result = run_episode(env, policy, seed=1)
        env.close()
        sent = len(server.requests)
        assert server.refusals == []
    assert (result.reason, result.end_reason) == ("", "horizon")
    assert result.active == (True,) * 8
    report = result.report
    assert report["attempts"] == sent
    assert {key: report[key] for key in totals(path)} == totals(path)
    told = [note["usage"] for note in notes(path)]
    for kind, number in {**report["tokens"], "attempts": sent, "calls": report["calls"]}.items():
        assert sum(usage[kind] for usage in told) == number
    assert sum(note["cost_micro_usd"] for note in notes(path)) == report["cost_micro_usd"]
    classes = dict(rows(path, "SELECT class, COUNT(*) FROM model_call GROUP BY class"))
    assert set(classes) == {"ok", "transient", "bad_response"}
    kinds = {kind for (kind,) in rows(path, "SELECT DISTINCT kind FROM event")}
    assert kinds == {"retry"}


def test_limits_on_calls_and_cost(tmp_path: Path) -> None:
    with ModelServer(steady) as server:
        result = run_episode(chat(), player(server), seed=1, limits={"model_calls": 5})
        assert (result.reason, result.report["calls"]) == ("budget:model_calls", 5)
        result = run_episode(chat(), player(server), seed=1, limits={"cost_micro_usd": 2_000_000})
        assert result.reason == "budget:cost_micro_usd"
        assert result.report["cost_micro_usd"] >= 2_000_000


def test_a_limit_on_cost_holds_although_the_cost_of_a_response_is_unknown() -> None:
    def forgetful(request: Any, number: int) -> Reply:
        return Reply(choices=0) if number == 2 else steady(request, number)

    limits = {"cost_micro_usd": 6_000_000}
    with ModelServer(forgetful) as server:
        result = run_episode(chat(), player(server), seed=1, limits=limits)
        sent = len(server.requests)
    assert result.reason == "budget:cost_micro_usd"
    assert (result.report["cost_micro_usd"], result.report["missing_usage"]) == (None, 1)
    with ModelServer(steady) as server:
        run_episode(chat(), player(server), seed=1, limits=limits)
        assert sent == len(server.requests)
    with ModelServer(lambda request, number: Reply()) as server:
        result = run_episode(chat(), player(server), seed=1, limits=limits)
        assert (result.reason, len(server.requests)) == ("budget:cost_micro_usd", 1)


class Killed(BaseException):
    pass


def test_a_response_is_paid_for_once(tmp_path: Path) -> None:
    def play(path: Path, server: ModelServer, *, die_at: int | None) -> Any:
        env = RecordRun(chat(), path)
        policy = player(server)
        if die_at is not None:
            act, made = policy.act, []

            def dying(observation: Any, info: Any) -> Any:
                action = act(observation, info)
                made.append(action)
                if len(made) == die_at:
                    raise Killed
                return action

            policy.act = dying  # type: ignore[method-assign]
        try:
            return run_episode(env, policy, seed=1)
        finally:
            env.close()
            policy.close()

    with ModelServer(faulty) as server:
        control = play(tmp_path / "control.run", server, die_at=None)
        control_requests = [request.body for request in server.requests]
    for die_at in (1, 3, 4):
        path = tmp_path / f"{die_at}.run"
        with ModelServer(faulty) as server:
            with pytest.raises(Killed):
                play(path, server, die_at=die_at)
            before = len(server.requests)
            policy = player(server)
            env, observation, info = recording.resume(path, policy)
            result = run_episode(env, policy, seed=1, start=(observation, info))
            env.close()
            assert [request.body for request in server.requests] == control_requests
            assert before < len(server.requests)
        assert result.last_net_assets == control.last_net_assets
        same = ("calls", "attempts", "tokens", "missing_usage", "cost_micro_usd")
        assert [result.report[key] for key in same] == [control.report[key] for key in same]
        assert {key: result.report[key] for key in totals(path)} == totals(path)
        reused = rows(path, "SELECT COUNT(*) FROM event WHERE kind = 'response_reused'")
        assert reused == [(1,)]


def test_what_a_refused_answer_cost_is_kept_over_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "a.run"
    with ModelServer(steady) as server:
        env = RecordRun(
            Chat(FaultInjection(make(overrides={"run": {"horizon_days": 4}}), "stale", at=[4])), path
        )
        result = run_episode(env, player(server), seed=1, limits={"turns": 5})
        env.close()
        before = totals(path)
        assert {key: result.report[key] for key in before} == before
        assert len(rows(path, "SELECT 1 FROM turn WHERE own")) == before["calls"] - 1
        policy = player(server)
        env, observation, info = recording.resume(path, policy)
        result = run_episode(env, policy, seed=1, start=(observation, info), limits={"turns": 2})
        env.close()
    assert totals(path)["calls"] == before["calls"] + 2
    assert {key: result.report[key] for key in before} == totals(path)


def test_an_outage_stops_the_run_where_it_stood(tmp_path: Path) -> None:
    path, down = tmp_path / "a.run", [False]

    def model(request: Any, number: int) -> Reply:
        return Reply(status=422) if down[0] else Reply(text="idle", usage=(1, 1, 0))

    with ModelServer(model) as server:
        control = run_episode(chat(8), player(server), seed=1)
        policy = player(server)
        env = RecordRun(chat(8), path)

        def fail_from_the_third(observation: Any, reward: float, info: Any) -> None:
            down[0] = info["window"] >= 2

        result = run_episode(env, policy, seed=1, on_turn=fail_from_the_third)
        env.close()
        assert result.reason == "policy_stopped:provider_unavailable"
        assert [note["forced"] for note in notes(path)] == ["no_call"] * 2 + ["provider:request"] * 3
        assert rows(path, "SELECT status, reason FROM run") == [("stopped", result.reason)]

        down[0] = False
        policy = player(server)
        env, observation, info = recording.resume(path, policy)
        assert info["window"] == 5
        result = run_episode(env, policy, seed=1, start=(observation, info))
        env.close()
    assert result.reason == ""
    assert result.last_net_assets == control.last_net_assets
    assert result.forced == dict.fromkeys((2, 3, 4), "provider:request")


def test_refused_credentials_stop_the_run_and_it_can_be_taken_up(tmp_path: Path) -> None:
    path = tmp_path / "a.run"
    script = [Reply(status=503), Reply(status=401, error={"code": "no_such_key"})]
    with ModelServer(script) as server:
        env = RecordRun(chat(), path)
        result = run_episode(env, player(server), seed=1)
        env.close()
        assert result.reason == "policy_stopped:auth"
        assert result.report["attempts"] == 2
    kinds = [kind for (kind,) in rows(path, "SELECT kind FROM event ORDER BY seq")]
    assert kinds == ["retry", "policy_stop"]
    with ModelServer(steady) as server:
        policy = player(server)
        env, observation, info = recording.resume(path, policy)
        result = run_episode(env, policy, seed=1, start=(observation, info))
        env.close()
        assert result.reason == ""
        assert result.report["attempts"] == len(server.requests) + 2
    assert {key: result.report[key] for key in totals(path)} == totals(path)


def test_what_is_withheld_stays_in_transcript_and_record(tmp_path: Path) -> None:
    path = tmp_path / "a.run"
    refuse = [5]

    def model(request: Any, number: int) -> Reply:
        if number in refuse:
            return Reply(status=403, error={"code": "DataInspectionFailed"})
        return steady(request, number)

    with ModelServer(model) as server:
        env = RecordRun(chat(), path)
        seen: list[Any] = []
        result = run_episode(
            env, player(server), seed=1, on_turn=lambda observation, reward, info: seen.append(observation)
        )
        env.close()
        later = server.requests[-1].body["messages"]
    assert result.report["redactions"] == 1
    assert sum("withheld" in message["content"] for message in later) > 0
    assert not any("withheld" in message["content"] for message in seen[-1]["messages"])
    assert rows(path, "SELECT COUNT(*) FROM call WHERE content LIKE '%withheld%'") == [(0,)]
    assert rows(path, "SELECT COUNT(*) FROM event WHERE kind = 'redacted'") == [(1,)]


def test_secrets_occur_nowhere_in_a_run_file(tmp_path: Path) -> None:
    planted = {"code": KEY, "type": "Bearer abcdefghijkl", "message": f"{KEY} sk-abcdefghijkl"}

    def model(request: Any, number: int) -> Reply:
        if number == 2:
            return Reply(status=503, error=planted, headers={"x-request-id": KEY})
        return Reply(text=f"my key is {KEY}", usage={"prompt_tokens": 1, "completion_tokens": 1, KEY: KEY})

    path = tmp_path / "a.run"
    with ModelServer(model) as server:
        address = server.url.replace("http://", "http://user:abcdefghijkl@")
        policy = player(server, base_url=address, extra_headers={"X-Key": KEY}, extra_body={"user": KEY})
        env = RecordRun(chat(), path, policy=policy)
        result = run_episode(env, policy, seed=1)
        env.close()
    found = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    for text in (found, repr(result).encode(), json.dumps(result.report).encode()):
        assert KEY.encode() not in text
        assert b"abcdefghijkl" not in text


def test_the_label_of_a_run_goes_into_headers(tmp_path: Path) -> None:
    with ModelServer(steady) as server:
        env = RecordRun(chat(), tmp_path / "a.run", label="über 1")
        policy = player(server, extra_headers={"X-Run": "<{run}>"})
        run_episode(env, policy, seed=1, limits={"turns": 1})
        env.close()
        assert server.requests[0].headers["x-run"] == "<_ber 1>"


def test_a_models_own_mistakes_come_back_to_it() -> None:
    wrong: list[Callable[[], Reply]] = [
        lambda: Reply(calls=[("query_balance", {"pad": "x" * 70_000})]),
        lambda: Reply(calls=[("query_balance", {})] * 65),
        lambda: Reply(calls=[("no such tool", {}), ("", {}), ("query_balance", '{"a": 1, "a": 2}')]),
        lambda: Reply(calls=[("query_balance", '{"a":'), ("query_balance", "[1]"), ("query_balance", "")]),
        lambda: Reply(calls=[("query_balance", {}, None), ("query_balance", {}, None)]),
        lambda: Reply(calls=[("end_of_step", {}), ("query_balance", {})]),
    ]

    def model(request: Any, number: int) -> Reply:
        return wrong[number - 1]() if number <= len(wrong) else Reply(text="enough")

    with ModelServer(model) as server:
        result = run_episode(chat(), player(server), seed=1)
        assert server.refusals == []
        final = [message for message in server.requests[6].body["messages"] if message["role"] == "tool"]
    assert (result.reason, result.counters["rejected_turns"]) == ("", 2)
    assert len(final) == 1 + 65 + 3 + 3 + 2 + 2
    codes = [json.loads(message["content"]).get("error", {}).get("code") for message in final]
    assert set(codes[1:66]) == {"too_many_calls"}
    assert codes[66:72] == [
        "unknown_tool",
        "malformed_action",
        "invalid_json",
        "invalid_json",
        "invalid_arguments",
        None,
    ]
    assert codes[72:] == [None, None, "end_of_step_misplaced", "end_of_step_misplaced"]


NAMES = ("query_balance", "search_products", "end_of_step", "no such tool!", "", "x" * 90, "list_product")
ARGUMENTS = ("{}", "", "null", "[1]", '{"a":', '{"a": NaN}', '{"query": "\\ud800"}', '{"items": []}', "7")


def wild(seed: int) -> Callable[[Any, int], Reply]:
    """A model that gets everything wrong that can be got wrong."""
    draw = random.Random(seed)

    def model(request: Any, number: int) -> Reply:
        calls: list[Any] = []
        for _ in range(70 if number == 9 else draw.choice((0, 1, 1, 2, 3))):
            call_id = draw.choice((None, "", "same", f"own{draw.randrange(9)}", "x" * 200))
            calls.append((draw.choice(NAMES), draw.choice(ARGUMENTS), call_id))
        return Reply(
            calls=calls,
            text=draw.choice(("", None, "words", "é", [{"type": "text", "text": "part"}])),
            reasoning=draw.choice((None, "a thought")),
            finish_reason=draw.choice((None, "length")),
        )

    return model


@pytest.mark.parametrize(
    ("seed", "days"), [(0, 3), (1, 3), (2, 3), pytest.param(4, 30, marks=pytest.mark.slow)]
)
def test_a_strict_provider_takes_every_request_of_a_wild_model(seed: int, days: int) -> None:
    reasoning = ("off", "window", "all")[seed % 3]
    settings = {"reasoning": reasoning, "model": "claude" if seed % 2 else "m", "max_hops": 6}
    with ModelServer(wild(seed)) as server:
        result = run_episode(chat(days, reasoning=reasoning), player(server, **settings), seed=seed)
        assert server.refusals == []
        assert len(server.requests) == result.report["attempts"] >= 3 * days
    assert (result.reason, result.end_reason) == ("", "horizon")


def test_reasoning_in_later_requests() -> None:
    def model(request: Any, number: int) -> Reply:
        return Reply(
            calls=[("query_balance", {})] if number % 2 else (), text="said", reasoning=f"thought {number}"
        )

    def thoughts(policy: str) -> list[list[str]]:
        with ModelServer(model) as server:
            player_ = player(server, reasoning=policy)
            run_episode(chat(reasoning=policy), player_, seed=1, limits={"turns": 4})
            return [
                [m["reasoning_content"] for m in request.body["messages"] if "reasoning_content" in m]
                for request in server.requests
            ]

    assert thoughts("off") == [[], [], [], []]
    assert thoughts("window") == [[], ["thought 1"], [], ["thought 3"]]
    assert thoughts("all") == [
        [],
        ["thought 1"],
        ["thought 1", "thought 2"],
        ["thought 1", "thought 2", "thought 3"],
    ]


def test_a_policy_that_stops_leaves_the_environment_usable() -> None:
    with ModelServer([Reply(status=401)]) as server:
        env, policy = chat(), player(server)
        assert run_episode(env, policy, seed=1).reason == "policy_stopped:auth"
        assert env.reset(seed=1)[1]["window"] == 0


@pytest.mark.parametrize("max_hops", [None, 3])
def test_at_the_turn_limit_there_is_no_further_call(max_hops: int | None) -> None:
    with ModelServer(lambda request, number: Reply(calls=[("query_balance", {})])) as server:
        env = Chat(make(overrides={"run": {"horizon_days": 2}}, max_turns_per_window=3))
        result = run_episode(env, player(server, max_hops=max_hops), seed=1)
        assert len(server.requests) == result.counters["turns"] == 4 * 3
        assert "its turns were used up" in server.requests[3].body["messages"][-1]["content"]
    assert result.reason == "" and result.forced == {}
