"""The policy that asks a language model, and a model server to test such policies against."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from merchantbench_gym.baselines.react.config import ConfigError, ReActConfig
    from merchantbench_gym.baselines.react.model_server import ModelServer, Reply
    from merchantbench_gym.baselines.react.policy import ReActPolicy

_HOMES = {
    "ConfigError": "merchantbench_gym.baselines.react.config",
    "ModelServer": "merchantbench_gym.baselines.react.model_server",
    "ReActConfig": "merchantbench_gym.baselines.react.config",
    "ReActPolicy": "merchantbench_gym.baselines.react.policy",
    "Reply": "merchantbench_gym.baselines.react.model_server",
}

__all__ = ["ConfigError", "ModelServer", "ReActConfig", "ReActPolicy", "Reply"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
