"""Environments: one merchant, several, or a numeric view, alone or many. Each is loaded on first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from merchantbench_gym.envs.flat import FlatEnv
    from merchantbench_gym.envs.flat_vector import FlatVectorEnv
    from merchantbench_gym.envs.marketplace import MarketplaceEnv
    from merchantbench_gym.envs.merchant import MerchantEnv

__all__ = ["FlatEnv", "FlatVectorEnv", "MarketplaceEnv", "MerchantEnv"]

_HOMES = {
    "FlatEnv": "flat",
    "FlatVectorEnv": "flat_vector",
    "MarketplaceEnv": "marketplace",
    "MerchantEnv": "merchant",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
