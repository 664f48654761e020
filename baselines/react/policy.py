"""The policy that asks a language model: one answer per turn, and what becomes of failures."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from merchantbench_gym.baselines.policy import BasePolicy, PolicyStop
from merchantbench_gym.baselines.react import request as requests
from merchantbench_gym.baselines.react.caller import Caller, Outcome
from merchantbench_gym.baselines.react.config import ReActConfig
from merchantbench_gym.baselines.react.errors import STOPPING, Failure
from merchantbench_gym.baselines.react.response import read_answer
from merchantbench_gym.baselines.react.schedule import Deadline, Schedule
from merchantbench_gym.baselines.react.state import (
    MAX_MARKS,
    Event,
    Memory,
    bounded_events,
    with_reasoning,
)
from merchantbench_gym.baselines.react.usage import COUNTS, TOKENS, Reading, Tally, cost_of
from merchantbench_gym.wrappers.seat import Seat
from merchantbench_gym.wrappers.tokens import estimate_message
from merchantbench_gym.wrappers.trimming import ContextBudgetError, newest_block, trim_blocks

OVERFLOWS = 2
"""Times per act that a request which is too long is cut and sent again."""
CUT = 0.8

Message = dict[str, Any]


@dataclass
class _Act:
    """One act in the making.

    Attributes:
        window: Index of the window.
        turn: Number of the turn in it, from 1.
        system: The system message, or nothing.
        messages: The other messages.
        tools: Schemas of the tools.
        room: Estimated tokens that the provider is thought to take; None is unknown.
        budget: Estimated tokens the messages are cut to, None for not at all.
        events: What happened on the way.
        left: Calls in the run file that no turn has come of.
        counted: Whether this act counts as a call of the model already.
        attempts: Requests sent.
        overflows: Times the messages were cut.
        marks: Results that are withheld in this act, not yet for good.
        withheld: The event about them.
        prompt: Prompt tokens of the last response; 0 is unknown.
    """

    window: int
    turn: int
    system: list[Message]
    messages: list[Message]
    tools: Sequence[Any]
    room: int | None = None
    budget: int | None = None
    events: list[Event] = field(default_factory=list)
    left: list[dict[str, Any]] = field(default_factory=list)
    counted: bool = False
    attempts: int = 0
    overflows: int = 0
    marks: list[str] = field(default_factory=list)
    withheld: Event | None = None
    prompt: int = 0


class ReActPolicy(BasePolicy):
    """Plays by asking a model of an OpenAI-compatible provider for every turn.

    The conversation is the environment's: the policy sends what it observes, and answers with the message of
    the model. It remembers little more than counters. Failures of the provider are retried on bounded
    schedules; one that does not pass ends the window, and one that no waiting can mend ends the run.

    Args:
        client: A client of the ``openai`` library, or one like it; None makes one from the settings.
        model: Name of the model.
        config: Settings that are resolved already; None resolves them now.
        sleep: Waits for some seconds.
        clock: Seconds now, for deadlines and durations.
        tell: Is told, in a line, what is waited for and which windows end without an answer.
        **overrides: Settings, see :class:`ReActConfig`.

    Attributes:
        config: The settings.

    Raises:
        ConfigError: A setting is missing or unusable.
    """

    name = "react"
    version = "1"
    observes = "chat"

    def __init__(
        self,
        client: Any = None,
        model: str | None = None,
        *,
        config: ReActConfig | None = None,
        sleep: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        tell: Callable[[str], object] | None = None,
        **overrides: Any,
    ) -> None:
        given = {**overrides, "model": model}
        self.config = ReActConfig(**given) if config is None else config.changed(**given)
        self.config.require("model", *([] if client is not None else ["api_key"]))
        self._caller = Caller(self.config, client, clock)
        self._sleep, self._clock, self._tell = sleep, clock, tell
        self._forget()

    @property
    def context(self) -> dict[str, Any]:
        """Settings for whoever manages the size of the context."""
        return self.config.context

    def _forget(self) -> None:
        self._memory = Memory()
        self._journal: Any = None
        self._headers: dict[str, str] = {}
        self._window_start: float | None = None
        self._model_seconds = 0.0
        self._fresh = True  # the run file may hold calls that no turn has come of

    # --- the protocol ---

    def reset(self, seat: Seat, *, seed: int | None = None) -> None:
        """Start an episode."""
        super().reset(seat, seed=seed)
        self._forget()
        self._journal = seat.journal
        self._merchant = int(seat.agent.rpartition("_")[2])
        label = "" if self._journal is None else _ascii(self._journal.label)
        for name, value in self.config.extra_headers.items():
            self._headers[name] = value.replace("{run}", label)

    def act(self, observation: Any, info: Mapping[str, Any]) -> dict[str, Any]:
        """Ask the model for a turn.

        Args:
            observation: ``messages`` and ``tools``.
            info: Its info.

        Returns:
            An assistant message with a note.

        Raises:
            PolicyStop: No further request can succeed (``auth``, ``model``), or too many windows in a row
                passed without an answer (``provider_unavailable``).
        """
        memory, config = self._memory, self.config
        if info["window"] != memory.window:
            if memory.failed >= config.max_failed_windows:
                raise PolicyStop(
                    "provider_unavailable", f"{memory.failed} windows in a row without an answer"
                )
            memory.window, memory.hops, self._window_start = info["window"], 0, None
        if self._window_start is None:
            self._window_start = self._clock()
        act = self._begin(observation, info)
        if config.max_hops is not None and memory.hops >= config.max_hops:
            return self._ended(act, "hop_budget")
        return self._ask(act)

    def state_dict(self) -> dict[str, Any]:
        """What is remembered of the episode, as JSON data."""
        return self._memory.to_json()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a state.

        A run that was stopped because its provider was unavailable counts failures anew.
        """
        self._memory = Memory.load(state)
        if self._memory.failed >= self.config.max_failed_windows:
            self._memory.failed = 0
        self._window_start, self._fresh = None, True

    def report(self) -> dict[str, Any]:
        """Totals of the run for the result record."""
        total = self._memory.total
        return {
            "model": self.config.model,
            "config_hash": self.config.config_hash(),
            "calls": total.counts["calls"],
            "attempts": total.counts["attempts"],
            "tokens": {kind: total.counts[kind] for kind in TOKENS},
            "missing_usage": total.counts["missing"],
            "cost_micro_usd": self._cost(total),
            "spent_micro_usd": total.spent,
            "redactions": self._memory.redactions,
            "model_s": self._model_seconds,
        }

    def close(self) -> None:
        """Close the client, unless it was passed in."""
        self._caller.close()

    # --- one act ---

    def _begin(self, observation: Any, info: Mapping[str, Any]) -> _Act:
        system, messages = requests.split_system(observation["messages"])
        events: list[Event] = []
        place = requests.current_observation(messages)
        if self.config.reference and place >= 0:
            self._memory.observation = str(messages[place].get("content") or "")
        if not messages:
            messages = [{"role": "user", "content": self._memory.observation or "(no observation)"}]
            events.append({"kind": "reference_empty"})
        act = _Act(
            window=info["window"],
            turn=self.seat.max_turns_per_window - info["turns_left"] + 1,
            system=system,
            messages=messages,
            tools=observation["tools"],
            room=info.get("context_budget"),
            events=events,
        )
        self._take_over(act)
        return act

    def _take_over(self, act: _Act) -> None:
        """Count the calls that an earlier process wrote down without getting to their turn."""
        if not self._fresh:
            return
        self._fresh = False
        if self._journal is not None:
            act.left = self._journal.unfinished_calls(merchant=self._merchant)
        before = None
        for call in act.left:
            place = (call["window"], call["turn"])
            act.counted, before = place == before, place
            self._count_attempt(act)
            if call["http_status"] == 200:
                self._count_response(Reading.load(call["usage"]), call["cost_micro_usd"])
        act.counted = before == (act.window, act.turn)

    def _ask(self, act: _Act) -> dict[str, Any]:
        """Send requests until one is answered, or there is no point in sending another."""
        deadline = Deadline(self._clock, self._window_start or 0.0, self.config.window_deadline)
        schedule = Schedule(deadline, **self.config.retry)
        if self._memory.hops and not deadline.allows():
            return self._give_up(act, Failure("transient", error="deadline"))
        while True:
            try:
                request = self._request(act)
            except ContextBudgetError:
                return self._give_up(act, Failure("overflow", error="ContextBudgetError"))
            sha256 = requests.request_hash(request)
            message, failure = self._pending(act, sha256), None
            if message is None:
                message, failure = self._attempt(act, request, sha256, deadline.timeout(self.config.timeout))
            if failure is None:
                return self._answered(act, message or {})
            if failure.kind in STOPPING:
                self._stop(act, failure)
            if deadline.allows() and self._mended(act, failure):
                continue
            wait = schedule.wait(failure)
            if wait is None:
                return self._give_up(act, failure)
            act.events.append({"kind": "retry", **failure.facts(), "wait": wait})
            self._say(f"attempt {act.attempts} failed ({failure.line()}), the next one in {wait:g} s")
            self._sleep(wait)

    def _request(self, act: _Act) -> dict[str, Any]:
        config = self.config
        messages = requests.withhold(act.messages, {*self._memory.marks, *act.marks})
        if act.budget is not None:
            messages = trim_blocks(messages, act.budget)
        return requests.make_request(
            act.system,
            requests.sanitise(messages, config.reasoning),
            act.tools,
            model=config.model or "",
            fields={
                "tool_choice": config.tool_choice,
                "temperature": config.temperature,
                "max_tokens": config.max_output_tokens,
            },
            style=requests.claude_style(config.claude, config.model or ""),
            extra_body=config.extra_body,
        )

    def _pending(self, act: _Act, sha256: str) -> Message | None:
        """The answer to a request that an earlier process was given, if there is one."""
        call = next(
            (c for c in reversed(act.left) if c["request_sha256"] == sha256 and c["class"] == "ok"), None
        )
        if call is None:
            return None
        act.left = []
        act.prompt = Reading.load(call["usage"]).prompt
        act.events.append({"kind": "response_reused"})
        message: Message | None = self._journal.pending_response(sha256, merchant=self._merchant)
        return message

    def _attempt(
        self, act: _Act, request: Mapping[str, Any], sha256: str, timeout: float
    ) -> tuple[Message | None, Failure | None]:
        """Send a request; returns the message of the answer, or what failed."""
        outcome = self._caller.send(request, self._headers, timeout, worked=self._memory.worked)
        act.attempts += 1
        self._count_attempt(act)
        self._model_seconds += outcome.seconds
        cost, reading = None, outcome.reading
        if reading is not None:
            cost = cost_of(reading, self.config.prices)
            self._count_response(reading, cost)
            act.prompt = reading.prompt
            if reading.bad:
                act.events.append({"kind": "bad_usage", "fields": list(reading.bad)})
        if self._journal is not None:
            self._write_down(act, outcome, sha256, cost)
        return outcome.message, outcome.failure

    def _write_down(self, act: _Act, outcome: Outcome, sha256: str, cost: int | None) -> None:
        self._journal.model_call(
            merchant=self._merchant,
            window=act.window,
            turn=act.turn,
            attempt=act.attempts,
            request_sha256=sha256,
            model=self.config.model,
            **{"class": "ok" if outcome.failure is None else outcome.failure.kind},
            http_status=outcome.status,
            request_id=outcome.request_id or None,
            usage=None if outcome.reading is None else outcome.reading.to_json(),
            cost_micro_usd=cost,
            response=outcome.message,
            started=outcome.started,
            duration_s=outcome.seconds,
        )

    def _count_attempt(self, act: _Act) -> None:
        for tally in (self._memory.total, self._memory.unsent):
            tally.counts["attempts"] += 1
            tally.counts["calls"] += not act.counted
        act.counted = True

    def _count_response(self, reading: Reading, cost: int | None) -> None:
        for tally in (self._memory.total, self._memory.unsent):
            tally.response(reading, cost)

    def _cost(self, tally: Tally) -> int | None:
        return None if self.config.prices is None else tally.cost

    # --- what becomes of an attempt ---

    def _mended(self, act: _Act, failure: Failure) -> bool:
        """Whether the request could be changed so that the same failure need not come again."""
        if failure.kind == "overflow" and act.overflows < OVERFLOWS:
            act.overflows += 1
            act.budget = int(CUT * self._size(act))
            act.events.append({"kind": "overflow", **failure.facts(), "budget": act.budget})
            return True
        if failure.kind == "forbidden" and act.withheld is None:
            self._withhold(act, failure)
            return act.withheld is not None
        return False

    @staticmethod
    def _size(act: _Act) -> int:
        """Estimated tokens of messages that the provider has found too many."""
        if act.budget is not None:
            return act.budget
        # Cutting to more than there is would send the same request again.
        estimate = sum(map(estimate_message, act.messages))
        return estimate if act.room is None else min(estimate, act.room)

    def _withhold(self, act: _Act, failure: Failure) -> None:
        """Leave the newest results out of the request, for good if it is answered then."""
        start, stop = newest_block(act.messages)
        results = [message for message in act.messages[start:stop] if message.get("role") == "tool"]
        if not results:
            return
        act.marks = [requests.result_mark(message) for message in results]
        originals = [
            {"call_id": message["tool_call_id"], "sha256": _sha256(message["content"])} for message in results
        ]
        act.withheld = {"kind": "redacted", **failure.facts(), "results": originals}

    def _answered(self, act: _Act, message: Message) -> dict[str, Any]:
        memory = self._memory
        answer = read_answer(message, act.window, memory.hops)
        memory.hops += 1
        memory.worked, memory.failed = True, 0
        if act.withheld is not None:
            memory.marks = [*memory.marks, *act.marks][-MAX_MARKS:]
            memory.redactions += 1
            act.events.append(act.withheld)
        reasoning = "" if self.config.reasoning == "off" else answer.reasoning
        if answer.calls:
            return self._action(act, answer.text, answer.calls, "", reasoning)
        return self._action(act, answer.text, [_end(act.window)], "no_call", reasoning)

    def _give_up(self, act: _Act, failure: Failure) -> dict[str, Any]:
        """End the window without a decision."""
        if self._memory.hops == 0:
            self._memory.failed += 1
        act.prompt = 0
        counts = {"attempts": act.attempts, "retries": max(0, act.attempts - 1)}
        act.events.append({"kind": "forced_end", **failure.facts(), **counts})
        self._say(f"window {act.window + 1} ends without an answer ({failure.line()})")
        return self._ended(act, f"provider:{failure.kind}")

    def _say(self, line: str) -> None:
        if self._tell is not None:
            self._tell(line)

    def _ended(self, act: _Act, forced: str) -> dict[str, Any]:
        return self._action(act, "", [_end(act.window)], forced)

    def _stop(self, act: _Act, failure: Failure) -> NoReturn:
        """End the run: no further request can succeed."""
        if self._journal is not None:
            for event in bounded_events([*act.events, {"kind": "policy_stop", **failure.facts()}]):
                self._journal.event(event["kind"], event, merchant=self._merchant)
        raise PolicyStop(failure.kind, f"the model provider refuses: {failure.line()}")

    def _action(
        self, act: _Act, text: str, calls: list[Message], forced: str, reasoning: str = ""
    ) -> dict[str, Any]:
        """The message of a turn, with all that happened on the way to it."""
        memory = self._memory
        note: dict[str, Any] = {
            "forced": forced,
            "usage": {**{name: memory.unsent.counts[name] for name in COUNTS}, "prompt_last": act.prompt},
            "cost_micro_usd": self._cost(memory.unsent),
        }
        if act.events:
            note["events"] = bounded_events(act.events)
        memory.unsent = Tally()
        note["state"] = memory.to_json()
        if reasoning:
            note = with_reasoning(note, reasoning)
        return {"role": "assistant", "content": text, "tool_calls": calls, "note": note}


def _end(window: int) -> Message:
    called = {"name": "end_of_step", "arguments": "{}"}
    return {"id": f"end-{window}", "type": "function", "function": called}


def _sha256(text: Any) -> str:
    return hashlib.sha256(str(text).encode("utf-8", "backslashreplace")).hexdigest()


def _ascii(label: str) -> str:
    """A label as it may stand in a header."""
    return "".join(c if c.isascii() and c.isprintable() else "_" for c in label)
