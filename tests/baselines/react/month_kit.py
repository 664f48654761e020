"""What tests of whole runs share: the scripted month of the documents, and a process that can be killed."""

from __future__ import annotations

import importlib.util
import os
import signal
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from merchantbench_gym.baselines import ReActConfig, ReActPolicy, Reply, make_agent_env, run_episode
from merchantbench_gym.recording import resume
from merchantbench_gym.recording.schema import has_run
from tests.react_kit import KEY
from tests.recording.storm import Deadly

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"
SMALL: dict[str, Any] = {
    "model": "scripted",
    "api_key": KEY,
    "context_window": 20_000,
    "max_output_tokens": 1_000,
    "trigger": 10_500,
    "keep": 2_500,
}
"""A context that a few days of the scripted month outgrow."""


def _example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


scripted_month = _example("scripted_month")


class Nameless:
    """A model whose calls have no ids, so that what it says does not depend on the number of a request."""

    def __init__(self) -> None:
        self.model = scripted_month.Shopkeeper()

    def __call__(self, request: Any, number: int) -> Reply:
        reply: Reply = self.model(request, number)
        # The cache remembers the request before, which need not be the same after a restart.
        usage = (*reply.usage[:2], 0)  # type: ignore[index]
        return replace(
            reply, calls=[(name, arguments, None) for name, arguments, *_ in reply.calls], usage=usage
        )


def play(path: Path, url: str, days: int, point: str = "", nth: int = 0, after: bool = False) -> Any:
    """Play a recorded run to its end, going on with the file if it holds one.

    Args:
        path: The run file.
        url: Address of the model.
        days: Length of the run.
        point: What kills the process: ``send`` is a request to the model, anything else the start of a
            statement on the run file.
        nth: Which of these.
        after: Whether after it rather than before.

    Returns:
        The result.
    """
    config = ReActConfig(base_url=url, **SMALL)
    policy = ReActPolicy(config=config)
    if has_run(path):
        env, *start = resume(path, policy)
    else:
        env = make_agent_env("smoke", config=config, record=path, overrides={"run": {"horizon_days": days}})
        start = []
    if point == "send":
        _arm(policy, nth, after)
    elif point:
        env.recorder._db = Deadly(env.recorder._db, point, nth, after)
    result = run_episode(env, policy, seed=1, start=tuple(start) if start else None)
    env.close()
    return result


def _arm(policy: Any, nth: int, after: bool) -> None:
    send, left = policy._caller.send, [nth]

    def deadly(*values: Any, **named: Any) -> Any:
        left[0] -= 1
        if left[0] == 0 and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        outcome = send(*values, **named)
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return outcome

    policy._caller.send = deadly
