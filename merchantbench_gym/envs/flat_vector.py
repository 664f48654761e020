"""Many numeric environments in one process that look at their worlds together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, iterate

from merchantbench_gym.envs.flat import SEAT, FlatEnv, see
from merchantbench_gym.envs.flat_view import Bools, Features
from merchantbench_gym.envs.frame import Info, reward_of
from merchantbench_gym.envs.host import Source
from merchantbench_gym.scenario import load_scenario

__all__ = ["FlatVectorEnv"]

Rewards = npt.NDArray[np.float64]


class FlatVectorEnv(VectorEnv[Features, Any, npt.NDArray[Any]]):
    """What a ``SyncVectorEnv`` of :class:`FlatEnv` is, step for step and bit for bit, in less time.

    Each environment plays its turn and runs its clock; then all of them are looked at together: features,
    options, masks and infos are array expressions over all worlds. ``gymnasium.make_vec`` makes one for the
    ids of the numeric environment unless told otherwise.

    Args:
        num_envs: Number of environments.
        scenario: As of :class:`FlatEnv`, like all further arguments but the last.
        overrides: Mapping merged over the scenario.
        action: ``"multi"`` or ``"discrete"``.
        candidates: Number of candidates.
        markups: Factors on the supplier price.
        render_mode: ``"ansi"``, ``"human"``, ``"rgb_array"`` or None.
        autoreset_mode: When an environment that has ended starts anew; with ``DISABLED`` it is
            ``reset(options={"reset_mask": ...})`` that makes it, a bool array of shape (n,).

    Attributes:
        envs: The environments.
    """

    def __init__(
        self,
        num_envs: int = 1,
        scenario: Source = "default",
        overrides: Mapping[str, Any] | None = None,
        *,
        action: str = "multi",
        candidates: int = 20,
        markups: Sequence[float] = (1.2, 1.35, 1.5, 1.75, 2.0, 2.5),
        render_mode: str | None = None,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
    ) -> None:
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        shared = load_scenario(scenario, overrides)
        self.envs = [
            FlatEnv(shared, action=action, candidates=candidates, markups=markups, render_mode=render_mode)
            for _ in range(num_envs)
        ]
        first = self.envs[0]
        self.num_envs = num_envs
        self.metadata = {**first.metadata, "autoreset_mode": self.autoreset_mode}
        self.render_mode = first.render_mode
        self.single_action_space = first.action_space
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.single_observation_space = first.observation_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self._ended = np.zeros(num_envs, dtype=bool)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Features, Info]:
        """Start new episodes.

        Args:
            seed: Seed of the first environment, the others get the next ones; or a seed for each, None for
                one that it draws.
            options: Reset options of every environment, and ``reset_mask``, a bool array of shape (n,), to
                reset only some.

        Returns:
            Observations of all environments, shape (n, 928) by default, and infos of those that were reset.

        Raises:
            ValueError: The number of seeds or the shape of the mask is wrong, or the mask selects nothing.
            TypeError: The mask is no bool array.
        """
        seeds = [seed + i for i in range(self.num_envs)] if isinstance(seed, int) else seed
        seeds = [None] * self.num_envs if seeds is None else seeds
        if len(seeds) != self.num_envs:
            raise ValueError(
                f"there must be a seed for each of {self.num_envs} environments, got {len(seeds)}"
            )
        mask = np.ones(self.num_envs, dtype=bool)
        if options is not None and "reset_mask" in options:
            options = dict(options)
            mask = self._mask(options.pop("reset_mask"))
        self._ended[mask] = False
        chosen = np.flatnonzero(mask).tolist()
        for i in chosen:
            self.envs[i]._start(seeds[i], options)
        return self._look(), self._infos(chosen)

    def step(self, actions: Any) -> tuple[Features, Rewards, Bools, Bools, Info]:
        """Play one window in every environment; one that ended in the last step may start anew instead.

        Args:
            actions: An action for each environment.

        Returns:
            Observations, rewards, terminations, truncations (none) and infos; all arrays are fresh.

        Raises:
            ResetNeeded: An environment has no episode, or it has ended and there is no autoreset.
            ValueError: An action does not lie in the action space. The environments before it have played.
        """
        rewards = np.zeros(self.num_envs)
        for i, (env, action) in enumerate(zip(self.envs, iterate(self.action_space, actions), strict=True)):
            if not self._ended[i] or self.autoreset_mode is AutoresetMode.SAME_STEP:
                rewards[i] = reward_of(env._play(action).terms)
            elif self.autoreset_mode is AutoresetMode.NEXT_STEP:
                env._start(None, None)
            else:
                raise ResetNeeded(f"the episode of environment {i} has ended; reset it by a reset_mask")
        see(self.envs)
        ended = np.zeros(self.num_envs, dtype=bool)
        infos: Info = {}
        for i, env in enumerate(self.envs):
            env._arrive()
            ended[i] = env.session.end_reason(SEAT) != ""
        if self.autoreset_mode is AutoresetMode.SAME_STEP:
            for i in np.flatnonzero(ended).tolist():
                final = dict(zip(("final_obs", "final_info"), self.envs[i].observe(), strict=True))
                infos = self._add_info(infos, final, i)
                self.envs[i]._start(None, None)
        self._ended = ended
        infos.update(self._infos(range(self.num_envs)))
        return self._look(), rewards, ended.copy(), np.zeros(self.num_envs, dtype=bool), infos

    def action_masks(self) -> Bools:
        """Masks of all environments, a fresh array of shape (n, entries).

        Raises:
            ResetNeeded: An environment has no episode.
        """
        see(self.envs)
        return np.array([env._look().mask for env in self.envs])

    # --- what is asked of each environment ---

    @property  # type: ignore[misc]
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        """Generators of the environments."""
        return self.get_attr("np_random")

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]
        """Seeds of the generators."""
        return self.get_attr("np_random_seed")

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Call a method of every environment, or read an attribute.

        Args:
            name: Its name.
            *args: Arguments of a method.
            **kwargs: Named arguments of a method.
        """
        found = [env.get_wrapper_attr(name) for env in self.envs]
        return tuple(one(*args, **kwargs) if callable(one) else one for one in found)

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Read an attribute of every environment."""
        return self.call(name)

    def set_attr(self, name: str, values: Any) -> None:
        """Set an attribute of every environment.

        Args:
            name: Its name.
            values: A list or tuple of a value for each environment, or anything else for all of them.

        Raises:
            ValueError: The number of values is wrong.
        """
        if not isinstance(values, list | tuple):
            values = [values] * self.num_envs
        if len(values) != self.num_envs:
            raise ValueError(
                f"there must be a value for each of {self.num_envs} environments, got {len(values)}"
            )
        for env, value in zip(self.envs, values, strict=True):
            env.set_wrapper_attr(name, value)

    def render(self) -> tuple[Any, ...]:
        """Pictures of the environments."""
        return tuple(env.render() for env in self.envs)

    def close_extras(self, **kwargs: Any) -> None:
        """Close the environments."""
        for env in self.envs:
            env.close()

    # --- parts of the above ---

    def _mask(self, mask: Any) -> Bools:
        """A mask of environments to reset, checked."""
        if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_:
            raise TypeError("reset_mask must be a bool array")
        if mask.shape != (self.num_envs,) or not mask.any():
            raise ValueError(f"reset_mask must have shape ({self.num_envs},) and select something")
        return mask

    def _look(self) -> Features:
        """Observations of all environments."""
        see(self.envs)
        return np.array([env._look().scene.features for env in self.envs])

    def _infos(self, chosen: Sequence[int]) -> Info:
        """Infos of some environments as vector environments give them: an array and a mask for every key."""
        see(self.envs)
        infos, told, batch = [self.envs[i]._info() for i in chosen], np.zeros(self.num_envs, dtype=bool), {}
        told[chosen] = True
        for key, value in infos[0].items():
            if isinstance(value, str):
                array = np.full(self.num_envs, None, dtype=object)
            elif isinstance(value, np.ndarray):
                array = np.zeros((self.num_envs, *value.shape), dtype=np.int8)
            else:
                array = np.zeros(self.num_envs, dtype=type(value))
            array[chosen] = [info[key] for info in infos]
            batch[key], batch[f"_{key}"] = array, told.copy()
        return batch
