"""What the session tests share: small worlds, actions in short form, tools and a provider of their own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from merchantbench_gym.market.world import World
from merchantbench_gym.scenario import load_scenario
from merchantbench_gym.session import Session, Turn, TurnResult
from merchantbench_gym.tools import Registry, default_registry, tool
from merchantbench_gym.tools.calls import normalise
from merchantbench_gym.tools.registry import Tool
from merchantbench_gym.tools.results import ToolError

END: tuple[str, Any] = ("end_of_step", {})


def world(overrides: Mapping[str, Any] | None = None, *, seed: int = 1, merchants: int = 1) -> World:
    return World(load_scenario("smoke", overrides), seed, merchants)


def opened(
    overrides: Mapping[str, Any] | None = None, *, seed: int = 1, merchants: int = 1, **options: Any
) -> Session:
    session = Session(world(overrides, seed=seed, merchants=merchants), **options)
    session.open()
    return session


def turn(*calls: tuple[str, Any], **names: Any) -> Turn:
    """A turn of (name, arguments) pairs."""
    return Turn(batch=normalise([{"name": name, "arguments": value} for name, value in calls]), **names)


def play(session: Session, *calls: tuple[str, Any], merchant: int = 0, **names: Any) -> TurnResult:
    return session.submit(merchant, turn(*calls, **names))


def end(session: Session) -> None:
    """End the step of every deciding merchant and run the clock."""
    for merchant in range(session.world.merchants):
        if session.phase(merchant) == "deciding":
            play(session, END, merchant=merchant)
    session.advance()


def finish(session: Session) -> None:
    while not session.finished:
        end(session)


def contents(result: TurnResult) -> list[dict[str, Any]]:
    return [json.loads(entry["content"]) for entry in result.results]


def errors(result: TurnResult) -> list[str]:
    return [body["error"]["code"] if not body["ok"] else "" for body in contents(result)]


def listing(*products: int, price: float = 30.0) -> tuple[str, dict[str, Any]]:
    items = [{"product_id": f"P{product:05d}", "sale_price": price} for product in products]
    return "list_product", {"items": items}


def on_offer(session: Session, count: int) -> list[int]:
    """The first products on offer now."""
    return [int(i) for i in np.flatnonzero(session.world.products().listed)[:count]]


# --- tools with faults ---


@tool(kind="WRITE", examples=[{}])
def list_then_fail(ctx: Any) -> dict[str, Any]:
    """List two products and fail."""
    for product in (0, 1):
        ctx.view.list_item(product, 9999)
    raise RuntimeError("secret /path")


@tool(kind="WRITE", examples=[{}])
def list_then_refuse(ctx: Any) -> dict[str, Any]:
    """List two products and refuse."""
    for product in (0, 1):
        ctx.view.list_item(product, 9999)
    raise ToolError("not_available", "not today")


@tool(kind="WRITE", examples=[{}])
def list_then_interrupt(ctx: Any) -> dict[str, Any]:
    """List two products and be interrupted."""
    for product in (0, 1):
        ctx.view.list_item(product, 9999)
    raise KeyboardInterrupt


@tool(kind="READ", examples=[{}])
def return_nonsense(ctx: Any) -> dict[str, Any]:
    """Return what is not JSON."""
    return {"value": {1, 2}}


@tool(kind="READ", examples=[{}])
def return_surrogate(ctx: Any) -> dict[str, Any]:
    """Return text that cannot be encoded."""
    return {"value": "\ud800"}


@tool(kind="READ", examples=[{}])
def return_much(ctx: Any, *, page_size: int = 1) -> dict[str, Any]:
    """Return too much.

    Args:
        page_size: How much.
    """
    return {"value": "x" * 40_000}


def faulty_registry() -> Registry:
    faulty = [list_then_fail, list_then_refuse, list_then_interrupt, return_nonsense, return_surrogate]
    return Registry([*default_registry(), *faulty, return_much])


# --- a provider ---


class Counter:
    """A provider of two tools and one number per merchant."""

    def __init__(self, banned: tuple[str, ...] = (), window: int = 0) -> None:
        self.banned = banned
        self.window = window
        self.numbers: dict[str, int] = {}
        self.tools = [
            Tool(self.bump, kind="WRITE", examples=[{}]),
            Tool(self.peek, kind="READ", examples=[{}]),
        ]

    def bump(self, ctx: Any, *, fail: bool = False) -> dict[str, Any]:
        """Count up.

        Args:
            fail: Whether to fail after counting.
        """
        key = str(ctx.merchant)
        self.numbers[key] = self.numbers.get(key, 0) + 1
        if fail:
            raise RuntimeError("fail")
        return {"number": self.numbers[key]}

    def peek(self, ctx: Any) -> dict[str, Any]:
        """Show the number."""
        return {"number": self.numbers.get(str(ctx.merchant), 0)}

    def snapshot(self) -> bytes:
        return json.dumps(self.numbers, sort_keys=True).encode()

    def restore(self, data: bytes) -> None:
        self.numbers = json.loads(data)

    def clone(self) -> Counter:
        twin = Counter(self.banned, self.window)
        twin.restore(self.snapshot())
        return twin

    def denied(self, window: int) -> tuple[str, ...]:
        return self.banned if window == self.window else ()
