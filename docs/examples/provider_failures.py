"""Shows what becomes of a run when the provider of the model fails: a table, each row played offline.

python docs/examples/provider_failures.py
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from merchantbench_gym.baselines import (
    ModelServer,
    ReActConfig,
    ReActPolicy,
    Reply,
    make_agent_env,
    run_episode,
)
from merchantbench_gym.cli import exit_code
from merchantbench_gym.evaluation import result_record

Model = Callable[[Any, int], Reply]
DAYS = 3
LOOK = [("search_products", {"page_size": 50}), ("query_balance", {})]


def merchant(request: Any, number: int) -> Reply:
    """A model that looks around in every window and then ends it."""
    if any(message["role"] == "tool" for message in request.body["messages"][-2:]):
        return Reply(text="Nothing to do.", usage=(8_000, 20, 0))
    return Reply(calls=LOOK, usage=(7_000, 30, 0))


def greedy(request: Any, number: int) -> Reply:
    """The same, but for seeing everything four times."""
    reply = merchant(request, number)
    return Reply(calls=[*reply.calls] * 4, text=reply.text)


def instead(reply: Reply, *numbers: int) -> Model:
    """The merchant, but for requests (from 1) that get another reply; no numbers are all requests."""
    return lambda request, number: reply if number in numbers or not numbers else merchant(request, number)


class Case(NamedTuple):
    """A failure.

    Attributes:
        words: What the provider does.
        model: The model.
        settings: Settings of the policy.
    """

    words: str
    model: Model
    settings: dict[str, Any] = {}  # noqa: RUF012


def error(status: int, code: str | None = None, **headers: str) -> Reply:
    """An error answer."""
    return Reply(
        status=status,
        error={"code": code},
        headers={name.replace("_", "-"): v for name, v in headers.items()},
    )


CASES = (
    Case("answers as it should", merchant),
    Case("401: the key is wrong", instead(error(401, "invalid_api_key"))),
    Case("403 to the first request", instead(error(403))),
    Case("404: no such model", instead(error(404, "model_not_found"))),
    Case("429: the account is empty", instead(error(429, "insufficient_quota"), 3)),
    Case("429 with `Retry-After: 30`, once", instead(error(429, "rate_limit_exceeded", Retry_After="30"), 3)),
    Case("429: allocation used up, for one window", instead(error(429, "AllocationQuota"), *range(3, 12))),
    Case("503 twice", instead(error(503), 3, 4)),
    Case(
        "500 from the third request on",
        lambda request, number: error(500) if number > 2 else merchant(request, number),
    ),
    Case("drops the connection, once", instead(Reply(drop="before"), 3)),
    Case("drops it in the middle of the answer, once", instead(Reply(drop="body"), 3)),
    Case("answers with a page of HTML, once", instead(Reply(raw="<html>busy</html>"), 3)),
    Case("403: refuses the text of a result, once", instead(error(403, "DataInspectionFailed"), 4)),
    Case("400: context length exceeded, once", instead(error(400, "context_length_exceeded"), 4)),
    Case("400: a request it does not like, once", instead(error(400, "invalid_value"), 3)),
    Case(
        "gets results larger than the context", greedy, {"context_window": 12_000, "max_output_tokens": 1_000}
    ),
    Case("sends arguments that are no JSON, once", instead(Reply(calls=[("query_balance", '{"a": ')]), 1)),
    Case("answers without a call, always", instead(Reply(text="I wait."))),
)


class Row(NamedTuple):
    """What came of a failure.

    Attributes:
        words: What the provider did.
        requests: Requests it saw.
        waits: Seconds waited between them.
        events: Events in the run file, by kind.
        forced: Windows that ended without a decision.
        outcome: How the run ended.
        code: Exit code of ``merchantbench run``.
    """

    words: str
    requests: int
    waits: str
    events: str
    forced: int
    outcome: str
    code: int


def play(case: Case) -> Row:
    """Play a few days against a failing provider; nothing is really waited for."""
    waits: list[float] = []
    with tempfile.TemporaryDirectory() as folder, ModelServer(case.model) as server:
        path = Path(folder) / "a.run"
        config = ReActConfig(model="m", api_key="k", base_url=server.url, **case.settings)
        days = {"run": {"horizon_days": DAYS}}
        env = make_agent_env("smoke", config=config, record=path, overrides=days)
        result = run_episode(env, ReActPolicy(config=config, sleep=waits.append), seed=1)
        env.close()
        with closing(sqlite3.connect(path)) as db:
            kinds = [kind for (kind,) in db.execute("SELECT kind FROM event ORDER BY kind")]
            notes = [json.loads(note)["context"] for (note,) in db.execute("SELECT note FROM turn")]
        requests = len(server.requests)
    shortened = sum(context["results_shortened"] for context in notes)
    found = [f"{kind} {len(list(same))}" for kind, same in groupby(kinds)]
    found += [f"results shortened {shortened}"] if shortened else []
    waited = _short(waits)
    outcome = "goes on to its end" if result.reason == "" else f"stops: {result.reason.partition(':')[2]}"
    return Row(
        case.words,
        requests,
        waited,
        ", ".join(found) or "–",
        len(result.forced),
        outcome,
        exit_code(result_record(result)),
    )


def _short(waits: list[float]) -> str:
    """Waits in short form: ``3 × (2, 5)`` is six of them."""
    if not waits:
        return "–"
    every = next(n for n in range(1, len(waits) + 1) if waits == waits[:n] * (len(waits) // n))
    runs = [(seconds, len(list(same))) for seconds, same in groupby(waits[:every])]
    text = ", ".join(f"{count} × {seconds:g}" if count > 1 else f"{seconds:g}" for seconds, count in runs)
    return text if every == len(waits) else f"{len(waits) // every} × ({text})"


def table() -> str:
    """All failures as a table in Markdown."""
    heads = ("the provider", "requests", "waits, s", "in the run file", "lost windows", "the run", "exit")
    lines = [f"| {' | '.join(heads)} |", "|---|--:|---|---|--:|---|--:|"]
    return "\n".join([*lines, *(f"| {' | '.join(map(str, play(case)))} |" for case in CASES)])


if __name__ == "__main__":
    print(table())
