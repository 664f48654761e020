"""Recording a market of several seats: the market itself writes its turns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
from gymnasium.error import ResetNeeded

from merchantbench_gym.envs.host import SessionEnv
from merchantbench_gym.recording.recorder import Recorder
from merchantbench_gym.recording.schema import Pathish


class Recorded:
    """What a market that records itself does on top; it stands before the class of the market.

    A market cannot be wrapped like an environment of one seat, since adapters and seats hold it already.
    Its clones and copies are plain markets again.

    Attributes:
        recorder: Writes the file.
        recorded_class: Class of the market without this one.
    """

    recorder: Recorder
    recorded_class: type
    possible_agents: list[str]

    @property
    def journal(self) -> Any:
        """Handle to the run file."""
        return self.recorder.journal

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Start an episode and its recording."""
        first = super().reset(seed, options)  # type: ignore[misc]
        self.recorder.begin(self, self, options)
        return first

    def step(self, actions: Mapping[str, Any]) -> Any:
        """Execute one turn of every agent; the turns are written on the way."""
        with self.recorder.step({m: actions.get(agent) for m, agent in enumerate(self.possible_agents)}):
            return super().step(actions)  # type: ignore[misc]

    def close(self) -> None:
        """Close the file."""
        self.recorder.close()
        super().close()  # type: ignore[misc]

    def restore(self, data: bytes) -> None:
        """Not possible: the file would tell of turns that have not happened.

        Raises:
            RuntimeError: Always.
        """
        raise RuntimeError("a recorded run cannot go back; recording.fork makes a run that branches off")

    def clone(self) -> Any:
        """An independent market in the same state, which is not recorded."""
        twin = super().clone()  # type: ignore[misc]
        twin.__class__ = self.recorded_class
        del twin.recorder
        return twin

    def __reduce_ex__(self, protocol: Any) -> Any:
        """As a plain market: a run file has one writer, and that stays here."""
        del protocol
        return _same, (self.clone(),)


def _same(market: Any) -> Any:
    return market


def attach(penv: Any, path: Pathish, *, label: str = "") -> Any:
    """Record a market from its next reset on; a running episode if no turn has been made.

    Args:
        penv: A ``MarketplaceEnv``, or an adapter around one.
        path: The run file; it must not hold a run yet.
        label: A word for the run.

    Returns:
        ``penv``.

    Raises:
        FileExistsError: The file holds a run.
        TypeError: It is no market.
        ValueError: It is recorded already, or turns have been made.
    """
    market: Any = penv.unwrapped
    if not isinstance(market, SessionEnv) or isinstance(market, gymnasium.Env):
        raise TypeError(f"a market can be recorded, not a {type(market).__name__}; wrap others in RecordRun")
    if isinstance(market, Recorded):
        raise ValueError("this market is recorded already")
    try:
        session = market.session
    except ResetNeeded:
        session = None
    if session is not None and (
        session.window or any(map(session.turns_used, range(session.world.merchants)))
    ):
        raise ValueError("turns have been made already; attach before the first")
    record_in_place(market, Recorder(path, label=label), waiting=session is None)
    return penv


def record_in_place(market: Any, recorder: Recorder, *, waiting: bool) -> None:
    """Make a market a recorded one; whoever holds it goes on holding it.

    Args:
        market: A ``MarketplaceEnv``.
        recorder: Its recorder from now on.
        waiting: Whether recording begins later, with a reset or when the past has been made again.
    """
    plain = type(market)
    members = {"recorded_class": plain, "__doc__": plain.__doc__}
    market.__class__ = type(plain.__name__, (Recorded, plain), members)
    market.recorder = recorder
    market.add_listener(recorder)
    if not waiting:
        recorder.begin(market, market, None)
