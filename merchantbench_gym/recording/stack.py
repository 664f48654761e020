"""A recorded environment as data: its make, its wrappers, and how to build it again."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from typing import Any

import gymnasium

from merchantbench_gym.recording.schema import JournalMismatch, Row

NOT_REBUILT = frozenset({"RecordRun", "FaultInjection"})
"""Wrappers that are not built again: the recorder is put on anew, faults belong to the run that died."""

ENVS = "merchantbench_gym.envs."


def describe_env(env: Any) -> dict[str, str]:
    """Columns of the run table that name an unwrapped environment."""
    spec = getattr(env, "spec", None)
    env_id = str(env.metadata.get("name", type(env).__name__)) if spec is None else str(spec.id)
    arguments = json.dumps(getattr(env, "arguments", {}))
    return {
        "env_id": env_id,
        "env": _place(getattr(env, "recorded_class", type(env))),
        "arguments": arguments,
    }


def describe_stack(env: Any) -> list[dict[str, Any]]:
    """Wrappers of an environment from the inside out, with the arguments they were made with.

    Providers of tools that were added to the environment itself come first, in the same form.
    """
    providers = [
        {"wrapper": _place(type(provider)), "arguments": provider.arguments}
        for provider in getattr(env.unwrapped, "providers", ())
        if hasattr(provider, "arguments") and not getattr(provider, "of_wrapper", False)
    ]
    layers: list[dict[str, Any]] = []
    while env is not getattr(env, "unwrapped", env):
        arguments = getattr(env, "_saved_kwargs", None)
        layers.append({"wrapper": _place(type(env)), "arguments": arguments})
        env = env.env
    return providers + layers[::-1]


def _place(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def find(place: str) -> Any:
    """The object that a ``module:name`` names."""
    module, _, name = place.partition(":")
    value: Any = importlib.import_module(module)
    for part in name.split("."):
        value = getattr(value, part)
    return value


def build_env(run: Row, *, bare: bool = False) -> Any:
    """Build the environment of a run, as it was before its reset.

    Args:
        run: Row of the run table.
        bare: Leave the wrappers away, but for the tools they bring.

    Raises:
        JournalMismatch: It cannot be built from data alone.
    """
    # A wrapper may change what the environment does, so there is one scenario: that of the episode.
    scenario, arguments = json.loads(run["scenario"]), json.loads(run["arguments"])
    layers = json.loads(run["stack"])
    if run["env"].startswith(f"{ENVS}marketplace:") or (bare and run["merchants"] > 1):
        market = find(f"{ENVS}marketplace:MarketplaceEnv")(scenario, merchants=run["merchants"])
        return _equipped(market, layers)
    if not run["env"].startswith(ENVS):
        hint = "replay, fork and export work on the file; only the stack cannot be built again"
        raise JournalMismatch("env", run["env"], "an environment that can be built from data", hint)
    if run["env_id"] in gymnasium.registry:
        made = gymnasium.make(run["env_id"], scenario=scenario, disable_env_checker=True, **arguments)
        env: Any = made.unwrapped
    else:
        env = find(run["env"])(scenario, **arguments)
    return _equipped(env, layers) if bare else _wrapped(env, layers)


def _equipped(env: Any, layers: list[Mapping[str, Any]]) -> Any:
    """Do to an environment what wrappers did to the one inside them, and add its own providers."""
    for layer in layers:
        try:
            kind = find(layer["wrapper"])
        except (ImportError, AttributeError):
            continue  # not ours: ours are where they say they are
        if not issubclass(kind, gymnasium.Wrapper):
            env.unwrapped.add_provider(kind(**layer["arguments"]))
        elif hasattr(kind, "equip"):
            kind.equip(env.unwrapped, **layer["arguments"])
    return env


def _wrapped(env: Any, layers: list[Mapping[str, Any]]) -> Any:
    for layer in layers:
        if layer["wrapper"].rpartition(".")[2].rpartition(":")[2] in NOT_REBUILT:
            continue
        if layer["arguments"] is None:
            hint = "it does not tell its arguments (gymnasium.utils.RecordConstructorArgs)"
            raise JournalMismatch("stack", layer["wrapper"], "a wrapper that can be built again", hint)
        kind = find(layer["wrapper"])
        if issubclass(kind, gymnasium.Wrapper):
            env = kind(env, **layer["arguments"])
        else:
            env.unwrapped.add_provider(kind(**layer["arguments"]))
    return env


def check_hashes(run: Row, env: Any) -> None:
    """Raise unless an environment that has been reset is that of a run.

    Raises:
        JournalMismatch: Scenario, catalog or tools are others; the exception names both values.
    """
    for name in ("scenario_hash", "catalog_hash", "tool_schema_hash"):
        if run[name] != env.hashes[name]:
            raise JournalMismatch(name, run[name], env.hashes[name])
    if run["seed"] != str(env.session.world.seed):
        raise JournalMismatch("seed", run["seed"], env.session.world.seed)
