from __future__ import annotations

import pytest

from merchantbench_gym import envs


def test_environments_are_exported_by_name() -> None:
    assert set(envs.__all__) <= set(dir(envs))
    for name in envs.__all__:
        assert getattr(envs, name).__name__ == name


def test_other_names_are_no_attributes() -> None:
    with pytest.raises(AttributeError, match="Nothing"):
        envs.Nothing  # noqa: B018
