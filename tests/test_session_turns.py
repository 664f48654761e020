"""Receipts, refusals, undo, records, snapshots: a turn happens whole, once, or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from merchantbench_gym.market.world import MarketError
from merchantbench_gym.session import Session, Turn, TurnRefused
from merchantbench_gym.tools.calls import Call, normalise
from merchantbench_gym.tools.turns import not_deciding
from tests.session_kit import (
    END,
    Counter,
    contents,
    end,
    errors,
    faulty_registry,
    finish,
    listing,
    on_offer,
    opened,
    play,
    turn,
    world,
)

QUERY: tuple[str, Any] = ("query_balance", {})


def refusal(act: Callable[[], Any]) -> TurnRefused:
    with pytest.raises(TurnRefused) as caught:
        act()
    return caught.value


# --- receipts ---


def test_same_turn_twice_acts_once() -> None:
    session = opened(providers=[Counter()])
    first = play(session, ("bump", {}), turn_id="a")
    state = session.snapshot()
    again = play(session, ("bump", {}), turn_id="a")
    assert again == first and again.results == first.results
    assert again.replayed and not first.replayed
    assert session.snapshot() == state


def test_equal_bodies_under_two_ids_act_twice() -> None:
    session = opened(providers=[Counter()])
    numbers = [contents(play(session, ("bump", {}), turn_id=i))[0]["number"] for i in ("a", "b")]
    assert numbers == [1, 2]


def test_same_id_other_body_is_a_conflict() -> None:
    session = opened()
    play(session, QUERY, turn_id="a")
    state = session.snapshot()
    for other in (turn(turn_id="a"), turn(QUERY, QUERY, turn_id="a"), turn(QUERY, turn_id="a", window=1)):
        error = refusal(lambda other=other: session.submit(0, other))  # type: ignore[misc]
        assert error.code == "turn_conflict"
    assert session.snapshot() == state


def test_replay_works_in_the_next_window_and_after_the_end() -> None:
    session = opened({"run": {"horizon_days": 1}})
    first = play(session, QUERY, turn_id="a", window=0)
    closing = play(session, END, turn_id="b", window=0)
    session.advance()
    assert play(session, QUERY, turn_id="a", window=0) == first
    assert play(session, QUERY, turn_id="a") == first
    last = play(session, END, turn_id="c")
    session.advance()
    assert session.finished
    assert play(session, END, turn_id="c") == last
    assert play(session, END, turn_id="b", window=0) == closing


def test_older_receipts_are_gone() -> None:
    session = opened()
    play(session, QUERY, turn_id="a", window=0)
    end(session)
    end(session)
    assert refusal(lambda: play(session, QUERY, turn_id="a", window=0)).code == "stale_window"


def test_receipts_are_per_merchant() -> None:
    session = opened(merchants=2, providers=[Counter()])
    play(session, ("bump", {}), turn_id="a", merchant=0)
    assert not play(session, ("bump", {}), turn_id="a", merchant=1).replayed


def test_rejected_turns_have_receipts_too() -> None:
    session = opened()
    submitted = Turn("a", None, normalise("garbage"))
    first = session.submit(0, submitted)
    assert session.submit(0, submitted) == first and session.turns_used(0) == 1
    assert refusal(lambda: session.submit(0, Turn("a", None, normalise("rubbish")))).code == "turn_conflict"


def test_ids_of_the_session_are_receipts_and_never_collide() -> None:
    session = opened()
    assert play(session, QUERY, turn_id="0.2").turn_id == "0.2"
    assert [play(session, QUERY).turn_id, play(session, QUERY).turn_id] == ["0.2_", "0.3"]
    assert play(session, QUERY, turn_id="0.3").replayed


def test_receipts_stay_bounded() -> None:
    session = opened({"run": {"horizon_days": 10}})
    sizes = []
    while not session.finished:
        for _ in range(30):
            play(session, QUERY)
        session.advance()
        sizes.append(len(session._seats[0].receipts) + len(session._seats[0].older))
    assert max(sizes) <= 60


# --- refusals ---


@pytest.mark.parametrize("merchant", [1, -1, "0", None, True, 1.0])
def test_unknown_merchant(merchant: Any) -> None:
    error = refusal(lambda: opened().submit(merchant, turn(QUERY)))
    assert (error.code, error.phase, error.turns_left) == ("unknown_merchant", "", 0)


@pytest.mark.parametrize(
    "names",
    [
        {"turn_id": ""}, {"turn_id": "x" * 65}, {"turn_id": "a b"}, {"turn_id": "é"}, {"turn_id": 7},
        {"turn_id": "a\n"}, {"window": -1}, {"window": True}, {"window": "0"}, {"window": 0.0},
        {"note": float("nan")}, {"note": {1: 2}}, {"note": object()}, {"note": "x" * 65_536},
        {"note": "\ud800"},
    ],
)  # fmt: skip
def test_invalid_turn(names: dict[str, Any]) -> None:
    session = opened()
    state = session.snapshot()
    error = refusal(lambda: play(session, QUERY, **names))
    assert (error.code, error.merchant, error.phase) == ("invalid_turn", 0, "deciding")
    assert (error.current_window, error.turns_left) == (0, 30)
    assert session.snapshot() == state


def test_longest_names_are_fine() -> None:
    assert play(opened(), QUERY, turn_id="aZ09_.:-" * 8, window=0, note="x" * 65_534).turns_used == 1


def test_stale_and_future_windows() -> None:
    session = opened()
    end(session)
    for window in (0, 2):
        error = refusal(lambda window=window: play(session, END, window=window))  # type: ignore[misc]
        assert (error.code, error.current_window) == ("stale_window", 1)
    assert session.phase(0) == "deciding"


def test_ended_merchant_is_refused_without_charge() -> None:
    session = opened(merchants=2)
    play(session, END, merchant=0)
    state = session.snapshot()
    error = refusal(lambda: play(session, QUERY, merchant=0))
    assert (error.code, error.phase, error.turns_left) == ("not_deciding", "done", 0)
    assert session.snapshot() == state and session.world.t == 0


def test_answers_of_an_ended_merchant_name_every_call() -> None:
    entries = [{"id": "a", "name": "x"}, {"name": "y"}]
    assert [(r["tool_call_id"], r["name"]) for r in not_deciding(normalise(entries))] == [
        ("a", "x"), ("auto_1", "y"),
    ]  # fmt: skip
    assert not_deciding(normalise([])) == []
    (nameless,) = not_deciding(normalise("garbage"))
    assert nameless["tool_call_id"] == "" and "not_deciding" in nameless["content"]


def test_run_finished() -> None:
    session = opened({"run": {"horizon_days": 1}})
    finish(session)
    for merchant_turn in (turn(QUERY), turn(QUERY, window=0), turn(END, turn_id="new")):
        error = refusal(lambda t=merchant_turn: session.submit(0, t))  # type: ignore[misc]
        assert error.code == "run_finished" and error.phase == "closed"


def test_a_check_tells_what_submit_would_do_and_does_nothing() -> None:
    session = opened(merchants=2)
    play(session, QUERY, merchant=0, turn_id="a")
    state = session.snapshot()
    stored = session.check(0, turn(QUERY, turn_id="a"))
    assert stored is not None and stored.replayed and stored.turn_id == "a"
    assert session.check(0, turn(END)) is None
    assert refusal(lambda: session.check(0, turn(END, turn_id="a"))).code == "turn_conflict"
    assert refusal(lambda: session.check(1, turn(END, window=3))).code == "stale_window"
    assert session.snapshot() == state


# --- undo ---


@pytest.mark.parametrize(
    ("name", "code"), [("list_then_fail", "internal"), ("list_then_refuse", "not_available")]
)
def test_a_failed_call_has_no_effect_and_others_have(name: str, code: str) -> None:
    records: list[dict[str, Any]] = []
    session = opened(registry=faulty_registry(), listeners=[records.append])
    products = on_offer(session, 60)[50:52]
    result = play(session, listing(products[0]), (name, {}), listing(products[1]))
    assert errors(result) == ["", code, ""]
    assert session.world.shelf_products(0) == products
    assert "secret" not in result.results[1]["content"]
    fault = records[0]["calls"][1]["fault"]
    if code == "internal":
        assert fault["class"] == "RuntimeError" and "list_then_fail" in fault["traceback"]
    else:
        assert fault is None


def test_provider_state_is_undone_too() -> None:
    session = opened(providers=[Counter()])
    result = play(session, ("bump", {}), ("bump", {"fail": True}), ("bump", {}), ("peek", {}))
    assert errors(result) == ["", "internal", "", ""]
    assert contents(result)[3]["number"] == 2


def test_unfit_results() -> None:
    session = opened(registry=faulty_registry())
    result = play(session, ("return_nonsense", {}), ("return_surrogate", {}), ("return_much", {}), QUERY)
    assert errors(result) == ["internal", "internal", "result_too_large", ""]
    assert "page_size" in contents(result)[2]["error"]["message"]


class Failing:
    """A listener that fails once."""

    def __init__(self, error: type[BaseException]) -> None:
        self.error: type[BaseException] | None = error
        self.records: list[dict[str, Any]] = []

    def __call__(self, record: dict[str, Any]) -> None:
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        self.records.append(record)


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_a_turn_whose_record_fails_has_not_happened(error: type[BaseException]) -> None:
    session = opened(providers=[Counter()])
    play(session, listing(*on_offer(session, 2)))
    listener = Failing(error)
    session.add_listener(listener)
    state, digest = session.snapshot(), session.digest()
    submitted = turn(listing(*on_offer(session, 9)), ("bump", {}), ("bump", {}), END, turn_id="a")
    with pytest.raises(error):
        session.submit(0, submitted)
    assert (session.snapshot(), session.digest(), session.phase(0)) == (state, digest, "deciding")
    result = session.submit(0, submitted)
    assert not result.replayed and errors(result) == [""] * 4 and len(listener.records) == 1
    assert session.world.shelf_size(0) == 9


def test_an_interrupt_between_calls_undoes_the_turn() -> None:
    session = opened(registry=faulty_registry(), providers=[Counter()])
    play(session, listing(*on_offer(session, 2)))
    state, digest = session.snapshot(), session.digest()
    with pytest.raises(KeyboardInterrupt):
        play(session, ("bump", {}), listing(*on_offer(session, 9)), ("list_then_interrupt", {}), turn_id="a")
    assert (session.snapshot(), session.digest()) == (state, digest)
    assert not play(session, QUERY, turn_id="a").replayed


# --- records ---


def test_record_of_a_turn() -> None:
    records: list[dict[str, Any]] = []
    session = opened(listeners=[records.append])
    good = on_offer(session, 1)[0]
    name, arguments = listing(good, 999_999)
    action = {
        "role": "assistant",
        "content": "hm",
        "tool_calls": [
            {"id": "x", "name": name, "arguments": json.dumps(arguments)},
            {"id": "y", "name": "foo"},
            {"id": "z", "name": "query_balance", "arguments": "{" * 5000},
        ],
    }
    result = session.submit(0, Turn("t", 0, normalise(action), {"usage": (1, 2)}))
    (record,) = records
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    calls = record.pop("calls")
    assert len(record.pop("body_hash")) == 64
    assert record.pop("state_digest") == session.digest()
    assert record == {
        "merchant": 0, "window": 0, "turn": 1, "turn_id": "t", "time": "D1H00", "text": "hm",
        "note": {"usage": [1, 2]}, "charged": True, "rejected": "", "window_closed_by": "", "turns_used": 1,
        "net_assets": 300_000,
    }  # fmt: skip
    assert calls[0] == {
        "position": 0, "id": "x", "name": "list_product", "kind": "WRITE", "arguments": arguments, "ok": True,
        "code": "", "applied": 1, "rejected": 1, "content": result.results[0]["content"], "fault": None,
    }  # fmt: skip
    assert [(c["kind"], c["ok"], c["code"]) for c in calls[1:]] == [
        ("", False, "unknown_tool"), ("READ", False, "invalid_json"),
    ]  # fmt: skip
    assert calls[2]["arguments"] == "{" * 2000


def test_record_of_a_rejected_turn_and_of_a_lone_end() -> None:
    records: list[dict[str, Any]] = []
    session = opened(listeners=[records.append])
    session.submit(0, Turn(batch=normalise("x" * 70_000)))
    play(session, END)
    assert records[0]["rejected"] == "malformed_action" and records[0]["charged"]
    assert len(records[0]["text"]) == 65_536 and records[0]["calls"][0]["id"] == ""
    assert not records[1]["charged"] and records[1]["window_closed_by"] == "end_of_step"
    assert [record["turn"] for record in records] == [1, 2]


def test_replays_and_refusals_leave_no_record() -> None:
    records: list[dict[str, Any]] = []
    session = opened(listeners=[records.append])
    play(session, END, turn_id="a")
    play(session, END, turn_id="a")
    refusal(lambda: play(session, QUERY))
    assert len(records) == 1


def test_hashes_are_made_only_for_listeners_that_read_them() -> None:
    class Light(list[Any]):
        needs_digest = False
        __call__ = list.append

    light, full = Light(), []  # type: ignore[var-annotated]
    play(opened(listeners=[light]), QUERY)
    assert (light[0]["state_digest"], light[0]["body_hash"]) == ("", "")
    play(opened(listeners=[light, full.append]), QUERY)
    assert light[1]["state_digest"] == full[0]["state_digest"] != ""
    assert light[1] is not full[0]


def test_digest_follows_shelf_notes_and_clock_only() -> None:
    session = opened(providers=[Counter()])
    seen = [session.digest()]
    play(session, QUERY, ("peek", {}))
    session.observe(0)
    assert session.digest() == seen[0]
    for act in (
        lambda: play(session, listing(*on_offer(session, 1))),
        lambda: play(session, ("bump", {})),
        lambda: end(session),
    ):
        act()
        assert session.digest() not in seen
        seen.append(session.digest())


# --- whole runs ---


def script(session: Session, window: int, merchant: int) -> list[Turn]:
    """Turns of a busy merchant in a window."""
    products = on_offer(session, 40)[merchant::2]
    shelf = session.world.shelf_products(merchant)
    drop = {"items": [{"product_id": f"P{i:05d}"} for i in shelf[:3]]}
    turns = [
        turn(QUERY, listing(*products[: 5 + window % 5], price=20.0 + window)),
        turn(("search_products", {"query": "steel"}), ("nonsense", {}), ("get_observation", {})),
        turn(("bump", {}), ("query_my_listings", {})),
        turn(QUERY, END),
    ]
    return [turn(("delist_product", drop)), *turns] if shelf else turns


def run(session: Session, order: Callable[[list[int]], list[int]] = list) -> dict[int, list[Any]]:
    """Play the script to the end; returns what each merchant saw."""
    seen: dict[int, list[Any]] = {m: [] for m in range(session.world.merchants)}
    while not session.finished:
        for m in order([m for m in seen if session.phase(m) == "deciding"]):
            for submitted in script(session, session.window, m):
                seen[m].append(session.submit(m, submitted))
                seen[m].append(session.text(m))
        session.advance()
        for m in seen:
            seen[m].append(session.observe(m))
    return seen


SHORT = {"run": {"horizon_days": 3}}


def test_order_of_merchants_in_a_window_changes_nothing() -> None:
    sessions = [opened(SHORT, merchants=3, providers=[Counter()]) for _ in range(2)]
    assert run(sessions[0]) == run(sessions[1], lambda order: order[::-1])
    assert sessions[0].digest() == sessions[1].digest()


def test_a_provider_without_state_is_not_in_the_digest() -> None:
    """So that a run with tools taken away from a window on is the same as one without until then."""

    class Stateless(Counter):
        def __init__(self) -> None:
            super().__init__(("query_balance",), window=1)
            self.tools = []

        def snapshot(self) -> bytes:
            return b""

    providers = ([], [Stateless()], [Counter()], [Stateless(), Counter()])
    bare, stateless, counting, both = (opened(providers=own).digest() for own in providers)
    assert bare == stateless != counting == both


def test_writes_of_the_records_reproduce_all_digests() -> None:
    records: list[dict[str, Any]] = []
    session = opened(SHORT, merchants=2, providers=[Counter()], listeners=[records.append])
    run(session)
    again: list[dict[str, Any]] = []
    session = opened(SHORT, merchants=2, providers=[Counter()], listeners=[again.append])
    for record in records:
        kept = [call for call in record["calls"] if call["kind"] in ("WRITE", "CONTROL")]
        batch = normalise([{key: call[key] for key in ("id", "name", "arguments")} for call in kept])
        session.submit(record["merchant"], Turn(record["turn_id"], record["window"], batch))
        if all(session.phase(m) != "deciding" for m in (0, 1)):
            session.advance()
    assert session.finished
    assert [record["state_digest"] for record in again] == [record["state_digest"] for record in records]


def test_restore_gives_the_same_future_bytes() -> None:
    session = opened(SHORT, merchants=2, providers=[Counter()])
    other = Session(world(SHORT, merchants=2), providers=[Counter()])
    end(session)
    first = script(session, 1, 0)
    session.submit(0, first[0])
    state = session.snapshot()
    replies = [session.submit(0, submitted) for submitted in first[1:]]
    seen = run_rest(session)
    for fresh in (session, other):
        fresh.restore(state)
        assert fresh.snapshot() == state
        assert [fresh.submit(0, submitted) for submitted in first[1:]] == replies
        assert run_rest(fresh) == seen


def run_rest(session: Session) -> tuple[dict[int, list[Any]], bytes]:
    return run(session), session.snapshot()


def test_clone_is_independent() -> None:
    session = opened(SHORT, merchants=2, providers=[Counter()], listeners=[lambda record: None])
    end(session)
    session.submit(0, script(session, 1, 0)[0])
    play(session, ("bump", {}), turn_id="a")
    state, twin = session.snapshot(), session.clone()
    assert twin.snapshot() == state and not twin.listeners
    assert play(twin, ("bump", {}), turn_id="a").replayed
    seen = run_rest(twin)
    assert session.snapshot() == state
    assert run_rest(session) == seen


def test_restored_receipts_still_answer() -> None:
    session = opened()
    play(session, QUERY, turn_id="a")
    first = play(session, ("query_balance", "{"), turn_id="b")
    fresh = Session(world())
    fresh.restore(session.snapshot())
    again = play(fresh, ("query_balance", "{"), turn_id="b")
    assert again == first and again.replayed
    assert refusal(lambda: play(fresh, turn_id="a")).code == "turn_conflict"


def test_unfit_snapshots_change_nothing() -> None:
    session = opened(providers=[Counter()])
    play(session, ("bump", {}))
    state = session.snapshot()
    others = [
        opened().snapshot(),
        opened(seed=2, providers=[Counter()]).snapshot(),
        opened(SHORT, providers=[Counter()]).snapshot(),
        opened(merchants=2, providers=[Counter()]).snapshot(),
        opened(providers=[Counter()], max_turns_per_window=5).snapshot(),
        b"", b"garbage" * 20, state[:-1], state + b"x", bytes([state[0] ^ 1]) + state[1:],
        state[:100] + bytes([state[100] ^ 1]) + state[101:],
    ]  # fmt: skip
    for data in others:
        with pytest.raises(MarketError):
            session.restore(data)
        assert session.snapshot() == state


def test_a_provider_that_cannot_restore_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    good, bad = Counter(), Counter()
    bad.tools = []
    session = opened(SHORT, providers=[good, bad])
    early = session.snapshot()
    play(session, ("bump", {}), listing(*on_offer(session, 3)))
    end(session)
    state = session.snapshot()

    def fail_once(data: bytes) -> None:
        monkeypatch.undo()
        raise OSError

    monkeypatch.setattr(bad, "restore", fail_once)
    with pytest.raises(OSError):
        session.restore(early)
    assert session.snapshot() == state
    session.restore(early)
    assert session.snapshot() == early


def test_arguments_handed_to_a_session_stay_as_they_are() -> None:
    session = opened()
    batch = normalise([{"name": "query_balance", "arguments": {"x": [1]}}])
    session.submit(0, Turn(batch=batch))
    assert batch.calls[0] == Call(0, "auto_0", "query_balance", {"x": [1]})


def test_restore_forgets_what_views_kept_of_another_past() -> None:
    session = opened()
    kept = session.view(0).per_hour("key", lambda: "of this past")
    data = session.snapshot()
    session.restore(data)
    assert kept == "of this past"
    assert session.view(0).per_hour("key", lambda: "fresh") == "fresh"
