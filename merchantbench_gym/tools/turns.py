"""Turns and what the gate remembers of them: the value types behind the session, as plain data.

A `Seat` is all that a session keeps of one merchant. It can be turned into JSON data and back.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final, NamedTuple

from merchantbench_gym.market.world import MarketError
from merchantbench_gym.tools import dispatch
from merchantbench_gym.tools.calls import TURN_RULES, Batch, Call, body_hash
from merchantbench_gym.tools.context import WindowBook
from merchantbench_gym.tools.observation import RISKS
from merchantbench_gym.tools.results import ToolError, canonical, dumps, failure

MAX_RECORD_RAW: Final = 2_000

_FORMAT: Final = "merchantbench-session-1"


@dataclass(slots=True)
class Turn:
    """One batch of calls of one merchant.

    Attributes:
        turn_id: 1–64 characters of `A-Z a-z 0-9 . _ : -`, unique per merchant; None lets the session choose.
        window: Index of the window the turn answers; None is the current one.
        batch: The normalised action.
        note: JSON value of at most 64 KiB for the record.
    """

    turn_id: str | None = None
    window: int | None = None
    batch: Batch = field(default_factory=Batch)
    note: Any = None


@dataclass(slots=True)
class TurnResult:
    """What a turn returns; never changed once made (and not frozen, which makes making it take long).

    Attributes:
        turn_id: Its id.
        window: Index of the window it was executed in.
        turn: Number of the turn in its window, from 1.
        turns_used: Turns charged in the window so far.
        turns_left: Turns the merchant may still make in the window; 0 once its step is done.
        answers: Id, name and content of the result of each call.
        rejected: Code of the rule that stopped the whole turn, or "".
        step_done: Whether the merchant's step is over.
        window_closed_by: "end_of_step", "quota", or "" while the step goes on.
        replayed: Whether this is the stored response of an earlier submission.
    """

    turn_id: str
    window: int
    turn: int
    turns_used: int
    turns_left: int
    answers: tuple[tuple[str, str, str], ...]
    rejected: str
    step_done: bool
    window_closed_by: str
    replayed: bool = field(default=False, compare=False)

    @property
    def results(self) -> list[dict[str, str]]:
        """Results of the calls as fresh dicts `tool_call_id, name, content`."""
        return [{"tool_call_id": i, "name": name, "content": text} for i, name, text in self.answers]


class TurnRefused(Exception):
    """A turn that was not accepted; nothing has changed and it does not count as a turn.

    Attributes:
        code: unknown_merchant, invalid_turn, turn_conflict, run_finished, shop_closed, stale_window or
            not_deciding.
        message: What was wrong.
        merchant: The merchant of the turn.
        phase: Its phase; "" for an unknown merchant.
        current_window: Index of the current window.
        turns_left: Turns the merchant may still make in it.
    """

    def __init__(
        self, code: str, message: str, merchant: int, phase: str, current_window: int, turns_left: int
    ) -> None:
        super().__init__(code, message, merchant, phase, current_window, turns_left)
        self.code = code
        self.message = message
        self.merchant = merchant
        self.phase = phase
        self.current_window = current_window
        self.turns_left = turns_left

    def __str__(self) -> str:
        """Return code and message in one line."""
        return f"{self.code}: {self.message}"


class Receipt(NamedTuple):
    """Stored response of a turn. The hash of its body is made when somebody asks, unless it is known."""

    batch: Batch | None
    hash: str
    response: TurnResult

    def body(self) -> str:
        """Return the hash of the turn's body."""
        return self.hash if self.batch is None else body_hash(self.response.window, self.batch)


@dataclass(slots=True)
class Seat:
    """State of one merchant at the gate.

    Attributes:
        phase: waiting, deciding, done or closed.
        window: Index of the merchant's current or last window.
        window_t: Hour of that window.
        used: Turns charged in it.
        touched: Whether a WRITE call ran in it, so that the shelf may differ from that at its opening.
        book: Its bookkeeping.
        receipts: Receipts of the window by turn id.
        older: Those of the window before.
    """

    phase: str
    window: int
    window_t: int
    used: int
    touched: bool
    book: WindowBook
    receipts: dict[str, Receipt]
    older: dict[str, Receipt]

    def copy(self) -> Seat:
        """Return an independent copy."""
        twin = copy.copy(self)
        twin.receipts, twin.older = self.receipts.copy(), self.older.copy()
        return twin


class TurnRecord(dict[str, Any]):
    """Record of a turn: plain JSON data.

    Attributes:
        arguments: Canonical JSON of the arguments of its calls, so that nobody has to make it again; None if
            it has not been made.
    """

    arguments: list[str] | None = None


def rejected_outcomes(batch: Batch, code: str) -> list[dispatch.Outcome]:
    """Answer every call of a rejected turn; an action that could not be read counts as one call."""
    if batch.fault is not None:
        return [dispatch.failed(Call(0, "", "", None, batch.fault, batch.text), "", batch.fault)]
    fault = ToolError(code, TURN_RULES[code])
    return [dispatch.failed(call, "", fault) for call in batch.calls]


def not_deciding(batch: Batch) -> list[dict[str, str]]:
    """Answer an action of a merchant whose step has ended: no turn, no record.

    Returns:
        One result `tool_call_id, name, content` per call; one nameless result for an action that cannot be
        read; none for an action without calls.
    """
    content = dumps(failure(ToolError("not_deciding", "your step in this window has ended")))
    answered = [(call.id, call.name) for call in batch.calls] if batch.fault is None else [("", "")]
    return [{"tool_call_id": i, "name": name, "content": content} for i, name in answered]


def call_record(outcome: dispatch.Outcome, copies: bool = True) -> dict[str, Any]:
    """Return a call's part of the turn record as plain data.

    Args:
        outcome: What became of the call.
        copies: Whether the arguments are copied; else they are those of the call and must not be changed.
    """
    call = outcome.call
    arguments: Any = call.raw[:MAX_RECORD_RAW] if call.arguments is None else call.arguments
    return {
        "position": call.position,
        "id": call.id,
        "name": call.name,
        "kind": outcome.kind,
        "arguments": _fresh(arguments) if copies else arguments,
        "ok": not outcome.code,
        "code": outcome.code,
        "applied": outcome.applied,
        "rejected": outcome.rejected,
        "content": outcome.content,
        "fault": outcome.fault,
    }


def _fresh(value: Any) -> Any:
    """Copy plain JSON data."""
    if type(value) is dict:
        return {key: _fresh(item) for key, item in value.items()}
    return [_fresh(item) for item in value] if type(value) is list else value


# --- snapshots -------------------------------------------------------------------------------------------


def pack_snapshot(head: Mapping[str, Any], blobs: Sequence[bytes]) -> bytes:
    """Return the bytes of a session snapshot: checksum, head, and the blobs of world and providers."""
    whole = {"format": _FORMAT, **head, "blobs": [len(blob) for blob in blobs]}
    body = canonical(whole).encode() + b"\n" + b"".join(blobs)
    return hashlib.sha256(body).digest() + body


def open_snapshot(
    data: bytes, expected: Mapping[str, Any], merchants: int, providers: int
) -> tuple[dict[str, Any], list[bytes]]:
    """Check a session snapshot and take it apart into its head and its blobs.

    Args:
        data: Its bytes.
        expected: Entries that its head must have.
        merchants: Number of seats it must have.
        providers: Number of providers it must have been taken with.

    Raises:
        MarketError: The bytes are damaged or belong to another kind of session.
    """
    checksum, body = data[:32], data[32:]
    if hashlib.sha256(body).digest() != checksum:
        raise MarketError("these bytes are no session snapshot, or damaged")
    line, _, rest = body.partition(b"\n")
    head: dict[str, Any] = json.loads(line)
    for key, value in {"format": _FORMAT, **expected}.items():
        if head.get(key) != value:
            raise MarketError(f"the snapshot's {key} is {head.get(key)!r}, the session's {value!r}")
    if len(head["seats"]) != merchants:
        raise MarketError(f"the snapshot has {len(head['seats'])} merchants, not {merchants}")
    if len(head["blobs"]) != 1 + providers:
        raise MarketError("the snapshot was taken with other providers")
    blobs, start = [], 0
    for size in head["blobs"]:
        blobs.append(rest[start : start + size])
        start += size
    return head, blobs


def seat_data(seat: Seat) -> dict[str, Any]:
    """Return a seat as JSON data."""
    book = asdict(seat.book)
    for key in ("risks_at_close", "risks_at_open"):
        book[key] = {name: sorted(products) for name, products in book[key].items()}
    return {
        "phase": seat.phase,
        "window": seat.window,
        "window_t": seat.window_t,
        "used": seat.used,
        "touched": seat.touched,
        "book": book,
        "receipts": [_receipt_data(receipt) for receipt in seat.receipts.values()],
        "older": [_receipt_data(receipt) for receipt in seat.older.values()],
    }


def seat_from(data: Mapping[str, Any]) -> Seat:
    """Return the seat that `seat_data` described."""
    book = dict(data["book"], shelf=tuple(data["book"]["shelf"]))
    for key in ("risks_at_close", "risks_at_open"):
        book[key] = {name: frozenset(book[key][name]) for name in RISKS}
    receipts = {key: dict(map(_receipt_from, data[key])) for key in ("receipts", "older")}
    return Seat(**{**data, **receipts, "book": WindowBook(**book)})


def _receipt_data(receipt: Receipt) -> list[Any]:
    response = {f.name: getattr(receipt.response, f.name) for f in fields(TurnResult) if f.name != "replayed"}
    return [receipt.body(), response]


def _receipt_from(data: list[Any]) -> tuple[str, Receipt]:
    body, response = data
    answers = tuple([(i, name, content) for i, name, content in response["answers"]])
    return response["turn_id"], Receipt(None, body, TurnResult(**{**response, "answers": answers}))
