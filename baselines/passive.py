"""The merchant that does nothing: the lower anchor of every comparison."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from merchantbench_gym.baselines.policy import END, BasePolicy


class PassivePolicy(BasePolicy):
    """Ends every window at once and so finishes with its initial net assets."""

    name = "passive"

    def act(self, observation: Any, info: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return a lone ``end_of_step``."""
        return [dict(END)]
