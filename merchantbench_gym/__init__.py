"""MerchantBench as a Gymnasium library: a year of online dropshipping, in process and deterministic.

Importing the package registers the environment ids (``MerchantBench-v0``, its numeric view
``MerchantBenchFlat-v0``, and one of each per preset) and nothing else; whatever is heavy is loaded on first
use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import gymnasium

if TYPE_CHECKING:
    from merchantbench_gym.scenario import Scenario, ScenarioError, load_scenario

__version__ = "0.1.0"
__all__ = ["Scenario", "ScenarioError", "__version__", "load_scenario"]

_ENTRY_POINTS = {
    "MerchantBench": "merchantbench_gym.envs.merchant:MerchantEnv",
    "MerchantBenchFlat": "merchantbench_gym.envs.flat:FlatEnv",
}
_VECTOR_ENTRY_POINTS = {"MerchantBenchFlat": "merchantbench_gym.envs.flat_vector:FlatVectorEnv"}
# Suffix of the id -> scenario. Spelled out, because reading the presets here would load pydantic.
_PRESET_IDS = {
    "": "default",
    "Smoke": "smoke",
    "Month": "month",
    "Lite": "lite",
    "Large": "large",
    "Fees": "fees",
    "Uncoupled": "uncoupled",
    "Market1": "market-1",
}


def _register_envs() -> None:
    for face, entry_point in _ENTRY_POINTS.items():
        for suffix, preset in _PRESET_IDS.items():
            env_id = f"{face}{suffix}-v0"
            # A reloaded package would otherwise be warned about overriding its own ids.
            if env_id not in gymnasium.registry:
                gymnasium.register(
                    id=env_id,
                    entry_point=entry_point,
                    vector_entry_point=_VECTOR_ENTRY_POINTS.get(face),
                    kwargs={"scenario": preset},
                )


_register_envs()


def __getattr__(name: str) -> object:
    if name in __all__:
        from merchantbench_gym import scenario

        value: object = getattr(scenario, name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
