"""The context of a model: which messages a request holds, and when older ones go.

Plain data in, plain data out. Three things hold of every request: it is within its budget, every call in it
has its result, and the current observation and the newest exchange are in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from merchantbench_gym.recording.actions import message_form
from merchantbench_gym.wrappers.calibration import Calibration, ContextSettings
from merchantbench_gym.wrappers.compaction import (
    WRITE_NOTES,
    Compaction,
    Notes,
    Stamp,
    Turn,
    context_message,
    is_ok,
    notes_text,
    parsed,
    reference_notice,
    reminder,
    window_notes,
)
from merchantbench_gym.wrappers.shortening import Message, cut_arguments
from merchantbench_gym.wrappers.tokens import estimate, estimate_message
from merchantbench_gym.wrappers.transcript import fresh
from merchantbench_gym.wrappers.trimming import ContextBudgetError, Size, Trim, trim, trim_reference

__all__ = ["ContextManager", "ContextSettings"]

NotesSource = Callable[[], Notes] | None


class Conversation(Protocol):
    """What a manager needs of a transcript."""

    system: Message | None
    messages: list[Message]
    added: list[dict[str, Any]]


class Sizes:
    """Estimates of messages, each made once. A message must not change; its copy is another message."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Message, int]] = {}

    def __call__(self, message: Message) -> int:
        """Estimated tokens of a message."""
        found = self._known.get(id(message))
        if found is None or found[0] is not message:
            found = self._known[id(message)] = (message, estimate_message(message))
        return found[1]

    def total(self, messages: Sequence[Message]) -> int:
        """Estimated tokens of messages."""
        total, known = 0, self._known
        for message in messages:
            found = known.get(id(message))
            total += self(message) if found is None or found[0] is not message else found[1]
        return total

    def forget_others(self, messages: Sequence[Message]) -> None:
        """Forget all messages but these, if they are many."""
        if len(self._known) > 2 * len(messages) + 64:
            self._known = {id(message): (message, self(message)) for message in messages}

    def __reduce__(self) -> tuple[type[Sizes], tuple[()]]:
        """Copies start empty: their messages are others."""
        return Sizes, ()


class ContextManager:
    """Keeps the messages of the requests of one episode within the context of a model.

    Tell it of the first observation and of every turn, after the transcript has taken it in. It may give the
    transcript another, shorter list of messages; it changes nothing else.

    Args:
        settings: How the messages are kept within bounds.
    """

    def __init__(self, settings: ContextSettings) -> None:
        self.settings = settings
        self._clear()

    def _clear(self) -> None:
        self._calibration = Calibration()
        self._compaction = Compaction()
        self._stamps: list[Stamp] = []  # of the messages of the transcript, one each
        self._now = Stamp(1, 0, 0.0)
        self._window = 0
        self._context: Message | None = None  # stands for what was removed
        self._told: Notes | None = None  # the notes in it
        self._shown: Message | None = None  # notes at the start of a window
        self._observation: Message | None = None
        self._outcome = ""  # of the cut since the previous request
        self._was_cut = False  # whether there was one
        self._counted = 0  # provider tokens of the last request; 0 if unknown
        self._estimate = self._budget = self._dropped = self._shortened = 0  # of the current request
        self._stands_in = False  # whether it holds an observation that the history has lost
        self._mark: dict[str, Any] = {}  # state at the first observation of the window
        self._outgoing: list[Message] = []
        self._sizes = Sizes()

    # --- what happens ---

    def begin(
        self, transcript: Conversation, tools: Any, info: Mapping[str, Any], notes: NotesSource
    ) -> None:
        """Take in the first observation of an episode.

        Args:
            transcript: The conversation, begun.
            tools: Schemas of the tools on offer.
            info: Info of the observation.
            notes: Gives version and text of the notes as served now; None if there are none to give.

        Raises:
            ContextBudgetError: There is no room for brief, tools and observation.
        """
        self._clear()
        self._window = int(info["window"])
        self._follow(transcript, info)
        self._settle(transcript, tools, notes, True)
        if self.settings.mode != "reference" and self.settings.hard:
            needed = self._sizes.total(self._outgoing) - self._fixed(transcript)
            if needed > self._budget:
                raise ContextBudgetError(self._budget, needed)

    def took(
        self,
        action: Any,
        transcript: Conversation,
        tools: Any,
        observation: Any,
        info: Mapping[str, Any],
        notes: NotesSource,
    ) -> None:
        """Take in a turn.

        Args:
            action: The action as it was sent.
            transcript: The conversation, which has taken the turn in.
            tools: Schemas of the tools on offer.
            observation: Not used: the transcript has what matters of it.
            info: Info of the turn.
            notes: As in :meth:`begin`.
        """
        rows = transcript.added
        if not rows:
            return  # an answer that was known already
        recovered = any(row["kind"] == "recovered" for row in rows)
        note = _note(action)
        is_model = note.get("forced", "") in ("", "no_call")
        if recovered:
            self.__dict__.update(self._attributes(self._mark))
        self._outcome, self._was_cut, self._shown = "", False, None
        self._follow(transcript, info)
        is_first = recovered or self._window != int(info["window"])
        self._window = int(info["window"])
        if self.settings.mode == "reference":
            self._took_roughly(note, transcript, is_model, recovered)
        elif not recovered:
            self._calibrate(note)
            if self.settings.mode == "guarded" and is_model:
                outcome = self._compaction.took(_turn(transcript), self.settings.reminders)
                self._cut(outcome, transcript, tools, notes)
        self._settle(transcript, tools, notes, is_first, check=not recovered)

    def _follow(self, transcript: Conversation, info: Mapping[str, Any]) -> None:
        """Note when the new messages came, and which of them is the current observation."""
        before, self._now = self._now, Stamp(info["day"], info["hour"], info["net_assets"])
        for row in transcript.added:
            arrived = row["kind"] in ("observation", "final")
            if arrived:
                self._observation = row["body"]
            self._stamps.append(self._now if arrived else before)
        size = len(transcript.messages)
        self._stamps = ([before] * size + self._stamps)[-size:] if size else []

    def _calibrate(self, note: Mapping[str, Any]) -> None:
        """Compare what the provider counted with the estimate of the request."""
        events = note.get("events") or ()
        overflows = sum(isinstance(e, Mapping) and e.get("kind") == "overflow" for e in events)
        counted = _counted(note)
        if overflows and (self.settings.mode != "off" or self.settings.hard):
            # Where nothing keeps requests small, they overflow whatever the ratio is.
            for _ in range(overflows):
                self._calibration.overflow()
        elif counted and self._estimate and not overflows:
            # After an overflow the request that was counted is not the one that was estimated.
            self._calibration.add(counted, self._estimate)

    def _settle(
        self, transcript: Conversation, tools: Any, notes: NotesSource, is_first: bool, check: bool = True
    ) -> None:
        """Decide what the next request holds."""
        mode = self.settings.mode
        can_save = _can_save(tools)
        if mode == "guarded" and is_first and can_save and self.settings.reinject == "each_window":
            served = notes() if notes else None
            if served is None or served != self._told:
                self._shown = window_notes(notes_text(served, self.settings.notes_tokens))
        if mode == "reference" and check:
            self._check_roughly(transcript, can_save)
        elif mode == "guarded" and check:
            outcome = self._measured(transcript, tools, can_save)
            self._cut(outcome, transcript, tools, notes)
            if self._was_cut:
                self._measured(transcript, tools, can_save)
        self.refresh(transcript, tools)
        if is_first:
            self._mark = self._plain()

    def _measured(self, transcript: Conversation, tools: Any, can_save: bool) -> str:
        """Hold the size that the request would have without a budget against the threshold."""
        estimated = estimate(tools) + self._fixed(transcript) + self._sizes.total(self._all(transcript))
        return self._compaction.measured(self._calibration.size(estimated), self.settings.threshold, can_save)

    def _fixed(self, transcript: Conversation) -> int:
        return 0 if transcript.system is None else self._sizes(transcript.system)

    def _all(self, transcript: Conversation) -> list[Message]:
        """All messages but the system message, before a budget is applied."""
        first = [] if self._context is None else [self._context]
        last = [] if self._shown is None else [self._shown]
        if self.settings.mode == "guarded" and self._compaction.pending:
            s = self.settings
            last.append(reminder(self._compaction, s.threshold, s.kept, s.reminders))
        return [*first, *transcript.messages, *last]

    # --- cuts ---

    def _cut(self, outcome: str, transcript: Conversation, tools: Any, notes: NotesSource) -> None:
        """Cut the conversation, if an announcement of it has come to an outcome."""
        if not outcome:
            return
        messages, text, self._told = transcript.messages, "", None
        shows = self.settings.reinject != "never"
        if _can_save(tools):
            self._told = notes() if notes and shows else None
            text = notes_text(self._told, self.settings.notes_tokens)
        if outcome == "confirmed" and shows:
            messages = _without_saved_text(messages, transcript.added)
        left, self._context = self._fitted(messages, outcome, text)
        stamps = {id(message): stamp for message, stamp in zip(messages, self._stamps, strict=True)}
        self._stamps = [stamps.get(id(message), self._now) for message in left.origins]
        transcript.messages = left.messages
        self._outcome, self._was_cut = outcome, True
        self._compaction.cut()

    def _fitted(self, messages: list[Message], outcome: str, text: str) -> tuple[Trim, Message]:
        """What stays of messages, and the message about the rest: together what a cut keeps."""
        budget = kept = self.settings.kept
        while True:
            left, is_least = _least(messages, budget, self._sizes)
            stayed = {id(message) for message in left.origins}
            stamped = zip(messages, self._stamps, strict=True)
            removed = [(message, stamp) for message, stamp in stamped if id(message) not in stayed]
            context = context_message(removed, outcome, text)
            size = estimate_message(context)
            # What is said depends on what goes, and the other way round: less is kept until both fit.
            if is_least or size + sum(map(estimate_message, left.messages)) <= kept:
                return left, context
            budget = kept - size

    # --- the way of the published reference agent ---

    def _took_roughly(
        self, note: Mapping[str, Any], transcript: Conversation, is_model: bool, recovered: bool
    ) -> None:
        state = self._compaction
        if is_model and not recovered:
            self._counted = _counted(note)
        if not state.pending:
            return
        if not recovered:
            self._cut_roughly(transcript)
            self._counted = 0
        if not recovered or not is_model:
            state.state = "idle"

    def _check_roughly(self, transcript: Conversation, can_save: bool) -> None:
        trigger = self.settings.trigger
        size = self._counted or self._sizes.total(transcript.messages)
        if self._compaction.pending or trigger <= 0 or size < trigger:
            return
        if not can_save:
            self._cut_roughly(transcript)
        transcript.messages = [*transcript.messages, reference_notice(can_save, trigger)]
        self._compaction.state = "armed"

    def _cut_roughly(self, transcript: Conversation) -> None:
        transcript.messages = trim_reference(transcript.messages, self.settings.keep, size=self._sizes)
        self._was_cut = True
        self._compaction.done += 1

    # --- what comes of it ---

    def refresh(self, transcript: Conversation, tools: Any) -> None:
        """Make the request anew from a transcript; needed only after :meth:`load`.

        Args:
            transcript: The conversation.
            tools: Schemas of the tools on offer.
        """
        settings = self.settings
        system = [] if transcript.system is None else [transcript.system]
        fixed = estimate(tools) + self._fixed(transcript)
        self._budget = self._calibration.budget(settings, fixed)
        messages = self._all(transcript)
        count = len(messages)
        self._shortened, self._stands_in = 0, False
        if settings.mode == "reference":
            self._budget = settings.history_limit
            messages = trim_reference(messages, settings.history_limit, size=self._sizes)
            self._dropped = count - len(messages)
            if not messages and self._observation is not None:
                messages, self._stands_in = [self._observation], True
        else:
            self._dropped = 0
            if settings.hard and self._sizes.total(messages) > self._budget:
                left, _ = _least(messages, self._budget, self._sizes)
                messages, self._dropped, self._shortened = left[:3]
        self._outgoing = [*system, *messages]
        self._estimate = fixed + self._sizes.total(messages)
        self._sizes.forget_others(transcript.messages)

    def request(self) -> list[Message]:
        """The messages of the next request, system message included; fresh objects at every call."""
        return [fresh(message) for message in self._outgoing]

    def note(self, action: Any = None) -> dict[str, Any]:
        """What is noted with an action about the request that it answers.

        Args:
            action: The action in message form, whose own note tells what the provider counted.
        """
        state = self._compaction
        return {
            "prompt_tokens": _counted(_note(action)),
            "prompt_estimate": self._calibration.size(self._estimate),
            "budget": self._budget,
            "ratio": float(self._calibration.ratio),
            "state": state.state,
            "pending": state.pending,
            "done": self._was_cut,
            "outcome": self._outcome,
            "reminders": state.seen,
            "notes_saved_version": state.saved,
            "messages_dropped": self._dropped,
            "results_shortened": self._shortened,
            "compactions": state.done,
        }

    def signed(self, action: Any) -> Any:
        """The action that answers the current request, in message form, with a note of the context.

        Args:
            action: An action in any form; not changed. One that cannot be read is returned as it is.
        """
        message = message_form(action)
        note = None if message is None else message.get("note")
        if message is None or not (note is None or isinstance(note, Mapping)):
            return action
        signed = {**(note or {}), "context": self.note(message)}
        if self._stands_in:
            events = signed.get("events")
            signed["events"] = [*(events if isinstance(events, list) else ()), {"kind": "reference_empty"}]
        return {**message, "note": signed}

    def info(self) -> dict[str, Any]:
        """What info says of the next request."""
        return {
            "context_tokens": self._calibration.size(self._estimate),
            "context_budget": self._budget,
            "compaction_state": self._compaction.state,
            "compactions": self._compaction.done,
        }

    # --- state ---

    def to_json(self) -> dict[str, Any]:
        """The state as JSON data; the messages of the transcript are not in it."""
        return {**self._plain(), "mark": self._mark}

    def load(self, data: Mapping[str, Any]) -> None:
        """Take over a state; raises before anything has changed.

        Args:
            data: State of a manager with the same settings.
        """
        attributes = self._attributes(data)
        self._attributes(data["mark"] or data)
        self.__dict__.update(attributes, _mark=dict(data["mark"]), _outgoing=[])

    def _plain(self) -> dict[str, Any]:
        plain = {name: getattr(self, f"_{name}") for name in _PLAIN}
        return {
            **plain,
            "samples": self._calibration.samples,
            "compaction": self._compaction.to_json(),
            "stamps": list(self._stamps),
        }

    def _attributes(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Attributes of a state."""
        told = data["told"]
        return {
            **{f"_{name}": data[name] for name in _PLAIN},
            "_calibration": Calibration(data["samples"]),
            "_compaction": Compaction(**data["compaction"]),
            "_stamps": [Stamp(*stamp) for stamp in data["stamps"]],
            "_now": Stamp(*data["now"]),
            "_told": None if told is None else (int(told[0]), str(told[1])),
        }

    def __deepcopy__(self, memo: dict[int, Any]) -> ContextManager:
        """Copy that shares the messages, which never change."""
        twin = ContextManager(self.settings)
        twin.load(self.to_json())
        twin._outgoing = list(self._outgoing)
        return twin


_PLAIN = (
    *("now", "window", "context", "told", "shown", "observation", "outcome", "was_cut", "counted"),
    *("estimate", "budget", "dropped", "shortened", "stands_in"),
)


def _least(messages: Sequence[Message], budget: int, size: Size) -> tuple[Trim, bool]:
    """Messages within a budget, or, as the flag tells, as close to it as they get."""
    try:
        return trim(messages, budget, size=size), False
    except ContextBudgetError as error:
        return trim(messages, error.least, size=size), True


def _without_saved_text(messages: Sequence[Message], rows: Sequence[Mapping[str, Any]]) -> list[Message]:
    """Messages without the text that the calls of the last turn have saved as notes."""
    results = [row["body"] for row in rows if row["kind"] == "tool"]
    saved = {r["tool_call_id"] for r in results if r["name"] == WRITE_NOTES and is_ok(r["content"])}
    changed = list(messages)
    for i in reversed(range(len(changed))):
        if changed[i].get("tool_calls"):
            calls = [
                cut_arguments(call) if call["id"] in saved else call for call in changed[i]["tool_calls"]
            ]
            changed[i] = {**changed[i], "tool_calls": calls}
            break
    return changed


def _turn(transcript: Conversation) -> Turn:
    """What the newest turn of a transcript was."""
    rows = [(row["kind"], row["body"]) for row in transcript.added]
    text = "\n".join(body["content"] or "" for kind, body in rows if kind == "assistant")
    writes = [
        parsed(body["content"]) for kind, body in rows if kind == "tool" and body["name"] == WRITE_NOTES
    ]
    return Turn(text, writes)


def _note(action: Any) -> Mapping[str, Any]:
    note = action.get("note") if isinstance(action, Mapping) else None
    return note if isinstance(note, Mapping) else {}


def _counted(note: Mapping[str, Any]) -> int:
    """Provider tokens of the request behind an action; 0 if unknown."""
    usage = note.get("usage")
    counted = usage.get("prompt_last") if isinstance(usage, Mapping) else None
    return counted if type(counted) is int and counted > 0 else 0


def _can_save(tools: Any) -> bool:
    return any(tool["function"]["name"] == WRITE_NOTES for tool in tools)
