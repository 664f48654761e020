"""Scenarios: the frozen settings of a simulated market, its tools and its texts.

A scenario is a TOML file, a mapping or the name of a preset, laid over the preset it `extends`
(`default` if it names none). `load_scenario` resolves and checks it and reports everything that is
wrong at once. In the loaded object amounts are integer cents and a range is a tuple ``(low, high)``.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import importlib.resources
import json
import numbers
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from merchantbench_gym.market.version import DYNAMICS_VERSION
from merchantbench_gym.scenario_rules import Bilingual, Rule, echo, nearest
from merchantbench_gym.scenario_sections import (
    TOOL_NAMES,
    BriefSection,
    CalendarSection,
    CatalogSection,
    CurveSection,
    DemandSection,
    DifficultySection,
    FeesSection,
    FinesSection,
    Frozen,
    LifecycleSection,
    ListingRatingSection,
    MerchantSection,
    OrdersSection,
    RatingSection,
    ReportsSection,
    RiskSection,
    RunSection,
    SeedsSection,
    SupplierSection,
    ToolsSection,
    TrustSection,
    TurnsSection,
    Words,
)

__all__ = [
    "DEV_SEEDS",
    "EVAL_SEEDS",
    "PRESETS",
    "TOOL_NAMES",
    "Bilingual",
    "Scenario",
    "ScenarioError",
    "deep_merge",
    "load_scenario",
    "parse_setting",
]

PRESETS = ("default", "smoke", "month", "lite", "large", "fees", "uncoupled", "market-1")
DEV_SEEDS = tuple(range(1, 11))
EVAL_SEEDS = tuple(range(7_000_001, 7_000_011))


class ScenarioError(ValueError):
    """A scenario that cannot be used; the message has one line for each problem."""

    @property
    def problems(self) -> tuple[str, ...]:
        """Every problem as ``path: what is wrong (got …, allowed …)``."""
        return self.args

    def __str__(self) -> str:
        return "\n".join(self.problems)


class Scenario(Frozen):
    """A resolved scenario: frozen, hashable, equal if all its settings are.

    Made by `load_scenario`; every amount is in integer cents.
    """

    name: Words
    description: Words
    run: RunSection
    seeds: SeedsSection
    calendar: CalendarSection
    merchant: MerchantSection
    catalog: CatalogSection
    curve: CurveSection
    risk: RiskSection
    trust: TrustSection
    difficulty: DifficultySection
    supplier: SupplierSection
    demand: DemandSection
    lifecycle: LifecycleSection
    orders: OrdersSection
    fines: FinesSection
    rating: RatingSection
    listing_rating: ListingRatingSection
    fees: FeesSection
    turns: TurnsSection
    tools: ToolsSection
    reports: ReportsSection
    brief: BriefSection

    @property
    def horizon_hours(self) -> int:
        """Length of the run in hours; demand exists in hours 0 … horizon_hours − 1."""
        return 24 * self.run.horizon_days

    @functools.cached_property
    def hash(self) -> str:
        """SHA-256 (hex) of everything that shapes a run; name and description do not count."""
        settings = self.model_dump(exclude={"name", "description"})
        settings["dynamics_version"] = DYNAMICS_VERSION
        text = json.dumps(settings, sort_keys=True, separators=(",", ":"), default=str)
        return hashlib.sha256(text.encode()).hexdigest()

    def resolved(self) -> dict[str, Any]:
        """Return all settings as fresh plain JSON data in the units of the files.

        Absent keys are left out; ``load_scenario(s.resolved()) == s``.
        """
        return _shown(self)


def load_scenario(
    source: str | os.PathLike[str] | Mapping[str, Any] | Scenario = "default",
    overrides: Mapping[str, Any] | None = None,
) -> Scenario:
    """Resolve and check a scenario.

    Args:
        source: Name of a preset, path of a TOML file, mapping of the same form, or a scenario.
        overrides: Tables merged over it; a key set to None becomes absent again.

    Returns:
        The frozen scenario.

    Raises:
        ScenarioError: If anything is wrong; it names every problem.
    """
    if isinstance(source, Scenario):
        if not overrides:
            return source
        table = source.resolved()
    elif isinstance(source, Mapping):
        table = _with_base(_plain(source), ())
    elif isinstance(source, str) and source in PRESETS:
        table = _preset(source, ())
    elif isinstance(source, (str, os.PathLike)):
        table = _with_base(_read_file(source), ())
    else:
        raise ScenarioError(f"scenario: must be a preset, a path or a mapping (got {echo(source)})")
    if overrides is not None and not isinstance(overrides, Mapping):
        raise ScenarioError(f"overrides: must be a table (got {echo(overrides)})")
    table = deep_merge(table, _plain(overrides or {}))
    try:
        return Scenario.model_validate(table)
    except ValidationError as error:
        raise ScenarioError(*_problems(error)) from None


def deep_merge(base: Mapping[str, Any], overlay: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` with `overlay` laid over it: tables merge recursively, everything else replaces."""
    merged = dict(base)
    for key, value in overlay.items():
        below = merged.get(key)
        if isinstance(below, Mapping) and isinstance(value, Mapping):
            value = deep_merge(below, value)
        merged[key] = value
    return merged


def parse_setting(setting: str) -> dict[str, Any]:
    """Turn ``section.key=value`` into a nested mapping; the value is written as in TOML.

    Raises:
        ScenarioError: If there is no ``=``, the key is no dotted name or the value is not TOML.
    """
    key, equals, text = setting.partition("=")
    names = [name.strip() for name in key.split(".")]
    if not equals or not all(re.fullmatch("[A-Za-z0-9_-]+", name) for name in names):
        raise ScenarioError(f"{echo(setting)}: must be KEY=VALUE such as run.horizon_days=30")
    path = ".".join(names)
    try:
        parsed = tomllib.loads(f"value = {text.strip()}")
    except (tomllib.TOMLDecodeError, RecursionError):
        parsed = {}
    if set(parsed) != {"value"}:
        # A line break could smuggle in more keys.
        raise ScenarioError(
            f"{path}: must be one value as in TOML, texts in quotes (got {text!r}, "
            'allowed such as 30, 0.5, true, "text", [1, 2])'
        )
    nested: Any = parsed["value"]
    for name in reversed(names):
        nested = {name: nested}
    result: dict[str, Any] = nested
    return result


def _plain(value: Any) -> Any:
    """Copy tables and lists; numbers of other libraries (numpy's) become Python's own."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, bool):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real) and not isinstance(value, numbers.Rational):
        return float(value)
    return value


def _with_base(table: dict[str, Any], chain: tuple[str, ...]) -> dict[str, Any]:
    """Lay a table over the preset it extends; `chain` holds the presets on the way to it."""
    table = dict(table)
    base = table.pop("extends", "default")
    if not isinstance(base, str) or base not in PRESETS:
        near = f", the nearest is {nearest(base, PRESETS)}" if isinstance(base, str) else ""
        known = ", ".join(PRESETS)
        raise ScenarioError(f"extends: must name a preset{near} (got {echo(base)}, allowed {known})")
    if base in chain:
        raise ScenarioError(f"extends: presets extend each other in a circle ({' → '.join((*chain, base))})")
    return deep_merge(_preset(base, chain), table)


def _preset(name: str, chain: tuple[str, ...]) -> dict[str, Any]:
    table = copy.deepcopy(_read_preset(name))
    return table if name == "default" else _with_base(table, (*chain, name))


@functools.cache
def _read_preset(name: str) -> dict[str, Any]:
    file = importlib.resources.files("merchantbench_gym").joinpath("scenarios", f"{name}.toml")
    return tomllib.loads(file.read_text(encoding="utf-8"))


def _read_file(source: str | os.PathLike[str]) -> dict[str, Any]:
    path = Path(source)
    try:
        data = path.read_bytes()
    except (FileNotFoundError, ValueError):
        if isinstance(source, str) and not source.endswith(".toml") and os.sep not in source:
            near = nearest(source, PRESETS)
            raise ScenarioError(
                f"scenario: unknown preset, the nearest is {near} "
                f"(got {echo(source)}, allowed {', '.join(PRESETS)} or the path of a TOML file)"
            ) from None
        raise ScenarioError(f"scenario: no such file (got {echo(str(source))})") from None
    except OSError as error:
        raise ScenarioError(f"scenario: cannot read {path}: {error.strerror}") from None
    try:
        return tomllib.loads(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ScenarioError(f"{path}, line {line}: not UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"\(at line (\d+), column \d+\)$", str(error))
        line = int(found[1]) if found else len(data.splitlines())
        what = re.sub(r" \(at [^()]*\)$", "", str(error))
        raise ScenarioError(f"{path}, line {line}: not valid TOML: {what}") from None
    except RecursionError:
        raise ScenarioError(f"{path}, line 1: nested too deeply") from None


def _problems(error: ValidationError) -> Iterator[str]:
    for item in error.errors(include_url=False):
        path = ".".join(str(part) for part in item["loc"])
        if item["type"] == "value_error":
            yield f"{path}: {item['ctx']['error']}"
        elif item["type"] == "extra_forbidden":
            yield f"{path}: unknown key, the nearest is {_nearest_key(path)} (got {echo(item['input'])})"
        elif item["type"] == "missing":
            yield f"{path}: is missing"
        else:
            yield f"{path}: must be a table (got {echo(item['input'])})"


def _known_keys(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield prefix + name
        if _is_table(field):
            assert isinstance(field.annotation, type)
            yield from _known_keys(field.annotation, f"{prefix}{name}.")


def _is_table(field: FieldInfo) -> bool:
    return not any(isinstance(rule, Rule) for rule in field.metadata)


def _nearest_key(path: str) -> str:
    """Return the known key most like a path; a good last name counts in the wrong table too."""
    last = path.rpartition(".")[2]
    keys = list(_known_keys(Scenario))
    same_name = [key for key in keys if key.rpartition(".")[2] == last]
    return nearest(path, same_name or keys)


def _shown(model: BaseModel) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)
        rule = next((rule for rule in field.metadata if isinstance(rule, Rule)), None)
        plain = rule.show(value) if rule else _shown(value)
        if plain is not None:
            shown[name] = plain
    return shown
