"""Policies and the loop that runs them; installed as ``merchantbench_gym.baselines``."""
