"""Phases, quota, clock and bookkeeping of the session."""

from __future__ import annotations

from typing import Any

import pytest

from merchantbench_gym.session import Session, Turn, TurnRefused
from merchantbench_gym.tools.calls import normalise
from merchantbench_gym.tools.observation import risk_sets
from tests.session_kit import (
    END,
    Counter,
    contents,
    end,
    errors,
    finish,
    listing,
    on_offer,
    opened,
    play,
    world,
)

QUERY: tuple[str, Any] = ("query_balance", {})


# --- phases and clock ---


def test_phases_of_a_window() -> None:
    session = Session(world())
    assert session.phase(0) == "waiting"
    with pytest.raises(TurnRefused) as caught:
        play(session, QUERY)
    assert caught.value.code == "not_deciding"
    session.open()
    assert (session.phase(0), session.turns_left(0)) == ("deciding", 30)
    assert (session.window, session.window_t) == (0, 0)
    with pytest.raises(RuntimeError):
        session.open()
    play(session, END)
    assert (session.phase(0), session.turns_left(0)) == ("done", 0)
    session.advance()
    assert (session.phase(0), session.turns_left(0)) == ("deciding", 30)
    assert (session.window, session.window_t, session.world.t) == (1, 12, 12)


def test_clock_stands_while_somebody_decides() -> None:
    session = opened(merchants=2)
    play(session, END, merchant=0)
    with pytest.raises(RuntimeError, match="not ended"):
        session.advance()
    assert session.world.t == 0
    play(session, END, merchant=1)
    session.advance()
    assert session.world.t == 12


@pytest.mark.parametrize(("days", "period", "windows"), [(2, 12, 4), (2, 7, 7), (1, 24, 1), (1, 1, 24)])
def test_windows_cover_the_horizon_then_the_run_drains(days: int, period: int, windows: int) -> None:
    session = opened({"run": {"horizon_days": days, "activation_period": period}})
    play(session, listing(*on_offer(session, 20), price=5.0))
    hours = []
    while not session.finished:
        hours.append(session.window_t)
        end(session)
    # Without open orders the merchant is done before a window that opens in the last hour.
    assert hours == [period * w for w in range(windows)][: len(hours)]
    assert len(hours) >= windows - 1
    assert session.end_reason(0) == "horizon" and session.phase(0) == "closed"
    assert session.world.finished and session.observe(0)["time"]["state"] == "finished"
    with pytest.raises(RuntimeError):
        session.advance()


def test_text_and_packet_agree_and_reading_changes_nothing() -> None:
    session = opened()
    before = session.snapshot()
    assert session.text(0) == session.text(0, session.observe(0))
    assert session.schemas(0) == session.schemas(0)
    assert session.snapshot() == before


# --- quota ---


def test_every_turn_is_charged_but_a_lone_end() -> None:
    session = opened()
    results = [
        play(session),
        play(session, QUERY),
        play(session, ("nonsense", {})),
        play(session, QUERY, END),
    ]
    assert [(r.turn, r.turns_used, r.turns_left) for r in results] == [
        (1, 1, 29), (2, 2, 28), (3, 3, 27), (4, 4, 0),
    ]  # fmt: skip
    assert results[-1].window_closed_by == "end_of_step" and results[-1].step_done
    session.advance()
    lone = play(session, END)
    assert (lone.turn, lone.turns_used, lone.window_closed_by) == (1, 0, "end_of_step")


def test_lone_end_after_29_turns() -> None:
    session = opened()
    for _ in range(29):
        assert play(session, QUERY).window_closed_by == ""
    result = play(session, END)
    assert (result.turns_used, result.window_closed_by) == (29, "end_of_step")


def test_the_thirtieth_turn_closes_by_quota() -> None:
    session = opened()
    results = [play(session, QUERY) for _ in range(30)]
    assert [r.window_closed_by for r in results] == [""] * 29 + ["quota"]
    assert results[-1].step_done and session.phase(0) == "done"
    assert errors(results[-1]) == [""]


def test_the_thirtieth_turn_may_end_the_step_itself() -> None:
    session = opened()
    for _ in range(29):
        play(session, QUERY)
    result = play(session, QUERY, END)
    assert (result.turns_used, result.window_closed_by) == (30, "end_of_step")


def test_a_failed_lone_end_costs_a_turn() -> None:
    session = opened()
    result = play(session, ("end_of_step", {"now": True}))
    assert errors(result) == ["invalid_arguments"]
    assert (result.turns_used, result.step_done, session.phase(0)) == (1, False, "deciding")


@pytest.mark.parametrize("calls", [[], [QUERY], [END], [("end_of_step", {"x": 1})], [QUERY, QUERY]])
def test_with_a_limit_of_one_every_turn_closes_the_window(calls: list[Any]) -> None:
    session = opened(max_turns_per_window=1)
    assert play(session, *calls).step_done
    session.advance()
    assert session.window == 1


def test_limit_must_be_positive() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Session(world(), max_turns_per_window=0)


def test_only_garbage_reaches_the_horizon_like_doing_nothing() -> None:
    session, idle = opened({"run": {"horizon_days": 3}}), opened({"run": {"horizon_days": 3}})
    turns = 0
    while not session.finished:
        result = session.submit(0, Turn(batch=normalise("garbage")))
        assert result.rejected == "malformed_action"
        turns += 1
        if result.step_done:
            session.advance()
    finish(idle)
    assert turns == 6 * 30
    assert session.world.net_assets(0) == idle.world.net_assets(0) == 300_000


# --- turn rules ---


@pytest.mark.parametrize("calls", [[END, END], [END, QUERY], [QUERY, END, QUERY]])
def test_misplaced_end_rejects_the_turn(calls: list[Any]) -> None:
    session = opened()
    result = play(session, *calls)
    assert result.rejected == "end_of_step_misplaced"
    assert errors(result) == ["end_of_step_misplaced"] * len(calls)
    assert [entry["tool_call_id"] for entry in result.results] == [f"auto_{i}" for i in range(len(calls))]
    assert (result.turns_used, result.step_done) == (1, False)


def test_rejected_turns_execute_nothing() -> None:
    session = opened({"turns": {"max_calls_per_turn": 2}})
    before = session.world.digest()
    put = listing(*on_offer(session, 1))
    assert play(session, put, put, put).rejected == "too_many_calls"
    name, arguments = put
    twice = normalise([{"id": "a", "name": name, "arguments": arguments}] * 2)
    assert session.submit(0, Turn(batch=twice)).rejected == "duplicate_call_id"
    assert session.world.digest() == before and session.turns_used(0) == 2


def test_unreadable_action_has_one_nameless_result() -> None:
    session = opened()
    result = session.submit(0, Turn(batch=normalise(7)))
    (entry,) = result.results
    assert (entry["tool_call_id"], entry["name"]) == ("", "")
    assert errors(result) == ["malformed_action"] and result.turns_used == 1


def test_five_containers_give_equal_results() -> None:
    entry = {"id": "a", "name": "query_balance", "arguments": "{}"}
    wrapped = {"id": "a", "type": "function", "function": {"name": "query_balance", "arguments": {}}}
    forms: list[Any] = [
        [entry], (wrapped,), {"tool_calls": [wrapped]}, {"role": "assistant", "tool_calls": [entry]},
        '[{"id": "a", "name": "query_balance"}]',
    ]  # fmt: skip
    sessions = [opened() for _ in forms]
    results = [s.submit(0, Turn(batch=normalise(form))) for s, form in zip(sessions, forms, strict=True)]
    assert all(result == results[0] for result in results)


# --- calls ---


def test_calls_fail_alone_with_their_code() -> None:
    session = opened({"tools": {"denied": ["query_platform_rules"]}})
    result = play(
        session,
        ("Query_balance", {}),
        ("query_platform_rules", {}),
        ("query_balance", "{"),
        ("query_balance", {"x": 1}),
        ("query_balance", 7),
        QUERY,
    )
    assert errors(result) == [
        "unknown_tool", "tool_denied", "invalid_json", "invalid_arguments", "invalid_arguments", "",
    ]  # fmt: skip
    assert "query_balance" in contents(result)[0]["error"]["message"]


def test_entries_that_are_no_calls_fail_alone() -> None:
    session = opened()
    result = session.submit(0, Turn(batch=normalise(["x", {"name": "query_balance", "id": "a"}])))
    assert errors(result) == ["malformed_action", ""]
    assert contents(result)[0]["error"]["path"] == "$[0]"
    assert [(r["tool_call_id"], r["name"]) for r in result.results] == [
        ("auto_0", ""),
        ("a", "query_balance"),
    ]


def test_unreadable_values_and_schema_problems_are_reported_together() -> None:
    session = opened()
    items = [
        {"product_id": "\ud800", "sale_price": "x"},
        {"product_id": "P00001", "sale_price": float("nan")},
    ]
    result = play(session, ("list_product", {"items": items, "colour": object()}))
    (body,) = contents(result)
    paths = [problem["path"] for problem in body["error"]["errors"]]
    assert sorted(paths) == [
        "$.colour", "$.items[0].product_id", "$.items[0].sale_price", "$.items[1].sale_price",
    ]  # fmt: skip
    assert body["error"]["path"] == paths[0]
    assert session.world.shelf_size(0) == 0


def test_a_wrong_type_in_one_item_rejects_the_call() -> None:
    session = opened()
    name, arguments = listing(*on_offer(session, 5))
    arguments["items"][3]["sale_price"] = "7"
    (body,) = contents(play(session, (name, arguments)))
    assert body["error"]["code"] == "invalid_arguments"
    assert body["error"]["path"] == "$.items[3].sale_price"
    assert session.world.shelf_size(0) == 0


def test_good_and_bad_items() -> None:
    session = opened()
    good = on_offer(session, 1)[0]
    (body,) = contents(play(session, listing(good, 999_999)))
    assert (body["ok"], body["applied"], body["rejected"]) == (True, 1, 1)
    assert session.world.on_shelf(0, good)


def test_results_are_copies() -> None:
    session = opened()
    result = play(session, QUERY)
    result.results[0]["content"] = "changed"
    result.results.clear()
    assert contents(result)[0]["ok"]


def test_get_observation_first_in_a_turn_is_the_text_before_it() -> None:
    session = opened()
    play(session, listing(*on_offer(session, 3)))
    before = session.text(0)
    put = listing(*on_offer(session, 4))
    first, _, second = contents(play(session, ("get_observation", {}), put, ("get_observation", {})))
    assert first["text"] == before
    assert "3 of 50 listed" in first["text"] and "4 of 50 listed" in second["text"]


def test_risks_inside_a_turn_follow_its_own_writes() -> None:
    session = opened()
    put = listing(*on_offer(session, 3), price=0.01)
    before, _, after = contents(play(session, ("get_store_snapshot", {}), put, ("get_store_snapshot", {})))
    risks = [body["supply"]["current_risks"]["price_loss_risk"] for body in (before, after)]
    assert risks == [0, 3] and session.observe(0)["supply"]["current_risks"]["price_loss_risk"] == 3


def test_end_of_step_names_time_and_window() -> None:
    session = opened()
    end(session)
    (body,) = contents(play(session, END))
    assert body == {"ok": True, "time": "D1H12", "window": 2}


# --- tools on offer ---


def test_denied_tools_are_not_listed() -> None:
    session = opened({"tools": {"denied": ["query_balance"]}})
    names = [schema["function"]["name"] for schema in session.schemas(0)]
    assert "query_balance" not in names and "end_of_step" in names
    (body,) = contents(play(session, ("list_tools", {})))
    assert [schema["function"]["name"] for schema in body["tools"]] == names
    assert body["count"] == len(names)
    assert errors(play(session, QUERY)) == ["tool_denied"]


def test_providers_add_tools_and_take_tools_away() -> None:
    session = opened(providers=[Counter(("query_balance", "end_of_step", "get_daily_report"), window=1)])
    assert errors(play(session, QUERY, ("bump", {}), ("peek", {}))) == ["", "", ""]
    assert errors(play(opened(), ("bump", {}))) == ["unknown_tool"]
    end(session)
    names = [schema["function"]["name"] for schema in session.schemas(0)]
    assert names[-2:] == ["bump", "peek"] and "query_balance" not in names
    assert errors(play(session, QUERY, END)) == ["tool_denied", ""]
    session.advance()
    assert errors(play(session, QUERY)) == [""]


def test_provider_tools_know_their_merchant() -> None:
    session = opened(merchants=2, providers=[Counter()])
    play(session, ("bump", {}), merchant=1)
    assert [contents(play(session, ("peek", {}), merchant=m))[0]["number"] for m in (0, 1)] == [0, 1]


def test_two_tools_of_one_name_are_an_error() -> None:
    with pytest.raises(ValueError, match="bump"):
        Session(world(), providers=[Counter(), Counter()])


# --- bookkeeping ---


def test_book_of_the_first_windows() -> None:
    session = opened()
    book = session.book(0)
    assert (book.last_t, book.open_t, book.shelf, book.net_assets_at_close) == (-1, 0, (), 300_000)
    assert (session.info(0).from_t, session.info(0).to_t) == (0, 0)
    products = on_offer(session, 5)
    play(session, listing(*products[::-1]))
    assert session.book(0).shelf == ()
    end(session)
    book = session.book(0)
    assert (book.last_t, book.open_t, book.shelf) == (0, 12, tuple(products))
    assert (session.info(0).from_t, session.info(0).to_t) == (1, 12)


def current_risks(session: Session) -> dict[str, int]:
    counts: dict[str, int] = session.observe(0)["supply"]["current_risks"]
    return counts


def test_book_holds_risks_at_both_ends_of_the_hours() -> None:
    session = opened({"run": {"horizon_days": 30}}, seed=3)
    at_close, net, seen = risk_sets(session.view(0)), session.world.net_assets(0), 0
    while not session.finished:
        book = session.book(0)
        assert book.risks_at_close == at_close
        assert book.risks_at_open == risk_sets(session.view(0))
        assert book.net_assets_at_close == net
        fresh = {name: book.risks_at_open[name] - book.risks_at_close[name] for name in at_close}
        assert session.observe(0)["supply"]["new_risks"] == {name: len(ids) for name, ids in fresh.items()}
        seen += sum(map(len, fresh.values()))
        assert current_risks(session) == {name: len(ids) for name, ids in risk_sets(session.view(0)).items()}
        if session.window % 7 == 0:
            play(
                session, ("delist_product", {"items": [{"product_id": f"P{i:05d}"} for i in book.shelf[:9]]})
            )
            play(session, listing(*on_offer(session, 40 - session.window), price=20.0))
        at_close, net = risk_sets(session.view(0)), session.world.net_assets(0)
        assert current_risks(session) == {name: len(ids) for name, ids in at_close.items()}
        end(session)
    assert seen > 0


def test_final_book_covers_the_drain() -> None:
    session = opened({"run": {"horizon_days": 2}})
    play(session, listing(*on_offer(session, 50), price=15.0))
    finish(session)
    book = session.book(0)
    assert book.last_t == 36 and book.open_t == session.world.final_hour(0)
    time = session.observe(0)["time"]
    assert (time["state"], time["since"]["from"], time["turns_left"]) == ("finished", "D2H13", 0)


# --- closure ---

POOR = {"merchant": {"initial_cash": 30.0, "initial_deposit": 5.0}, "run": {"horizon_days": 30}}


def ruin(session: Session, merchant: int = 0) -> None:
    play(session, listing(*on_offer(session, 50), price=3.0), merchant=merchant)


def test_closed_shop_ends_the_run_of_a_lone_merchant() -> None:
    session = opened(POOR)
    ruin(session)
    finish(session)
    assert session.end_reason(0) == "shop_closed" and session.phase(0) == "closed"
    packet = session.observe(0)
    assert packet["time"]["state"] == "closed" and packet["time"]["turns_left"] == 0
    assert session.world.t < session.world.horizon
    for batch in ("[]", "x"):
        with pytest.raises(TurnRefused) as caught:
            session.submit(0, Turn(batch=normalise(batch)))
        assert caught.value.code == "run_finished"


def test_shop_that_closes_while_others_trade_is_wound_down() -> None:
    session = opened(POOR, merchants=2)
    ruin(session, 1)
    while session.phase(1) != "closed":
        assert session.world.alive(1)
        end(session)
    assert session.phase(0) == "deciding" and not session.finished
    assert session.end_reason(1) == "shop_closed" and session.world.done(1)
    before, text = session.world.net_assets(1), session.text(1)
    assert session.book(1).open_t == session.world.final_hour(1)
    with pytest.raises(TurnRefused) as caught:
        play(session, QUERY, merchant=1)
    assert caught.value.code == "shop_closed"
    end(session)
    assert session.phase(0) == "deciding"
    assert (session.world.net_assets(1), session.text(1)) == (before, text)
    finish(session)
    assert session.end_reason(0) == "horizon"
    assert (session.world.net_assets(1), session.text(1)) == (before, text)


# --- interrupts ---


@pytest.mark.parametrize("where", ["world", "denied"])
def test_an_interrupted_clock_has_not_run(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    provider = Counter()
    sessions = [opened(merchants=2, providers=[p]) for p in (provider, Counter())]
    for session in sessions:
        play(session, listing(*on_offer(session, 50), price=10.0))
        end(session)
        play(session, END)
        play(session, END, merchant=1)
    session, other = sessions
    state = session.snapshot()

    def interrupt(*_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if where == "world":
            # In the middle of the hours: the orders of some have been made.
            calls = iter([None] * 5)
            serve = type(session.world)._serve_all
            patch.setattr(
                type(session.world),
                "_serve_all",
                lambda *a: serve(*a) if next(calls, 0) is None else interrupt(),
            )
        else:
            patch.setattr(provider, "denied", interrupt)
        with pytest.raises(KeyboardInterrupt):
            session.advance()
    assert session.snapshot() == state
    assert session.phase(0) == "done" and session.window == 1
    for each in sessions:
        each.advance()
    assert session.snapshot() == other.snapshot()
    assert session.observe(0) == other.observe(0)
