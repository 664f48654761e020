"""Records a run into a file, from which it can be resumed, replayed and forked."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NoReturn, Self

import gymnasium
from gymnasium.utils import RecordConstructorArgs

from merchantbench_gym.recording.recorder import Recorder, describe_policy
from merchantbench_gym.wrappers.nesting import cloned
from merchantbench_gym.wrappers.order import check_order

Step = tuple[Any, Any, bool, bool, dict[str, Any]]


class RecordRun(gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Writes every turn into a run file as it happens; observations, rewards and infos do not change.

    A turn is in the file whole or not at all: it is written from inside the turn, and a turn that cannot be
    written has not happened. A reset before the first turn starts the run anew; every later one starts a run
    in a file of its own, ``<stem>-2<suffix>`` and so on. ``close`` closes the file.

    Args:
        env: Environment to wrap.
        path: The run file; it must not hold a run yet.
        label: A word for the run.
        policy: The player, or a mapping with its name and version; if None, the runner tells.

    Attributes:
        recorder: Writes the file.
        journal: Handle to the file for wrappers and policies.

    Raises:
        FileExistsError: The file holds a run.
        ValueError: A wrong place in the stack.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        path: str | os.PathLike[str],
        *,
        label: str = "",
        policy: Any = None,
    ) -> None:
        identity = policy if policy is None or isinstance(policy, Mapping) else describe_policy(policy)
        RecordConstructorArgs.__init__(self, path=os.fspath(path), label=label, policy=identity)
        check_order(env, "RecordRun")
        gymnasium.Wrapper.__init__(self, env)
        self._record_with(Recorder(path, label=label, policy=policy))

    @classmethod
    def continued(cls, env: gymnasium.Env[Any, Any], recorder: Recorder) -> Self:
        """Wrap an environment for a recorder that goes on with its run once the past has been made again."""
        check_order(env, "RecordRun")
        wrapper = cls.__new__(cls)
        RecordConstructorArgs.__init__(wrapper, path=os.fspath(recorder.path), label="", policy=None)
        gymnasium.Wrapper.__init__(wrapper, env)
        wrapper._record_with(recorder)
        return wrapper

    def _record_with(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._merchant = int(getattr(self.unwrapped, "merchant", 0))
        self.unwrapped.add_listener(recorder)  # type: ignore[attr-defined]
        # Layers inside know nothing of the record; what they have to tell is collected here.
        self._sources = []
        layer: Any = self.env
        while layer is not layer.unwrapped:
            if hasattr(type(layer), "take_events"):
                self._sources.append(layer.take_events)
            layer = layer.env
        self._sources.reverse()
        self._converses = self.env.has_wrapper_attr("transcript")

    @property
    def journal(self) -> Any:
        """Handle to the run file."""
        return self.recorder.journal

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset the environment and start a run.

        Raises:
            FileExistsError: The file of this episode holds a run.
        """
        observation, info = self.env.reset(seed=seed, options=options)
        self.recorder.begin(self.unwrapped, self, options)
        self.keep_messages()
        return observation, info

    def step(self, action: Any) -> Step:
        """Step the environment; the turn is written on the way."""
        try:
            with self.recorder.step({self._merchant: action}):
                step: Step = self.env.step(action)
        finally:
            for event in self.take_events():
                self.journal.event(event["kind"], event, merchant=self._merchant)
        self.keep_messages()
        return step

    def keep_messages(self) -> None:
        """Write what the last turn added to the conversation, if the stack keeps one."""
        if self._converses:
            added = self.env.get_wrapper_attr("transcript").added
            self.journal.messages(added, merchant=self._merchant)

    def take_events(self) -> list[dict[str, Any]]:
        """What the layers inside have to tell since the last call."""
        return [event for take in self._sources for event in take()]

    def close(self) -> None:
        """Close the file and the environment."""
        self.recorder.close()
        super().close()

    def snapshot(self) -> bytes:
        """State of the stack inside; the file is not part of it."""
        inner: bytes = self.env.get_wrapper_attr("snapshot")()
        return inner

    def restore(self, data: bytes) -> NoReturn:
        """Not possible: the file would tell of turns that have not happened.

        Raises:
            RuntimeError: Always.
        """
        raise RuntimeError("a recorded run cannot go back; recording.fork makes a run that branches off")

    def clone(self) -> Any:
        """An independent copy of the stack inside, which is not recorded."""
        return cloned(self.env)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """As :meth:`clone`."""
        return self.clone()

    def __reduce__(self) -> Any:
        """As :meth:`clone`: a run file has one writer, and that stays here."""
        return _same, (self.env,)


def _same(env: Any) -> Any:
    return env
