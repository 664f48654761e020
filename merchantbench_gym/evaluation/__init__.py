"""Scoring: from what a run reached to figures that can be compared."""

from __future__ import annotations

from merchantbench_gym.evaluation.groups import differences, group_key, table
from merchantbench_gym.evaluation.intervals import interval
from merchantbench_gym.evaluation.paired import Arm, Paired, paired_experiment
from merchantbench_gym.evaluation.record import result_record
from merchantbench_gym.evaluation.sweep import Sweep, evaluate
from merchantbench_gym.evaluation.swr import swr
from merchantbench_gym.scenario import DEV_SEEDS, EVAL_SEEDS

__all__ = [
    "DEV_SEEDS",
    "EVAL_SEEDS",
    "Arm",
    "Paired",
    "Sweep",
    "differences",
    "evaluate",
    "group_key",
    "interval",
    "paired_experiment",
    "result_record",
    "swr",
    "table",
]
