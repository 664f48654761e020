"""The policy that asks a model: what it sends, and what it makes of the answers."""

from __future__ import annotations

import json
import logging
from typing import Any

import openai
import pytest

from merchantbench_gym.baselines import ModelServer, PolicyStop, ReActPolicy, Reply
from merchantbench_gym.baselines.react.state import bounded_events
from tests.react_kit import (
    END,
    KEY,
    LOOK,
    PRICES,
    SYSTEM,
    TOOLS,
    TURNS,
    Desk,
    at_desk,
    events,
    exchange,
    names,
    user,
)

# --- requests ---


def test_a_request_has_exactly_the_configured_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPERATURE", "")
    with at_desk([LOOK]) as desk:
        desk.act()
        assert desk.sent() == {
            "model": "some-model",
            "messages": [SYSTEM, user()],
            "tools": TOOLS,
            "tool_choice": "auto",
        }
        assert desk.server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    settings = {
        "temperature": 0,
        "max_output_tokens": 99,
        "tool_choice": "required",
        "extra_body": {"seed": 7},
        "extra_headers": {"X-Run": "run {run}."},
    }
    with at_desk([LOOK], **settings) as desk:
        desk.act()
        assert set(desk.sent()) == {
            "model",
            "messages",
            "tools",
            "tool_choice",
            "temperature",
            "max_tokens",
            "seed",
        }
        assert (desk.sent()["temperature"], desk.sent()["max_tokens"]) == (0, 99)
        assert desk.server.requests[0].headers["x-run"] == "run ."


def test_a_claude_gets_marks_and_others_do_not() -> None:
    with at_desk([LOOK, LOOK], model="Claude-x") as desk:
        desk.act()
        desk.act(user(), *exchange("{}"))
        assert json.dumps(desk.sent(0)).count("cache_control") == 2
        assert desk.sent(1)["messages"][0]["content"][0]["text"] == "brief"
    server = {"extra_keys": {"extendParams"}}
    with at_desk([LOOK], server=server, claude="extend_params") as desk:
        desk.act()
        assert desk.sent()["extendParams"]["system"][0]["text"] == "brief"
        assert json.dumps(desk.sent()).count('"brief"') == 1
    with at_desk([LOOK]) as desk:
        desk.act()
        assert "cache_control" not in json.dumps(desk.sent())


def test_a_client_of_ones_own_retries_nothing() -> None:
    with ModelServer([Reply(status=503), LOOK]) as server:
        client = openai.OpenAI(base_url=server.url, api_key=KEY, max_retries=5)
        desk = Desk(server)
        policy = desk.policy = desk.new_policy(client)
        policy.reset(desk.seat())
        action = desk.act()
        assert action["note"]["usage"]["attempts"] == len(server.requests) == 2
        policy.close()
        assert not client.is_closed()
        client.close()


class Fake:
    """The least that a client can be."""

    def __init__(self, *answers: Any) -> None:
        self.chat = self.completions = self
        self.answers = list(answers)
        self.requests: list[Any] = []

    def create(self, **request: Any) -> Any:
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer


def at_fake(*answers: Any, **settings: Any) -> tuple[Desk, Fake]:
    desk = Desk(ModelServer([]).__enter__(), **settings)
    desk.server.__exit__(None, None, None)
    fake = Fake(*answers)
    desk.policy = desk.new_policy(fake)
    desk.policy.reset(desk.seat())
    return desk, fake


ANSWER = {"choices": [{"message": {"content": None, "tool_calls": None}}]}


def test_any_client_with_a_create_will_do() -> None:
    desk, fake = at_fake(ANSWER)
    assert names(desk.act()) == ["end_of_step"]
    assert fake.requests[0]["timeout"] == 120


def test_an_interrupt_passes() -> None:
    desk, _ = at_fake(KeyboardInterrupt(), ANSWER)
    with pytest.raises(KeyboardInterrupt):
        desk.act()
    assert desk.act()["note"]["usage"]["attempts"] == 1


# --- answers ---


def test_calls_are_passed_on_as_they_came() -> None:
    reply = Reply(
        text="looking",
        calls=[
            ("query_balance", '{"a": 1, "a"', "x"),
            ("query_balance", {}, "x"),
            ("no such tool", "", None),
        ],
        finish_reason="length",
    )
    with at_desk([reply, LOOK]) as desk:
        action = desk.act(window=3)
        assert action["content"] == "looking"
        assert [call["id"] for call in action["tool_calls"]] == ["x", "c3-0-1", "c3-0-2"]
        assert action["tool_calls"][0]["function"] == {"name": "query_balance", "arguments": '{"a": 1, "a"'}
        assert action["note"]["forced"] == ""
        again = desk.act(window=3, left=TURNS - 1)
        assert again["note"]["state"]["hops"] == 2


def test_no_call_ends_the_window_and_keeps_the_text() -> None:
    with at_desk([Reply(text="nothing to do")]) as desk:
        action = desk.act(window=5)
        assert action["content"] == "nothing to do"
        assert action["note"]["forced"] == "no_call"
        assert action["tool_calls"] == [
            {"id": "end-5", "type": "function", "function": {"name": "end_of_step", "arguments": "{}"}}
        ]


def test_the_hop_budget_ends_a_window_without_a_request() -> None:
    with at_desk([LOOK, LOOK, LOOK], max_hops=2) as desk:
        desk.act()
        desk.act(left=TURNS - 1)
        action = desk.act(left=TURNS - 2)
        assert (names(action), action["note"]["forced"]) == (["end_of_step"], "hop_budget")
        assert action["content"] == ""
        assert action["note"]["usage"]["attempts"] == 0
        assert len(desk.server.requests) == 2
        assert names(desk.act(window=1)) == ["query_balance"]


@pytest.mark.parametrize("policy", ["off", "window", "all"])
def test_reasoning_is_told_by_policy(policy: str) -> None:
    long = "é" * 20_000
    with at_desk([Reply(text="a", reasoning=long)], reasoning=policy) as desk:
        note = desk.act()["note"]
        if policy == "off":
            assert "reasoning" not in note
        else:
            assert note["reasoning"] == "é" * 12 * 1024
        assert len(json.dumps(note, ensure_ascii=False).encode()) < 60 * 1024


def test_reasoning_that_grows_when_written_is_cut_further() -> None:
    with at_desk([Reply(text="a", reasoning="\x00" * 24_000)], reasoning="all") as desk:
        note = desk.act()["note"]
        assert note["reasoning"]
        assert len(json.dumps(note, ensure_ascii=False).encode()) <= 61 * 1024


def test_an_empty_history_is_never_sent() -> None:
    with at_desk([LOOK, LOOK, LOOK], reference=True) as desk:
        desk.act(user("the shop today"))
        observation = {"messages": [SYSTEM], "tools": TOOLS}
        action = desk.policy.act(observation, {"window": 0, "turns_left": TURNS - 1})
        assert desk.messages() == [user("the shop today")]
        assert [event["kind"] for event in action["note"]["events"]] == ["reference_empty"]
        other = desk.new_policy()
        other.reset(desk.seat())
        other.load_state_dict(json.loads(json.dumps(action["note"]["state"])))
        other.act(observation, {"window": 0, "turns_left": TURNS - 2})
        assert desk.messages() == [user("the shop today")]
        other.close()


# --- usage ---


def test_usage_travels_with_the_next_action() -> None:
    script = [
        Reply(usage=(1000, 2000, 400), calls=[("query_balance", {})]),
        Reply(choices=0, usage=(500, 0, 0)),
        Reply(status=503),
        Reply(usage=(10, 1, 0), calls=[("query_balance", {})]),
    ]
    with at_desk(script, prices=PRICES) as desk:
        first = desk.act()["note"]
        assert first["usage"] == {
            "input": 600,
            "output": 2000,
            "cache_read": 400,
            "cache_write": 0,
            "reasoning": 0,
            "calls": 1,
            "attempts": 1,
            "missing": 0,
            "prompt_last": 1000,
        }
        assert first["cost_micro_usd"] == 4_640_000
        second = desk.act(left=TURNS - 1)["note"]
        assert second["usage"]["input"] == 510
        assert second["usage"]["prompt_last"] == 10
        assert (second["usage"]["calls"], second["usage"]["attempts"]) == (1, 3)
        assert second["cost_micro_usd"] == 512_000
        report = desk.policy.report()
        assert (report["calls"], report["attempts"], report["missing_usage"]) == (2, 4, 0)
        assert report["cost_micro_usd"] == 5_152_000
        assert report["tokens"]["output"] == 2001
        assert report["model"] == "some-model"


def test_missing_and_malformed_usage() -> None:
    script = [LOOK, Reply(calls=LOOK.calls, usage={"prompt_tokens": "9", "completion_tokens": 4})]
    with at_desk(script, prices=PRICES) as desk:
        note = desk.act()["note"]
        assert (note["usage"]["missing"], note["cost_micro_usd"]) == (1, None)
        note = desk.act()["note"]
        assert (note["usage"]["missing"], note["usage"]["output"], note["cost_micro_usd"]) == (0, 4, None)
        assert note["events"] == [{"kind": "bad_usage", "fields": ["prompt_tokens"]}]
        assert desk.policy.report()["cost_micro_usd"] is None


def test_without_prices_there_is_no_cost() -> None:
    with at_desk([Reply(usage=(1, 1, 0))]) as desk:
        assert desk.act()["note"]["cost_micro_usd"] is None
        assert desk.policy.report()["cost_micro_usd"] is None


def test_a_forced_end_carries_the_usage_of_what_failed() -> None:
    script = [Reply(choices=0, usage=(100, 5, 0))] * 3
    with at_desk(script, prices=PRICES) as desk:
        note = desk.act()["note"]
        assert note["forced"] == "provider:bad_response"
        assert (note["usage"]["input"], note["usage"]["output"], note["usage"]["prompt_last"]) == (300, 15, 0)


# --- failures ---


def rejected(status: int, code: str | None = None, **headers: str) -> Reply:
    return Reply(status=status, error={"code": code}, headers=headers)


@pytest.mark.parametrize(
    ("headers", "waited"),
    [
        ({"Retry-After": "3"}, 3),
        ({"Retry-After": "1"}, 2),
        ({"retry-after-ms": "4500"}, 4.5),
        ({"Retry-After": "Wed, 21 Oct 2015 07:28:07 GMT", "Date": "Wed, 21 Oct 2015 07:28:00 GMT"}, 7),
    ],
)
def test_waits_are_as_long_as_asked_for(headers: dict[str, str], waited: float) -> None:
    with at_desk([rejected(429, **headers), LOOK]) as desk:
        action = desk.act()
        assert desk.waits == [waited]
        assert names(action) == ["query_balance"]
        retry = events(action, "retry")[0]
        assert (retry["class"], retry["status"], retry["wait"]) == ("rate", 429, waited)
        assert retry["request_id"] == "req-0001"


def test_a_provider_that_wants_a_quarter_of_an_hour_is_not_waited_for() -> None:
    with at_desk([rejected(429, **{"Retry-After": "900"})]) as desk:
        assert desk.act()["note"]["forced"] == "provider:rate"
        assert desk.waits == []


def test_passing_failures_are_waited_for() -> None:
    with at_desk([rejected(503), rejected(503), LOOK]) as desk:
        assert names(desk.act()) == ["query_balance"]
        assert desk.waits == [2, 5]


def test_an_allocation_that_stays_used_up_ends_the_window() -> None:
    with at_desk([rejected(429, "Throttling.AllocationQuota")] * 9) as desk:
        action = desk.act(window=2)
        assert desk.waits == [30, 60, *[120] * 6]
        assert (action["content"], names(action)) == ("", ["end_of_step"])
        assert action["note"]["forced"] == "provider:quota"
        end = events(action, "forced_end")[0]
        assert (end["class"], end["attempts"], end["retries"]) == ("quota", 9, 8)
        assert end["code"] == "Throttling.AllocationQuota"


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (rejected(401), "auth"),
        (rejected(403), "auth"),
        (rejected(404), "model"),
        (rejected(429, "insufficient_quota"), "auth"),
    ],
)
def test_what_no_waiting_mends_stops_the_run(reply: Reply, code: str) -> None:
    with at_desk([reply]) as desk:
        with pytest.raises(PolicyStop) as caught:
            desk.act(user(), *exchange("{}"))
        assert caught.value.code == code
        assert desk.waits == []
        assert caught.value.__context__ is None
        assert desk.policy.report()["attempts"] == 1
        assert desk.policy.report()["redactions"] == 0


@pytest.mark.parametrize(
    ("reply", "kind"), [(rejected(400), "request"), (rejected(422), "request"), (rejected(418), "unknown")]
)
def test_what_no_retry_mends_ends_the_window(reply: Reply, kind: str) -> None:
    with at_desk([reply]) as desk:
        assert desk.act()["note"]["forced"] == f"provider:{kind}"
        assert desk.waits == []


@pytest.mark.parametrize(
    ("reply", "kind", "attempts"),
    [
        (Reply(choices=0), "bad_response", 3),
        (Reply(raw=b"<html>busy</html>", headers={"Content-Type": "text/html"}), "bad_response", 3),
        (Reply(raw=b'{"choices": ['), "bad_response", 3),
        (Reply(raw=b"null"), "bad_response", 3),
        (Reply(drop="before"), "transient", 9),
        (Reply(drop="headers"), "transient", 9),
        (Reply(drop="body"), "transient", 9),
    ],
)
def test_broken_answers(reply: Reply, kind: str, attempts: int) -> None:
    with at_desk([reply] * attempts) as desk:
        action = desk.act()
        assert action["note"]["forced"] == f"provider:{kind}"
        assert action["note"]["usage"]["attempts"] == len(desk.server.requests) == attempts
        assert action["note"]["usage"]["missing"] == (attempts if kind == "bad_response" else 0)


def test_too_long_twice_and_then_not() -> None:
    overflow = rejected(400, "context_length_exceeded")
    history = [
        message for i in range(8) for message in (user(f"obs {i} " + "x" * 4000), *exchange("y" * 2000))
    ]
    with at_desk([overflow, overflow, LOOK]) as desk:
        action = desk.act(*history, context_budget=10_000)
        budgets = [event["budget"] for event in events(action, "overflow")]
        assert budgets == [8000, 6400]
        assert desk.waits == []
        assert names(action) == ["query_balance"]
        sizes = [len(desk.messages(i)) for i in range(3)]
        assert sizes[0] > sizes[1] > sizes[2]
        assert desk.messages(2) == history[-len(desk.messages(2)) :]
    with at_desk([overflow] * 3) as desk:
        action = desk.act(*history)
        assert action["note"]["forced"] == "provider:overflow"
        assert len(events(action, "overflow")) == 2


def test_a_cut_to_more_than_there_is_would_change_nothing() -> None:
    history = [user("old" * 1000), *exchange("y" * 2000), user(), *exchange("{}")]
    with at_desk([rejected(413), LOOK]) as desk:
        desk.act(*history, context_budget=130_000)
        assert len(desk.messages(1)) < len(desk.messages(0))


def test_what_cannot_be_cut_enough_ends_the_window() -> None:
    with at_desk([rejected(413)]) as desk:
        action = desk.act(user("x" * 4000), context_budget=5)
        assert action["note"]["forced"] == "provider:overflow"
        assert events(action, "forced_end")[0]["error"] == "ContextBudgetError"


# --- withheld results ---


def withheld(message: Any) -> bool:
    return "withheld" in message["content"]


def test_a_refused_text_is_withheld_once_and_for_good() -> None:
    forbidden = rejected(400, "data_inspection_failed")
    history = [user(), *exchange("fine"), *exchange("bad", "worse", first=5)]
    with at_desk([forbidden, LOOK, LOOK]) as desk:
        action = desk.act(*history)
        assert desk.waits == []
        before, after = desk.messages(0), desk.messages(1)
        assert [withheld(message) for message in after] == [False, False, False, False, True, True]
        assert [{**m, "content": ""} for m in after] == [{**m, "content": ""} for m in before]
        event = events(action, "redacted")[0]
        assert [row["call_id"] for row in event["results"]] == ["id5", "id6"]
        assert len(event["results"][0]["sha256"]) == 64
        assert desk.policy.report()["redactions"] == 1

        other = desk.new_policy()
        other.reset(desk.seat())
        other.load_state_dict(json.loads(json.dumps(action["note"]["state"])))
        desk.policy.close()
        desk.policy = other
        desk.act(*history, *exchange("new", first=9), left=TURNS - 1)
        assert [withheld(message) for message in desk.messages()] == [*[False] * 4, True, True, False, False]


def test_a_second_refusal_ends_the_window_and_forgets_the_marks() -> None:
    forbidden = rejected(403, "DataInspectionFailed")
    with at_desk([LOOK, forbidden, forbidden, LOOK]) as desk:
        desk.act()
        history = [user(), *exchange("bad")]
        action = desk.act(*history, left=TURNS - 1)
        assert action["note"]["forced"] == "provider:forbidden"
        assert not events(action, "redacted")
        desk.act(*history, user(), window=1)
        assert not any(withheld(message) for message in desk.messages())
        assert desk.policy.report()["redactions"] == 0


def test_without_results_there_is_nothing_to_withhold() -> None:
    with at_desk([rejected(400, "content_filter")]) as desk:
        action = desk.act(user(), *exchange("fine"), {"role": "assistant", "content": "done"}, user())
        assert action["note"]["forced"] == "provider:forbidden"


def test_a_failure_after_withholding_is_waited_for() -> None:
    with at_desk([rejected(400, "content_filter"), rejected(503), LOOK]) as desk:
        action = desk.act(user(), *exchange("bad"))
        assert desk.waits == [2]
        assert len(events(action, "redacted")) == 1
        assert [withheld(desk.messages(i)[-1]) for i in range(3)] == [False, True, True]


# --- deadline, failed windows ---


class SlowFake(Fake):
    """Every request takes until its time-out."""

    def __init__(self, desk: Desk) -> None:
        super().__init__()
        self.desk = desk
        self.times: list[tuple[float, float]] = []

    def create(self, *, timeout: float, **request: Any) -> Any:
        self.times.append((self.desk.now, timeout))
        self.desk.now += timeout
        raise TimeoutError


def test_the_deadline_of_a_window() -> None:
    desk, _ = at_fake(window_deadline=300)
    slow = SlowFake(desk)
    desk.policy = desk.new_policy(slow)
    desk.policy.reset(desk.seat())
    action = desk.act()
    assert slow.times == [(0, 120), (122, 120), (247, 53)]
    assert desk.now == 300
    assert action["note"]["forced"] == "provider:transient"
    desk.act(window=1)
    assert slow.times[3] == (300, 120)


def test_a_window_whose_time_is_up_is_ended_without_a_request() -> None:
    desk, fake = at_fake(ANSWER, window_deadline=100)
    desk.act()
    desk.now = 95
    action = desk.act(left=TURNS - 1)
    assert action["note"]["forced"] == "provider:transient"
    assert events(action, "forced_end")[0]["error"] == "deadline"
    assert len(fake.requests) == 1


def test_windows_in_a_row_without_an_answer_stop_the_run() -> None:
    bad = rejected(422)
    with at_desk([bad, bad, LOOK, bad, bad, bad, bad, LOOK, END], max_failed_windows=3) as desk:
        for window in range(2):
            desk.act(window=window)
        desk.act(window=2)
        desk.act(window=2, left=TURNS - 1)
        for window in range(3, 6):
            action = desk.act(window=window)
        assert action["note"]["state"]["failed"] == 3
        for _ in range(2):
            with pytest.raises(PolicyStop) as caught:
                desk.act(window=6)
            assert caught.value.code == "provider_unavailable"
        assert len(desk.server.requests) == 7

        other = desk.new_policy()
        other.reset(desk.seat())
        other.load_state_dict(action["note"]["state"])
        desk.policy.close()
        desk.policy = other
        assert names(desk.act(window=6)) == ["query_balance"]
        assert names(desk.act(window=7)) == ["end_of_step"]


# --- state, secrets ---


def test_the_state_goes_on_as_if_nothing_had_happened() -> None:
    script = [
        Reply(calls=[("query_balance", {}, None)], usage=(10, 1, 0)),
        Reply(calls=[("query_balance", {}, None)], usage=(20, 2, 0)),
    ] * 2
    with at_desk(script, prices=PRICES) as desk:
        first = desk.act()
        straight = desk.act(left=TURNS - 1)
        report = desk.policy.report()
        desk.policy.reset(desk.seat())
        desk.act()
        desk.policy.reset(desk.seat())
        desk.policy.load_state_dict(json.loads(json.dumps(first["note"]["state"])))
        assert desk.act(left=TURNS - 1) == straight
        assert desk.policy.report() == report


def test_a_reset_forgets() -> None:
    with at_desk([LOOK, LOOK]) as desk:
        first = desk.act()
        desk.policy.reset(desk.seat())
        assert desk.policy.report()["calls"] == 0
        second = desk.act()
        assert first["note"]["state"] == second["note"]["state"]


def test_secrets_stay_out_of_everything(caplog: pytest.LogCaptureFixture) -> None:
    planted = {"code": f"x-{KEY}", "type": "Bearer abcdefghijkl", "message": f"{KEY} sk-abcdefghijkl"}
    script = [
        Reply(status=503, error=planted, headers={"x-request-id": f"r-{KEY}", "X-Echo": KEY}),
        Reply(text=f"the key is {KEY}", calls=[("query_balance", {"key": KEY})]),
        Reply(status=401, error=planted),
    ]
    with (
        at_desk(script, extra_headers={"Authorization": f"Bearer {KEY}"}) as desk,
        caplog.at_level(logging.INFO),
    ):
        action = desk.act()
        with pytest.raises(PolicyStop) as caught:
            desk.act()
        shown = [json.dumps(action), str(caught.value), repr(caught.value), json.dumps(desk.policy.report())]
        shown += [repr(desk.policy.config), json.dumps(desk.policy.config.describe()), caplog.text]
        for text in shown:
            assert KEY not in text
            assert "abcdefghijkl" not in text
    assert action["content"] == "the key is masked"


def test_events_beyond_measure_are_counted() -> None:
    many = [{"kind": "retry", "n": i, "text": "x" * 900} for i in range(40)]
    kept = bounded_events(many)
    assert kept[-1] == {"kind": "more_events", "count": 40 - (len(kept) - 1)}
    assert len(json.dumps(kept)) <= 16 * 1024
    assert bounded_events(many[:3]) == many[:3]


def test_nothing_is_loaded_before_it_is_needed() -> None:
    policy = ReActPolicy(model="m", api_key=KEY)
    assert policy.report()["calls"] == 0
    assert policy.observes == "chat"
    policy.close()
