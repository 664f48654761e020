"""Sweeps with a policy that reads numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from merchantbench_gym.baselines import BasePolicy
from merchantbench_gym.evaluation import evaluate


class Filler(BasePolicy):
    """Lists every candidate at markup 2 while there is room."""

    name = "filler"
    observes = "flat"

    def act(self, observation: Any, info: Any) -> Any:
        offered = info["action_mask"][400:].reshape(20, 7)[:, 5]
        return np.concatenate([np.zeros(50, dtype=np.int64), 5 * offered.astype(np.int64)])


def test_numbers_and_tools_stand_in_one_table() -> None:
    sweep = evaluate({"filler": Filler}, "smoke", [1, 2])
    assert sweep.valid
    assert {row["policy"] for row in sweep.table} == {"filler", "passive", "rule_based"}
    ids = {record["policy"]["name"]: record["env_id"] for record in sweep.records}
    assert ids["filler"] == "MerchantBenchFlat-v0" and ids["passive"] == "MerchantBench-v0"
