"""Counting what a merchant did, from the records of its turns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from merchantbench_gym.scenario import TOOL_NAMES

NOTE_TOOLS = frozenset({"read_memory_doc", "write_memory_doc"})
CORE_TOOLS = frozenset(TOOL_NAMES) - NOTE_TOOLS - {"end_of_step"}

# Codes of calls whose handler did not run.
NOT_EXECUTED = frozenset(
    {"malformed_action", "shop_closed", "unknown_tool", "tool_denied", "invalid_json", "invalid_arguments"}
)


@dataclass
class Tally:
    """Counters of one seat over the turns recorded so far.

    Attributes:
        turns: Recorded turns.
        active: Windows in which a core tool other than ``end_of_step`` was executed.
        active_any: The same, note tools counted too.
        forced: Windows that the policy ended without a decision, with the cause.
        by_tool: Executed calls by tool.
        ok: Executed calls that answered ``ok: true``.
        business_errors: Executed calls that answered with an error.
        invalid: Calls stopped before their tool ran, in turns that were not rejected.
        rejected_turns: Turns refused as a whole.
        partially_applied: Calls that applied some of their items and rejected others; also ``ok``.
        internal_faults: Calls that failed by a fault in the tool.
        compactions: Cuts of the history by outcome; None as long as no turn tells of its context.
    """

    turns: int = 0
    active: set[int] = field(default_factory=set)
    active_any: set[int] = field(default_factory=set)
    forced: dict[int, str] = field(default_factory=dict)
    by_tool: Counter[str] = field(default_factory=Counter)
    ok: int = 0
    business_errors: int = 0
    invalid: int = 0
    rejected_turns: int = 0
    partially_applied: int = 0
    internal_faults: int = 0
    compactions: Counter[str] | None = None

    def add(self, record: Mapping[str, Any]) -> None:
        """Count one turn record."""
        self.turns += 1
        window = record["window"]
        note = record["note"]
        if isinstance(note, Mapping):
            forced = str(note.get("forced", ""))
            if forced == "hop_budget" or forced.startswith("provider:"):
                self.forced[window] = forced
            if isinstance(context := note.get("context"), Mapping):
                self._add_context(context)
        if record["rejected"]:
            self.rejected_turns += 1
            return
        executed = [call for call in record["calls"] if call["ok"] or call["code"] not in NOT_EXECUTED]
        self.invalid += len(record["calls"]) - len(executed)
        names = [call["name"] for call in executed]
        self.by_tool.update(names)
        if not CORE_TOOLS.isdisjoint(names):
            self.active.add(window)
            self.active_any.add(window)
        elif not NOTE_TOOLS.isdisjoint(names):
            self.active_any.add(window)
        for call in executed:
            if call["ok"]:
                self.ok += 1
                self.partially_applied += bool(call["applied"] and call["rejected"])
            elif call["code"] == "internal":
                self.internal_faults += 1
            else:
                self.business_errors += 1

    def _add_context(self, context: Mapping[str, Any]) -> None:
        if self.compactions is None:
            self.compactions = Counter()
        if context.get("done"):
            self.compactions[str(context.get("outcome", ""))] += 1


class Tap:
    """The one listener this module adds to an environment; it feeds the tallies of the running episode.

    A listener stays with its environment, so a new one per episode would pile up.
    """

    # Tells the session that nobody here reads digests or body hashes, which cost more than a turn.
    needs_digest = False
    reads_only = True

    def __init__(self) -> None:
        self.tallies: dict[int, Tally] = {}
        self._pending: dict[int, Mapping[str, Any]] = {}

    def __call__(self, record: Mapping[str, Any]) -> None:
        """Take in the record of a turn."""
        # A later listener may still undo the turn; its repetition then has the same number. So a
        # record is counted only when the next turn shows that it stood.
        merchant = record["merchant"]
        if merchant not in self.tallies:
            return
        before = self._pending.get(merchant)
        if before is not None and (before["window"], before["turn"]) != (record["window"], record["turn"]):
            self.tallies[merchant].add(before)
        self._pending[merchant] = record

    def start(self, merchants: int) -> None:
        """Start to count for every merchant of an episode."""
        self.tallies = {merchant: Tally() for merchant in range(merchants)}
        self._pending = {}

    def finish(self, merchant: int) -> Tally:
        """Stop counting for a merchant and return what was counted."""
        last = self._pending.pop(merchant, None)
        tally = self.tallies.pop(merchant)
        if last is not None:
            tally.add(last)
        return tally


_TAPS: WeakKeyDictionary[Any, Tap] = WeakKeyDictionary()


def start_counting(env: Any, merchants: int = 1) -> Tap:
    """Start fresh tallies for the next episode of an environment (the unwrapped one)."""
    tap = _TAPS.get(env)
    if tap is None:
        tap = _TAPS[env] = Tap()
        env.add_listener(tap)
    tap.start(merchants)
    return tap
