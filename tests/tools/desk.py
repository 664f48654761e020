"""A merchant at its desk: windows, books and tool calls over a bare world, without a session."""

from __future__ import annotations

import json
from typing import Any

from merchantbench_gym.market.calendar import stamp
from merchantbench_gym.market.world import World
from merchantbench_gym.scenario import load_scenario
from merchantbench_gym.tools import default_registry
from merchantbench_gym.tools.context import Context, WindowBook, WindowInfo
from merchantbench_gym.tools.observation import RISKS, packet, render, risk_sets
from merchantbench_gym.tools.results import ToolError, dumps, failure
from merchantbench_gym.tools.view import MerchantView


class Desk:
    """One merchant of a world, called tool by tool; `close` ends a window."""

    def __init__(
        self,
        scenario: Any = "default",
        seed: int = 42,
        merchants: int = 1,
        seat: int = 0,
        journal: bool = False,
        **overrides: Any,
    ) -> None:
        self.scenario = load_scenario(scenario, overrides or None)
        self.world = World(self.scenario, seed, merchants, journal)
        self.seat = seat
        self.view = MerchantView(self.world, seat)
        self.index = 0
        self.turn = 1
        self.state = "open"
        nothing = dict.fromkeys(RISKS, frozenset[int]())
        self.book = WindowBook(-1, 0, (), nothing, nothing, self.view.net_assets())

    def window(self) -> WindowInfo:
        limit = self.scenario.turns.max_turns_per_window
        left = limit - self.turn + 1 if self.state == "open" else 0
        return WindowInfo(
            self.index, self.book.last_t + 1, self.book.open_t, self.turn, limit, left, self.state
        )

    def packet(self) -> dict[str, Any]:
        return packet(self.view, self.scenario, self.window(), self.book, report_tool=True)

    def text(self, language: str = "en") -> str:
        closed = self.view.closed_t
        return render(
            packet(self.view, self.scenario, self.window(), self.book, report_tool=True, language=language),
            language,
            fees=self.scenario.fees.enabled,
            closed=None if closed is None else stamp(closed),
        )

    def context(self) -> Context:
        return Context(
            view=self.view,
            scenario=self.scenario,
            language="en",
            merchant=self.seat,
            window=self.window(),
            book=self.book,
            observation=self.packet,
            text=self.text,
            schemas=list,
        )

    def call(self, name: str, /, **arguments: Any) -> dict[str, Any]:
        """Call a tool and return what its serialised result reads as."""
        tool = default_registry().get(name)
        assert tool is not None, name
        try:
            result = tool.run(self.context(), tool.validate(arguments))
        except ToolError as error:
            result = failure(error)
        content = dumps(result)
        assert len(content) <= 32_000
        read: dict[str, Any] = json.loads(content)
        return read

    def rows(self, name: str, /, table: str = "items", **arguments: Any) -> list[dict[str, Any]]:
        """Rows of a table of a successful call, as dicts."""
        result = self.call(name, **arguments)
        assert result["ok"], result
        part = result[table]
        assert part["count"] == len(part["rows"])
        return [dict(zip(part["columns"], row, strict=True)) for row in part["rows"]]

    def all_rows(self, name: str, /, table: str = "items", **arguments: Any) -> list[dict[str, Any]]:
        """Rows of all pages of a paged call."""
        rows: list[dict[str, Any]] = []
        page = 0
        while True:
            page += 1
            result = self.call(name, page=page, **arguments)
            part = result[table]
            rows += [dict(zip(part["columns"], row, strict=True)) for row in part["rows"]]
            assert result["has_next"] == (page * result["page_size"] < result["total_count"])
            if not result["has_next"]:
                return rows

    def list_first(self, count: int, markup: float = 1.5) -> None:
        """List the first products that are on offer."""
        live = self.world.products()
        offered = [p for p in range(len(live.product)) if live.listed[p]][:count]
        for product in offered:
            assert self.view.list_item(product, round(markup * int(live.price[product]))) == "ok"

    def close(self, windows: int = 1) -> None:
        """End the window and run the clock to the next one, or to the end of the run."""
        for _ in range(windows):
            risks, net, last = risk_sets(self.view), self.view.net_assets(), self.world.t
            following = last + self.scenario.run.activation_period
            if following < self.world.horizon:
                self.world.advance(following)
                self.index += 1
            else:
                self.world.advance()
            if self.world.finished:
                self.state = {"horizon": "finished", "shop_closed": "closed"}[self.view.end_reason]
            now = self.view.final_hour if self.world.finished else self.world.t
            assert now is not None
            shelf = tuple(self.view.shelf().product.tolist())
            self.book = WindowBook(last, now, shelf, risks, risk_sets(self.view), net)
            self.turn = 1

    def finish(self) -> None:
        """Run to the end."""
        while self.state == "open":
            self.close()
