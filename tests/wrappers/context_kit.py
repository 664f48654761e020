"""A conversation driven by hand: a transcript and a context manager without an environment."""

from __future__ import annotations

import json
from typing import Any

from merchantbench_gym.wrappers.context import ContextManager, ContextSettings
from merchantbench_gym.wrappers.tokens import estimate_request
from merchantbench_gym.wrappers.transcript import Transcript
from tests.wrappers.chat_kit import call, ends, info, says, seen

BRIEF = "Run the shop."
READ, WRITE = "read_memory_doc", "write_memory_doc"


def schema(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": "", "parameters": {}}}


class Talk:
    """Turns told to a transcript and a manager.

    Args:
        can_save: Whether there are note tools.
        settings: Settings of the context.
    """

    def __init__(self, *, can_save: bool = True, brief: str = BRIEF, **settings: Any) -> None:
        defaults = {"trigger": 2_000, "keep": 500, "notes_tokens": 100}
        self.settings = ContextSettings(**{**defaults, **settings})
        names = ["search_products", "list_product", "end_of_step", *([READ, WRITE] if can_save else [])]
        self.tools = [schema(name) for name in names]
        is_rough = self.settings.mode == "reference"
        self.transcript = Transcript(turn_notice=0, harness=not is_rough)
        self.manager = ContextManager(self.settings)
        self.saved: tuple[int, str] = (0, "")
        self.window = self.calls = 0
        now = self.info()
        self.transcript.begin(brief, seen("window 0"), now)
        self.manager.begin(self.transcript, self.tools, now, self.notes)
        self.noted: dict[str, Any] = {}

    def info(self, **more: Any) -> dict[str, Any]:
        day, half = divmod(self.window, 2)
        return info(self.window, day=day + 1, hour=12 * half, net_assets=3_000.0 + self.window, **more)

    def notes(self) -> tuple[int, str]:
        return self.saved

    # --- turns ---

    def turn(self, action: dict[str, Any], *contents: Any, moves: bool = False, note: Any = None) -> None:
        """A turn: its results, and whether it ends the window."""
        if note is not None:
            action = {**action, "note": note}
        sent = self.transcript.sent(self.manager.signed(action))
        self.noted = sent["note"]["context"]
        self.window += moves
        calls = action["tool_calls"]
        results = [
            (c["id"], c["function"]["name"], content if isinstance(content, str) else json.dumps(content))
            for c, content in zip(calls, contents, strict=True)
        ]
        observation = seen(f"window {self.window}" if moves else "same", *results)
        now = self.info(window_closed_by="end_of_step" if moves else "")
        self.transcript.add(sent, observation, now)
        self.manager.took(sent, self.transcript, self.tools, observation, now, self.notes)

    def search(self, characters: int, **more: Any) -> None:
        """A turn whose result has a size."""
        self.calls += 1
        self.turn(says("", call("search_products", f"s{self.calls}")), "r" * characters, **more)

    def save(self, text: str, *, error: str = "", also_ends: bool = False, **more: Any) -> None:
        self.calls += 1
        calls = [call(WRITE, f"n{self.calls}", content=text)]
        if error:
            result: Any = {"ok": False, "error": {"code": error, "message": "nothing was written"}}
        else:
            self.saved = (self.saved[0] + 1, text)
            result = {"ok": True, "version": self.saved[0], "bytes": len(text), "previous_bytes": 0}
        results = [result]
        if also_ends:
            calls.append(call("end_of_step", f"e{self.calls}"))
            results.append({"ok": True})
        self.turn(says("", *calls), *results, moves=also_ends, **more)

    def end(self, text: str = "", **more: Any) -> None:
        self.turn(ends(text), {"ok": True}, moves=True, **more)

    def forced_end(self) -> None:
        self.end(note={"forced": "provider:transient"})

    # --- what is sent ---

    @property
    def request(self) -> list[dict[str, Any]]:
        return self.manager.request()

    @property
    def state(self) -> str:
        return str(self.manager.info()["compaction_state"])

    @property
    def size(self) -> int:
        return estimate_request(self.request, self.tools)

    def texts(self, start: str) -> list[str]:
        """Texts of the request's user messages with a start."""
        users = [message["content"] for message in self.request if message["role"] == "user"]
        return [text for text in users if text.startswith(start)]

    @property
    def reminders(self) -> list[str]:
        return self.texts("[context-maintenance]")

    @property
    def context(self) -> str:
        (text,) = self.texts("[context]")
        return text

    def count(self, text: str) -> int:
        return json.dumps(self.request).count(text)
