"""The page about recorded runs."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from contextlib import closing
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from merchantbench_gym import cli
from merchantbench_gym.baselines import run_episode
from merchantbench_gym.evaluation.report import MOST_BYTES, page, read_seats, write_report
from merchantbench_gym.evaluation.report.charts import Line, chart, spark, thin, ticks
from merchantbench_gym.evaluation.report.markup import cut, table, tag, text
from merchantbench_gym.evaluation.report.sections import difference
from merchantbench_gym.evaluation.report.turns import LEVELS, turns
from merchantbench_gym.recording import attach, fork
from merchantbench_gym.wrappers import RecordRun
from tests.recording_kit import END, let_calls_be_altered, listing, make, policy

HOSTILE = "</pre><script>alert('x')</script><img src=http://evil.example/a onerror=x>&amp;\u202e\x1b[31m"


class Reader(HTMLParser):
    """Reads a page strictly: every element that is opened is closed in order."""

    VOID = frozenset({"meta", "br", "col"})

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.said: list[str] = []
        self.cells: list[str] = []
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.said.append(data)
        if {"td", "th"} & set(self.open):
            self.cells[-1] += data

    @property
    def words(self) -> str:
        return "".join(self.said)

    def row(self, head: str, width: int = 1) -> list[str]:
        """The cells after the header cell of that name."""
        place = self.cells.index(head)
        return self.cells[place + 1 : place + 1 + width]


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "smoke.run"
    arguments = ["run", "--scenario", "smoke", "--seed", "3", "--record", str(path), "--quiet", "--json"]
    assert cli.run_command(arguments) == 0
    return path


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run with every kind of call, failed ones too."""
    path = tmp_path_factory.mktemp("report") / "scripted.run"
    env = RecordRun(make(), path, label="by hand")
    run_episode(env, policy(), seed=4)
    env.close()
    return path


def copy(path: Path, folder: Path, *statements: tuple[str, tuple[Any, ...]]) -> Path:
    target = folder / "copy.run"
    shutil.copy(path, target)
    with closing(sqlite3.connect(target)) as connection:
        let_calls_be_altered(connection)
        for statement, values in statements:
            connection.execute(statement, values)
        connection.commit()
    return target


def read(path: Path) -> Reader:
    return Reader(page(read_seats(path)))


# -- what is on it -------------------------------------------------------------------------------------


def test_the_page_has_the_figures_of_the_record(
    smoke: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert cli.run_command(["run", "--scenario", "smoke", "--seed", "3", "--quiet", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    out = tmp_path / "out.html"
    (seat,) = write_report([smoke], out)
    reader = Reader(out.read_text(encoding="utf-8"))
    assert reader.row("Net assets at the end") == [f"{record['final_net_assets']:,.2f}"]
    assert reader.row("Status") == ["finished"]
    assert reader.row("Reason") == ["horizon"]
    assert reader.row("Seed") == ["3"]
    assert reader.row("Policy") == ["rule_based 1"]
    assert reader.row("Windows closed") == ["14 of 14"]
    assert seat.again.identical
    assert sum(seat.finish["statuses"].values()) == int(reader.row("total")[0])
    with closing(sqlite3.connect(smoke)) as connection:
        for name, calls in connection.execute("SELECT name, COUNT(*) FROM call GROUP BY name"):
            assert reader.row(name) == [f"{calls:,}"]
    for row in seat.finish["products"][:1]:
        assert row["title"] in reader.words
    total = sum(row["fines"] for row in seat.finish["products"])
    assert sum(seat.finish["fines"].values()) == total
    assert f"Fines since the start over the days. rule_based, smoke, seed 3 ends at {total / 100:,.2f}" in {
        attributes.get("aria-label") for name, attributes in reader.tags if name == "svg"
    }


def test_products_come_best_first_and_worst_last(smoke: Path) -> None:
    reader = read(smoke)
    (seat,) = read_seats(smoke)
    ranked = sorted(seat.finish["products"], key=lambda row: -row["net_profit"])
    place = reader.cells.index("net profit")
    assert reader.cells[place + 6] == f"{ranked[0]['net_profit'] / 100:+,.2f}"
    assert f"{ranked[-1]['net_profit'] / 100:+,.2f}" in reader.cells


def test_sections_are_reached_from_the_top_and_by_keyboard(smoke: Path) -> None:
    reader = read(smoke)
    targets = {attributes["id"] for name, attributes in reader.tags if name == "section"}
    links = {str(attributes["href"])[1:] for name, attributes in reader.tags if name == "a"}
    assert links == targets
    assert {
        "overview",
        "assets",
        "orders",
        "rating",
        "shelf",
        "fines",
        "products",
        "tools",
        "turns",
    } == targets
    scrolled = [attributes for _, attributes in reader.tags if attributes.get("class") == "scroll"]
    assert scrolled
    assert all(box["tabindex"] == "0" and box["aria-label"] for box in scrolled)
    assert all(attributes.get("scope") for name, attributes in reader.tags if name == "th")
    pictures = [a for name, a in reader.tags if name == "svg"]
    assert all(a.get("aria-label") or a.get("aria-hidden") for a in pictures)


def test_the_page_needs_nothing_from_outside(smoke: Path) -> None:
    source = page(read_seats(smoke))
    reader = Reader(source)
    assert any(str(a.get("content")).startswith("default-src 'none'") for _, a in reader.tags)
    assert not re.search(r"https?:|url\(|@import|//[a-z]", source)
    assert not {name for name, _ in reader.tags} & {"script", "img", "link", "iframe", "object", "base"}
    loading = [a for _, a in reader.tags if "src" in a or not str(a.get("href", "#")).startswith("#")]
    assert loading == []
    assert "prefers-color-scheme:dark" in source


def test_every_turn_and_call_is_there_folded_by_window(scripted: Path) -> None:
    reader = read(scripted)
    (seat,) = read_seats(scripted)
    summaries = reader.words
    assert "D1H00, window 0: 5 turns" in summaries
    for code in {call["code"] for call in seat.calls() if not call["ok"]}:
        assert f"failed: {code}" in summaries
        assert code in reader.cells
    assert "thinking" in summaries
    assert all("open" not in attributes for name, attributes in reader.tags if name == "details")


def test_prices_follow_the_answers_of_the_tools(scripted: Path) -> None:
    (seat,) = read_seats(scripted)
    assert seat.prices["P00000"] == [(0.0, 40.0)]
    assert "P100000" not in seat.prices


# -- several runs --------------------------------------------------------------------------------------


def test_runs_stand_side_by_side(smoke: Path, scripted: Path, tmp_path: Path) -> None:
    out = tmp_path / "both.html"
    write_report([smoke, scripted], out)
    reader = Reader(out.read_text(encoding="utf-8"))
    assert reader.cells[1:3] == ["1: rule_based, smoke, seed 3", "2: by hand, smoke, seed 4"]
    assert reader.row("Seed", 2) == ["3", "4"]
    assert sum(name == "article" for name, _ in reader.tags) % 2 == 0


def test_every_seat_of_a_market_has_its_column(tmp_path: Path) -> None:
    from merchantbench_gym.envs.marketplace import MarketplaceEnv

    path = tmp_path / "market.run"
    env = attach(MarketplaceEnv("smoke", merchants=2, overrides={"run": {"horizon_days": 1}}), path)
    env.reset(seed=1)
    while env.agents:
        env.step({agent: [listing(int(agent[-1])), END] for agent in env.agents})
    env.close()
    seats = read_seats(path)
    assert [seat.merchant for seat in seats] == [0, 1]
    assert Reader(page(seats)).row("Seat", 2) == ["1 of 2", "2 of 2"]
    assert all(seat.again.identical for seat in seats)
    assert [list(seat.prices) for seat in seats] == [["P00000"], ["P00001"]]


def test_a_run_that_was_stopped_or_made_no_turn_has_a_page(smoke: Path, tmp_path: Path) -> None:
    half = read(fork(smoke, tmp_path / "half.run", 3, 1))
    assert half.row("Status") == ["stopped"]
    assert half.row("Windows closed") == ["3 of 14"]
    none = read(fork(smoke, tmp_path / "none.run", 0))
    assert none.row("Net assets at the end") == ["3,000.00"]
    assert "No turns." in none.words


# -- hostile and large contents ------------------------------------------------------------------------


def test_all_text_is_escaped(scripted: Path, tmp_path: Path) -> None:
    identity = json.dumps({"0": {"name": HOSTILE, "version": HOSTILE, "model": HOSTILE}})
    usage = json.dumps({"prompt_tokens": 12_345, "completion_tokens": 7})
    path = copy(
        scripted,
        tmp_path,
        ("UPDATE run SET label = ?, reason = ?, policy = ?", (HOSTILE, HOSTILE, identity)),
        ("UPDATE turn SET text = ?, rejected = ?, closed_by = closed_by || ?", (HOSTILE,) * 3),
        ("UPDATE call SET name = ?, code = ?, arguments = ?, content = ?", (HOSTILE,) * 4),
        ("INSERT INTO note VALUES (0, 1, NULL, NULL, 5, ?)", (HOSTILE,)),
        ("INSERT INTO note VALUES (0, 2, 0, 1, 5, ?)", (HOSTILE + "\nmore",)),
        ("INSERT INTO event (merchant, window, turn, kind, body) VALUES (0, 0, 1, ?, ?)", (HOSTILE,) * 2),
        (
            "INSERT INTO model_call VALUES (1, 0, 0, 1, 1, 'x', ?, ?, 200, ?, ?, 2500000, '{}', '', 1.5)",
            (HOSTILE, HOSTILE, HOSTILE, usage),
        ),
    )
    source = page(read_seats(path))
    reader = Reader(source)
    assert not {name for name, _ in reader.tags} & {"script", "img"}
    assert "<script>alert('x')</script>" in reader.words
    assert "\u202e" not in source
    assert "\x1b" not in source
    assert "differs from its record" in reader.words
    assert {"12,345", "2.5000"} <= set(reader.cells)
    assert "ins" in {name for name, _ in reader.tags}


def test_long_contents_are_cut_with_a_note(scripted: Path, tmp_path: Path) -> None:
    path = copy(scripted, tmp_path, ("UPDATE call SET content = ?", ("<" * 400_000,)))
    (seat,) = read_seats(path)
    source = turns(seat, 60_000)
    assert len(source.encode()) < 61_000
    assert "more characters" in source
    assert "(400,000 characters in all)" in source
    assert "windows in the middle are left out" not in source


def test_the_page_stays_small_however_long_the_run(scripted: Path, tmp_path: Path) -> None:
    path = copy(
        scripted,
        tmp_path,
        ("UPDATE call SET content = ?, arguments = ?", ("&" * 400_000, "&" * 400_000)),
        ("UPDATE turn SET text = ?", ("&" * 400_000,)),
        *(
            ("INSERT INTO note VALUES (0, ?, 0, 1, 200000, ?)", (version, f"line {version}\n" * 20_000))
            for version in range(1, 41)
        ),
    )
    (seat,) = read_seats(path)
    seat.turns = [{**turn, "window": i} for i in range(1_500) for turn in seat.turns[:2]]
    assert len(page([seat]).encode()) < MOST_BYTES


def test_windows_in_the_middle_go_first(scripted: Path) -> None:
    (seat,) = read_seats(scripted)
    seat.turns = [{**seat.turns[0], "window": i} for i in range(200)]
    source = turns(seat, 30_000)
    assert "windows in the middle are left out" in source
    assert "window 0:" in source
    assert "window 199:" in source
    assert "window 100:" not in source
    assert list(LEVELS) == sorted(LEVELS, reverse=True)


def test_a_page_reads_no_code_that_a_file_names(scripted: Path, tmp_path: Path) -> None:
    stack = json.dumps([{"wrapper": "os:system", "arguments": {}}])
    (seat,) = read_seats(copy(scripted, tmp_path, ("UPDATE run SET stack = ?", (stack,))))
    assert seat.again.identical is None
    reader = Reader(page([seat]))
    assert "made with os:system" in reader.words
    assert int(reader.row("total")[0]) == sum(seat.statuses.values())


# -- parts ---------------------------------------------------------------------------------------------


def test_markup_escapes_all_but_markup() -> None:
    assert text("<b>&\"'\x00\ud800") == "&lt;b&gt;&amp;\"'\ufffd\ufffd"
    assert tag("p", tag("b", "<"), None, 5, title='"') == '<p title="&quot;"><b>&lt;</b>5</p>'
    assert cut("abcdef", 4) == "abcd<i> … 2 more characters</i>"
    assert 'scope="row"' in table("c", ["a", "b"], [["x", "1"]])


def test_ticks_are_round_and_hold_both_ends() -> None:
    assert ticks(0, 10) == [0, 2, 4, 6, 8, 10]
    assert ticks(3, 3)[0] < 3 < ticks(3, 3)[-1]
    for low, high in ((-17.3, 220.0), (0.0, 1e-3), (3e5, 9e5), (0.0, 0.0)):
        marks = ticks(low, high)
        assert marks[0] <= low <= high <= marks[-1]
        assert 2 <= len(marks) <= 9


def test_charts_thin_out_and_tell_their_ends() -> None:
    assert thin([(i, i) for i in range(1000)], 5) == [(0, 0), (250, 250), (500, 500), (749, 749), (999, 999)]
    source = chart("Money", [Line("a", [(0, 1.0), (1, 5.0)]), Line("b", [])], lambda v: f"<{v:g}>")
    Reader(source)
    assert "a ends at &lt;5&gt;" in source
    assert "no figures" in chart("Money", [], str)
    assert 'd="M1.0 22.0H36.4L36.4 2.0H60.0M95.4 22.0H119.0"' in spark(
        [(0, 1.0), (3, 2.0), (5, None), (8, 1.0)], 10
    )


def test_differences_show_signs_and_are_cut() -> None:
    shown = difference("a\nb\n", "a\nc<\n", 1_000)
    assert "<del>-b</del>" in shown
    assert "<ins>+c&lt;</ins>" in shown
    assert difference("a", "a", 100) == "<pre>unchanged</pre>"
    assert len(difference("", "x\n" * 5_000, 1_000)) < 4_000


# -- the command ---------------------------------------------------------------------------------------


def command(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    capsys.readouterr()
    code = cli.run_command(["report", *map(str, arguments)])
    return code, *capsys.readouterr()


def test_the_command_writes_the_page_and_says_where(
    smoke: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    before = smoke.read_bytes()
    assert command(capsys, smoke) == (0, "report.html\n", "")
    code, said, _ = command(capsys, smoke, smoke, "--out", "b.html", "--json")
    told = json.loads(said)
    assert (code, told["path"], len(told["runs"])) == (0, "b.html", 2)
    assert told["runs"][0]["policy"] == "rule_based"
    assert told["runs"][0]["identical"] is True
    assert Path("b.html").stat().st_size < MOST_BYTES
    assert smoke.read_bytes() == before


def test_damaged_and_foreign_files_are_told(
    smoke: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.html"
    damaged = tmp_path / "cut.run"
    data = smoke.read_bytes()
    damaged.write_bytes(data[: len(data) // 2])
    foreign = tmp_path / "foreign.txt"
    foreign.write_text("hello", encoding="utf-8")
    for path in (damaged, foreign):
        code, said, told = command(capsys, path, "--out", out)
        assert (code, said) == (4, "")
        assert path.name in told
        assert "salvage" in told
    assert not out.exists()


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE turn SET time = 'noon' WHERE seq = 3",
        "UPDATE turn SET net_assets = 'much' WHERE seq = 3",
        "UPDATE call SET name = 7 WHERE window = 2",
        "UPDATE turn SET metrics = json_object('listings', 'high') WHERE window = 2",
        "UPDATE run SET scenario = '{}'",
        "UPDATE run SET policy = '[1]'",
        "UPDATE run SET stack = '7'",
        "UPDATE turn SET calls = '[' WHERE window = 2",
        "DELETE FROM run",
    ],
)
def test_values_that_cannot_be_are_told(
    change: str, smoke: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = copy(smoke, tmp_path, (change, ()))
    code, said, told = command(capsys, path, "--out", tmp_path / "out.html")
    assert (code, said) == (4, "")
    assert path.name in told
    assert not (tmp_path / "out.html").exists()


def test_missing_files_are_a_mistake_of_the_user(
    smoke: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.html"
    assert command(capsys, tmp_path / "none.run", "--out", out)[0] == 2
    assert command(capsys, "--out", out)[0] == 2
    assert command(capsys, smoke, "--out", tmp_path / "no" / "where.html")[0] == 2
    before = smoke.read_bytes()
    code, _, told = command(capsys, smoke, "--out", smoke)
    assert (code, smoke.read_bytes()) == (2, before)
    assert "does not replace" in told
