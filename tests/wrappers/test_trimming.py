"""Trims: vectors, and what every trim keeps."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merchantbench_gym.wrappers.tokens import estimate_message
from merchantbench_gym.wrappers.trimming import (
    NO_RESULT,
    ContextBudgetError,
    is_harness,
    newest_block,
    trim,
    trim_blocks,
    trim_reference,
)
from tests.wrappers.history_kit import (
    BALANCE,
    SEARCH,
    Message,
    assert_paired,
    assistant,
    lengths,
    tool,
    total,
    user,
    words,
)

OBSERVATION = user("observation")


def sized(tokens: int, number: int = 1) -> Message:
    """A result of a given size."""
    bare = json.dumps(tool(number, BALANCE, ""))
    return tool(number, BALANCE, "r" * (4 * (tokens - 4) - len(bare)))


def searches(count: int, size: int) -> list[Message]:
    return [
        OBSERVATION,
        assistant(*[SEARCH] * count),
        *[tool(i + 1, SEARCH, "x" * size) for i in range(count)],
    ]


TWO_WINDOWS = [
    user("w0"),
    assistant(SEARCH, SEARCH),
    sized(122, 1),
    sized(123, 2),
    user("w1"),
    assistant("end_of_step"),
    tool(1, "end_of_step", '{"ok":true}'),
]
HALF_READ = [
    user("obs w7"),
    *[m for size in (1020, 1020, 120) for m in (assistant("rate"), sized(size))],
]
LONG = [*[user("m" * 6400)] * 100, OBSERVATION, assistant(BALANCE), tool(1, BALANCE, '{"ok": true}')]
SMALL = '{"ok":true,"balance":2000.0}'


@pytest.mark.parametrize(
    ("messages", "size", "budget", "left", "lengths_left"),
    [
        (searches(3, 60_000), 45_173, 30_000, (5, 29_999), [39_769] * 3),
        (searches(2, 80_000), 40_126, 30_000, (4, 30_000), [59_749] * 2),
        (searches(1, 400_000), 100_078, 30_000, (3, 30_000), [119_689]),
        (
            [OBSERVATION, assistant(BALANCE, SEARCH), tool(1, BALANCE, SMALL), tool(2, SEARCH, "z" * 50_000)],
            None,
            2_000,
            (4, 2_000),
            [28, 7_473],
        ),
    ],
)
def test_large_results_share_a_cap(
    messages: list[Message], size: int | None, budget: int, left: tuple[int, int], lengths_left: list[int]
) -> None:
    assert size is None or total(messages) == size
    before = copy.deepcopy(messages)
    short = trim(messages, budget)
    assert (len(short.messages), total(short.messages)) == left
    assert lengths(short.messages, "tool") == lengths_left
    assert short.shortened == sum(length != 28 for length in lengths_left)
    assert short.dropped == 0
    assert messages == before
    assert trim_reference(messages, budget) == []


def test_the_line_says_how_much_is_gone_and_what_to_do() -> None:
    content = trim_blocks(searches(3, 60_000), 30_000)[2]["content"]
    line = (
        "\n[cut: 20342 of 60000 characters removed; "
        "repeat search_products with a smaller page_size or narrower filters]\n"
    )
    head, tail = content.split(line)
    assert (len(head), len(tail)) == (26_439, 13_219)


def test_an_observation_alone_is_cut_in_the_middle() -> None:
    messages = [user("a" * 4_000)]
    assert total(messages) == 1_011
    (short,) = trim_blocks(messages, 100)
    assert estimate_message(short) == 100
    line = "\n[cut: 3686 of 4000 characters removed]\n"
    assert short["content"] == "a" * 210 + line + "a" * 104
    assert trim_reference(messages, 100) == messages


@pytest.mark.parametrize(
    ("messages", "budget", "reference", "guarded"),
    [
        (LONG, 30_000, (21, 29_079), (21, 29_079)),
        (TWO_WINDOWS, 385, (3, 77), (3, 77)),
        (TWO_WINDOWS, 386, (6, 386), (6, 386)),
        (TWO_WINDOWS, 398, (7, 398), (7, 398)),
        (HALF_READ, 300, (2, 157), (3, 170)),
        (HALF_READ, 1_400, (4, 1_214), (5, 1_227)),
    ],
)
def test_older_blocks_go_first(
    messages: list[Message], budget: int, reference: tuple[int, int], guarded: tuple[int, int]
) -> None:
    rough = trim_reference(messages, budget)
    assert (len(rough), total(rough)) == reference
    left = trim(messages, budget)
    assert (len(left.messages), total(left.messages)) == guarded
    assert left.dropped == len(messages) - len(left.messages)
    assert left.shortened == 0
    assert all(any(message is given for given in messages) for message in left.messages)


def test_the_reference_takes_the_newest_whatever_the_budget() -> None:
    assert trim_reference(LONG[:100], 0) == LONG[99:100]
    assert trim_reference([], 100) == []
    assert trim_reference(LONG, 10**6) == LONG


def test_an_older_block_that_does_not_fit_hides_all_before_it() -> None:
    messages = [user("w0"), words("x" * 4_000), user("w1"), words("done")]
    assert trim_blocks(messages, 1_000) == messages[2:]


def test_messages_about_the_context_stay() -> None:
    context = user("[context] 12 messages were removed")
    messages = [context, *[user("m" * 400)] * 10, OBSERVATION, words("hm"), user("[turns] 2 left")]
    left = trim_blocks(messages, total([context, *messages[-3:]]))
    assert left == [context, *messages[-3:]]


def test_texts_give_way_in_order() -> None:
    context, turns = user("[context] " + "c" * 3_000), user("[turns] " + "t" * 3_000)
    newest = [
        assistant(SEARCH, text="w" * 3_000, arguments='{"q": "' + "a" * 3_000 + '"}'),
        tool(1, SEARCH, "r" * 3_000),
    ]
    messages = [context, user("o" * 3_000), *newest, turns]

    def cut(budget: int) -> list[bool]:
        now = trim_blocks(messages, budget)
        assert total(now) <= budget
        assert_paired(now)
        parts = [now[3], now[0], now[1], now[4], now[2]]
        arguments = now[2]["tool_calls"][0]["function"]["arguments"]
        gone = arguments == json.dumps({"_cut_characters": 3_009})
        return [*["[cut: " in part["content"] for part in parts], gone]

    size = total(messages)
    assert cut(size - 100) == [True, False, False, False, False, False]
    assert cut(size - 1_000) == [True, True, False, False, False, False]
    assert cut(size - 2_000) == [True, True, True, True, False, False]
    assert cut(size - 3_200) == [True, True, True, True, True, False]
    assert cut(size - 4_000) == [True, True, True, True, True, True]
    with pytest.raises(ContextBudgetError) as caught:
        cut(100)
    least = caught.value.least
    assert cut(least) == [True] * 6
    with pytest.raises(ContextBudgetError, match=f"need {least} estimated tokens, the budget is {least - 1}"):
        cut(least - 1)


def test_the_longest_arguments_go_first() -> None:
    message = assistant(BALANCE, SEARCH, BALANCE)
    for call, length in zip(message["tool_calls"], (300, 500, 200), strict=True):
        call["function"]["arguments"] = "7" * length
    results = [tool(i, name, "") for i, name in ((1, BALANCE), (2, SEARCH), (3, BALANCE))]
    messages = [OBSERVATION, message, *results]
    arguments = [
        [
            call["function"]["arguments"]
            for call in trim_blocks(messages, total(messages) - less)[1]["tool_calls"]
        ]
        for less in (1, 150)
    ]
    gone = '{"_cut_characters": 500}'
    assert arguments[0] == ["7" * 300, gone, "7" * 200]
    assert arguments[1] == ['{"_cut_characters": 300}', gone, "7" * 200]


def test_reasoning_counts_as_the_words_of_the_assistant() -> None:
    messages = [OBSERVATION, {**words("yes"), "reasoning_content": "r" * 4_000}]
    left = trim_blocks(messages, 200)
    assert total(left) <= 200
    assert "[cut: " in left[1]["reasoning_content"]


def test_calls_and_results_are_repaired() -> None:
    orphan, answer = tool(9, SEARCH, "orphan"), tool(2, SEARCH, "two")
    messages = [
        orphan,
        user("w0"),
        orphan,
        assistant(BALANCE, SEARCH),
        answer,
        orphan,
        tool(1, BALANCE, "one"),
        tool(2, SEARCH, "again"),
        assistant(SEARCH),
        user("w1"),
    ]
    left = trim(messages, 1_000)
    assert left.messages == [
        user("w0"),
        assistant(BALANCE, SEARCH),
        tool(1, BALANCE, "one"),
        answer,
        assistant(SEARCH),
        tool(1, SEARCH, NO_RESULT),
        user("w1"),
    ]
    assert left.dropped == 4


def test_a_made_result_counts() -> None:
    messages = [user("w0"), assistant(SEARCH), user("w1")]
    whole = total(trim_blocks(messages, 1_000))
    assert whole == total(messages) + estimate_message(tool(1, SEARCH, NO_RESULT))
    assert trim_blocks(messages, whole)[0] == user("w0")
    assert trim_blocks(messages, whole - 1)[0] == messages[1]


def test_place_of_the_newest_block() -> None:
    messages = [user("w0"), assistant(BALANCE, SEARCH), tool(1, BALANCE, ""), tool(2, SEARCH, "")]
    assert newest_block([]) == (0, 0)
    assert newest_block(messages[:1]) == (0, 1)
    assert newest_block(messages) == (1, 4)
    assert newest_block([*messages, user("[turns] 1 left"), user("[context-maintenance]")]) == (1, 4)
    assert newest_block([*messages, words("hm"), user("[turns] 1 left")]) == (4, 5)
    assert newest_block([user("[context] a"), user("[turns] b")]) == (1, 2)


def test_harness_messages_are_told_by_their_start() -> None:
    assert is_harness(user("[recovered] after turn 3"))
    assert not is_harness(user("Day 1 [turns]"))
    assert not is_harness(words("[turns] I say"))
    assert not is_harness({"role": "user", "content": [{"type": "text", "text": "[turns]"}]})


def test_sizes_are_asked_for_once_and_believed() -> None:
    asked: list[Message] = []

    def size(message: Message) -> int:
        asked.append(message)
        return 10

    left = trim(TWO_WINDOWS, 60, size=size)
    assert left.messages == TWO_WINDOWS[1:]
    assert len(asked) == len(TWO_WINDOWS)
    assert trim_reference(TWO_WINDOWS, 60, size=size) == TWO_WINDOWS[1:]


# --- any history ---

TEXTS = st.one_of(
    st.text(alphabet='aé"\\\n\t\x01净资产😀 ', max_size=30),
    st.builds(
        lambda text, times: text * times,
        st.text(alphabet='a"\\\n\x01净😀', min_size=1, max_size=5),
        st.integers(1, 2_000),
    ),
)
NAMES = st.sampled_from([BALANCE, SEARCH, "write_memory_doc"])
HEADS = st.sampled_from(["", "", "", "[turns] ", "[context] ", "[context-maintenance] ", "[harness] "])


@st.composite
def call(draw: Any) -> dict[str, Any]:
    arguments = draw(st.one_of(st.just("{}"), TEXTS.map(lambda text: json.dumps({"content": text}))))
    function = {"name": draw(NAMES), "arguments": arguments}
    return {"id": draw(st.sampled_from(["c1", "c2", "c3", "c4"])), "type": "function", "function": function}


MESSAGES = st.one_of(
    st.builds(lambda head, text: user(head + text), HEADS, TEXTS),
    TEXTS.map(words),
    st.builds(
        lambda text, calls: {**words(text), "tool_calls": calls},
        TEXTS,
        st.lists(call(), max_size=3, unique_by=lambda call: call["id"]),
    ),
    st.builds(tool, st.integers(1, 5), NAMES, TEXTS),
    st.builds(tool, st.integers(1, 5), NAMES, TEXTS),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(MESSAGES, max_size=14), st.integers(100, 6_000))
def test_any_history(history: list[Message], budget: int) -> None:
    messages = [user("Day 1"), *history]
    before = copy.deepcopy(messages)
    try:
        left = trim_blocks(messages, budget)
    except ContextBudgetError as error:
        assert error.least > budget
        budget = error.least
        left = trim_blocks(messages, budget)
    assert messages == before
    assert total(left) <= budget
    assert_paired(left)
    heads = [m for m in messages if m["role"] != "tool"]
    kept = [m for m in left if m["role"] != "tool"]
    own = [m for m in heads if not is_harness(m)]
    assert_kept(own[-1], kept)
    assert_kept([m for m in own if m["role"] == "user"][-1], kept)
    for message in heads:
        if message["role"] == "user" and message["content"].startswith("[context"):
            assert_kept(message, kept)
    assert trim_blocks(left, budget) == left
    tight = total(left) - 10
    try:
        again = trim_blocks(left, tight)
    except ContextBudgetError:
        return
    assert_paired(again)


def assert_kept(message: Message, kept: list[Message]) -> None:
    """A message is there, perhaps with shorter texts."""
    names = [call["function"]["name"] for call in message.get("tool_calls", ())]
    assert any(
        other["role"] == message["role"]
        and other["content"][:1] in (message["content"][:1], "\n")
        and [call["function"]["name"] for call in other.get("tool_calls", ())] == names
        for other in kept
    )
