"""Wrappers around the environments, and the seat a policy sits in.

The folder is installed as ``merchantbench_gym.wrappers``.
"""

from __future__ import annotations

from merchantbench_gym.wrappers.errors import ResponseLost
from merchantbench_gym.wrappers.seat import Seat

__all__ = ["ResponseLost", "Seat"]
