"""Playing in the terminal, driven by lines on standard input."""

from __future__ import annotations

import io
import json
from typing import Any

import gymnasium
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from merchantbench_gym import cli, cli_play, load_scenario
from merchantbench_gym import cli_play_tables as tables
from merchantbench_gym.cli_play_lines import (
    LOCAL,
    SHORT,
    Call,
    Desk,
    Mistake,
    calls_of,
    candidates,
    full_id,
    split,
)
from merchantbench_gym.tools import default_registry

DENIED = load_scenario("default").tools.denied


@pytest.fixture
def desk() -> Desk:
    made = Desk.of(default_registry().schemas(DENIED))
    made.day = 9
    return made


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Play lines; returns what was printed."""

    def run(*lines: str, options: tuple[str, ...] = ("--scenario", "smoke")) -> str:
        monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        assert cli.run_command(["play", *options]) == 0
        out, err = capsys.readouterr()
        assert err == ""
        return out

    return run


# Lines


LINES: list[tuple[str, list[Call]]] = [
    ("search desk lamp", [Call("search_products", {"query": "desk lamp"})]),
    ("search", [Call("search_products", {})]),
    (
        'search "desk lamp" price_max=20 sort_by=rating',
        [Call("search_products", {"query": "desk lamp", "price_max": 20, "sort_by": "rating"})],
    ),
    ("search men's bag", [Call("search_products", {"query": "men's bag"})]),
    (
        'search_products query="desk; lamp" price_max=20.5',
        [Call("search_products", {"query": "desk; lamp", "price_max": 20.5})],
    ),
    ("search_products query='desk lamp'", [Call("search_products", {"query": "desk lamp"})]),
    ("show p17", [Call("get_product_detail", {"product_id": "P00017"})]),
    ("show sup_0017", [Call("get_supplier_profile", {"supplier_id": "sup_0017"})]),
    ("show o12", [Call("query_order_detail", {"order_id": "O00012"})]),
    ("list P00017 19.90", [Call("list_product", {"items": [{"product_id": "P00017", "sale_price": 19.9}]})]),
    (
        "price 17 20 p18 3e1",
        [
            Call(
                "adjust_price",
                {
                    "items": [
                        {"product_id": "P00017", "new_price": 20},
                        {"product_id": "P00018", "new_price": 30.0},
                    ]
                },
            )
        ],
    ),
    ("delist P00017", [Call("delist_product", {"items": [{"product_id": "P00017"}]})]),
    (
        'list_product items=[{"product_id": "P1", "sale_price": 2}]',
        [Call("list_product", {"items": [{"product_id": "P1", "sale_price": 2}]})],
    ),
    (
        "list_product items=[{product_id = 'P1', sale_price = 2}]",
        [Call("list_product", {"items": [{"product_id": "P1", "sale_price": 2}]})],
    ),
    ("shelf page=2", [Call("query_my_listings", {"page": 2})]),
    ("orders", [Call("query_open_orders", {})]),
    ("orders statuses=late,shipped", [Call("query_open_orders", {"statuses": ["late", "shipped"]})]),
    ("orders all", [Call("query_my_orders", {})]),
    ("orders stockout day_from=2", [Call("query_my_orders", {"status": "stockout", "day_from": 2})]),
    ("query_order_updates include_ordered=false", [Call("query_order_updates", {"include_ordered": False})]),
    ("problems", [Call("query_supply_chain_anomalies", {"mode": "now"})]),
    ("results", [Call("query_store_performance", {"day_from": 3, "day_to": 9})]),
    (
        "results 30 level=week",
        [Call("query_store_performance", {"day_from": 1, "day_to": 9, "level": "week"})],
    ),
    ("balance; end", [Call("query_balance", {}), Call("end_of_step", {})]),
    (" ; end ;", [Call("end_of_step", {})]),
]


@pytest.mark.parametrize(("line", "calls"), LINES, ids=[line for line, _ in LINES])
def test_lines(line: str, calls: list[Call], desk: Desk) -> None:
    assert calls_of(line, desk) == calls


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("serach lamp", "did you mean search?"),
        ("xyzzy", "help shows"),
        ("list P00017", "list P00017 24.90"),
        ("list P00017 cheap", "must be a number"),
        ("list P00017 [", "not closed"),
        ('search "lamp', "not closed"),
        ("search lamp price=3", "it takes query"),
        ("search lamp page=2 page=3", "given twice"),
        ("search lamp page=zero", "a whole number"),
        ("search lamp page=0", "at least 1"),
        ("search lamp sort_by=colour", "relevance"),
        ("query_order_updates include_ordered=maybe", "true or false"),
        ("list_product", "is required"),
        ("list_product P00017 3", "key=value"),
        ("shelf now", "it takes"),
        ("balance x=1", "no arguments"),
        ("show", "show P00017"),
        ("delist", "delist P00017"),
        ("supplier", "supplier sup_0017"),
        ("orders a b", "one status"),
        ("orders lost", "settled_normal"),
        ("problems old", "problems new"),
        ("results soon", "a whole number"),
        ("results 0", "results 30"),
        ("market_brief", "not available in this run"),
        ("more", "no further page"),
        ("end; balance", "last"),
        ("end; end", "last"),
    ],
)
def test_a_mistake_is_one_line_with_the_remedy(line: str, remedy: str, desk: Desk) -> None:
    with pytest.raises(Mistake) as mistake:
        calls_of(line, desk)
    text = str(mistake.value)
    assert remedy in text and "\n" not in text and len(text) < 300


def test_a_short_form_of_a_denied_tool_says_so() -> None:
    scenario = load_scenario("smoke", {"tools": {"denied": ["get_daily_report"]}})
    with pytest.raises(Mistake, match="get_daily_report is not available"):
        calls_of("report", Desk.of(default_registry().schemas(scenario.tools.denied)))


@given(st.text(st.characters(codec="utf-8")) | st.text("list pP17;=[]{}\"'\\ \t.,"))
def test_any_line_is_calls_or_a_mistake(line: str) -> None:
    some = Desk.of(default_registry().schemas(DENIED))
    try:
        calls = calls_of(line, some)
    except Mistake:
        return
    json.dumps([call.arguments for call in calls])


def test_words_keep_what_is_quoted_together() -> None:
    assert split('a \'b c\'; d="e \\" ; f" [1, 2]') == [["a", "'b c'"], ['d="e \\" ; f"', "[1, 2]"]]


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("p3", "P00003"),
        ("3", "P00003"),
        ("P00003", "P00003"),
        ("s5", "sup_0005"),
        ("sup_5", "sup_0005"),
        ("O7", "O00007"),
        ("x3", "x3"),
        ("p٣", "p٣"),
    ],
)
def test_short_ids(text: str, full: str) -> None:
    assert full_id(text) == full


# Completion


@pytest.mark.parametrize(
    ("before", "text", "found"),
    [
        ("", "shel", ["shelf "]),
        ("", "query_ba", ["query_balance "]),
        ("balance; ", "rep", ["report "]),
        ("search ", "price_", ["price_min=", "price_max="]),
        ("search_products lamp ", "delivery", ["delivery_hours_max="]),
        ("search lamp sort_by=", "price", ["price_asc", "price_desc"]),
        ("search category=", "to", ["toys"]),
        ("changes include_ordered=", "", ["true", "false"]),
        ("orders ", "settled_o", ["settled_only_refund"]),
        ("orders statuses=", "l", ["late"]),
        ("list ", "P", ["P00017", "P00020"]),
        ("supplier ", "", ["sup_0004", "supplier_id=", "page=", "page_size="]),
        ("query_my_orders product_id=", "P00020", ["P00020"]),
        ("list ", "items", []),
        ("help ", "query_c", ["query_cash_pipeline"]),
        ("no_such_tool ", "", []),
    ],
)
def test_completion(before: str, text: str, found: list[str], desk: Desk) -> None:
    desk.seen = dict.fromkeys(["P00017", "sup_0004", "P00020"])
    assert candidates(before, text, desk) == found


# A game


def test_a_newcomer_is_told_how_and_sees_the_state(play: Any) -> None:
    out = play()
    for expected in ("7 days on smoke, seed 1", "search lamp", "help rules", "3,000.00", "Day 1 of 7, 00:00"):
        assert expected in out
    assert "You stopped at" in out


def test_help_costs_no_turn_and_knows_everything(play: Any) -> None:
    out = play("help", "help rules", "help search", "help query_balance", "look", "quit")
    assert out.count("30 turns left") == 6
    assert all(short.usage in out for short in SHORT.values())
    assert all(usage in out for usage, _ in LOCAL.values())
    assert "# Role" not in out and "Shipping promise" in out
    assert "delivery_hours_max=" in out and "locked guarantee" in out
    assert out.count("Day 1 of 7, 00:00") == 3  # at the start, by look, at the end


def test_mistakes_cost_no_turn(play: Any) -> None:
    out = play("serach lamp", "list P00017", "help nonsense", "raw", "end 0", "", "quit")
    assert out.count("30 turns left") == 7
    assert "did you mean search?" in out


def test_a_window_of_work_and_the_next(play: Any) -> None:
    out = play(
        "search lamp page_size=3", "more; balance", "list p3 99 p99999 5", "shelf", "raw", "end", "quit"
    )
    assert "1–3 of" in out and "4–6 of" in out
    assert "net assets" in out and "3,000.00" in out
    assert "P00003 listed at 99.00" in out
    assert "P99999 not done" in out and "(not_found)" in out
    assert '"columns"' in out
    assert "Day 1 of 7, 12:00" in out
    assert all(f"{n} turns left" in out for n in (30, 29, 28, 27, 26))


def test_it_is_the_run_an_agent_would_have(play: Any) -> None:
    out = play("list p3 99 p4 120 p13 70", "end 20")
    env = gymnasium.make("MerchantBenchSmoke-v0")
    env.reset(seed=1)
    items = [{"product_id": f"P{i:05d}", "sale_price": p} for i, p in ((3, 99), (4, 120), (13, 70))]
    done, info = False, dict[str, Any]()
    action = [{"name": "list_product", "arguments": {"items": items}}]
    while not done:
        _, _, done, _, info = env.step(action)
        action = [{"name": "end_of_step"}]
    assert "you on smoke, seed 1" in out and "survived 7 days" in out
    assert f"{info['net_assets']:,.2f}" in out
    assert "Run finished" in out


def test_end_with_a_number_shows_each_window_in_a_line(play: Any) -> None:
    out = play("end 4", "quit")
    for expected in ("day 1, 12:00  net assets", "day 2, 12:00  net assets", "Day 3 of 7, 00:00"):
        assert expected in out
    assert "Day 2 of 7" not in out


def test_the_last_turn_of_a_window_is_said_to_be(play: Any) -> None:
    options = ("--scenario", "smoke", "--set", "turns.max_turns_per_window=2", "--seed", "5")
    out = play("balance", "balance", "quit", options=options)
    assert "1 turn left" in out
    assert "the clock ran" in out
    assert "seed 5" in out


@pytest.mark.parametrize("error", [EOFError, KeyboardInterrupt])
def test_leaving_by_a_key_is_clean(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def read(prompt: str) -> str:
        raise error

    monkeypatch.setattr(cli_play, "reader", lambda console: (read, lambda desk: None))
    assert cli.run_command(["play", "--scenario", "smoke"]) == 0
    assert "You stopped at" in capsys.readouterr().out


def test_a_bad_scenario_is_one_message(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_command(["play", "--set", "run.horizon_days=0"]) == 2
    assert "horizon_days" in capsys.readouterr().err


def test_custom_goals_are_not_replaced(play: Any) -> None:
    out = play(options=("--scenario", "smoke", "--set", 'brief.goals="Sell lamps."'))
    assert "what the rules say" in out and "highest net assets" not in out


# Tables


@pytest.mark.parametrize("width", [60, 80, 110, 200])
@pytest.mark.parametrize("tool", [tool.name for tool in default_registry() if tool.kind == "READ"])
def test_every_result_is_drawn_within_the_screen(tool: str, width: int, busy: Any) -> None:
    made = default_registry().get(tool)
    assert made is not None
    for arguments in made.examples:
        observation = busy.clone().step([{"name": tool, "arguments": arguments}])[0]
        body = json.loads(observation["tool_results"][0]["content"])
        stream = io.StringIO()
        console = Console(file=stream, width=width, markup=False, highlight=False)
        console.print(tables.result(tool, body, width))
        lines = stream.getvalue().splitlines()
        assert lines and max(map(len, lines)) <= width


@pytest.fixture(scope="module")
def busy() -> Any:
    """A store in mid-run, all tools granted."""
    env: Any = gymnasium.make(
        "MerchantBenchSmoke-v0", overrides={"tools": {"denied": []}}, disable_env_checker=True
    ).unwrapped
    env.reset(seed=1)
    items = [{"product_id": f"P{i:05d}", "sale_price": 90.0} for i in range(50)]
    env.step([{"name": "list_product", "arguments": {"items": items}}])
    for _ in range(8):
        env.step([{"name": "end_of_step"}])
    return env


def test_what_does_not_fit_is_named_and_names_grow_with_the_screen() -> None:
    columns = ["product_id", "name", "supplier_name", "sale_price", "supplier_available"]
    part = {"columns": columns, "rows": [["P00001", "n" * 60, "Supplier 0001", 9.5, True]], "count": 1}
    kept, dropped, wide = tables._fitting(part, 200)
    assert (kept, dropped) == (columns, []) and wide > 60
    kept, dropped, narrow = tables._fitting(part, 60)
    assert dropped == ["supplier_name"] and "name" in kept and narrow < wide


def test_a_loss_and_a_refusal_are_pointed_out() -> None:
    columns = [
        "product_id",
        "ok",
        "error",
        "detail",
        "action",
        "sale_price",
        "supplier_price",
        "supplier_ship_hours",
    ]
    rows = [
        ["P00001", True, None, None, "listed", 3.0, 5.0, 9],
        ["P00002", False, "not_offered", "Its supplier has withdrawn it.", None, None, None, None],
    ]
    table = {"columns": columns, "rows": rows, "count": 2}
    body = {"ok": True, "applied": 1, "rejected": 1, "active_listings": 1, "max_listings": 50, "items": table}
    stream = io.StringIO()
    Console(file=stream, width=200).print(tables.result("list_product", body, 200))
    first, second, third = stream.getvalue().splitlines()
    assert first.endswith("less than you pay")
    assert second == "P00002 not done: Its supplier has withdrawn it (not_offered)"
    assert third == "Shelf: 1 of 50"
