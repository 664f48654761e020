"""What the tests of conversations share: actions in short form, and turns made by hand."""

from __future__ import annotations

import json
from typing import Any

import gymnasium
import numpy as np

from merchantbench_gym.baselines import BasePolicy
from merchantbench_gym.spaces import ToolCalls

END = {"id": "end", "name": "end_of_step", "arguments": {}}
BALANCE = {"id": "look", "name": "query_balance", "arguments": {}}
DAYS = {"run": {"horizon_days": 3}}


def make(**arguments: Any) -> Any:
    return gymnasium.make(
        "merchantbench_gym:MerchantBenchSmoke-v0",
        **{"overrides": DAYS, **arguments},
        disable_env_checker=True,
    )


def call(name: str, call_id: str = "c", **arguments: Any) -> dict[str, Any]:
    """A call in OpenAI form."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def says(text: str, *calls: dict[str, Any], **more: Any) -> dict[str, Any]:
    """An assistant message."""
    return {"role": "assistant", "content": text, "tool_calls": list(calls), **more}


def write(content: str, call_id: str = "w", **arguments: Any) -> dict[str, Any]:
    return call("write_memory_doc", call_id, content=content, **arguments)


def ends(text: str = "", **more: Any) -> dict[str, Any]:
    return says(text, call("end_of_step", "e"), **more)


def info(window: int = 0, turns_left: int = 30, **more: Any) -> dict[str, Any]:
    return {
        "window": window,
        "turns_left": turns_left,
        "window_closed_by": "",
        "end_reason": "",
        "net_assets": 3000.0,
        "t": 12 * window,
        **more,
    }


def seen(text: str, *results: tuple[str, str, str]) -> dict[str, Any]:
    """A raw observation."""
    names = ("tool_call_id", "name", "content")
    return {
        "text": text,
        "tool_results": tuple(dict(zip(names, result, strict=True)) for result in results),
        "store": np.zeros(28, dtype=np.float32),
    }


def random_action(rng: np.random.Generator, space: Any) -> Any:
    """Some action in one of the forms there are, now and then a bad one."""
    space.seed(int(rng.integers(2**31)))
    calls = list(space.sample())
    form = int(rng.integers(8))
    if form == 0:
        return "no JSON"
    if form == 1:
        return says("I wonder")
    if form == 2:
        return json.dumps(calls)
    if form == 3:
        return calls
    wrapped = [
        {"id": c["id"], "type": "function", "function": {"name": c["name"], "arguments": c["arguments"]}}
        for c in calls
    ]
    if form == 4 and wrapped:
        wrapped[0]["function"]["arguments"] = '{"a": '
    if form == 5:
        return ends("enough 够了", note={"forced": "hop_budget"} if rng.integers(2) else None)
    return says("so", *wrapped, reasoning_content="because")


class Talker(BasePolicy):
    """Plays random turns, seeded by window and turn, and remembers what it was asked.

    Args:
        fails: Number of the act that raises, None for none.
    """

    name = "talker"
    observes = "chat"

    def __init__(self, fails: int | None = None) -> None:
        self.fails = fails
        self.asked: list[Any] = []
        self.infos: list[Any] = []
        self.acts = 0

    def reset(self, seat: Any, *, seed: int | None = None) -> None:
        super().reset(seat, seed=seed)
        self.asked, self.infos, self.acts = [], [], 0

    def act(self, observation: Any, info: Any) -> Any:
        self.asked.append(json.dumps(observation))
        self.infos.append(dict(info))
        self.acts += 1
        if self.acts == self.fails:
            raise RuntimeError("on purpose")
        rng = np.random.default_rng([self.seed or 0, info["window"], info["turns_left"]])
        action = random_action(rng, ToolCalls(observation["tools"]))
        if isinstance(action, dict):
            usage = {"prompt_last": len(self.asked[-1]) // 4}
            action = {**action, "note": {**(action.get("note") or {}), "usage": usage}}
        return action if rng.integers(3) else ends("next")

    def state_dict(self) -> dict[str, Any]:
        return {"acts": self.acts}

    def load_state_dict(self, state: Any) -> None:
        self.acts = int(state["acts"])
