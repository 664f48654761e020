"""A model policy at a desk: a scripted server, a clock that only moves when told, and no environment."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from merchantbench_gym.baselines import ModelServer, ReActPolicy, Reply
from merchantbench_gym.wrappers.seat import Seat

KEY = "sk-key-of-a-test"
SYSTEM = {"role": "system", "content": "brief"}
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
    for name in ("query_balance", "search_products", "end_of_step")
]
TURNS = 30
LOOK = Reply(calls=[("query_balance", {})])
END = Reply(calls=[("end_of_step", {})])
PRICES = {"input": 1000, "output": 2000, "cache_read": 100, "cache_write": 5000}


def user(text: str = "observation") -> dict[str, Any]:
    return {"role": "user", "content": text}


def exchange(*contents: str, first: int = 0) -> list[dict[str, Any]]:
    """An assistant message with calls, and their results."""
    ids = [f"id{first + i}" for i in range(len(contents))]
    calls = [
        {"id": i, "type": "function", "function": {"name": "query_balance", "arguments": "{}"}} for i in ids
    ]
    results = [
        {"role": "tool", "tool_call_id": i, "name": "query_balance", "content": content}
        for i, content in zip(ids, contents, strict=True)
    ]
    return [{"role": "assistant", "content": "", "tool_calls": calls}, *results]


class Desk:
    """Plays turns with a policy and keeps what it waited for.

    Attributes:
        server: The model.
        policy: The player.
        waits: Seconds slept so far, one by one.
        now: Seconds on the clock.
    """

    def __init__(self, server: ModelServer, **settings: Any) -> None:
        self.server = server
        self.waits: list[float] = []
        self.now = 0.0
        self.settings = settings
        self.policy = self.new_policy()
        self.policy.reset(self.seat())

    def new_policy(self, client: Any = None) -> ReActPolicy:
        known = {"api_key": KEY, "base_url": self.server.url, "model": "some-model", **self.settings}
        return ReActPolicy(client, sleep=self.sleep, clock=lambda: self.now, **known)

    def seat(self, journal: Any = None) -> Seat:
        return Seat("merchant_0", "brief", (), "en", 24 * 365, 12, TURNS, 50, 48, journal)

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds

    def act(self, *messages: Any, window: int = 0, left: int = TURNS, **info: Any) -> dict[str, Any]:
        observation = {"messages": [SYSTEM, *(messages or (user(),))], "tools": TOOLS}
        before = json.dumps(observation)
        action = self.policy.act(observation, {"window": window, "turns_left": left, **info})
        assert json.dumps(observation) == before
        assert len(json.dumps(action["note"]["state"])) <= 16 * 1024
        return action

    def sent(self, number: int = -1) -> dict[str, Any]:
        """Body of a request."""
        body: dict[str, Any] = self.server.requests[number].body
        return body

    def messages(self, number: int = -1) -> list[Any]:
        """Messages of a request without the system message."""
        messages: list[Any] = self.sent(number)["messages"][1:]
        return messages


@contextmanager
def at_desk(
    script: Sequence[Reply] | Any, *, server: dict[str, Any] | None = None, **settings: Any
) -> Iterator[Desk]:
    """A desk; in the end every reply of the script must have been used."""
    with ModelServer(script, **(server or {})) as model:
        desk = Desk(model, **settings)
        try:
            yield desk
        finally:
            desk.policy.close()
        assert model.unused == 0


def names(action: dict[str, Any]) -> list[str]:
    return [call["function"]["name"] for call in action["tool_calls"]]


def events(action: dict[str, Any], kind: str) -> list[Any]:
    return [event for event in action["note"].get("events", []) if event["kind"] == kind]
