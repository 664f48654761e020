"""A run in forms that other tools read."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from merchantbench_gym.recording.actions import as_message, recorded_batch
from merchantbench_gym.recording.rerun import fresh_session, resubmit, turn_rows
from merchantbench_gym.recording.schema import Pathish, Row, read_run, rows
from merchantbench_gym.session import Session
from merchantbench_gym.tools.brief import brief

FORMS: Final = ("jsonl", "csv")
COLUMNS: Final = (
    *("merchant", "window", "turn", "turn_id", "time", "charged", "turn_rejected", "closed_by"),
    *("net_assets", "reward", "position", "id", "name", "kind", "arguments", "ok", "code"),
    *("applied", "rejected", "content"),
)


def export(path: Pathish, form: str, out: Pathish | None = None) -> Path:
    """Write a run as text.

    Args:
        path: The run file; it is not changed.
        form: ``"jsonl"``: one line per window of a merchant with its conversation in the form of OpenAI's
            chat messages, and the schemas of the tools it had; the run is executed again for the
            observations. ``"csv"``: one row per call, and one for a turn without calls; amounts in cents.
        out: File to write; None is the run file with the ending of the form.

    Returns:
        The file written.

    Raises:
        FileNotFoundError: There is no run file.
        JournalMismatch: It holds no run of this format, or does not fit this package.
        ValueError: Unknown form.
    """
    if form not in FORMS:
        raise ValueError(f"form must be {' or '.join(FORMS)}, not {form!r}")
    target = Path(path).with_suffix(f".{form}") if out is None else Path(out)
    with read_run(path) as source:
        if form == "csv":
            with target.open("w", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, COLUMNS)
                writer.writeheader()
                for turn in turn_rows(source):
                    writer.writerows(_csv_rows(turn))
        else:
            session = fresh_session(rows(source, "SELECT * FROM run")[0])
            with target.open("w", encoding="utf-8") as file:
                for talk in _conversations(session, turn_rows(source)):
                    # As escapes, because a model's text may hold what UTF-8 cannot.
                    file.write(json.dumps(talk) + "\n")
    return target


def _csv_rows(turn: Row) -> Iterator[dict[str, Any]]:
    shared = {key: turn[key] for key in COLUMNS if key in turn and key != "rejected"}
    shared["turn_rejected"] = turn["rejected"]
    for call in turn["calls"] or [{}]:
        yield shared | {key: call[key] for key in COLUMNS[COLUMNS.index("position") :] if key in call}


def _conversations(session: Session, turns: Iterator[Row]) -> Iterator[dict[str, Any]]:
    """Conversations of the windows, in the order in which these were closed."""
    system = {"role": "system", "content": brief(session.world.scenario)}
    talks: dict[int, dict[str, Any]] = {}
    records: list[dict[str, Any]] = []
    session.add_listener(records.append)
    for turn in turns:
        merchant, window = turn["merchant"], turn["window"]
        if merchant not in talks or talks[merchant]["window"] != window:
            if merchant in talks:
                yield talks[merchant]
            user = {"role": "user", "content": session.text(merchant)}
            talk = {"merchant": merchant, "window": window, "messages": [system, user]}
            talks[merchant] = {**talk, "tools": session.schemas(merchant)}
        talks[merchant]["messages"] += _messages(turn)
        found = resubmit(session, turn, records)
        if found is not None:
            raise found.mismatch()
    yield from talks.values()


def _messages(turn: Row) -> Iterator[dict[str, Any]]:
    """A turn as an assistant message and one tool message per result."""
    batch = recorded_batch(turn)
    message = as_message(batch)
    readable = bool(batch.calls)
    if not readable:
        del message["tool_calls"]
    yield message
    for call in turn["calls"] if readable else ():
        yield {"role": "tool", "tool_call_id": call["id"], "name": call["name"], "content": call["content"]}
