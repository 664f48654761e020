"""What an agent can call and read: typed functions over a merchant's view of the market."""

from __future__ import annotations

import functools
import importlib
import pkgutil

from merchantbench_gym.tools.registry import Registry, Tool, tool

__all__ = ["Registry", "default_registry", "tool"]


@functools.cache
def default_registry() -> Registry:
    """Return the registry of the tools that need no provider; the same object every time."""
    found: dict[str, Tool] = {}
    for module in sorted(info.name for info in pkgutil.iter_modules(__path__)):
        names = vars(importlib.import_module(f"{__name__}.{module}"))
        found.update((item.name, item) for item in names.values() if isinstance(item, Tool))
    return Registry(found.values())
