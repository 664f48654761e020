"""Parts of arms in a module that a run file can name."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium.utils import RecordConstructorArgs

from merchantbench_gym.baselines import BasePolicy, RuleBasedPolicy


class Without(gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Takes the calls of one tool out of all actions from a window on."""

    def __init__(self, env: Any, tool: str, start: int) -> None:
        RecordConstructorArgs.__init__(self, tool=tool, start=start)
        gymnasium.Wrapper.__init__(self, env)
        self.tool, self.start, self.window = tool, start, 0

    def reset(self, **arguments: Any) -> Any:
        self.window = 0
        return super().reset(**arguments)

    def step(self, action: Any) -> Any:
        if self.window >= self.start:
            action = [call for call in action if call["name"] != self.tool]
        result = super().step(action)
        self.window = result[4]["window"]
        return result


class Moody(BasePolicy):
    """The rule-based merchant at a markup that depends on how many of its kind there were before."""

    name = "moody"
    made = 0

    def __init__(self) -> None:
        self._policy = RuleBasedPolicy(markup=1.5 + 0.1 * (Moody.made % 5))
        Moody.made += 1

    def reset(self, seat: Any, *, seed: int | None = None) -> None:
        self._policy.reset(seat, seed=seed)

    def act(self, observation: Any, info: Any) -> Any:
        return self._policy.act(observation, info)


class Noting(BasePolicy):
    """Writes a word into its notes, reads them in every window, looks into its purse if it is not there."""

    name = "noting"

    def act(self, observation: Any, info: Any) -> Any:
        read = [r["content"] for r in observation["tool_results"] if r["name"] == "read_memory_doc"]
        if not read:
            write = call("write_memory_doc", {"content": "rest"})
            return [call("read_memory_doc", {}), *([] if info["window"] else [write])]
        purse = [] if '"rest"' in read[0] or not info["window"] else [call("query_balance", {})]
        return [*purse, call("end_of_step", {})]


def call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"id": name, "name": name, "arguments": arguments}
