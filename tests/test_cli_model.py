"""Language models on the command line: settings, estimates, budgets, stops."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from merchantbench_gym import cli_model
from merchantbench_gym.baselines.react import ModelServer, Reply
from merchantbench_gym.baselines.react.config import SETTINGS
from merchantbench_gym.cli import run_command

KEY = "sk-planted-secret-000111"
SHORT = ["--scenario", "smoke", "--days", "2", "--policy", "react", "--quiet"]


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "MODEL_NAME", "CONTEXT_WINDOW_TOKENS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def look_and_end(request: Any, number: int) -> Reply:
    name = "query_balance" if number % 2 else "end_of_step"
    return Reply(calls=[(name, {})], usage=(1_000, 50, 400))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    with ModelServer(look_and_end) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        yield server


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = run_command(["run", *words])
    told = capsys.readouterr()
    return code, told.out, told.err


def test_a_run_with_a_model(capsys: pytest.CaptureFixture[str], server: ModelServer) -> None:
    code, out, _ = run(capsys, *SHORT, "--model", "some-model", "--prices", "2,8,0.5", "--json")
    record = json.loads(out)
    assert code == 0 and record["valid"]
    assert record["policy"]["model"] == "some-model"
    assert record["harness"] == ["MemoryDoc", "Chat", "ContextTrim"]
    model = record["model"]
    assert model["calls"] == len(server.requests) == 8
    assert model["tokens"]["input"] == 8 * 600 and model["tokens"]["cache_read"] == 8 * 400
    assert model["cost_micro_usd"] == 8 * (600 * 2 + 400 * 0.5 + 50 * 8)
    assert model["compactions"] == {} and model["notes_versions"] == 0


def test_the_page_tells_what_the_model_did(capsys: pytest.CaptureFixture[str], server: ModelServer) -> None:
    _, out, _ = run(capsys, *SHORT, "--model", "m", "--prices", "2000,8000")
    assert "m: 8 calls, 8,000 tokens read (40% from the cache), 400 written, 19.20 USD" in out


def test_a_budget_stops_a_run_that_goes_on_later(
    capsys: pytest.CaptureFixture[str], server: ModelServer
) -> None:
    words = [*SHORT, "--model", "m", "--prices", "1000,1000", "--record", "a.run"]
    code, _, err = run(capsys, *words, "--budget-usd", "2")
    assert code == 3
    assert "the budget (cost_micro_usd) is used up; merchantbench run --resume a.run goes on" in err
    assert len(server.requests) == 2
    code, out, _ = run(capsys, "--resume", "a.run", "--json")
    record = json.loads(out)
    assert code == 0 and record["valid"]
    # Model and prices come from the file; no request was sent twice.
    assert record["model"]["cost_micro_usd"] == 8 * 1_050_000
    assert len(server.requests) == record["model"]["calls"] == 8


def test_a_refused_key_stops_at_once_without_showing_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    error = {"code": "invalid_api_key", "message": f"Incorrect API key provided: {KEY}"}
    with ModelServer([Reply(status=401, error=error)]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        code, out, err = run(capsys, *SHORT, "--model", "m")
        assert len(server.requests) == 1
    assert code == 3
    assert "policy_stopped:auth" in out and "auth" in err and "401" in err and "--record" in err
    assert "check OPENAI_API_KEY" in err and err.count("\n") == 1
    assert KEY not in out + err


def test_a_model_that_is_not_there(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, server: ModelServer
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", server.url.removesuffix("/v1"))
    code, _, err = run(capsys, *SHORT, "--model", "m", "--record", "a.run")
    assert code == 3 and not server.requests
    assert "404" in err and "OPENAI_BASE_URL, which often ends in /v1" in err and err.count("\n") == 1
    assert "merchantbench run --resume a.run goes on" in err


def test_nobody_at_the_base_url(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, server: ModelServer, tmp_path: Path
) -> None:
    with ModelServer(look_and_end) as gone:
        closed = gone.url
    monkeypatch.setenv("OPENAI_BASE_URL", closed.replace("//", f"//user:{KEY}@"))
    code, out, err = run(capsys, *SHORT, "--model", "m", "--record", "a.run")
    assert code == 3 and out == "" and not list(tmp_path.iterdir())
    assert err.startswith(f"merchantbench: no connection to {closed.removesuffix('/v1')} (")
    assert "check OPENAI_BASE_URL" in err and err.count("\n") == 1 and KEY not in err

    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    budget = ["--prices", "1000,1000", "--budget-usd", "1"]
    assert run(capsys, *SHORT, "--model", "m", "--record", "a.run", *budget)[0] == 3
    monkeypatch.setenv("OPENAI_BASE_URL", closed)
    assert run(capsys, "--resume", "a.run")[0] == 3
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    assert run(capsys, "--resume", "a.run")[0] == 0


def test_behind_a_proxy_no_connection_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_model, "getproxies", lambda: {"http": "http://127.0.0.1:9"})
    cli_model.check_connection("http://nowhere.invalid/v1")
    monkeypatch.setattr(cli_model, "getproxies", lambda: {"https": "http://127.0.0.1:9"})
    monkeypatch.setattr(cli_model.socket, "create_connection", refuse)
    with pytest.raises(
        cli_model.ProviderError, match=r"no connection to http://nowhere\.invalid \(refused\)"
    ):
        cli_model.check_connection("http://nowhere.invalid/v1")
    with pytest.raises(cli_model.ProviderError, match=r"https://api\.openai\.com"):
        monkeypatch.setattr(cli_model, "getproxies", dict)
        cli_model.check_connection(None)


def refuse(*_: Any, **__: Any) -> Any:
    raise ConnectionRefusedError("refused")


def test_what_is_waited_for_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    script = [Reply(status=503), Reply(text="done")] + [Reply(status=422)] * 2 + [Reply(text="done")]
    words = [word for word in SHORT if word != "--quiet"]
    no_waits = {"short": (0,), "long": (0,)}
    monkeypatch.setitem(SETTINGS, "retry", SETTINGS["retry"]._replace(default=no_waits))
    for given, shown in ((words, 3), (SHORT, 0)):
        with ModelServer(script) as server:
            monkeypatch.setenv("OPENAI_BASE_URL", server.url)
            monkeypatch.setenv("OPENAI_API_KEY", KEY)
            code, _, err = run(capsys, *given, "--model", "m")
        assert err.count("\n") == shown and code == 0
        if shown:
            assert "attempt 1 failed (class transient, status 503" in err and "the next one in 0 s" in err
            assert "window 2 ends without an answer (class request, status 422" in err


def test_an_interrupt_says_how_to_go_on(
    capsys: pytest.CaptureFixture[str], server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any, **__: Any) -> Any:
        if len(server.requests) == 3:
            raise KeyboardInterrupt
        return send(*_, **__)

    from merchantbench_gym.baselines.react.caller import Caller

    send = Caller.send
    with monkeypatch.context() as patch:
        patch.setattr(Caller, "send", interrupted)
        code, out, err = run(capsys, *SHORT, "--model", "m", "--record", "a.run", "--json")
    assert code == 130 and json.loads(out)["reason"] == "interrupted"
    assert (
        err == "merchantbench: the run has stopped, interrupted; merchantbench run --resume a.run goes on\n"
    )
    assert run(capsys, "--resume", "a.run")[0] == 0
    assert len(server.requests) == 8


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--policy", "react"], "model is missing: pass it, or set MODEL_NAME"),
        (["--policy", "react", "--model", "m"], "api_key is missing"),
        (["--model", "m"], "--model goes with --policy react; rule_based asks no model"),
        (["--estimate"], "--estimate goes with --policy react"),
        (["--policy", "react", "--model", "m", "--prices", "2"], "--prices must be USD per million tokens"),
        (["--policy", "react", "--model", "m", "--prices", "a,b"], "prices as an argument must be"),
        (["--policy", "react", "--model", "m", "--budget-usd", "3"], "--budget-usd needs --prices"),
        (["--policy", "react", "--model", "m", "--budget-usd", "0"], "--budget-usd must be above 0"),
        (["--policy", "react", "--model", "m", "--env-file", "none.env"], "none.env cannot be read"),
    ],
)
def test_mistakes_are_told_before_anything_is_played(
    capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    code, out, err = run(capsys, *words)
    assert code == 2 and out == ""
    assert err.startswith("merchantbench: ") and message in err


def test_a_context_that_holds_nothing(
    capsys: pytest.CaptureFixture[str], server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONTEXT_WINDOW_TOKENS", "4000")
    code, _, err = run(capsys, *SHORT, "--model", "m")
    assert code == 2 and "raise CONTEXT_WINDOW_TOKENS" in err
    assert not server.requests


def test_an_estimate_needs_neither_key_nor_model(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, *SHORT, "--estimate")
    assert code == 0
    assert "4 windows in 2 days" in out and "--prices" in out


def test_an_estimate_follows_the_context_of_the_model(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def cuts(*words: str) -> list[int]:
        code, out, _ = run(capsys, "--scenario", "month", "--policy", "react", "--estimate", "--json", *words)
        assert code == 0
        return [case["compactions"] for case in json.loads(out)["cases"]]

    large = cuts()
    monkeypatch.setenv("CONTEXT_WINDOW_TOKENS", "32768")
    small = cuts()
    assert all(few < many for few, many in zip(large, small, strict=True)) and small[0] > 0
    assert cuts("--reference") == large  # it knows only its trigger
    monkeypatch.setenv("COMPACT_TRIGGER_TOKENS", "0")
    assert cuts("--reference") == [0, 0, 0]


def test_an_estimate_with_prices(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, *SHORT, "--estimate", "--prices", "100,400,10", "--json")
    told = json.loads(out)
    assert code == 0 and told["scenario"] == "smoke"
    cases = {case["case"]: case for case in told["cases"]}
    assert [case["calls"] for case in cases.values()] == [8, 20, 48]
    for case in cases.values():
        assert 0 < case["cost_usd_cached"] < case["cost_usd"]


def sweep(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    short = ("--scenario", "smoke", "--days", "1", "--policies", "react", "--bare", "--quiet")
    code = run_command(["evaluate", *short, *words])
    told = capsys.readouterr()
    return code, told.out, told.err


def test_a_sweep_of_a_model(capsys: pytest.CaptureFixture[str], server: ModelServer) -> None:
    words = ["--seeds", "1-2", "--model", "some-model", "--prices", "2,8,0.5", "--json"]
    code, out, _ = sweep(capsys, *words)
    told = json.loads(out)
    assert code == 0 and [record["policy"]["model"] for record in told["records"]] == ["some-model"] * 2
    assert told["table"][0]["mean_cost_micro_usd"] == 4 * (600 * 2 + 400 * 0.5 + 50 * 8)
    code, out, _ = sweep(capsys, *words, "--reference")
    assert (
        code == 0
        and len({r["policy"]["config_hash"] for r in [*told["records"], *json.loads(out)["records"]]}) == 2
    )


def test_mistakes_before_a_sweep(
    capsys: pytest.CaptureFixture[str], server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sweep(capsys)[0] == 2
    with ModelServer([]) as gone:
        closed = gone.url
    monkeypatch.setenv("OPENAI_BASE_URL", closed)
    code, out, err = sweep(capsys, "--model", "m")
    assert code == 3 and out == "" and "no connection to" in err


def test_a_sweep_with_a_run_that_was_stopped_is_invalid(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with ModelServer(lambda request, number: Reply(status=401)) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        code, out, _ = sweep(capsys, "--model", "m", "--seeds", "1")
    assert code == 5 and "policy_stopped:auth" in out


def test_a_file_that_does_not_fit_is_not_gone_on_with(
    capsys: pytest.CaptureFixture[str], server: ModelServer, tmp_path: Path
) -> None:
    words = [*SHORT, "--model", "m", "--record", "a.run", "--prices", "1000,1000", "--budget-usd", "1"]
    assert run(capsys, *words)[0] == 3
    with closing(sqlite3.connect(tmp_path / "a.run")) as db, db:
        db.execute("UPDATE turn SET state_digest = 'other'")
    sent = len(server.requests)
    code, out, err = run(capsys, "--resume", "a.run")
    assert code == 4 and out == "" and err.count("\n") == 1
    assert len(server.requests) == sent
