"""Waits between attempts, and the deadline of a window."""

from __future__ import annotations

from dataclasses import replace

import pytest

from merchantbench_gym.baselines.react.errors import CLASSES, Failure
from merchantbench_gym.baselines.react.schedule import LONG, SHORT, Deadline, Schedule


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def schedule(deadline: Deadline | None = None) -> Schedule:
    return Schedule(deadline or Deadline(Clock()))


def test_the_two_schedules() -> None:
    assert (sum(SHORT), sum(LONG)) == (257, 810)
    for kind, waits in (("rate", SHORT), ("transient", SHORT), ("quota", LONG)):
        made = schedule()
        assert [made.wait(Failure(kind)) for _ in range(9)] == [*waits, None]


def test_one_index_for_all_classes() -> None:
    made = schedule()
    kinds = ("transient", "quota", "rate", "quota", "transient", "transient", "rate", "rate", "rate")
    assert [made.wait(Failure(kind)) for kind in kinds] == [2, 60, 10, 120, 40, 60, 60, 60, None]


def test_bad_responses_are_few() -> None:
    made = schedule()
    kinds = ("bad_response", "transient", "bad_response", "bad_response")
    assert [made.wait(Failure(kind)) for kind in kinds] == [2, 5, 10, None]


@pytest.mark.parametrize("kind", sorted(set(CLASSES) - {"rate", "transient", "quota", "bad_response"}))
def test_others_are_not_waited_for(kind: str) -> None:
    assert schedule().wait(Failure(kind)) is None


def test_the_provider_may_ask_for_more_but_not_for_ever() -> None:
    rate = Failure("rate")
    made = schedule()
    assert made.wait(replace(rate, retry_after=3)) == 3
    assert made.wait(replace(rate, retry_after=3)) == 5
    assert made.wait(replace(rate, retry_after=600)) == 600
    assert made.wait(replace(rate, retry_after=900)) is None


def test_the_deadline_leaves_room_for_an_attempt() -> None:
    clock = Clock()
    deadline = Deadline(clock, 0.0, 300.0)
    made = Schedule(deadline)
    attempts = []
    while True:
        attempts.append((clock.now, deadline.timeout(120)))
        clock.now += deadline.timeout(120)
        wait = made.wait(Failure("transient"))
        if wait is None:
            break
        clock.now += wait
    assert attempts == [(0, 120), (122, 120), (247, 53)]
    assert clock.now == 300
    assert not deadline.allows()
    assert Deadline(clock).allows(1e9)
    assert Deadline(clock).timeout(7) == 7
