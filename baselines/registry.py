"""The policies that can be asked for by name."""

from __future__ import annotations

from merchantbench_gym.baselines.oracle import OraclePolicy
from merchantbench_gym.baselines.passive import PassivePolicy
from merchantbench_gym.baselines.policy import BasePolicy
from merchantbench_gym.baselines.random_calls import RandomPolicy
from merchantbench_gym.baselines.react.policy import ReActPolicy
from merchantbench_gym.baselines.rule_based import RuleBasedPolicy

POLICIES: dict[str, type[BasePolicy]] = {
    "passive": PassivePolicy,
    "random": RandomPolicy,
    "rule_based": RuleBasedPolicy,
    "oracle": OraclePolicy,
    "react": ReActPolicy,
}
