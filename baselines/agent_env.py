"""The standard stack for policies that converse."""

from __future__ import annotations

import os
from typing import Any

import gymnasium

from merchantbench_gym.wrappers import Chat, ContextTrim, MemoryDoc, RecordRun
from merchantbench_gym.wrappers.chat_seat import REFERENCE

CONTEXT = ("context_window", "output_reserve", "trigger", "keep")
"""Settings of a policy that the context of its requests is kept by."""


def make_agent_env(
    scenario: Any = "default",
    *,
    config: Any = None,
    memory: bool = True,
    trim: bool = True,
    reference: bool = False,
    record: str | os.PathLike[str] | None = None,
    **env_args: Any,
) -> Any:
    """Make an environment for a policy of conversations.

    From the inside out: ``MerchantBench-v0``, ``MemoryDoc``, ``Chat``, ``ContextTrim``, ``RecordRun``. What
    else is to stand in a stack can be put around an environment by hand, in the order that
    :mod:`merchantbench_gym.wrappers.order` gives.

    Args:
        scenario: Name of a preset, path, mapping or ``Scenario``.
        config: Settings of the policy, such as a ``ReActConfig``: of its attributes ``context_window``,
            ``output_reserve``, ``trigger`` and ``keep`` (tokens) go to ``ContextTrim``, ``reasoning`` goes to
            ``Chat``, and ``reference`` counts as the argument does. None is the defaults.
        memory: Whether there are tools for notes.
        trim: Whether requests are kept within the context of the model.
        reference: Whether conversation and context are handled as by the published reference agent.
        record: File to record the run in; None is not to record it.
        **env_args: Further arguments of the environment.

    Returns:
        The environment; its observations are ``{"messages": [...], "tools": [...]}``.

    Raises:
        FileExistsError: The file holds a run.
        ValueError: Settings are out of range.
    """
    env = gymnasium.make(
        "merchantbench_gym:MerchantBench-v0", scenario=scenario, disable_env_checker=True, **env_args
    )
    return agent_stack(env, config=config, memory=memory, trim=trim, reference=reference, record=record)


def agent_stack(
    env: Any,
    *,
    config: Any = None,
    memory: bool = True,
    trim: bool = True,
    reference: bool = False,
    record: str | os.PathLike[str] | None = None,
) -> Any:
    """Put the wrappers of :func:`make_agent_env` around an environment.

    Args:
        env: An environment of raw observations, such as ``FocalSeat``, with or without wrappers that belong
            further in.
        config: As for :func:`make_agent_env`, like all others.
        memory: Whether there are tools for notes.
        trim: Whether requests are kept within the context of the model.
        reference: Whether it is all handled as by the published reference agent.
        record: File to record the run in.

    Returns:
        The environment wrapped.
    """
    talk: dict[str, Any] = {"reasoning": config.reasoning} if hasattr(config, "reasoning") else {}
    context = {name: getattr(config, name) for name in CONTEXT if hasattr(config, name)}
    if reference or getattr(config, "reference", False):
        talk, context = dict(REFERENCE), {**context, "mode": "reference"}
    if memory:
        env = MemoryDoc(env)
    env = Chat(env, **talk)
    if trim:
        env = ContextTrim(env, **context)
    return env if record is None else RecordRun(env, record)
