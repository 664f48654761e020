"""Plays a month with the agent of a language model, offline: the model is a script behind a local server.

The context is made small, so that the conversation outgrows it twice. Each time the model is asked to save
notes, the conversation is cut, and what the model knew lives on in its notes alone.

    pip install -e ".[plot]"
    python docs/examples/scripted_month.py --out context.png
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator, Mapping
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
from merchantbench_gym.evaluation.estimate import Estimate, estimate_run, measure_sizes
from merchantbench_gym.wrappers.calibration import ContextSettings
from merchantbench_gym.wrappers.tokens import estimate, estimate_message

SETTINGS: dict[str, Any] = {
    "model": "scripted",
    "api_key": "none-is-needed",
    "context_window": 65_536,
    "max_output_tokens": 4_096,
    "trigger": 46_000,
    "keep": 8_000,
}
CATEGORIES = (
    "office",
    "womenswear",
    "pet_garden",
    "appliances",
    "home_decor",
    "cleaning",
    "toys",
    "bags",
    "sports",
)
MARKUP = 1.8
SUPPLIER = re.compile(r"sup_\d+")


# --- the model: rules that know nothing but the request ---


class Shopkeeper:
    """A model of a few rules, for ``ModelServer``.

    In the first days it looks for a good supplier in one category after the other; then it goes through the
    suppliers it knows and lists what they offer. It remembers nothing by itself: suppliers are those that it
    finds in the messages, be it in an old search or in notes.

    Attributes:
        prompts: Prompt tokens of every request answered.
        cached: Those among them that a provider with a prefix cache need not have read.
    """

    def __init__(self) -> None:
        self.prompts: list[int] = []
        self.cached: list[int] = []
        self._before: list[Any] = []

    def __call__(self, request: Any, number: int) -> Reply:
        """Answer a request; every answer is a function of its messages."""
        messages = request.body["messages"]
        prompt, cached = self._count(messages, request.body["tools"])
        text, calls = decide(messages)
        return Reply(text=text, calls=calls, usage=(prompt, 40 * (1 + len(calls)), cached))

    def _count(self, messages: list[Any], tools: Any) -> tuple[int, int]:
        """Tokens of a request, and those that it has in common with the start of the one before."""
        fixed, sizes = estimate(tools), [estimate_message(message) for message in messages]
        same = 0
        while same < min(len(messages), len(self._before)) and messages[same] == self._before[same]:
            same += 1
        self.prompts.append(fixed + sum(sizes))
        self.cached.append(fixed + sum(sizes[:same]) if same else 0)
        self._before = messages
        return self.prompts[-1], self.cached[-1]


def decide(messages: list[Any]) -> tuple[str, list[tuple[str, Any]]]:
    """Words and calls of a turn; no calls end the window."""
    if messages[-1]["content"].startswith("[context-maintenance]"):
        return "I save what I know.", [("write_memory_doc", {"content": notes(messages)})]
    start = max(at for at, message in enumerate(messages) if is_observation(message))
    done = {name for name, _ in results(messages[start:])}
    day, hour = map(int, re.findall(r"Day (\d+) of \d+, (\d+):00", messages[start]["content"])[0])
    if hour:
        return evening(done)
    known = suppliers(messages)
    was_cut = any(is_context(message) for message in messages)
    if was_cut and "read_memory_doc" not in {name for name, _ in results(messages)}:
        return "Older messages are gone; what did I note?", [("read_memory_doc", {})]
    if day <= len(CATEGORIES):
        if "search_products" not in done:
            category = CATEGORIES[day - 1]
            return f"Who sells {category}?", [("search_products", {**GOOD, "category": category})]
    elif "list_supplier_products" not in done and known:
        supplier = known[day % len(known)]
        return f"What does {supplier} offer?", [("list_supplier_products", {"supplier_id": supplier})]
    if "query_my_listings" not in done:
        return "", [("query_my_listings", {}), ("query_balance", {})]
    if not {"list_product", "delist_product"} & done and (calls := changes(dict(results(messages[start:])))):
        return "I renew the shelf.", calls
    return f"Day {day} is done.", []


GOOD = {
    "sort_by": "rating",
    "supplier_rating_min": 4.3,
    "supplier_ship_hours_max": 36,
    "price_max": 80,
    "page_size": 8,
}


def evening(done: set[str]) -> tuple[str, list[tuple[str, Any]]]:
    """The second window of a day: a look at what has gone wrong."""
    if "query_supply_chain_anomalies" not in done:
        return "", [
            ("query_supply_chain_anomalies", {"mode": "now"}),
            ("query_order_updates", {"page_size": 10}),
        ]
    return "", []


def changes(seen: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Calls that list what a supplier offers and take off what it no longer has."""
    shelf = {row["product_id"]: row for row in rows(seen["query_my_listings"]["items"])}
    offer = seen.get("list_supplier_products") or seen.get("search_products") or {}
    fresh = [
        {"product_id": row["product_id"], "sale_price": round(row["price"] * MARKUP, 2)}
        for row in rows(offer.get("items"))
        if row["product_id"] not in shelf and row["price"] <= GOOD["price_max"]
    ]
    gone = [{"product_id": product} for product, row in shelf.items() if not row["supplier_available"]]
    calls: list[tuple[str, Any]] = [("delist_product", {"items": gone})] if gone else []
    return [*calls, ("list_product", {"items": fresh[:5]})] if fresh else calls


def suppliers(messages: list[Any]) -> list[str]:
    """Suppliers that were noted, or that stand first in a search that can still be read."""
    found: dict[str, None] = {}
    for message in messages:
        if is_context(message):
            found |= dict.fromkeys(SUPPLIER.findall(message["content"]))
    for name, result in results(messages):
        if name == "read_memory_doc":
            found |= dict.fromkeys(SUPPLIER.findall(result.get("content", "")))
        if name == "search_products":
            found |= dict.fromkeys(row["supplier_id"] for row in rows(result.get("items"))[:1])
    return list(found)


def notes(messages: list[Any]) -> str:
    """What is worth keeping."""
    return f"Suppliers to buy from: {', '.join(suppliers(messages))}. Sell at {MARKUP} times their price."


# --- reading messages ---


def is_observation(message: Mapping[str, Any]) -> bool:
    """Whether a message shows the store, rather than the harness or the model speaking."""
    return bool(message["role"] == "user" and not message["content"].startswith("["))


def is_context(message: Mapping[str, Any]) -> bool:
    """Whether a message stands for those that were removed."""
    return bool(message["role"] == "user" and message["content"].startswith("[context]"))


def results(messages: list[Any]) -> Iterator[tuple[str, Any]]:
    """Tools that were called and what they answered, in order."""
    for message in messages:
        if message["role"] == "tool":
            yield message["name"], json.loads(message["content"])


def rows(table: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Rows of a table of a result."""
    if not table:
        return []
    return [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]


# --- the run ---


class Played(NamedTuple):
    """A run and what there is to tell of it.

    Attributes:
        result: Its result.
        model: The model, which has counted its requests.
        requests: The requests, in order, each with its ``body``.
        cuts: Requests (numbers from 0) that were the first after a cut of the conversation.
        expected: What was to be expected of it beforehand.
        threshold: Tokens of a request at which a cut is announced.
        days: Day of every request.
    """

    result: Any
    model: Shopkeeper
    requests: list[Any]
    cuts: list[int]
    expected: Estimate
    threshold: int
    days: list[int]


def play(days: int = 30, seed: int = 1, record: Path | None = None, **settings: Any) -> Played:
    """Play a run against the script.

    Args:
        days: Length of the run.
        seed: Seed of the market.
        record: File to record the run in.
        **settings: Settings of the policy besides ``SETTINGS``.
    """
    model = Shopkeeper()
    cuts: list[int] = []
    dated = [1]
    with ModelServer(model) as server:
        config = ReActConfig(base_url=server.url, **{**SETTINGS, **settings})
        env = make_agent_env("month", config=config, overrides={"run": {"horizon_days": days}}, record=record)

        def look(observation: Any, reward: float, info: Mapping[str, Any]) -> None:
            if info["compactions"] > len(cuts):
                cuts.append(len(server.requests))
            dated.append(info["day"])

        result = run_episode(env, ReActPolicy(config=config), seed=seed, on_turn=look)
        scenario = env.unwrapped.scenario
        env.close()
    context = ContextSettings(**config.context)
    calls = round(result.report["calls"] / len(result.active))
    sizes = measure_sizes(scenario, seed=seed)
    expected = estimate_run(scenario, sizes, "this run", calls, trigger=context.threshold, keep=context.kept)
    return Played(result, model, server.requests, cuts, expected, context.threshold, dated)


def show(played: Played) -> None:
    """Print the run next to what was expected of it."""
    result, expected, model = played.result, played.expected, played.model
    lines = [
        ("calls", expected.calls, result.report["calls"]),
        ("prompt tokens", expected.prompt_tokens, sum(model.prompts)),
        ("  from the cache", expected.cached_tokens, sum(model.cached)),
        ("output tokens", expected.output_tokens, result.report["tokens"]["output"]),
        ("compactions", expected.compactions, len(played.cuts)),
    ]
    print(f"net assets {result.last_net_assets / 100:,.2f} after {len(result.active)} windows\n")
    print(f"{'':18}{'estimated':>12}{'actual':>12}")
    for name, guess, actual in lines:
        print(f"{name:18}{guess:12,}{actual:12,}")
    for number, cut in enumerate(played.cuts, 1):
        before, after = model.prompts[cut - 1], model.prompts[cut]
        told = next(m["content"] for m in played.requests[cut].body["messages"] if is_context(m))
        print(f"\ncompaction {number} on day {played.days[cut]}: {before:,} -> {after:,} tokens, and told:")
        print("  " + told.replace("\n", "\n  "))


def plot(played: Played, path: Path) -> None:
    """Draw the size of every request, and what it would have been without the cuts."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    prompts, cuts, limit = played.model.prompts, played.cuts, played.threshold
    dropped, removed = 0, []
    for number, size in enumerate(prompts):
        dropped += prompts[number - 1] - size if number in cuts else 0
        removed.append(size + dropped)
    calls = range(1, len(prompts) + 1)
    rules = min(prompts) - estimate_message(played.requests[0].body["messages"][1])
    figure, axes = plt.subplots(figsize=(9, 4.6), layout="constrained")
    axes.plot(calls, removed, color="0.6", linestyle=":", label="without compaction")
    axes.fill_between(calls, prompts, color="tab:blue", alpha=0.18, linewidth=0)
    axes.plot(calls, prompts, color="tab:blue", label="prompt tokens as sent")
    axes.fill_between(
        calls, rules, color="0.35", alpha=0.45, linewidth=0, label="rules and tools, in every request"
    )
    axes.axhline(limit, color="tab:red", linewidth=1, linestyle="--")
    axes.annotate(f"limit {limit:,}", (1, limit), (2, 4), textcoords="offset points", color="tab:red")
    for number, cut in enumerate(cuts, 1):
        before, after = prompts[cut - 1], prompts[cut]
        axes.plot([cut, cut + 1], [before, after], color="tab:orange", linewidth=2.5)
        text = f"compaction {number}, day {played.days[cut]}\n{before:,} → {after:,}"
        axes.annotate(text, (cut + 1, limit), (5, -6), textcoords="offset points", va="top", fontsize=9)
    axes.set(xlabel="calls of the model", ylabel="prompt tokens", title="A month in two compactions")
    axes.set(xlim=(1, len(prompts)), ylim=(0, 1.12 * max(removed)))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.legend(frameon=False, loc="upper left")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main(arguments: list[str] | None = None) -> Played:
    """Play, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--record", type=Path, help="file to record the run in")
    parser.add_argument("--out", type=Path, default=Path("context.png"))
    options = parser.parse_args(arguments)
    played = play(options.days, options.seed, options.record)
    show(played)
    plot(played, options.out)
    return played


if __name__ == "__main__":
    main()
