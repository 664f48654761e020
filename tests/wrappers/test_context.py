"""Which messages a request holds, turn by turn."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merchantbench_gym.wrappers.context import ContextManager, Sizes
from merchantbench_gym.wrappers.tokens import estimate, estimate_message
from merchantbench_gym.wrappers.trimming import ContextBudgetError
from tests.wrappers.chat_kit import call, ends, says
from tests.wrappers.context_kit import BRIEF, Talk
from tests.wrappers.history_kit import Message, assert_paired, contents, total, user

FIELDS = {
    "prompt_tokens": 0,
    "prompt_estimate": 0,
    "budget": 0,
    "ratio": 1.0,
    "state": "idle",
    "pending": False,
    "done": False,
    "outcome": "",
    "reminders": 0,
    "notes_saved_version": 0,
    "messages_dropped": 0,
    "results_shortened": 0,
    "compactions": 0,
}


def full(**settings: Any) -> Talk:
    """A talk that has become too large."""
    talk = Talk(**settings)
    grow(talk)
    return talk


def grow(talk: Talk) -> None:
    while talk.state == "idle":
        talk.search(1_000)


def fields(talk: Talk, *names: str) -> tuple[Any, ...]:
    """Fields of the note that the next action would carry."""
    note = talk.manager.note()
    assert set(note) == set(FIELDS)
    assert note["pending"] == (note["state"] in ("armed", "saving"))
    assert (
        note["prompt_estimate"] == -(-note["ratio"] * talk.size // 1) == talk.manager.info()["context_tokens"]
    )
    assert {**talk.manager.info()} == {
        "context_tokens": note["prompt_estimate"],
        "context_budget": note["budget"],
        "compaction_state": note["state"],
        "compactions": note["compactions"],
    }
    return tuple(note[name] for name in names)


PROGRESS = ("state", "done", "outcome", "reminders", "notes_saved_version", "compactions")


def test_a_small_conversation_is_sent_as_it_is() -> None:
    talk = Talk()
    assert talk.request == [{"role": "system", "content": BRIEF}, user("window 0")]
    assert fields(talk, *PROGRESS) == ("idle", False, "", 0, 0, 0)
    talk.search(1_000)
    talk.end("enough")
    assert talk.request == [talk.transcript.system, *talk.transcript.messages]
    assert fields(talk, *PROGRESS) == ("idle", False, "", 0, 0, 0)


def test_it_is_announced_at_the_threshold() -> None:
    talk = Talk()
    talk.search(3_000)
    twin = copy.deepcopy(talk)
    twin.search(0)
    more = 4 * (2_000 - twin.size)
    twin = copy.deepcopy(talk)
    twin.search(more - 4)
    assert twin.size == 1_999
    assert twin.state == "idle" and not twin.reminders
    talk.search(more)
    assert talk.state == "armed"
    (text,) = talk.reminders
    assert talk.request[-1]["content"] == text
    assert talk.size - estimate_message(user(text)) == 2_000
    assert "has 2000 tokens" in text and "limit of 2000" in text and "about 500 tokens" in text
    assert "write_memory_doc" in text and "[no-notes]" in text and "Attempt 1 of 3." in text
    assert user(text) not in talk.transcript.messages
    assert fields(talk, *PROGRESS) == ("armed", False, "", 0, 0, 0)


def test_saved_notes_are_shown_once() -> None:
    talk = full()
    before = len(talk.transcript.messages)
    talk.save("sup_7 ships late")
    assert talk.noted["state"] == "armed" and not talk.noted["done"]
    assert fields(talk, *PROGRESS) == ("trimmed", True, "confirmed", 1, 1, 1)
    assert not talk.reminders
    assert talk.count("sup_7 ships late") == 1
    removed = before + 2 - len(talk.transcript.messages)
    assert talk.context.startswith(
        f"[context] {removed} older messages of this conversation, D1H00 to D1H00, were"
    )
    assert "Your notes (version 1, 16 bytes):\nsup_7 ships late" in talk.context
    assert "Summary" not in talk.context
    assert talk.request[1] == user(talk.context)
    kept = [user(talk.context), *talk.transcript.messages]
    assert 400 < total(kept) <= 500
    saving = talk.transcript.messages[-2]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(saving) == {"_cut_characters": len(json.dumps({"content": "sup_7 ships late"}))}
    talk.search(10)
    assert talk.noted["done"] and talk.noted["outcome"] == "confirmed"
    assert fields(talk, *PROGRESS) == ("idle", False, "", 0, 0, 1)
    assert talk.count("sup_7 ships late") == 1


def test_a_save_may_end_the_window() -> None:
    talk = full()
    talk.save("sup_7", also_ends=True)
    assert fields(talk, *PROGRESS) == ("trimmed", True, "confirmed", 1, 1, 1)
    assert talk.request[-1] == user("window 1")
    assert talk.count("sup_7") == 1


def test_reminders_name_what_went_wrong() -> None:
    talk = full()
    talk.save("long", error="too_large")
    assert fields(talk, *PROGRESS) == ("saving", False, "", 1, 0, 0)
    assert "Attempt 2 of 3. The last attempt failed: too_large: nothing was written." in talk.reminders[0]
    talk.save("late", error="version_conflict")
    assert fields(talk, *PROGRESS) == ("saving", False, "", 2, 0, 0)
    assert "Attempt 3 of 3. The last attempt failed: version_conflict" in talk.reminders[0]
    talk.save("good")
    assert fields(talk, *PROGRESS) == ("trimmed", True, "confirmed", 3, 1, 1)


def test_what_saves_nothing_is_counted_until_the_announcement_expires() -> None:
    talk = full()
    talk.save("")
    assert "The last attempt failed: the document is empty." in talk.reminders[0]
    talk.end("thinking")
    assert fields(talk, *PROGRESS) == ("saving", False, "", 2, 0, 0)
    assert "failed" not in talk.reminders[0]
    talk.search(10)
    assert fields(talk, *PROGRESS) == ("trimmed", True, "expired", 3, 0, 1)
    assert "No notes were saved" in talk.context
    assert "Your notes are empty." in talk.context
    assert "search_products 6" in talk.context
    assert "net assets 3000.00 at D1H00" in talk.context


def test_notes_can_be_declined() -> None:
    talk = full()
    talk.turn(says("Well.\n[no-notes] all in my head", call("search_products")), "[]")
    assert fields(talk, *PROGRESS) == ("trimmed", True, "declined", 1, 0, 1)
    assert "You declined" in talk.context and "search_products" in talk.context


def test_only_the_start_of_a_line_declines() -> None:
    talk = full()
    talk.end("I will not say [no-notes] here")
    assert talk.state == "saving"
    talk.end("[no-notes]")
    assert fields(talk, "outcome", "reminders") == ("declined", 2)


def test_a_save_beats_declining() -> None:
    talk = full()
    talk.saved = (1, "mine")
    save = call("write_memory_doc", "w", content="mine")
    talk.turn(says("[no-notes]", save), {"ok": True, "version": 1, "bytes": 4})
    assert fields(talk, "outcome", "notes_saved_version") == ("confirmed", 1)


def test_without_the_tool_it_is_cut_at_once() -> None:
    talk = full(can_save=False)
    assert fields(talk, *PROGRESS) == ("trimmed", True, "no_tool", 0, 0, 1)
    assert not talk.reminders
    for text in talk.texts("["):
        assert not any(word in text.lower() for word in ("note", "memory", "tool", "save"))
    assert "search_products" in talk.context
    assert talk.size < 1_000


def test_forced_ends_are_not_counted() -> None:
    talk = full()
    for _ in range(5):
        talk.forced_end()
        assert fields(talk, *PROGRESS) == ("armed", False, "", 0, 0, 0)
        assert len(talk.reminders) == 1 and "Attempt 1 of 3" in talk.request[-1]["content"]
    talk.end(note={"forced": "no_call"})
    assert fields(talk, "state", "reminders") == ("saving", 1)


def test_a_forced_end_keeps_a_cut_conversation_as_it_is() -> None:
    talk = full()
    talk.save("sup_7")
    talk.forced_end()
    assert fields(talk, *PROGRESS) == ("trimmed", False, "", 1, 1, 1)
    talk.end()
    assert fields(talk, *PROGRESS) == ("idle", False, "", 0, 0, 1)


def test_no_second_cut_before_the_size_was_below() -> None:
    talk = Talk(brief="b" * 7_000)
    while talk.state == "idle":
        talk.search(400)
    talk.save("sup_7")
    talk.search(2_000)
    assert talk.state == "idle" and talk.size >= 2_000
    talk.search(1_000)
    assert fields(talk, "state", "compactions") == ("idle", 1)
    talk.transcript.system = {"role": "system", "content": "b"}
    talk.search(10)
    assert talk.state == "idle" and talk.size < 2_000
    talk.transcript.system = {"role": "system", "content": "b" * 7_000}
    talk.search(10)
    assert talk.state == "armed"


def test_a_second_cut_replaces_the_message_about_the_first() -> None:
    talk = full()
    talk.save("first")
    context = talk.context
    talk.search(10)
    assert talk.context == context
    talk.end()
    grow(talk)
    assert talk.context == context
    talk.end("[no-notes]")
    assert fields(talk, "outcome", "compactions") == ("declined", 2)
    assert talk.context != context
    assert "Your notes (version 1, 5 bytes):\nfirst" in talk.context
    assert "D1H12" in talk.context


def test_only_a_new_cut_shows_newer_notes() -> None:
    talk = full()
    talk.save("first")
    talk.save("second")
    assert "first" in talk.context and "second" not in talk.context


def test_long_notes_go_on_where_they_are_cut() -> None:
    talk = full()
    text = "".join(f"{i:04d}" for i in range(300))
    talk.save(text)
    assert text[:400] in talk.context
    assert "[the notes go on: call read_memory_doc with offset=4" in talk.context
    offset = int(talk.context.rpartition("offset=")[2].rstrip("]"))
    assert f"\n{text[:offset]}\n" in talk.context
    assert estimate(text[:offset]) == 100 < estimate(text[: offset + 1])


def test_notes_are_never_shown_if_not_wanted() -> None:
    talk = full(reinject="never")
    talk.save("sup_7 ships late")
    assert talk.count("sup_7 ships late") == 1
    assert "sup_7" not in talk.context and "version" not in talk.context
    assert "read_memory_doc returns your notes" in talk.context


def test_notes_at_the_start_of_every_window() -> None:
    talk = Talk(reinject="each_window")
    assert talk.context == "[context] Your notes are empty."
    talk.save("sup_7")
    assert not talk.texts("[context]")
    talk.end()
    assert talk.context == "[context] Your notes (version 1, 5 bytes):\nsup_7"
    assert talk.request[-1] == user(talk.context)
    assert user(talk.context) not in talk.transcript.messages
    talk.search(10)
    assert not talk.texts("[context]")


def test_notes_are_not_shown_twice_at_the_start_of_a_window() -> None:
    talk = full(reinject="each_window")
    talk.save("sup_7", also_ends=True)
    assert len(talk.texts("[context]")) == 1 and talk.count("sup_7") == 1
    talk.end()
    assert len(talk.texts("[context]")) == 1
    talk.saved = (2, "sup_9")
    talk.end()
    assert len(talk.texts("[context]")) == 2 and "sup_9" in talk.request[-1]["content"]


def test_successful_changes_of_the_shelf_are_in_the_digest() -> None:
    talk = Talk(trigger=4_000)
    for i in range(25):
        act = call("list_product", f"l{i}", items=[{"product_id": f"P{i:05d}", "sale_price": 9}])
        talk.turn(says("", act), {"ok": i != 24, "applied": 1})
        if i == 12:
            talk.end()
    talk.search(2_000)
    talk.search(2_000)
    grow(talk)
    talk.end("[no-notes]")
    lines = [line for line in talk.context.splitlines() if " list_product {" in line]
    assert len(lines) == 20
    assert lines[-1].startswith("D1H12 list_product") and "P00023" in lines[-1]
    assert "P00004" in lines[0] and lines[0].startswith("D1H00")
    assert "P00024" not in talk.context
    assert "list_product 25" in talk.context


def test_a_digest_is_short() -> None:
    talk = Talk(trigger=40_000, keep=2_000)
    for i in range(30):
        talk.turn(says("", call("list_product", f"l{i}", items="价" * 400)), {"ok": True})
    while talk.state == "idle":
        talk.search(30_000)
    talk.end("[no-notes]")
    assert 700 < estimate(talk.context) < 1_600


# --- budget ---


def test_every_request_is_within_the_budget() -> None:
    talk = Talk(trigger=160_000, history_limit=5_000, mode="off")
    for _ in range(30):
        talk.search(4_000)
        note = talk.manager.note()
        assert total(talk.request[1:]) <= note["budget"] == 5_000
        assert note["messages_dropped"] == len(talk.transcript.messages) + 1 - len(talk.request)
        assert_paired(talk.request)
    assert fields(talk, "state", "compactions") == ("idle", 0)


def test_nothing_is_lost_where_nothing_may_be() -> None:
    talk = Talk(trigger=160_000, history_limit=5_000, mode="off", hard=False)
    for _ in range(30):
        talk.search(4_000)
    assert talk.request == [talk.transcript.system, *talk.transcript.messages]
    assert fields(talk, "messages_dropped", "results_shortened") == (0, 0)


def test_a_huge_result_is_shortened_in_the_request_only() -> None:
    talk = Talk(trigger=160_000, keep=30_000, history_limit=20_000)
    talk.search(400_000)
    assert talk.transcript.messages[-1]["content"] == "r" * 400_000
    result = talk.request[-2 if talk.reminders else -1]
    assert "characters removed; repeat search_products" in result["content"]
    assert total(talk.request[1:]) == 20_000
    assert fields(talk, "messages_dropped", "results_shortened") == (0, 1)
    assert user("window 0") in talk.request


def test_a_huge_note_is_shortened_in_the_request_only() -> None:
    talk = Talk(trigger=160_000, keep=30_000, history_limit=20_000)
    text = "n" * 200 * 1024
    talk.save(text)
    assert contents(talk.transcript.messages).count(text) == 1
    assert total(talk.request[1:]) <= 20_000
    assert "_cut_characters" in talk.request[-2]["tool_calls"][0]["function"]["arguments"]
    assert_paired(talk.request)
    assert user("window 0") in talk.request


def test_there_must_be_room_for_the_first_request() -> None:
    with pytest.raises(ContextBudgetError, match="the budget is"):
        Talk(context_window=8_000, output_reserve=1_000, trigger=2_000, brief="b" * 40_000)
    Talk(context_window=8_000, output_reserve=1_000, trigger=2_000, brief="b" * 40_000, hard=False)


def test_a_budget_too_small_for_a_turn_does_not_stop_the_run() -> None:
    talk = Talk(history_limit=150)
    talk.turn(says("", *[call("search_products", f"c{i}") for i in range(40)]), *["r" * 400] * 40)
    assert talk.manager.note()["prompt_estimate"] > 150
    assert_paired(talk.request)
    talk.end("[no-notes]")
    talk.search(10)
    assert total(talk.request[1:]) <= 150


def test_the_ratio_follows_what_the_provider_counts() -> None:
    talk = Talk(trigger=160_000, mode="off")
    sizes = []
    for counted in (1.10, 1.24, 0.95):
        sizes.append(talk.size)
        talk.search(4_000, note={"usage": {"prompt_last": round(counted * talk.size)}})
        assert talk.noted["prompt_tokens"] == round(counted * sizes[-1])
    assert fields(talk, "ratio") == (round(1.24 * sizes[1]) / sizes[1],)
    fixed = estimate(talk.tools) + estimate_message(talk.transcript.system)
    assert talk.manager.note()["budget"] == min(160_000, int(174_435 / talk.manager.note()["ratio"]) - fixed)


def test_an_overflow_raises_the_ratio() -> None:
    talk = Talk()
    talk.search(10, note={"events": [{"kind": "overflow"}, {"kind": "other"}, "odd"]})
    assert fields(talk, "ratio") == (1.15,)
    talk.search(10, note={"usage": {"prompt_last": "many"}})
    talk.search(10, note={"usage": {"prompt_last": 0}})
    assert fields(talk, "ratio") == (1.15,)


def test_what_is_counted_after_an_overflow_is_a_shorter_request() -> None:
    note = {"events": [{"kind": "overflow"}], "usage": {"prompt_last": 1}}
    talk = Talk()
    talk.search(10, note=note)
    assert fields(talk, "ratio") == (1.15,)
    unbounded = Talk(mode="off", hard=False)
    for _ in range(30):
        unbounded.search(10, note=note)
    assert fields(unbounded, "ratio") == (1.0,), "it overflows at every turn, by whatever ratio"


def test_the_threshold_is_in_tokens_of_the_provider() -> None:
    talk = Talk()
    while talk.state == "idle":
        talk.search(1_000, note={"usage": {"prompt_last": 2 * talk.size}})
    assert talk.size < 1_400


# --- turns that did not happen ---


def test_an_answer_that_was_known_changes_nothing() -> None:
    talk = full()
    before = talk.manager.to_json(), talk.request
    talk.transcript.added = []
    sent = says("", note={"usage": {"prompt_last": 10**6}})
    talk.manager.took(sent, talk.transcript, talk.tools, None, talk.info(), talk.notes)
    assert (talk.manager.to_json(), talk.request) == before


def test_recovery_goes_back_to_the_start_of_the_window() -> None:
    talk = Talk()
    talk.search(1_000)
    talk.end()
    mark = talk.transcript.to_json()
    state = talk.manager.to_json()
    while talk.state == "idle":
        talk.search(1_000, note={"usage": {"prompt_last": 2 * talk.size}})
    talk.save("sup_7")
    recover(talk, mark)
    assert fields(talk, *PROGRESS, "ratio") == ("idle", False, "", 0, 0, 0, 1.0)
    assert talk.request[1:-2] == mark["messages"]
    after = talk.manager.to_json()
    same = ("samples", "compaction", "context", "told", "counted")
    assert {key: after[key] for key in same} == {key: state[key] for key in same}


def test_recovery_keeps_an_announcement() -> None:
    talk = full()
    talk.end("hm")
    mark = talk.transcript.to_json()
    talk.search(10)
    recover(talk, mark)
    assert fields(talk, "state", "reminders") == ("saving", 1)
    assert len(talk.reminders) == 1 and "Attempt 2 of 3" in talk.request[-1]["content"]


def recover(talk: Talk, mark: dict[str, Any], action: Any = None) -> None:
    """What a chat does after a refusal."""
    talk.transcript.load(mark)
    rows = [("recovered", user("[recovered] nothing")), ("observation", user("window again"))]
    talk.transcript.added = [{"kind": kind, "body": body} for kind, body in rows]
    talk.transcript.messages = [*talk.transcript.messages, *[body for _, body in rows]]
    talk.manager.took(action or ends(), talk.transcript, talk.tools, None, talk.info(), talk.notes)


# --- copies ---


def busy() -> Talk:
    talk = full()
    talk.save("first", also_ends=True)
    talk.search(10, note={"usage": {"prompt_last": talk.size + 100}})
    grow(talk)
    return talk


def go_on(talk: Talk) -> tuple[list[Message], dict[str, Any]]:
    talk.save("no", error="too_large")
    talk.end("[no-notes]")
    talk.search(10)
    return talk.request, talk.manager.to_json()


def test_copies_go_on_alike() -> None:
    talk = busy()
    twins = [copy.deepcopy(talk), pickle.loads(pickle.dumps(talk)), copy.deepcopy(talk)]
    data = json.loads(json.dumps(talk.manager.to_json()))
    twins[2].manager = ContextManager(talk.settings)
    twins[2].manager.load(data)
    twins[2].manager.refresh(twins[2].transcript, twins[2].tools)
    assert [twin.request for twin in twins] == [talk.request] * 3
    after = go_on(talk)
    for twin in twins:
        assert json.dumps(go_on(twin)) == json.dumps(after)


def test_a_bad_state_changes_nothing() -> None:
    talk = busy()
    before = talk.manager.to_json()
    for key in ("compaction", "mark", "stamps"):
        with pytest.raises((KeyError, TypeError)):
            talk.manager.load({**before, key: [1]})
        with pytest.raises(KeyError):
            talk.manager.load({name: value for name, value in before.items() if name != key})
    assert talk.manager.to_json() == before


def test_changing_a_request_changes_nothing_later() -> None:
    talk = busy()
    before = talk.request
    for message in talk.request:
        message["content"] = "changed"
        for made in message.get("tool_calls", ()):
            made["function"].clear()
    assert talk.request == before


def test_a_message_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[Any] = []

    def count(message: Any) -> int:
        measured.append(message)
        return estimate_message(message)

    monkeypatch.setattr("merchantbench_gym.wrappers.context.estimate_message", count)
    talk = Talk(trigger=160_000, mode="off", history_limit=3_000)
    for _ in range(150):
        talk.search(1_000)
    assert len(measured) <= len(talk.transcript.messages) + 1


def test_a_copy_of_a_message_is_another_message() -> None:
    sizes = Sizes()
    message = user("some words")
    assert sizes(message) == estimate_message(message)
    twin = copy.deepcopy(sizes)
    message["content"] = "other words that are longer"
    assert twin(message) == estimate_message(message)
    others = [user(f"{i}") for i in range(200)]
    assert sizes.total(others) == total(others)
    sizes.forget_others(others[:10])
    assert sizes.total(others[:10]) == total(others[:10])
    assert len(sizes._known) == 10


def test_odd_actions_pass() -> None:
    talk = Talk()
    assert talk.manager.signed("no JSON") == "no JSON"
    assert talk.manager.signed(says("", note=[1])) == says("", note=[1])
    assert set(talk.manager.signed([])["note"]) == {"context"}
    signed = talk.manager.signed(says("hm", note={"forced": ""}))
    assert set(signed["note"]) == {"forced", "context"}


# --- any run ---

STEPS = st.one_of(
    st.tuples(st.just("search"), st.integers(0, 12_000)),
    st.tuples(st.just("many"), st.integers(0, 6)),
    st.tuples(st.just("save"), st.sampled_from(["", "sup_7", "净" * 800])),
    st.tuples(st.just("end"), st.sampled_from(["", "hm", "[no-notes]", "forced"])),
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(STEPS, st.sampled_from([0.0, 0.8, 1.4])), max_size=25),
    st.booleans(),
    st.sampled_from(["after_trim", "each_window", "never"]),
)
def test_three_things_hold_in_any_run(steps: list[Any], can_save: bool, reinject: str) -> None:
    talk = Talk(can_save=can_save, reinject=reinject, history_limit=2_500)
    for (kind, what), ratio in steps:
        note = {"usage": {"prompt_last": int(ratio * talk.size)}}
        if kind == "search":
            talk.search(what, note=note)
        elif kind == "save" and can_save:
            talk.save(what, note=note)
        elif kind == "end":
            talk.end(
                "" if what == "forced" else what, note={"forced": "hop_budget"} if what == "forced" else note
            )
        elif kind == "many":
            talk.turn(
                says("", *[call("search_products", f"m{i}") for i in range(what)]), *["净" * 900] * what
            )
        request = talk.request
        assert total(request[1:]) <= talk.manager.note()["budget"]
        assert_paired(request)
        assert f"window {talk.window}" in [
            m["content"].rpartition("\n")[2] for m in request if m["role"] == "user"
        ]
        newest = talk.transcript.messages[-1]
        assert newest["role"] in [m["role"] for m in request[-3:]]
        fields(talk)
