"""Policies that end badly, in a module that worker processes can import."""

from __future__ import annotations

import os
import signal
from typing import Any

from merchantbench_gym.baselines import PassivePolicy, PolicyStop


class Killed(PassivePolicy):
    """Takes its process along on seed 2."""

    name = "killed"

    def act(self, observation: Any, info: Any) -> Any:
        if self.seed == 2 and info["window"] == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().act(observation, info)


class Unmakeable(PassivePolicy):
    """Cannot be made for any environment."""

    name = "unmakeable"

    @classmethod
    def for_env(cls, env: Any) -> Any:
        raise RuntimeError("no such thing")


class Stopping(PassivePolicy):
    """Stops on seed 2."""

    name = "stopping"

    def act(self, observation: Any, info: Any) -> Any:
        if self.seed == 2:
            raise PolicyStop("enough")
        return super().act(observation, info)


class Interrupting(PassivePolicy):
    """Is interrupted from the keyboard on seed 2."""

    name = "interrupting"

    def act(self, observation: Any, info: Any) -> Any:
        if self.seed == 2:
            raise KeyboardInterrupt
        return super().act(observation, info)


class Chatting(PassivePolicy):
    """Reads messages."""

    name = "chatting"
    observes = "chat"

    def act(self, observation: Any, info: Any) -> Any:
        assert observation["messages"][0]["role"] == "system"
        return super().act(observation, info)


class Smelling(PassivePolicy):
    """Reads what no environment shows."""

    name = "smelling"
    observes = "scent"
