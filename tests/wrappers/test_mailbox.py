"""What a seat hears after waiting, from plain data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from merchantbench_gym.wrappers.mailbox import TERMS, Mailbox


def told(
    results: str = "", *, left: int = 30, window: int = 0, end: str = "", **terms: float
) -> tuple[Any, Any]:
    """Observation and info with results of these names."""
    observation = {
        "text": f"window {window}",
        "tool_results": tuple({"tool_call_id": n, "name": n, "content": n} for n in results),
        "store": np.zeros(2, dtype=np.float32),
    }
    info = {"window": window, "turns_left": left, "end_reason": end, **dict.fromkeys(TERMS, 0.0), **terms}
    return observation, info


def names(step: Any) -> str:
    return "".join(result["name"] for result in step[0]["tool_results"])


def test_results_of_the_turn_and_rewards_of_the_wait_come_together() -> None:
    box = Mailbox(*told())
    assert box.decides and not box.done
    box.take(*told("ab", left=0), acted=True)
    assert not box.decides
    box.take(*told(left=0), acted=False)
    box.take(*told(window=1, gross=10.1, fees=-0.3), acted=False)
    assert box.decides and box.place == (1, 30)
    observation, reward, terminated, truncated, info = box.read()
    assert names((observation,)) == "ab"
    assert observation["text"] == "window 1"
    assert (reward, terminated, truncated) == (9.8, False, False)
    assert (info["gross"], info["fees"]) == (10.1, -0.3)


def test_what_was_not_read_is_owed_still() -> None:
    box = Mailbox(*told(gross=5.0))
    assert box.read()[1] == 5.0
    box.take(*told("a", left=0), acted=True)
    box.take(*told(window=1, gross=1.0), acted=False)
    assert box.peek()[1] == 1.0  # a look is no reading
    box.take(*told("b", window=1, fines=-0.25), acted=True)
    assert (box.read()[1], names(box.read())) == (0.75, "b")
    box.take(*told("c", window=1), acted=True)
    assert box.read()[1] == 0.0


def test_an_ended_run_does_not_decide() -> None:
    box = Mailbox(*told())
    box.take(*told("a", end="horizon"), acted=True)
    assert box.done and not box.decides
    assert box.read()[2] is True


def test_returns_are_fresh() -> None:
    box = Mailbox(*told("a", gross=1.0))
    first = box.read()
    first[0]["store"][:] = 9
    first[0]["tool_results"][0]["name"] = "changed"
    first[4].clear()
    assert names(box.read()) == "a"
    assert box.read()[0]["store"].tolist() == [0.0, 0.0]
    assert box.read()[4]["gross"] == 1.0


@pytest.mark.parametrize("read", [True, False])
def test_state_goes_with_what_the_environment_tells_again(read: bool) -> None:
    box = Mailbox(*told())
    box.take(*told("ab", left=0, gross=2.0), acted=True)
    last = told(window=1, gross=1.5)
    box.take(*last, acted=False)
    if read:
        box.read()
    twin = Mailbox(*last)
    twin.load(box.state())
    np.testing.assert_equal(twin.peek(), box.peek())
    for one in (box, twin):
        one.take(*told("c", window=1), acted=True)
    np.testing.assert_equal(twin.read(), box.read())
    assert box.read()[1] == (0.0 if read else 3.5)
