"""Policies and the loop that plays them.

The folder is installed as ``merchantbench_gym.baselines``. Everything is resolved on first use.
``POLICIES`` maps the names known to the command line to policy classes.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from merchantbench_gym.baselines.agent_env import make_agent_env
    from merchantbench_gym.baselines.faulty_client import Fault, FaultyClient
    from merchantbench_gym.baselines.oracle import OraclePolicy
    from merchantbench_gym.baselines.parallel import run_parallel
    from merchantbench_gym.baselines.passive import PassivePolicy
    from merchantbench_gym.baselines.policy import BasePolicy, Policy, PolicyStop
    from merchantbench_gym.baselines.random_calls import RandomPolicy
    from merchantbench_gym.baselines.react.config import ConfigError, ReActConfig
    from merchantbench_gym.baselines.react.model_server import ModelServer, Reply
    from merchantbench_gym.baselines.react.policy import ReActPolicy
    from merchantbench_gym.baselines.registry import POLICIES
    from merchantbench_gym.baselines.rule_based import RuleBasedPolicy
    from merchantbench_gym.baselines.runner import EpisodeResult, run_episode
    from merchantbench_gym.baselines.scripted import ScriptedPolicy
    from merchantbench_gym.baselines.switch import SwitchPolicy
    from merchantbench_gym.wrappers.seat import Seat

_HOMES = {
    "BasePolicy": "merchantbench_gym.baselines.policy",
    "ConfigError": "merchantbench_gym.baselines.react.config",
    "EpisodeResult": "merchantbench_gym.baselines.runner",
    "Fault": "merchantbench_gym.baselines.faulty_client",
    "FaultyClient": "merchantbench_gym.baselines.faulty_client",
    "ModelServer": "merchantbench_gym.baselines.react.model_server",
    "OraclePolicy": "merchantbench_gym.baselines.oracle",
    "POLICIES": "merchantbench_gym.baselines.registry",
    "PassivePolicy": "merchantbench_gym.baselines.passive",
    "Policy": "merchantbench_gym.baselines.policy",
    "PolicyStop": "merchantbench_gym.baselines.policy",
    "RandomPolicy": "merchantbench_gym.baselines.random_calls",
    "ReActConfig": "merchantbench_gym.baselines.react.config",
    "ReActPolicy": "merchantbench_gym.baselines.react.policy",
    "Reply": "merchantbench_gym.baselines.react.model_server",
    "RuleBasedPolicy": "merchantbench_gym.baselines.rule_based",
    "ScriptedPolicy": "merchantbench_gym.baselines.scripted",
    "Seat": "merchantbench_gym.wrappers.seat",
    "SwitchPolicy": "merchantbench_gym.baselines.switch",
    "make_agent_env": "merchantbench_gym.baselines.agent_env",
    "run_episode": "merchantbench_gym.baselines.runner",
    "run_parallel": "merchantbench_gym.baselines.parallel",
}

__all__ = [
    "POLICIES",
    "BasePolicy",
    "ConfigError",
    "EpisodeResult",
    "Fault",
    "FaultyClient",
    "ModelServer",
    "OraclePolicy",
    "PassivePolicy",
    "Policy",
    "PolicyStop",
    "RandomPolicy",
    "ReActConfig",
    "ReActPolicy",
    "Reply",
    "RuleBasedPolicy",
    "ScriptedPolicy",
    "Seat",
    "SwitchPolicy",
    "make_agent_env",
    "run_episode",
    "run_parallel",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
