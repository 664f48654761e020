"""Comparable groups of results, their tables and their differences.

Only results of one group are compared: same environment, market, rules, tools, seeds and interventions.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from merchantbench_gym.evaluation.intervals import interval

Record = Mapping[str, Any]
Row = dict[str, Any]

KEY_LENGTH = 16
ROW_KEYS = (
    "policy",
    "group",
    "ranked",
    "n",
    "n_valid",
    "mean",
    "low",
    "high",
    "median",
    "min",
    "max",
    "std",
    "survival_rate",
    "mean_swr",
    "mean_cost_micro_usd",
)
"""Keys of a table row, in order."""


def group_key(records: Sequence[Record]) -> str:
    """Key of the group that the runs of one policy belong to.

    Args:
        records: Result records of one policy, one per seed.

    Returns:
        16 hexadecimal digits. Where the key differs, means must not be compared.
    """
    first = records[0]
    seeds = [[record["seed"], record["catalog_hash"]] for record in records]
    parts = {
        **{name: first[name] for name in ("env_id", "merchants", "scenario_hash", "tool_schema_hash")},
        "seeds": sorted(seeds, key=lambda pair: (str(type(pair[0])), pair[0] or 0)),
        "interventions": first["interventions"],
    }
    text = json.dumps(list(parts.values()), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:KEY_LENGTH]


@dataclass(frozen=True)
class Entry:
    """The runs of one policy in one setting, which make one row of a table.

    Attributes:
        policy: Its label, or else its name.
        group: Key of the group.
        records: The result records.
    """

    policy: str
    group: str
    records: tuple[Record, ...]

    @property
    def valid(self) -> list[Record]:
        """Records of valid runs."""
        return [record for record in self.records if record["valid"]]

    @property
    def ranked(self) -> bool:
        """Whether the row takes part in a ranking: nothing hidden was seen and no run is missing."""
        privileged = any(record["policy"]["privileged"] for record in self.records)
        return not privileged and len(self.valid) == len(self.records)


def entries(records: Iterable[Record]) -> list[Entry]:
    """Sort result records into entries, in order of appearance.

    Args:
        records: Result records of any runs.

    Returns:
        One entry per policy, harness and setting.
    """
    records = list(records)
    # A run that was lost before its market was built does not know the catalog; others on its seed do.
    known: dict[Any, set[str]] = {}
    for record in records:
        if record["catalog_hash"] is not None:
            known.setdefault((record["scenario_hash"], record["seed"]), set()).add(record["catalog_hash"])
    sets: dict[str, list[Record]] = {}
    for record in records:
        hashes = known.get((record["scenario_hash"], record["seed"]), set())
        if record["catalog_hash"] is None and len(hashes) == 1:
            record = {**record, "catalog_hash": next(iter(hashes))}
        sets.setdefault(_identity(record), []).append(record)
    return [
        Entry(own[0]["label"] or own[0]["policy"]["name"], group_key(own), tuple(own))
        for own in sets.values()
    ]


def _identity(record: Record) -> str:
    """What the runs of one entry have in common."""
    names = ("label", "agent", "harness", "env_id", "merchants", "scenario_hash", "tool_schema_hash")
    parts = [record["policy"], record["interventions"], *(record[name] for name in names)]
    return json.dumps(parts, sort_keys=True)


def table(records: Iterable[Record]) -> list[Row]:
    """Make the rows of a table.

    Args:
        records: Result records of any runs.

    Returns:
        Rows with the keys `ROW_KEYS`, group by group. In a group ranked rows come first, best mean first;
        rows without a mean come last. Amounts are currency units; unknown figures are None, never 0.
    """
    found = entries(records)
    order = {key: place for place, key in enumerate(dict.fromkeys(entry.group for entry in found))}
    rows = [_row(entry) for entry in found]
    return sorted(rows, key=lambda row: (order[row["group"]], not row["ranked"], *_descending(row["mean"])))


def _descending(value: float | None) -> tuple[bool, float]:
    return value is None, -(value or 0.0)


def _row(entry: Entry) -> Row:
    valid = entry.valid
    scores = [float(record["score"]) for record in valid]
    bounds = interval(scores)
    return {
        "policy": entry.policy,
        "group": entry.group,
        "ranked": entry.ranked,
        "n": len(entry.records),
        "n_valid": len(valid),
        "mean": _mean(scores),
        "low": bounds[0] if bounds else None,
        "high": bounds[1] if bounds else None,
        "median": float(np.median(scores)) if scores else None,
        "min": min(scores, default=None),
        "max": max(scores, default=None),
        "std": float(np.std(scores, ddof=1)) if len(scores) > 1 else None,
        "survival_rate": _mean([float(record["survived"]) for record in valid]),
        "mean_swr": _mean([record["swr"] for record in valid]),
        "mean_cost_micro_usd": _mean([record["model"]["cost_micro_usd"] for record in valid]),
    }


def _mean(values: Sequence[float | None]) -> float | None:
    """The mean, None if there are no values or one of them is unknown."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known and len(known) == len(values) else None


def differences(records: Iterable[Record], against: str) -> list[Row]:
    """Paired differences of final net assets to one policy, over the seeds on which both runs are valid.

    Args:
        records: Result records of any runs.
        against: Policy to compare with, by its label or name.

    Returns:
        Rows with ``policy, against, group, n, mean, low, high``, one for each other policy of a group in
        which ``against`` took part; largest mean first.
    """
    found = entries(records)
    rows = []
    for base in (entry for entry in found if entry.policy == against):
        own = {record["seed"]: record["score"] for record in base.valid}
        for entry in found:
            if entry is base or entry.group != base.group:
                continue
            pairs = [(r["score"], own[r["seed"]]) for r in entry.valid if r["seed"] in own]
            values = [score - other for score, other in pairs]
            low, high = interval(values) or (None, None)
            row = {"policy": entry.policy, "against": against, "group": base.group, "n": len(values)}
            rows.append({**row, "mean": _mean(values), "low": low, "high": high})
    return sorted(rows, key=lambda row: _descending(row["mean"]))
