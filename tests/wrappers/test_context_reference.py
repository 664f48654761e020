"""The context handling of the published reference agent."""

from __future__ import annotations

from typing import Any

import pytest

from merchantbench_gym.wrappers.trimming import trim_reference
from tests.wrappers.chat_kit import ends
from tests.wrappers.context_kit import Talk
from tests.wrappers.history_kit import total, user
from tests.wrappers.test_context import recover

NOTICE = "[context-maintenance] This conversation has reached its limit of 2000 tokens. "


def rough(**settings: Any) -> Talk:
    return Talk(mode="reference", **settings)


def announced(**settings: Any) -> Talk:
    """A talk that has become too large."""
    talk = rough(**settings)
    while not talk.manager.note()["pending"]:
        talk.search(1_000)
    return talk


def test_messages_alone_count_as_long_as_nothing_is_reported() -> None:
    talk = rough(brief="b" * 20_000)
    while total(talk.transcript.messages) < 1_700:
        assert not talk.reminders
        talk.search(1_000)
    talk.search(1_000)
    assert total(talk.transcript.messages[:-1]) >= 2_000
    assert talk.transcript.messages[-1] == talk.request[-1]
    assert talk.request[-1]["content"].startswith(NOTICE)
    assert "write_memory_doc" in talk.request[-1]["content"]


@pytest.mark.parametrize(("counted", "pending"), [(1_999, False), (2_000, True)])
def test_the_size_that_was_reported_counts(counted: int, pending: bool) -> None:
    talk = rough()
    talk.search(12_000, note={"usage": {"prompt_last": counted}})
    assert talk.manager.note()["pending"] is pending


def test_a_report_is_of_the_last_response() -> None:
    talk = rough()
    talk.search(10, note={"usage": {"prompt_last": 1_000}})
    talk.search(12_000, note={"usage": {}})
    assert talk.manager.note()["pending"]


def test_it_can_be_switched_off() -> None:
    for trigger in (0, -1):
        talk = rough(trigger=trigger)
        talk.search(12_000, note={"usage": {"prompt_last": 10**6}})
        assert not talk.manager.note()["pending"]


@pytest.mark.parametrize("kind", ["saved", "failed", "nothing", "forced"])
def test_any_turn_cuts_an_announced_conversation(kind: str) -> None:
    talk = announced()
    before = talk.transcript.messages
    if kind == "saved":
        talk.save("sup_7")
    elif kind == "failed":
        talk.save("sup_7", error="too_large")
    elif kind == "nothing":
        talk.search(10)
    else:
        talk.forced_end()
    assert talk.noted["pending"] and talk.noted["state"] == "armed"
    after = talk.transcript.messages
    assert len(after) < len(before) and total(after) <= 500
    assert before[-1] in after  # the notice is part of the history
    assert after[0]["role"] != "tool"
    assert not talk.texts("[context]")
    note = talk.manager.note()
    assert {
        key: note[key] for key in ("pending", "state", "done", "outcome", "reminders", "compactions")
    } == {
        "pending": False,
        "state": "idle",
        "done": True,
        "outcome": "",
        "reminders": 0,
        "compactions": 1,
    }
    talk.search(10)
    assert not talk.manager.note()["done"]


def test_the_large_report_of_the_announced_request_is_forgotten() -> None:
    talk = announced()
    talk.search(10, note={"usage": {"prompt_last": 5_000}})
    assert not talk.manager.note()["pending"]
    talk.forced_end()
    assert not talk.manager.note()["pending"]


def test_without_the_tool_it_is_cut_at_once() -> None:
    talk = announced(can_save=False)
    *kept, notice = talk.transcript.messages
    assert total(kept) <= 500
    assert notice["content"].startswith(NOTICE)
    assert not any(word in notice["content"].lower() for word in ("note", "memory", "tool", "save"))
    assert talk.manager.note()["done"]
    talk.search(4_000)
    assert talk.manager.note()["compactions"] == 2
    assert not talk.manager.note()["pending"]


def test_a_refused_turn_leaves_the_announcement() -> None:
    talk = announced()
    talk.end()
    talk.search(2_000, note={"usage": {"prompt_last": 2_000}}, moves=True)
    assert talk.manager.note()["pending"]
    mark = talk.transcript.to_json()
    recover(talk, mark)
    assert talk.manager.note()["pending"]
    assert talk.transcript.messages[:-2] == mark["messages"]
    recover(talk, mark, {**ends(), "note": {"forced": "provider:transient"}})
    assert not talk.manager.note()["pending"]
    assert talk.transcript.messages[:-2] == mark["messages"]


def test_the_copy_that_is_sent_is_cut_too() -> None:
    talk = rough(history_limit=900, trigger=100_000)
    for _ in range(6):
        talk.search(1_000)
    messages = talk.transcript.messages
    assert len(messages) == 13
    assert talk.request[1:] == trim_reference(messages, 900)
    assert total(talk.request[1:]) <= 900
    note = talk.manager.note()
    assert (note["messages_dropped"], note["budget"], note["ratio"]) == (14 - len(talk.request), 900, 1.0)


def test_an_empty_list_is_never_sent() -> None:
    talk = rough(history_limit=900, trigger=100_000)
    talk.search(8_000)
    assert trim_reference(talk.transcript.messages, 900) == []
    assert talk.request == [talk.transcript.system, user("window 0")]
    signed = talk.manager.signed({**ends(), "note": {"events": [{"kind": "other"}]}})
    assert signed["note"]["events"] == [{"kind": "other"}, {"kind": "reference_empty"}]
    talk.end()
    assert talk.request[-1] == user("window 1")
    assert "events" not in talk.manager.signed(ends())["note"]


def test_an_observation_that_the_history_lost_can_be_sent() -> None:
    talk = announced(keep=300)
    talk.search(8_000)
    assert talk.transcript.messages == []
    assert talk.request == [talk.transcript.system, user("window 0")]
    talk.search(10)
    assert talk.request[-1]["role"] == "tool"


def test_nothing_is_calibrated_and_nothing_shown() -> None:
    talk = rough(reinject="each_window")
    talk.search(10, note={"usage": {"prompt_last": 1_900}, "events": [{"kind": "overflow"}]})
    talk.saved = (1, "sup_7")
    talk.end()
    assert talk.manager.note()["ratio"] == 1.0
    assert talk.request == [talk.transcript.system, *talk.transcript.messages]
