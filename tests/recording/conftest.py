"""What the tests of run files share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from merchantbench_gym.wrappers import RecordRun
from tests.recording_kit import make


@pytest.fixture
def recorded(tmp_path: Path) -> Callable[..., Any]:
    """Makes an environment that records into a file of the name given."""

    def wrapped(name: str = "a.run", **arguments: Any) -> RecordRun:
        return RecordRun(make(**arguments), tmp_path / name)

    return wrapped
