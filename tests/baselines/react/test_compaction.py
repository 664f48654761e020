"""Compactions as a provider sees them: what requests hold before and after, and what is noted of it."""

from __future__ import annotations

import json
from functools import cache
from typing import Any, NamedTuple

import pytest

from merchantbench_gym.baselines import ModelServer, ReActConfig, ReActPolicy, Reply, run_episode
from merchantbench_gym.baselines.agent_env import agent_stack
from merchantbench_gym.wrappers import FaultInjection
from tests.react_kit import KEY, LOOK
from tests.wrappers.chat_kit import make

FILL = Reply(calls=[("search_products", {"page_size": 50, "query": word}) for word in "abcdefgh" * 2])
DOWN = [Reply(status=503)] * 9
NOTE = "sup_0017 is reliable"
DAYS = {"run": {"horizon_days": 4}}


def write(content: str, **more: Any) -> Reply:
    return Reply(calls=[("write_memory_doc", {"content": content, **more})])


@cache
def least(memory: bool) -> int:
    """Size of the first request of a run, in tokens."""
    _, info = agent_stack(make(overrides=DAYS, scenario="default"), memory=memory).reset(seed=1)
    return int(info["context_tokens"])


class Played(NamedTuple):
    """Messages of every request, and what was noted of every turn."""

    requests: list[list[dict[str, Any]]]
    contexts: list[dict[str, Any]]

    def texts(self, number: int, start: str) -> list[str]:
        """Texts of a request's user messages with a start."""
        users = [message for message in self.requests[number] if message["role"] == "user"]
        return [message["content"] for message in users if message["content"].startswith(start)]

    def reminders(self, number: int) -> list[str]:
        return self.texts(number, "[context-maintenance]")

    def context(self, number: int) -> str:
        """The context message, which stands behind the system message."""
        (text,) = self.texts(number, "[context]")
        assert self.requests[number][1]["content"] == text
        return text


def play(
    script: list[Reply], turns: int, *, stale: int | None = None, memory: bool = True, **more: Any
) -> Played:
    """Play some turns; FILL is just enough for a compaction to be announced."""
    settings = {"trigger": least(memory) + 2_000, "keep": 2_500, **more}
    with ModelServer(script) as server:
        config = ReActConfig(base_url=server.url, api_key=KEY, model="m", **settings)
        env = make(overrides=DAYS, scenario="default")
        if stale is not None:
            env = FaultInjection(env, "stale", at=[stale])
        env = agent_stack(env, config=config, memory=memory, reference=config.reference)
        contexts: list[dict[str, Any]] = []
        env.unwrapped.add_listener(lambda record: contexts.append((record["note"] or {}).get("context")))
        policy = ReActPolicy(config=config, sleep=lambda seconds: None)
        run_episode(env, policy, seed=1, limits={"turns": turns})
        assert server.refusals == [] and server.unused == 0
        return Played([request.body["messages"] for request in server.requests], contexts)


def count(messages: list[dict[str, Any]], text: str) -> int:
    return json.dumps(messages).count(text)


def test_notes_that_were_saved_are_there_once() -> None:
    played = play([FILL, write(NOTE), LOOK], 3)
    (reminder,) = played.reminders(1)
    assert played.requests[1][-1]["content"] == reminder and "Attempt 1 of 3" in reminder
    assert not played.reminders(0) and not played.reminders(2)
    assert count(
        played.requests[2], NOTE
    ) == 1 and f"Your notes (version 1, {len(NOTE)} bytes)" in played.context(2)
    assert "Summary of what was removed" not in played.context(2)
    keys = ("state", "pending", "done", "outcome", "notes_saved_version", "compactions")
    assert [tuple(context[key] for key in keys) for context in played.contexts] == [
        ("idle", False, False, "", 0, 0),
        ("armed", True, False, "", 0, 0),
        ("trimmed", False, True, "confirmed", 1, 1),
    ]


def test_failed_saves_are_named_until_one_succeeds() -> None:
    large = write("x" * 262_145)
    played = play([FILL, large, write("no", expected_version=7), write(NOTE), LOOK], 5)
    reminders = [played.reminders(number) for number in (1, 2, 3)]
    assert [len(found) for found in reminders] == [1, 1, 1]
    assert "failed" not in reminders[0][0]
    assert "The last attempt failed: " in reminders[1][0] and "262144" in reminders[1][0].replace(",", "")
    assert "The last attempt failed: version_conflict" in reminders[2][0]
    assert [context["reminders"] for context in played.contexts] == [0, 0, 1, 2, 3]
    assert [context["notes_saved_version"] for context in played.contexts] == [0, 0, 0, 0, 1]
    assert played.contexts[-1]["outcome"] == "confirmed" and NOTE in played.context(4)


@pytest.mark.parametrize(
    ("replies", "outcome"),
    [
        ([write(""), LOOK, Reply(text="done")], "expired"),
        ([Reply(text="a"), Reply(text="b"), Reply(text="c")], "expired"),
        ([Reply(text="[no-notes] none are needed", calls=LOOK.calls)], "declined"),
        ([LOOK, Reply(text="so\n[no-notes]")], "declined"),
    ],
)
def test_without_a_save_there_is_a_digest(replies: list[Reply], outcome: str) -> None:
    played = play([FILL, *replies, LOOK], len(replies) + 2)
    for number in range(1, len(replies) + 1):
        assert len(played.reminders(number)) == 1
    assert not played.reminders(len(replies) + 1)
    last = played.contexts[-1]
    assert (last["outcome"], last["done"], last["notes_saved_version"]) == (outcome, True, 0)
    assert "Summary of what was removed" in played.context(len(replies) + 1)
    assert "search_products 16" in played.context(len(replies) + 1)


def test_without_the_tool_it_is_cut_at_once_and_nothing_is_said_of_notes() -> None:
    played = play([LOOK, FILL, LOOK], 3, memory=False)
    assert played.contexts[2]["outcome"] == "no_tool" and not played.reminders(2)
    told = played.context(2).lower()
    assert "calls: query_balance 1" in told and "summary of what was removed" in told
    assert not any(word in told for word in ("note", "memory", "save", "document"))


def test_a_provider_that_fails_costs_no_attempt() -> None:
    played = play([FILL, *DOWN, write(NOTE), LOOK], 4)
    assert all(len(played.reminders(number)) == 1 for number in range(1, 11))
    assert "Attempt 1 of 3" in played.reminders(10)[0]
    assert [context["state"] for context in played.contexts] == ["idle", "armed", "armed", "trimmed"]
    assert [context["pending"] for context in played.contexts] == [False, True, True, False]
    assert played.contexts[-1]["outcome"] == "confirmed"


def test_a_refused_turn_costs_no_attempt() -> None:
    played = play([FILL, Reply(text="hm"), LOOK, write(NOTE), LOOK], 5, stale=2)
    assert "[recovered]" in json.dumps(played.requests[3])
    for number, attempt in ((1, 1), (2, 2), (3, 2)):
        (reminder,) = played.reminders(number)
        assert f"Attempt {attempt} of 3" in reminder
    assert played.contexts[-1]["outcome"] == "confirmed"


def test_no_second_compaction_before_the_size_was_below() -> None:
    played = play([FILL, write(NOTE), LOOK, LOOK, LOOK], 5, trigger=least(True) + 60)
    assert [context["compactions"] for context in played.contexts] == [0, 0, 1, 1, 1]
    assert not any(played.reminders(number) for number in (2, 3, 4))
    assert all(context["prompt_estimate"] >= least(True) + 60 for context in played.contexts[2:])


@pytest.mark.parametrize("can_save", [True, False])
@pytest.mark.parametrize("name", ["failed", "missing", "saved", "forced end"])
def test_the_reference_cuts_after_any_turn(name: str, can_save: bool) -> None:
    between = {
        "failed": [write("no", expected_version=7)],
        "missing": [LOOK],
        "saved": [write(NOTE)],
        "forced end": DOWN,
    }[name]
    filled = Reply(calls=FILL.calls, usage=(20_000, 10, 0))
    played = play([filled, *between, LOOK], 3, memory=can_save, reference=True)
    (notice,) = played.reminders(1)
    assert played.requests[1][-1]["content"] == notice
    if can_save:
        assert "write_memory_doc" in notice
    else:
        assert not any(word in notice.lower() for word in ("note", "memory", "save"))
    assert [context["pending"] for context in played.contexts] == [False, True, False]
    assert [context["outcome"] for context in played.contexts] == ["", "", ""]
    assert len(played.requests[-1]) < 17 + 4 and not played.texts(-1, "[context]")
    assert played.contexts[-1]["compactions"] == (1 if can_save else 2)
