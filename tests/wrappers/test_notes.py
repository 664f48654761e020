"""Notes: versions, pages, compare-and-set, and that they belong to the turn and to one merchant."""

from __future__ import annotations

import copy
import json
import pickle
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merchantbench_gym.envs import MarketplaceEnv, MerchantEnv
from merchantbench_gym.scenario import TOOL_NAMES
from merchantbench_gym.session import Session
from merchantbench_gym.tools import default_registry
from merchantbench_gym.tools.registry import Registry
from merchantbench_gym.wrappers import NotesProvider, RecordRun
from tests.session_kit import END, contents, end, errors, faulty_registry, opened, play

LIMIT = 262_144
NAMES = ["read_memory_doc", "write_memory_doc"]
ODD = 'a\r\nb\rc\x00d\x1b "q" \\ \u2028\u0085é界🤔👩‍🌾\t\n'
RAW_END: Any = {"id": "end", "name": "end_of_step", "arguments": {}}


def write(content: str, **arguments: Any) -> tuple[str, Any]:
    return "write_memory_doc", {"content": content, **arguments}


def read(**arguments: Any) -> tuple[str, Any]:
    return "read_memory_doc", arguments


def ask(session: Session, call: tuple[str, Any], merchant: int = 0) -> dict[str, Any]:
    (body,) = contents(play(session, call, merchant=merchant))
    return body


def keeping(initial: str = "", **options: Any) -> tuple[Session, NotesProvider]:
    """A session with notes and turns enough."""
    provider = NotesProvider(initial)
    options = {"max_turns_per_window": 1000, **options}
    return opened(providers=[provider], **options), provider


def pages(session: Session, **arguments: Any) -> list[dict[str, Any]]:
    found, offset = [], 0
    while True:
        result = play(session, read(offset=offset, **arguments))
        assert len(result.results[0]["content"]) <= 32_000
        found.append(contents(result)[0])
        assert found[-1]["ok"] and found[-1]["offset"] == offset
        if found[-1]["next_offset"] is None:
            return found
        assert found[-1]["next_offset"] == offset + len(found[-1]["content"]) > offset
        offset = found[-1]["next_offset"]


def whole(session: Session, **arguments: Any) -> str:
    return "".join(page["content"] for page in pages(session, **arguments))


# --- the tools in the registry ---


def names(schemas: list[dict[str, Any]]) -> list[str]:
    return [schema["function"]["name"] for schema in schemas]


def test_with_notes_the_index_is_complete_and_in_order() -> None:
    registry = Registry([*NotesProvider().tools, *default_registry()])
    assert registry.names == TOOL_NAMES
    assert {tool.name: tool.kind for tool in NotesProvider().tools} == dict(
        zip(NAMES, ["READ", "WRITE"], strict=True)
    )


def test_without_the_provider_the_tools_are_unknown() -> None:
    session = opened()
    assert not set(NAMES) & set(names(session.schemas(0)))
    assert errors(play(session, read(), write("x"))) == ["unknown_tool"] * 2


def test_schemas_of_an_environment_stand_in_index_order() -> None:
    env: Any = gymnasium.make("merchantbench_gym:MerchantBenchSmoke-v0")
    assert len(env.unwrapped.tool_schemas) == 24
    env.unwrapped.add_provider(NotesProvider())
    for _ in range(2):
        found = names(env.unwrapped.tool_schemas)
        assert len(found) == 26 and found == [name for name in TOOL_NAMES if name in found]
        env.reset(seed=1)
    assert set(NAMES) <= set(env.action_space.tools)
    (body,) = contents(play(env.unwrapped.session, ("list_tools", {})))
    assert names(body["tools"]) == found


def test_all_28_tools_fit_in_one_list() -> None:
    session, _ = keeping(overrides={"tools": {"denied": []}})
    assert ask(session, ("list_tools", {}))["count"] == 28


def test_notes_can_be_denied() -> None:
    session, provider = keeping(overrides={"tools": {"denied": ["write_memory_doc"]}})
    assert errors(play(session, write("x"), read())) == ["tool_denied", ""]
    assert provider.served_notes() == (0, "")


def test_schemas_hold_the_keywords_of_every_tool() -> None:
    for tool in NotesProvider().tools:
        parameters = tool.schema()["function"]["parameters"]
        assert parameters["additionalProperties"] is False
        assert "title" not in json.dumps(tool.schema()) and "anyOf" not in json.dumps(tool.schema())
        assert all(node["description"] for node in parameters["properties"].values())


def test_examples_answer_well() -> None:
    session, _ = keeping()
    codes = [
        errors(play(session, (tool.name, e)))[0] for tool in NotesProvider().tools for e in tool.examples
    ]
    assert codes == ["", "not_found", "", "version_conflict"]


# --- reading and writing ---


def test_nothing_written_is_version_0() -> None:
    session, provider = keeping()
    expected = {
        "ok": True, "version": 0, "latest_version": 0, "oldest_version": 0, "bytes": 0, "total_chars": 0,
        "offset": 0, "content": "", "next_offset": None,
    }  # fmt: skip
    body = ask(session, read())
    assert body == expected and list(body) == list(expected)
    assert ask(session, read(version=0)) == expected
    assert errors(play(session, read(version=1))) == ["not_found"]
    assert provider.served_notes() == (0, "") and provider.notes() == []


def test_keys_and_sizes() -> None:
    session, provider = keeping()
    body = ask(session, write("né🤔"))
    assert list(body) == ["ok", "version", "bytes", "previous_bytes"]
    assert body == {"ok": True, "version": 1, "bytes": 7, "previous_bytes": 0}
    assert ask(session, write("", mode="replace")) == {
        "ok": True,
        "version": 2,
        "bytes": 0,
        "previous_bytes": 7,
    }
    body = ask(session, read(version=1))
    assert (body["bytes"], body["total_chars"], body["latest_version"], body["oldest_version"]) == (
        7,
        3,
        2,
        1,
    )
    assert ask(session, read())["version"] == 2
    assert provider.served_notes() == (2, "")


def test_every_success_makes_one_version_of_the_window_and_turn() -> None:
    session, provider = keeping()
    play(session, write("a"), write("a"))
    end(session)
    play(session, read())
    play(session, write("b\n", mode="append"))
    assert provider.notes() == [
        {"version": 1, "window": 0, "turn": 1, "content": "a"},
        {"version": 2, "window": 0, "turn": 1, "content": "a"},
        {"version": 3, "window": 1, "turn": 2, "content": "ab\n"},
    ]
    assert provider.served_notes() == (3, "ab\n")


@pytest.mark.parametrize("mode", ["replace", "append"])
def test_modes(mode: str) -> None:
    session, provider = keeping()
    play(session, write("one", mode=mode), write("two", mode=mode), write("", mode=mode))
    versions = [version["content"] for version in provider.notes()]
    assert versions == (["one", "onetwo", "onetwo"] if mode == "append" else ["one", "two", ""])


def test_text_is_stored_exactly_as_given() -> None:
    session, provider = keeping()
    play(session, write(ODD))
    assert whole(session) == ODD and provider.served_notes() == (1, ODD)
    play(session, ("write_memory_doc", json.dumps({"content": ODD[::-1], "mode": "append"})))
    assert whole(session, limit=3) == ODD + ODD[::-1]
    fresh = NotesProvider()
    fresh.restore(provider.snapshot())
    assert fresh.notes() == provider.notes() and fresh.notes()[0]["content"] == ODD


@pytest.mark.parametrize(
    "call",
    [
        ("write_memory_doc", {}),
        write("\ud800"),
        ("write_memory_doc", {"content": None}),
        ("write_memory_doc", {"content": 7}),
        write("x", mode="prepend"),
        write("x", expected_version=-1),
        write("x", expected_version="0"),
        write("x", merchant=1),
        read(offset=-1),
        read(limit=0),
        read(limit=24_001),
        read(version=True),
        read(merchant=1),
    ],
)
def test_invalid_arguments(call: Any) -> None:
    session, provider = keeping()
    assert errors(play(session, call)) == ["invalid_arguments"]
    assert provider.notes() == []


def test_arguments_are_read_with_the_usual_tolerance() -> None:
    session, provider = keeping()
    play(session, write("abc", mode=None, expected_version=0.0))
    assert ask(session, read(version=None, offset=1.0, limit=1.0))["content"] == "b"
    assert provider.served_notes() == (1, "abc")


def test_size_limit_counts_bytes() -> None:
    session, provider = keeping()
    (body,) = contents(play(session, write("é" * (LIMIT // 2 + 1))))
    assert body["error"]["code"] == "too_large"
    assert str(LIMIT) in body["error"]["message"] and str(LIMIT + 2) in body["error"]["message"]
    assert ask(session, write("é" * (LIMIT // 2)))["bytes"] == LIMIT
    assert errors(play(session, write("x", mode="append"))) == ["too_large"]
    assert errors(play(session, write("x" * (LIMIT + 1)))) == ["too_large"]
    assert ask(session, write("", mode="append"))["version"] == 2
    assert [len(version["content"]) for version in provider.notes()] == [LIMIT // 2] * 2


def test_the_largest_document_is_read_back_in_pages() -> None:
    session, _ = keeping()
    text = (ODD * 10_000).encode()[:LIMIT].decode(errors="ignore")
    text += "x" * (LIMIT - len(text.encode()))
    assert ask(session, write(text))["bytes"] == LIMIT
    assert whole(session) == whole(session, limit=24_000) == text


def test_compare_and_set() -> None:
    session, provider = keeping()
    assert ask(session, write("a", expected_version=0))["version"] == 1
    state = provider.snapshot()
    for wrong in (0, 2, 10**9):
        body = ask(session, write("b", expected_version=wrong))
        assert body["error"]["code"] == "version_conflict" and "version is 1" in body["error"]["message"]
    # Whoever expects another version does not know the size either.
    assert errors(play(session, write("b" * LIMIT, mode="append", expected_version=0))) == [
        "version_conflict"
    ]
    assert provider.snapshot() == state
    assert ask(session, write("b", mode="append", expected_version=1))["version"] == 2


def test_earlier_versions_stay_readable() -> None:
    session, provider = keeping()
    play(session, *[write(f"text {n}") for n in range(1, 41)])
    for n in range(9, 41):
        body = ask(session, read(version=n))
        assert (body["version"], body["content"], body["latest_version"]) == (n, f"text {n}", 40)
    oldest = ask(session, read())["oldest_version"]
    assert ask(session, read(version=oldest))["content"] == f"text {oldest}"
    assert (
        errors(play(session, *[read(version=n) for n in (oldest - 1, -1, 41, 10**30)])) == ["not_found"] * 4
    )
    assert [version["version"] for version in provider.notes()] == list(range(1, 41))


# --- pages ---


def test_pages() -> None:
    session, _ = keeping("x" * 40_000)
    assert [len(page["content"]) for page in pages(session)] == [16_000, 16_000, 8_000]
    assert [len(page["content"]) for page in pages(session, limit=24_000)] == [24_000, 16_000]
    for offset in (40_000, 40_001, 10**30):
        body = ask(session, read(offset=offset))
        assert (body["content"], body["next_offset"], body["offset"]) == ("", None, offset)
    assert ask(session, read(offset=39_999))["content"] == "x"


@pytest.mark.parametrize("text", ["\x00", '"', "\n🤔", "x\r"])
def test_a_page_is_shortened_to_the_cap_and_no_further(text: str) -> None:
    session, _ = keeping(text * (LIMIT // len(text.encode())))
    (first,) = play(session, read(limit=24_000)).results
    content = json.loads(first["content"])["content"]
    if len(content) < 24_000:
        longest = max(len(json.dumps(char, ensure_ascii=False)) - 2 for char in text)
        assert 32_000 - longest < len(first["content"]) <= 32_000
    assert whole(session, limit=24_000) == text * (LIMIT // len(text.encode()))


@settings(max_examples=30)
@given(
    parts=st.lists(st.text(max_size=50) | st.sampled_from(["\x00", '"\\', "é", "🤔\r", "x"]), max_size=4),
    times=st.sampled_from([1, 3, 7_000]),
    limit=st.integers(1, 24_000),
)
def test_pages_join_to_the_text(parts: list[str], times: int, limit: int) -> None:
    text = "".join(part * times for part in parts).encode()[:100_000].decode(errors="ignore")
    limit = max(limit, len(text) // 50 + 1)
    session, provider = keeping(text)
    found = pages(session, limit=limit)
    assert "".join(page["content"] for page in found) == text
    assert all(len(page["content"]) <= limit for page in found)
    for page in found:
        assert (page["total_chars"], page["bytes"]) == (len(text), len(text.encode()))
    assert provider.served_notes() == (int(bool(text)), text)


# --- initial text ---


def test_initial_text_is_version_1_of_every_merchant() -> None:
    session, provider = keeping("start", merchants=2)
    assert provider.served_notes(1) == (1, "start")
    assert provider.notes(1) == [{"version": 1, "window": None, "turn": None, "content": "start"}]
    assert errors(play(session, write("x", expected_version=0))) == ["version_conflict"]
    body = ask(session, write("!", mode="append", expected_version=1))
    assert (body["version"], body["previous_bytes"]) == (2, 5)
    assert [version["content"] for version in provider.notes(0)] == ["start", "start!"]
    assert ask(session, read(), merchant=1)["content"] == "start"


@pytest.mark.parametrize("text", ["x" * (LIMIT + 1), "\ud800"])
def test_unfit_initial_text(text: str) -> None:
    with pytest.raises(ValueError, match="initial"):
        NotesProvider(text)
    assert NotesProvider("x" * LIMIT).served_notes()[0] == 1


# --- turns ---


def test_a_turn_of_notes_alone_is_charged() -> None:
    session, _ = keeping(max_turns_per_window=2)
    assert play(session, read()).turns_used == 1
    result = play(session, write("x"))
    assert (result.turns_used, result.window_closed_by) == (2, "quota")


def test_a_write_may_stand_before_the_end_of_the_step() -> None:
    session, provider = keeping()
    result = play(session, write("x"), read(), END)
    assert (errors(result), result.window_closed_by, result.turns_used) == ([""] * 3, "end_of_step", 1)
    session.advance()
    assert provider.served_notes() == (1, "x")


def test_a_rejected_turn_writes_nothing() -> None:
    session, provider = keeping()
    result = play(session, END, write("x"))
    assert result.rejected == "end_of_step_misplaced"
    assert errors(play(session, write("a"), write("b", expected_version=5), write("c"))) == [
        "", "version_conflict", "",
    ]  # fmt: skip
    assert [version["content"] for version in provider.notes()] == ["a", "c"]


@pytest.mark.parametrize("initial", ["", "start"])
def test_a_turn_that_faults_restores_the_previous_version(initial: str) -> None:
    session, provider = keeping(initial, registry=faulty_registry(), merchants=2)
    play(session, write("other"), merchant=1)
    before = provider.snapshot(), session.snapshot(), session.digest()
    with pytest.raises(KeyboardInterrupt):
        play(session, write("x"), write("y", mode="append"), ("list_then_interrupt", {}))
    assert (provider.snapshot(), session.snapshot(), session.digest()) == before
    assert provider.served_notes() == (int(bool(initial)), initial)

    def refuse(record: Any) -> None:
        raise OSError("disk full")

    session.add_listener(refuse)
    with pytest.raises(OSError, match="disk full"):
        play(session, write("x"), END)
    assert (provider.snapshot(), session.snapshot()) == before[:2] and session.phase(0) == "deciding"
    session.listeners.clear()
    assert ask(session, write("x"))["version"] == 1 + bool(initial)


def test_a_repeated_turn_writes_once() -> None:
    session, provider = keeping()
    for _ in range(2):
        play(session, write("x", mode="append"), turn_id="a")
    assert provider.served_notes() == (1, "x")


def test_a_fault_in_a_write_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    session, provider = keeping()
    add = NotesProvider._add

    def broken(self: NotesProvider, merchant: int, text: str, *place: int) -> None:
        add(self, merchant, text, *place)
        if text == "b":
            raise RuntimeError("broken")

    monkeypatch.setattr(NotesProvider, "_add", broken)
    assert errors(play(session, write("a"), write("b"), write("c"))) == ["", "internal", ""]
    assert [version["content"] for version in provider.notes()] == ["a", "c"]


def test_reads_change_nothing_and_writes_change_the_digest() -> None:
    session, provider = keeping()
    digests = [session.digest()]
    for call in (write("a"), write("a"), write("b", mode="append")):
        play(session, call)
        digests.append(session.digest())
        state = provider.snapshot()
        play(session, read(), read(version=1), read(version=9))
        assert session.digest() == digests[-1] and provider.snapshot() == state
    assert len(set(digests)) == 4


def test_records_hold_the_calls() -> None:
    records: list[dict[str, Any]] = []
    session, _ = keeping(listeners=[records.append])
    play(session, read(), write("x"))
    calls = [(call["name"], call["kind"], call["ok"]) for call in records[0]["calls"]]
    assert calls == [("read_memory_doc", "READ", True), ("write_memory_doc", "WRITE", True)]
    assert records[0]["calls"][1]["arguments"] == {"content": "x"} and records[0]["charged"]


def test_a_run_file_holds_every_version(tmp_path: Path) -> None:
    env = RecordRun(gymnasium.make("merchantbench_gym:MerchantBenchSmoke-v0"), tmp_path / "a.run")
    env.unwrapped.add_provider(NotesProvider("start"))  # type: ignore[attr-defined]
    env.reset(seed=1)
    many: Any = [{"name": "write_memory_doc", "arguments": {"content": f"{n}"}} for n in range(2, 42)]
    env.step(many)
    env.step([{"name": "write_memory_doc", "arguments": {"content": ODD}}, RAW_END])
    env.close()
    with sqlite3.connect(tmp_path / "a.run") as db:
        rows = db.execute(
            "SELECT version, window, turn, bytes, content FROM note ORDER BY version"
        ).fetchall()
    db.close()
    assert rows[0] == (1, None, None, 5, "start")
    assert [row[0] for row in rows] == list(range(1, 43))
    assert rows[40] == (41, 0, 1, 2, "41") and rows[41] == (42, 0, 2, len(ODD.encode()), ODD)


# --- several merchants ---


def test_documents_are_isolated() -> None:
    market = MarketplaceEnv("smoke", merchants=2)
    market.add_provider(provider := NotesProvider())
    market.reset(seed=1)
    texts = {"merchant_0": "mine", "merchant_1": "yours"}
    action = {name: [{"name": "write_memory_doc", "arguments": {"content": t}}] for name, t in texts.items()}
    market.step(action)
    market.step({"merchant_1": action["merchant_1"]})
    seen = market.step({name: [{"name": "read_memory_doc"}] for name in texts})[0]
    bodies = [json.loads(seen[name]["tool_results"][0]["content"]) for name in texts]
    assert [(body["version"], body["content"]) for body in bodies] == [(1, "mine"), (2, "yours")]
    assert [provider.served_notes(m) for m in (0, 1, 2)] == [(1, "mine"), (2, "yours"), (0, "")]


def test_a_merchants_answers_do_not_depend_on_others_notes() -> None:
    answers = []
    for others in ([], [write("noise"), write("more")]):
        session, _ = keeping(merchants=2)
        for call in others:
            play(session, call, merchant=1)
        answers.append(play(session, write("x"), read(), ("get_observation", {})).results)
    assert answers[0] == answers[1]


# --- snapshots and copies ---


def step(env: Any, *calls: tuple[str, Any]) -> list[dict[str, Any]]:
    action = [{"name": name, "arguments": arguments} for name, arguments in calls]
    return [json.loads(result["content"]) for result in env.step(action)[0]["tool_results"]]


def started(initial: str = "") -> MerchantEnv:
    env = MerchantEnv("smoke")
    env.add_provider(NotesProvider(initial))
    env.reset(seed=3)
    return env


def provider_of(env: MerchantEnv) -> NotesProvider:
    (provider,) = env.session.providers
    assert isinstance(provider, NotesProvider)
    return provider


def restored(env: MerchantEnv) -> MerchantEnv:
    other = started("something else")
    step(other, write("other"))
    other.restore(env.snapshot())
    return other


COPIES: dict[str, Callable[[MerchantEnv], MerchantEnv]] = {
    "clone": lambda env: env.clone(),
    "deepcopy": copy.deepcopy,
    "pickle": lambda env: pickle.loads(pickle.dumps(env)),
    "restore": restored,
}


@pytest.mark.parametrize("initial", ["", "start"])
@pytest.mark.parametrize("way", list(COPIES))
def test_copies_carry_the_notes_and_stay_apart(way: str, initial: str) -> None:
    env = started(initial)
    step(env, write(ODD), write("b", mode="append"), END)
    stored = provider_of(env).notes()
    twin = COPIES[way](env)
    assert provider_of(twin).notes() == stored and twin.snapshot() == env.snapshot()
    assert step(twin, read()) == step(env, read())
    step(twin, write("only here"))
    assert provider_of(env).notes() == stored and len(provider_of(twin).notes()) == len(stored) + 1
    step(env, write("only there"))
    assert provider_of(twin).served_notes()[1] == "only here"


def test_a_reset_clears() -> None:
    for initial in ("", "start"):
        env = started(initial)
        step(env, write("x"))
        env.reset(seed=3)
        assert provider_of(env).served_notes() == (int(bool(initial)), initial)
        (body,) = step(env, read())
        assert (body["version"], body["content"]) == (int(bool(initial)), initial)


def test_equal_documents_have_equal_snapshots() -> None:
    ways = [
        [write("a"), write("b", mode="append"), write("c")],
        [write("a", mode="append"), write("ab"), write("c", expected_version=2)],
    ]
    snapshots = []
    for calls in ways:
        session, provider = keeping(merchants=3)
        for merchant in (2, 0) if calls is ways[0] else (0, 2):
            play(session, *calls, merchant=merchant)
        fresh = NotesProvider()
        fresh.restore(provider.snapshot())
        snapshots += [provider.snapshot(), fresh.snapshot(), provider.clone().snapshot()]
    assert len(set(snapshots)) == 1


def test_snapshots_of_appended_notes_grow_with_what_was_written() -> None:
    session, provider = keeping()
    for _ in range(20):
        play(session, write("x" * 5_000, mode="append"))
    assert len(provider.snapshot()) < 110_000


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"junk", b"{}\n", b"[]\n", b"\xff\n"),
        b'{"format":"merchantbench-notes-1"}\n',
        b'{"format":"other","initial":""}\n',
    ],
)
def test_foreign_bytes_change_nothing(data: bytes) -> None:
    provider = NotesProvider("start")
    state = provider.snapshot()
    for bad in (data, state + b"[0,0,1]\n", state.replace(b'"start"', b"7")):
        with pytest.raises(ValueError, match="no snapshot of notes"):
            provider.restore(bad)
        assert provider.snapshot() == state
