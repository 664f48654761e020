"""The conversation as a fold: one test per rule, on turns made by hand."""

from __future__ import annotations

import copy
import json
from types import SimpleNamespace
from typing import Any

import pytest

from merchantbench_gym.wrappers.transcript import MARKER, MAX_REASONING, QUOTA_LINE, Transcript
from tests.wrappers.chat_kit import BALANCE, END, call, ends, info, says, seen

CLOSED = {"window_closed_by": "end_of_step"}
QUOTA = {"window_closed_by": "quota"}
FAULT = json.dumps({"ok": False, "error": {"code": "malformed_action", "message": "cannot be read"}})


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def said(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **more}


def tool(call_id: str, name: str, content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "name": name, "content": content}


def begun(**arguments: Any) -> Transcript:
    transcript = Transcript(**arguments)
    transcript.begin("brief", seen("w0"), info())
    return transcript


def after(transcript: Transcript, action: Any, observation: Any, told: Any) -> list[dict[str, Any]]:
    """What a turn adds."""
    before = len(transcript.messages)
    transcript.add(transcript.sent(action), observation, told)
    assert transcript.messages[-1]["role"] != "assistant"
    return transcript.messages[before:]


def test_reset() -> None:
    transcript = begun()
    assert transcript.system == {"role": "system", "content": "brief"}
    assert transcript.messages == [user("w0")]
    after(transcript, [BALANCE], seen("w0", ("look", "query_balance", "{}")), info(turns_left=29))
    transcript.begin("other brief", seen("w0 again"), info())
    assert transcript.system["content"] == "other brief" and transcript.messages == [user("w0 again")]
    assert transcript.sent([])["turn_id"] == "w0-1"


def test_a_turn_with_calls() -> None:
    action = says("look", call("query_balance", "a"), call("search_products", "", query="x"))
    results = [("a", "query_balance", "1"), ("auto_1", "search_products", "2")]
    added = after(begun(), action, seen("w0", *results), info(turns_left=29))
    calls = [
        {"id": "a", "type": "function", "function": {"name": "query_balance", "arguments": "{}"}},
        {
            "id": "auto_1",
            "type": "function",
            "function": {"name": "search_products", "arguments": '{"query": "x"}'},
        },
    ]
    assert added == [said("look", tool_calls=calls), *(tool(*result) for result in results)]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ('{"a":  1}', '{"a":  1}'),
        ('{"a": ', '{"a": '),
        ({"b": 2, "a": "é"}, '{"b":2,"a":"é"}'),
        (None, "{}"),
        (7, "7"),
        ([1], "[1]"),
    ],
)
def test_arguments_stay_the_text_that_was_given(given: Any, text: str) -> None:
    for form in (
        [{"id": "a", "name": "x", "arguments": given}],
        says("", {"id": "a", "type": "function", "function": {"name": "x", "arguments": given}}),
        SimpleNamespace(
            content=None,
            tool_calls=[
                SimpleNamespace(id="a", type="function", function=SimpleNamespace(name="x", arguments=given))
            ],
        ),
    ):
        added = after(begun(), form, seen("w0", ("a", "x", "{}")), info(turns_left=29))
        assert added[0]["tool_calls"][0]["function"]["arguments"] == text
        assert added[0]["content"] == ""


def test_a_final_end_among_other_calls_is_kept() -> None:
    results = [("look", "query_balance", "1"), ("end", "end_of_step", "2")]
    added = after(begun(), [BALANCE, END], seen("w1", *results), info(1, **CLOSED))
    assert [message["role"] for message in added] == ["assistant", "tool", "tool", "user"]
    assert added[-1] == user("w1")


@pytest.mark.parametrize(("text", "forced"), [("bye", ""), ("bye", "no_call"), ("", "")])
def test_a_pure_end(text: str, forced: str) -> None:
    action = ends(text, note={"forced": forced})
    result = ("e", "end_of_step", "{}")
    added = after(begun(), action, seen("w1", result), info(1, **CLOSED))
    assert added == [*([said(text)] if text else []), user("w1")]
    kept = after(begun(keep_end_calls=True), action, seen("w1", result), info(1, **CLOSED))
    assert kept[0]["tool_calls"][0]["id"] == "e" and kept[1:] == [tool(*result), user("w1")]


def test_an_end_that_failed_is_no_end() -> None:
    result = ("e", "end_of_step", FAULT)
    added = after(begun(), ends("bye"), seen("w0", result), info(turns_left=29))
    assert added[0]["content"] == "bye" and added[1:] == [tool(*result)]


@pytest.mark.parametrize(("forced", "cause"), [("hop_budget", "hop_budget"), ("provider:rate", "rate")])
def test_a_forced_end(forced: str, cause: str) -> None:
    action = ends("never said", note={"forced": forced})
    added = after(begun(), action, seen("w1", ("e", "end_of_step", "{}")), info(1, **CLOSED))
    line = f"[harness] The last window ended without a decision ({cause})."
    assert added == [user(line), user("w1")]
    bare = after(
        begun(harness=False, turn_notice=0), action, seen("w1", ("e", "end_of_step", "{}")), info(1, **CLOSED)
    )
    assert bare == [*([said(MARKER)] if forced == "hop_budget" else []), user("w1")]


def test_a_turn_without_calls() -> None:
    transcript = begun()
    line = "[turns] No tool was called. 29 turns left in this window."
    assert after(transcript, says("hm"), seen("w0"), info(turns_left=29)) == [said("hm"), user(line)]
    line = "[turns] No tool was called. 1 turn left in this window."
    assert after(transcript, None, seen("w0"), info(turns_left=1)) == [user(line)]
    added = after(transcript, says("hm"), seen("w1"), info(1, **QUOTA))
    assert added == [said("hm"), user("[turns] No tool was called."), user(f"{QUOTA_LINE}\n\nw1")]


@pytest.mark.parametrize(("notice", "left", "told"), [(3, 3, True), (3, 4, False), (0, 1, False)])
def test_few_turns_left(notice: int, left: int, told: bool) -> None:
    transcript = begun(turn_notice=notice)
    added = after(transcript, [BALANCE], seen("w0", ("look", "query_balance", "1")), info(turns_left=left))
    assert added[2:] == ([user(f"[turns] {left} turns left in this window.")] if told else [])
    last = after(transcript, [BALANCE], seen("w1", ("look", "query_balance", "1")), info(1, 2, **QUOTA))
    assert last[2:] == [user(f"{QUOTA_LINE}\n\nw1")]


def test_an_action_that_cannot_be_read() -> None:
    transcript = begun()
    assert transcript.sent("zap") == "zap"
    added = after(transcript, "zap", seen("w0", ("", "", FAULT)), info(turns_left=2))
    line = "[harness] malformed_action: cannot be read"
    assert added == [said("zap"), user(line), user("[turns] 2 turns left in this window.")]
    assert transcript.sent([])["turn_id"] == "w0-2"


def test_the_end() -> None:
    transcript = begun()
    told = info(0, 0, end_reason="horizon", **CLOSED)
    assert after(transcript, ends("bye"), seen("all over", ("e", "end_of_step", "{}")), told) == [
        said("bye"),
        user("all over"),
    ]
    assert transcript.ended and transcript.sent([END]) == [END]
    assert transcript.sent(ends(turn_id="w0-1")) == ends(turn_id="w0-1")


def test_turns_are_named() -> None:
    transcript = begun()
    note = {"state": {}}
    sent = transcript.sent(says("a", note=note))
    assert sent == says("a", note=note, turn_id="w0-1", window=0)
    assert transcript.sent(says("a")) == says("a", turn_id="w0-1", window=0)  # nothing has happened yet
    transcript.add(sent, seen("w0"), info(turns_left=29))
    assert transcript.sent([BALANCE])["turn_id"] == "w0-2"
    transcript.add(transcript.sent([END]), seen("w1"), info(1, **CLOSED))
    assert transcript.sent([]) == says("", turn_id="w1-1", window=1)
    assert transcript.sent(says("", turn_id="mine", window=4)) == says("", turn_id="mine", window=4)
    # What a model writes names nothing.
    assert transcript.sent('{"role": "assistant", "turn_id": "w0-1", "note": 1}')["turn_id"] == "w1-1"


def test_a_repeated_turn_adds_nothing() -> None:
    transcript = begun()
    first = transcript.sent([BALANCE])
    transcript.add(first, seen("w0", ("look", "query_balance", "1")), info(turns_left=29))
    transcript.add(transcript.sent([END]), seen("w1"), info(1, **CLOSED))
    before = transcript.to_json()
    assert transcript.sent(first) is not first and transcript.sent(first) == first
    transcript.add(transcript.sent(first), seen("w1", ("look", "query_balance", "1")), info(1))
    assert transcript.to_json() == before and transcript.added == []


def test_reasoning() -> None:
    action = says("so", call("query_balance", "look"), reasoning_content="é" * MAX_REASONING)
    kept = "é" * (MAX_REASONING // 2)
    seen_then = seen("w0", ("look", "query_balance", "1")), info(turns_left=29)
    transcripts = {mode: begun(reasoning=mode) for mode in ("off", "window", "all")}
    for mode, transcript in transcripts.items():
        message = after(transcript, action, *seen_then)[0]
        assert message.get("reasoning_content") == (None if mode == "off" else kept)
        after(transcript, [END], seen("w1"), info(1, **CLOSED))
        assert ("reasoning_content" in transcript.messages[1]) == (mode == "all")
    for source in ({"reasoning": {"a": "b"}}, {"note": {"reasoning": '{"a": "b"}'}}):
        message = after(
            begun(reasoning="all"), says("so", call("query_balance", "look"), **source), *seen_then
        )
        assert message[0]["reasoning_content"] == '{"a": "b"}'


def test_rows_for_the_record() -> None:
    transcript = begun()
    kinds = [[(row["sequence"], row["window"], row["turn"], row["kind"]) for row in transcript.added]]
    turns = [
        ([BALANCE], seen("w0", ("look", "query_balance", "1")), info(turns_left=2)),
        ([END], seen("w1"), info(1, **CLOSED)),
        ("zap", seen("w1", ("", "", FAULT)), info(1, 29)),
        (None, seen("end"), info(1, 0, end_reason="shop_closed", **QUOTA)),
    ]
    for turn in turns:
        after(transcript, *turn)
        kinds.append([(row["sequence"], row["window"], row["turn"], row["kind"]) for row in transcript.added])
    assert kinds == [
        [(0, 0, 0, "system"), (1, 0, 0, "observation")],
        [(2, 0, 1, "assistant"), (3, 0, 1, "tool"), (4, 0, 1, "turns")],
        [(5, 1, 0, "observation")],
        [(6, 1, 1, "assistant"), (7, 1, 1, "harness")],
        [(8, 1, 2, "turns"), (9, 1, 0, "final")],
    ]


def test_state_goes_along() -> None:
    transcript = begun(turn_notice=30)
    after(transcript, [BALANCE], seen("w0", ("look", "query_balance", "1")), info(turns_left=29))
    state = json.loads(json.dumps(transcript.to_json()))
    twin = Transcript(turn_notice=30)
    twin.load(state)
    other = copy.deepcopy(transcript)
    for one in (transcript, twin, other):
        after(one, says("hm"), seen("w1"), info(1, **QUOTA))
    assert transcript.to_json() == twin.to_json() == other.to_json() != state
    with pytest.raises(KeyError):
        twin.load({"messages": []})
    assert twin.to_json() == transcript.to_json()


@pytest.mark.parametrize("arguments", [{"turn_notice": -1}, {"turn_notice": True}, {"reasoning": "some"}])
def test_wrong_arguments(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(arguments))):
        Transcript(**arguments)
