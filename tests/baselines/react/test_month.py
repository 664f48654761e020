"""The agent as a whole: a month with two compactions, seats of a market, kills, contexts that hold."""

from __future__ import annotations

import json
import random
import signal
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from merchantbench_gym.baselines import (
    ModelServer,
    PassivePolicy,
    ReActConfig,
    ReActPolicy,
    Reply,
    RuleBasedPolicy,
    make_agent_env,
    run_episode,
    run_parallel,
)
from merchantbench_gym.envs import MarketplaceEnv
from merchantbench_gym.recording import replay, resume
from merchantbench_gym.spaces import ToolCalls
from merchantbench_gym.wrappers import ContextTrim, NotesProvider, RecordRun
from merchantbench_gym.wrappers.tokens import estimate_message
from tests.baselines.react import month_kit
from tests.baselines.react.month_kit import SMALL, Nameless, scripted_month

Body = Mapping[str, Any]


def rows(path: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as db:
        return db.execute(query).fetchall()


# --- a month ---


@pytest.fixture(scope="module")
def month(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    path = tmp_path_factory.mktemp("month") / "month.run"
    return scripted_month.play(record=path), path


@pytest.mark.slow
def test_a_supplier_noted_before_the_first_cut_is_used_after_the_second(month: tuple[Any, Path]) -> None:
    played, path = month
    assert played.result.reason == "" and len(played.cuts) == 2
    second = played.cuts[1]
    noted = set(scripted_month.SUPPLIER.findall(rows(path, "SELECT content FROM note")[0][0]))
    assert len(noted) >= 5

    after = [request.body for request in played.requests[second:]]
    (context,) = (m["content"] for m in after[0]["messages"] if scripted_month.is_context(m))
    assert noted <= set(scripted_month.SUPPLIER.findall(context))
    used = []
    for body, following in pairwise(after):
        messages = body["messages"]
        for message in following["messages"][len(messages) :]:
            if message.get("name") == "read_memory_doc":
                assert noted <= set(scripted_month.SUPPLIER.findall(message["content"]))
            for call in message.get("tool_calls") or ():
                if call["function"]["name"] == "list_supplier_products":
                    supplier = json.loads(call["function"]["arguments"])["supplier_id"]
                    used.append((supplier, [m for m in messages if supplier in json.dumps(m)]))
    # Nothing but the notes names it at that time: in the context message, and as they were read.
    from_notes = [
        supplier
        for supplier, places in used
        if [m.get("name") or m["role"] for m in places] == ["user", "read_memory_doc"]
    ]
    assert from_notes and {supplier for supplier, _ in used} <= noted
    found = rows(path, "SELECT arguments, ok FROM call WHERE name = 'list_supplier_products'")
    assert found and all(ok for _, ok in found)


@pytest.mark.slow
def test_the_record_tells_of_both_compactions(month: tuple[Any, Path]) -> None:
    played, path = month
    noted = [json.loads(note)["context"] for (note,) in rows(path, "SELECT note FROM turn ORDER BY seq")]
    done = [context for context in noted if context["done"]]
    assert [context["outcome"] for context in done] == ["confirmed", "confirmed"]
    assert [context["notes_saved_version"] for context in done] == [1, 2]
    assert sum(context["pending"] for context in noted) == 2
    assert [version for (version,) in rows(path, "SELECT version FROM note")] == [1, 2]
    assert played.result.report["compactions"] == {"confirmed": 2}
    assert rows(path, "SELECT status, reason FROM run") == [("finished", "horizon")]
    outcome = replay(path)
    assert outcome.identical and outcome.turns == len(noted) == len(played.requests)
    # What was cut from requests is in the file: every message that was ever sent.
    written = {body for (body,) in rows(path, "SELECT body FROM message")}
    assert len(written) > 300


@pytest.mark.slow
def test_a_seat_sends_byte_for_byte_what_the_wrappers_send(month: tuple[Any, Path]) -> None:
    played, _ = month
    model = scripted_month.Shopkeeper()
    with ModelServer(model) as server:
        config = ReActConfig(base_url=server.url, **scripted_month.SETTINGS)
        market = MarketplaceEnv("month", merchants=1)
        market.add_provider(NotesProvider())
        results = run_parallel(market, {"merchant_0": ReActPolicy(config=config)}, seed=1)
        sent = [request.raw for request in server.requests]
    assert results["merchant_0"].last_net_assets == played.result.last_net_assets
    assert sent == [request.raw for request in played.requests]


# --- two seats of a market ---


@pytest.mark.parametrize("days", [3, pytest.param(12, marks=pytest.mark.slow)])
def test_two_models_in_one_market_have_notes_and_context_of_their_own(days: int) -> None:
    class Loud(scripted_month.Shopkeeper):  # type: ignore[misc, name-defined]
        """The same merchant with a word of its own in all it says and writes."""

        def __init__(self, word: str) -> None:
            super().__init__()
            self.word = word

        def __call__(self, request: Any, number: int) -> Reply:
            if number == 1:
                return Reply(calls=[("write_memory_doc", {"content": f"I am {self.word}."})])
            reply: Reply = super().__call__(request, number)
            return Reply(calls=reply.calls, text=f"{self.word}: {reply.text}", usage=reply.usage)

    with ModelServer(Loud("alpha")) as first, ModelServer(Loud("omega")) as second:
        market = MarketplaceEnv("month", merchants=2, overrides={"run": {"horizon_days": days}})
        market.add_provider(NotesProvider())
        policies = {
            "merchant_0": ReActPolicy(base_url=first.url, **{**SMALL, "trigger": 9_000}),
            "merchant_1": ReActPolicy(base_url=second.url, model="other", api_key="k"),
        }
        results = run_parallel(market, policies, seed=1)
        assert first.refusals == second.refusals == []
        bodies = [[request.raw.decode() for request in server.requests] for server in (first, second)]
    assert [result.reason for result in results.values()] == ["", ""]
    assert all("omega" not in body for body in bodies[0]) and all("alpha" not in body for body in bodies[1])
    assert results["merchant_0"].report["compactions"]["confirmed"] >= 1
    assert results["merchant_1"].report["compactions"] == {}
    assert any("[context] " in body for body in bodies[0]) and not any("[context" in b for b in bodies[1])
    (provider,) = market.providers
    documents = [[note["content"] for note in provider.notes(merchant)] for merchant in range(2)]
    assert documents[0][0] == "I am alpha." and len(documents[0]) > 1
    assert documents[1] == ["I am omega."]


# --- kills ---

POINTS = [
    ("send", False),  # before a request
    ("send", True),  # after its response, before that is written down
    ("INSERT INTO turn", False),  # the response is stored, its turn is not
    ("INSERT INTO turn", True),  # inside the turn
    ("COMMIT", False),
    ("COMMIT", True),
]


@pytest.fixture(scope="module")
def control(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, list[bytes], list[Any]]:
    path = tmp_path_factory.mktemp("control") / "control.run"
    with ModelServer(Nameless()) as server:
        result = month_kit.play(path, server.url, days=5)
        sent = [request.raw for request in server.requests]
    assert result.report["compactions"]["confirmed"] >= 2
    return result, sent, digests(path)


def digests(path: Path) -> list[Any]:
    return rows(path, "SELECT window, turn, state_digest FROM turn ORDER BY seq")


@pytest.mark.slow
@pytest.mark.parametrize(("point", "after"), POINTS)
def test_after_a_kill_the_next_request_is_the_one_that_was_due(
    point: str, after: bool, control: tuple[Any, list[bytes], list[Any]], tmp_path: Path
) -> None:
    result, expected, turns = control
    context = get_context("forkserver")
    context.set_forkserver_preload(["tests.baselines.react.month_kit"])
    path = tmp_path / "a.run"
    with ModelServer(Nameless()) as server:
        for nth in (3, 8, 7):  # of every process; the compactions lie between
            process = context.Process(target=month_kit.play, args=(path, server.url, 5, point, nth, after))
            process.start()
            process.join()
            assert process.exitcode == -signal.SIGKILL
        again = month_kit.play(path, server.url, days=5)
        sent = [request.raw for request in server.requests]
        assert server.refusals == []
    twice = [place for place in range(1, len(sent)) if sent[place] == sent[place - 1]]
    # A response that was not yet written down has to be asked for again; no other is.
    assert len(twice) == (3 if (point, after) == ("send", True) else 0)
    assert [body for place, body in enumerate(sent) if place not in twice] == expected
    assert again.last_net_assets == result.last_net_assets
    assert digests(path) == turns
    assert replay(path).identical


def test_a_stored_response_to_another_request_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "a.run"

    class Killed(BaseException):
        pass

    def game(model: str) -> tuple[Any, Any]:
        config = ReActConfig(base_url=server.url, **{**SMALL, "model": model})
        return config, ReActPolicy(config=config)

    with ModelServer(Nameless()) as server:
        config, policy = game("scripted")
        env = make_agent_env("smoke", config=config, record=path, overrides={"run": {"horizon_days": 1}})
        act = policy.act

        def dying(*seen: Any) -> Any:
            act(*seen)
            raise Killed

        policy.act = dying  # type: ignore[method-assign]
        with pytest.raises(Killed):
            run_episode(env, policy, seed=1)
        env.close()
        assert len(server.requests) == 1
        for model, requests in (("scripted", 1), ("another", 2)):
            copy = tmp_path / f"{model}.run"
            copy.write_bytes(path.read_bytes())
            _, policy = game(model)
            env, *start = resume(copy, policy)
            run_episode(env, policy, seed=1, start=(start[0], start[1]), limits={"turns": 1})
            env.close()
            assert len(server.requests) == requests
            reused = rows(copy, "SELECT COUNT(*) FROM event WHERE kind = 'response_reused'")
            assert reused == [(int(model == "scripted"),)]


# --- contexts that hold ---


def exactly(ascii_share: float, other_share: float, per_message: int = 0) -> Callable[[Body], int]:
    """A counter that charges for characters of either kind, and for messages."""

    def count(body: Body) -> int:
        text = json.dumps([body["messages"], body.get("tools", [])], ensure_ascii=False)
        plain = sum(character.isascii() for character in text)
        total = plain * ascii_share + (len(text) - plain) * other_share
        return int(total) + 1 + per_message * len(body["messages"])

    return count


class Wild:
    """A model that calls any tool with any arguments, at length and in two scripts."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.space: Any = None

    def __call__(self, request: Any, number: int) -> Reply:
        draw = self.draw
        if self.space is None:
            self.space = ToolCalls(request.body["tools"])
            self.space.seed(draw.randrange(2**31))
        calls = [(call["name"], call["arguments"]) for call in self.space.sample()]
        calls = [(name, a) for name, a in calls if name != "end_of_step"]
        size = draw.choice((0, 20, 300, 3_000))
        text = draw.choice(("store and price ", "净资产与库存 ")) * (size // 8)
        if draw.random() < 0.2:
            calls.append(("search_products", {"page_size": 50, "page": draw.randrange(1, 15)}))
        if draw.random() < 0.1:
            calls.append(("write_memory_doc", {"content": text or "nothing"}))
        if draw.random() < 0.3:
            calls.append(("end_of_step", {}))
        return Reply(calls=calls, text=text[:2_000], usage="exact")


COUNTERS = {
    "as estimated": exactly(0.25, 0.5),
    "fewer": exactly(0.2, 0.4),
    "more": exactly(0.33, 0.66, per_message=6),
    "twice": exactly(0.5, 1.0),
    "much for CJK": exactly(0.27, 0.7),
}


def small_context(url: str, window: int = 32_768) -> ReActConfig:
    return ReActConfig(
        base_url=url, model="m", api_key="k", context_window=window, max_output_tokens=2_048, keep=6_000
    )


@pytest.mark.parametrize(
    ("name", "turns"), [("more", 40), *(pytest.param(name, 250, marks=pytest.mark.slow) for name in COUNTERS)]
)
def test_a_provider_that_counts_exactly_refuses_nothing(name: str, turns: int) -> None:
    seed, room = sorted(COUNTERS).index(name), 32_768 - 2_048
    with ModelServer(Wild(seed), counter=COUNTERS[name], window=room) as server:
        config = small_context(server.url)
        env = make_agent_env("default", config=config)
        result = run_episode(env, ReActPolicy(config=config), seed=seed, limits={"turns": turns})
        assert server.refusals == []
        assert len(server.requests) == turns
        most = max(COUNTERS[name](request.body) for request in server.requests)
    assert result.reason == "budget:turns"
    if turns > 100:
        assert most > 0.7 * room
        assert sum(result.report["compactions"].values()) > 2


@pytest.mark.parametrize("hard", [False, True])
def test_without_compaction_only_a_hard_budget_keeps_below_the_limit(hard: bool, tmp_path: Path) -> None:
    path, count, room = tmp_path / "a.run", COUNTERS["as estimated"], 16_384 - 2_048
    with ModelServer(Wild(3), counter=count, window=room) as server:
        config = small_context(server.url, 16_384)
        sizes = {"context_window": 16_384, "output_reserve": 2_048}
        env = make_agent_env("smoke", config=config, trim=False)
        env = RecordRun(ContextTrim(env, mode="off", hard=hard, **sizes), path)
        result = run_episode(env, ReActPolicy(config=config), seed=1, limits={"turns": 30})
        env.close()
        refused = len(server.refusals)
        largest = max(count(request.body) for request in server.requests)
    assert result.reason == "budget:turns" and result.report["compactions"] == {}
    overflows = rows(path, "SELECT COUNT(*) FROM event WHERE kind = 'overflow'")[0][0]
    if hard:
        assert refused == overflows == 0 and 0.9 * room < largest <= room
    else:
        assert refused >= overflows > 0
        (forced,) = rows(path, "SELECT COUNT(*) FROM event WHERE kind = 'forced_end'")
        assert forced == (0,)  # what the provider refuses is cut and sent again, turn after turn


def test_huge_notes_are_shortened_in_requests_only() -> None:
    text = "".join(f"line {number}: a supplier, a price and a thought 供应商\n" for number in range(3_500))
    assert 150_000 < len(text.encode()) <= 262_144
    script = [
        Reply(calls=[("write_memory_doc", {"content": text})]),
        Reply(calls=[("read_memory_doc", {"offset": place}) for place in range(0, 180_000, 20_000)]),
        Reply(calls=[("query_balance", {})]),
        Reply(calls=[("end_of_step", {})]),
        Reply(text="done"),
    ]
    with ModelServer(script) as server:
        config = small_context(server.url)
        env = make_agent_env("smoke", config=config)
        budgets = [env.reset(seed=1)[1]["context_budget"]]
        result = run_episode(
            env,
            ReActPolicy(config=config),
            seed=1,
            limits={"turns": 5},
            on_turn=lambda observation, reward, info: budgets.append(info["context_budget"]),
        )
        assert server.refusals == [] and result.reason == "budget:turns"
        bodies = [request.body for request in server.requests]
    for body, budget in zip(bodies, budgets, strict=False):
        assert sum(map(estimate_message, body["messages"][1:])) <= budget
    (call,) = (call for message in bodies[1]["messages"] for call in message.get("tool_calls", ()))
    assert call["function"]["name"] == "write_memory_doc" and len(call["function"]["arguments"]) < 500
    results = [m["content"] for m in bodies[2]["messages"] if m.get("name") == "read_memory_doc"]
    assert len(results) == 9 and all("[cut: " in result for result in results)
    assert any(message["content"].startswith("Day 1 of") for message in bodies[2]["messages"])
    assert env.get_wrapper_attr("notes")()[0]["content"] == text
    stored = env.get_wrapper_attr("transcript").messages
    assert not any("[cut: " in message["content"] for message in stored)


def test_it_plays_as_one_of_three_and_is_asked_once_a_turn() -> None:
    class Watched(ReActPolicy):
        left: list[int] = []  # noqa: RUF012

        def act(self, observation: Any, info: Mapping[str, Any]) -> dict[str, Any]:
            self.left.append(info["turns_left"])
            return super().act(observation, info)

    with ModelServer(scripted_month.Shopkeeper()) as server:
        market = MarketplaceEnv("smoke", merchants=3)
        market.add_provider(NotesProvider())
        asked = Watched(base_url=server.url, **SMALL)
        policies = {"merchant_0": PassivePolicy(), "merchant_1": asked, "merchant_2": RuleBasedPolicy()}
        results = run_parallel(market, policies, seed=3)
        assert server.refusals == []
        assert len(server.requests) == len(asked.left) == results["merchant_1"].counters["turns"] > 14
    assert min(asked.left) > 0
    assert all(result.reason == "" and result.ledger_holds for result in results.values())
