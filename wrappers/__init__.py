"""Wrappers around the environments; installed as ``merchantbench_gym.wrappers``."""
