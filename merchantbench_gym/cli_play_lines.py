"""What a player types, turned into tool calls: the words of a line, short forms, values, completion.

Nothing here touches a store. A line is checked against the schemas before it becomes a turn, so that a slip
of the fingers costs none.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, NamedTuple

from merchantbench_gym.market.catalog import CATEGORIES
from merchantbench_gym.tools import default_registry
from merchantbench_gym.tools.results import ToolError

END = "end_of_step"
LOCAL = {
    "help": ("help [NAME]", "this overview; a tool or short form in full"),
    "help rules": ("help rules", "all rules of the game"),
    "look": ("look", "the state of the store again"),
    "more": ("more", "the next page of the last table"),
    "raw": ("raw", "the last results in full, as JSON"),
    "quit": ("quit", "stop here (or Ctrl-D)"),
}
"""What costs no turn and reaches no tool: usage and meaning."""

RESULT_DAYS = 7


class Mistake(Exception):
    """What was typed cannot be done; the message is one line and names the remedy."""


class Call(NamedTuple):
    """A tool call: name and arguments."""

    name: str
    arguments: dict[str, Any]


@dataclass
class Desk:
    """What is known when a line is read.

    Attributes:
        tools: Parameters of the granted tools by tool name: JSON schemas of objects.
        day: Current day.
        seen: Ids that appeared in results, for completion.
        last: The last call that returned a page with more pages behind it.
    """

    tools: dict[str, dict[str, Any]]
    day: int = 1
    seen: dict[str, None] = field(default_factory=dict)
    last: Call | None = None

    @classmethod
    def of(cls, schemas: Iterable[Mapping[str, Any]]) -> Desk:
        """A desk with the tools of these schemas (OpenAI function format)."""
        functions = [schema["function"] for schema in schemas]
        return cls({function["name"]: function["parameters"] for function in functions})

    def parameters(self, name: str) -> dict[str, Any]:
        """Schemas of the parameters of a tool, by name."""
        found: dict[str, Any] = self.tools[name]["properties"]
        return found


# -- words ---------------------------------------------------------------------------------------------


def split(line: str) -> list[list[str]]:
    """Cut a line into calls at ``;`` and into words at blanks, outside of quotation marks and brackets.

    Raises:
        Mistake: A quotation mark or bracket is not closed.
    """
    calls: list[list[str]] = [[]]
    word, quote, depth, skip = "", "", 0, False
    for character in line.strip():
        if quote:
            word += character
            if skip or character == "\\":
                skip = not skip and quote == '"'
            elif character == quote:
                quote = ""
            continue
        # Inside of a word an apostrophe is just that: men's.
        if character in "\"'" and (depth or not word or word[-1] == "="):
            quote = character
        depth += (character in "[{") - (character in "]}")
        if depth <= 0 and (character.isspace() or character == ";"):
            calls[-1] += [word] if word else []
            word = ""
            if character == ";":
                calls.append([])
        else:
            word += character
    if quote or depth > 0:
        raise Mistake(f"{'a quotation mark' if quote else 'a bracket'} is not closed")
    calls[-1] += [word] if word else []
    return [words for words in calls if words]


def value(text: str, schema: Mapping[str, Any], name: str) -> Any:
    """Read a value for a parameter.

    Args:
        text: As typed: JSON or TOML; text may do without quotation marks, a list without brackets.
        schema: Schema of the parameter.
        name: Its name, for messages.

    Raises:
        Mistake: The text is no value of that type.
    """
    kind = schema.get("type", "string")
    if kind == "string" and text[:1] not in ("'", '"'):
        return text
    if kind == "array" and text[:1] != "[":
        return [value(part.strip(), schema["items"], name) for part in text.split(",") if part.strip()]
    for read in (json.loads, _toml):
        try:
            return read(text)
        except (ValueError, RecursionError):
            continue
    needed = {
        "integer": "a whole number",
        "number": "a number",
        "boolean": "true or false",
        "array": "a list such as [1, 2]",
    }
    raise Mistake(f"{name} must be {needed.get(kind, 'a text')}, not {text[:40]}")


def _toml(text: str) -> Any:
    return tomllib.loads(f"value = {text}")["value"]


def _named(words: Sequence[str], tool: str, desk: Desk) -> tuple[list[str], dict[str, Any]]:
    """Tell words from ``key=value`` arguments of a tool."""
    plain: list[str] = []
    arguments: dict[str, Any] = {}
    parameters = desk.parameters(tool)
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not key.isidentifier():
            plain.append(word)
        elif key not in parameters:
            raise Mistake(f"{tool} has no {key}; {_choices(parameters)}")
        elif key in arguments:
            raise Mistake(f"{key} is given twice")
        else:
            arguments[key] = value(text, parameters[key], key)
    return plain, arguments


def _choices(parameters: Mapping[str, Any]) -> str:
    return f"it takes {', '.join(parameters)}" if parameters else "it takes no arguments"


# -- short forms ---------------------------------------------------------------------------------------


class Short(NamedTuple):
    """A short form.

    Attributes:
        usage: How it is typed.
        purpose: What it does, in a few words.
        tools: Tools it may call; the first one gives the names of ``key=value`` arguments.
        make: Makes the call from the plain words.
    """

    usage: str
    purpose: str
    tools: tuple[str, ...]
    make: Callable[[list[str], Desk], Call]


_FORMS = (
    (re.compile(r"[pP]?(\d{1,9})"), "P{:05d}"),
    (re.compile(r"(?:sup_|s)(\d{1,9})", re.IGNORECASE), "sup_{:04d}"),
    (re.compile(r"[oO](\d{1,9})"), "O{:05d}"),
)


def full_id(text: str) -> str:
    """An id in full: ``p17`` and ``17`` are P00017, ``s17`` is sup_0017, ``o12`` is O00012."""
    for pattern, form in _FORMS:
        found = pattern.fullmatch(text)
        if found and text.isascii():
            return form.format(int(found[1]))
    return text


def _search(words: list[str], desk: Desk) -> Call:
    return Call("search_products", {"query": " ".join(words).strip("\"'")} if words else {})


def _show(words: list[str], desk: Desk) -> Call:
    if len(words) != 1:
        raise Mistake("show takes one id: show P00017, show sup_0017 or show O00012")
    found = full_id(words[0])
    if found.startswith("sup_"):
        return Call("get_supplier_profile", {"supplier_id": found})
    if found.startswith("O"):
        return Call("query_order_detail", {"order_id": found})
    return Call("get_product_detail", {"product_id": found})


def _priced(tool: str, key: str, example: str) -> Callable[[list[str], Desk], Call]:
    def make(words: list[str], desk: Desk) -> Call:
        if not words or len(words) % 2:
            raise Mistake(f"type products with their prices: {example}")
        number = {"type": "number"}
        items = [
            {"product_id": full_id(product), key: value(price, number, f"the price of {product}")}
            for product, price in zip(words[::2], words[1::2], strict=True)
        ]
        return Call(tool, {"items": items})

    return make


def _delist(words: list[str], desk: Desk) -> Call:
    if not words:
        raise Mistake("name the products: delist P00017")
    return Call("delist_product", {"items": [{"product_id": full_id(word)} for word in words]})


def _offers(words: list[str], desk: Desk) -> Call:
    if len(words) != 1:
        raise Mistake("name one supplier: supplier sup_0017")
    return Call("list_supplier_products", {"supplier_id": full_id(words[0])})


def _orders(words: list[str], desk: Desk) -> Call:
    if len(words) > 1:
        raise Mistake("orders takes one status at most: orders settled_normal")
    if not words:
        return Call("query_open_orders", {})
    return Call("query_my_orders", {} if words[0] == "all" else {"status": words[0]})


def _problems(words: list[str], desk: Desk) -> Call:
    if words not in ([], ["new"], ["now"]):
        raise Mistake("type problems for what is wrong now, problems new for what happened since")
    return Call("query_supply_chain_anomalies", {"mode": words[0] if words else "now"})


def _results(words: list[str], desk: Desk) -> Call:
    days = value(words[0], {"type": "integer"}, "the number of days") if words else RESULT_DAYS
    if len(words) > 1 or type(days) is not int or days < 1:
        raise Mistake("type results, or results 30 for the last 30 days")
    return Call("query_store_performance", {"day_from": max(1, desk.day - days + 1), "day_to": desk.day})


def _plain(tool: str) -> Callable[[list[str], Desk], Call]:
    def make(words: list[str], desk: Desk) -> Call:
        if words:
            raise Mistake(f"it takes no word {words[0][:40]!r}; {_choices(desk.parameters(tool))}")
        return Call(tool, {})

    return make


def _short(name: str, purpose: str, tool: str) -> Short:
    return Short(name, purpose, (tool,), _plain(tool))


SHORT: dict[str, Short] = {
    "search": Short(
        "search lamp price_max=20", "find products suppliers offer", ("search_products",), _search
    ),
    "show": Short(
        "show P00017",
        "one product, supplier (sup_0017) or order (O00012)",
        ("get_product_detail", "get_supplier_profile", "query_order_detail"),
        _show,
    ),
    "supplier": Short("supplier sup_0017", "what a supplier offers", ("list_supplier_products",), _offers),
    "list": Short(
        "list P00017 24.90",
        "put a product on your shelf at your price",
        ("list_product",),
        _priced("list_product", "sale_price", "list P00017 24.90"),
    ),
    "price": Short(
        "price P00017 22.90",
        "change your price",
        ("adjust_price",),
        _priced("adjust_price", "new_price", "price P00017 22.90"),
    ),
    "delist": Short("delist P00017", "take a product off your shelf", ("delist_product",), _delist),
    "shelf": _short("shelf", "what you sell, and how it does", "query_my_listings"),
    "orders": Short(
        "orders [STATUS|all]",
        "open orders; those of a status; all",
        ("query_open_orders", "query_my_orders"),
        _orders,
    ),
    "changes": _short("changes", "orders that changed since the last window", "query_order_updates"),
    "problems": Short(
        "problems [new]",
        "what suppliers do to your shelf",
        ("query_supply_chain_anomalies",),
        _problems,
    ),
    "balance": _short("balance", "your money", "query_balance"),
    "report": _short("report", "today's market report", "get_daily_report"),
    "results": Short("results [DAYS]", "sales and profit by day", ("query_store_performance",), _results),
    "end": Short("end [N]", "let the clock run to the next window; N times", (END,), _plain(END)),
}


# -- a line --------------------------------------------------------------------------------------------


def calls_of(line: str, desk: Desk) -> list[Call]:
    """The tool calls that a line asks for, checked.

    Raises:
        Mistake: Something in it is wrong; nothing of the line should be done then.
    """
    calls = [_call(words, desk) for words in split(line)]
    ends = [place for place, call in enumerate(calls) if call.name == END]
    if ends and ends != [len(calls) - 1]:
        raise Mistake("end must come last and once")
    return calls


def _call(words: list[str], desk: Desk) -> Call:
    name = words[0]
    if name == "more":
        if desk.last is None:
            raise Mistake("there is no further page")
        page = int(desk.last.arguments.get("page", 1)) + 1
        return Call(desk.last.name, {**desk.last.arguments, "page": page})
    if name in SHORT:
        call = _from_short(SHORT[name], words[1:], desk)
    elif name in desk.tools:
        plain, arguments = _named(words[1:], name, desk)
        if plain:
            raise Mistake(f"{plain[0][:40]!r} is no key=value; {_choices(desk.parameters(name))}")
        call = Call(name, arguments)
    elif default_registry().get(name) is not None:
        raise Mistake(f"{name} is not available in this run")
    else:
        known = [*SHORT, *(key for key in LOCAL if " " not in key), *desk.tools]
        near = get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}?" if near else "help shows what there is"
        raise Mistake(f"there is no command {name[:40]!r}; {hint}")
    _check(call)
    return call


def _from_short(short: Short, words: list[str], desk: Desk) -> Call:
    missing = [tool for tool in short.tools if tool not in desk.tools]
    if missing:
        raise Mistake(f"{missing[0]} is not available in this run")
    # Words decide which tool it is, so they are told from arguments first.
    call = short.make([word for word in words if not _is_named(word)], desk)
    _, arguments = _named([word for word in words if _is_named(word)], call.name, desk)
    return Call(call.name, {**call.arguments, **arguments})


def _is_named(word: str) -> bool:
    key, equals, _ = word.partition("=")
    return bool(equals) and key.isidentifier()


def _check(call: Call) -> None:
    tool = default_registry().get(call.name)
    if tool is None:
        return
    try:
        tool.validate(call.arguments)
    except ToolError as error:
        problem = (error.errors or [{"path": "$", "message": error.message}])[0]
        where = problem["path"].removeprefix("$").removeprefix(".")
        message = f"{where} {problem['message']}".strip()
        raise Mistake(f"{message}; see help {call.name}") from None


# -- completion ----------------------------------------------------------------------------------------


def candidates(before: str, text: str, desk: Desk) -> list[str]:
    """What may complete a word.

    Args:
        before: The line up to the word.
        text: The word as far as it is typed; after ``key=`` the value alone.
        desk: What is known.

    Returns:
        Whole words, those of tools and commands with a blank behind them, names of arguments with ``=``.
    """
    words = before.rpartition(";")[2].split()
    if not words:
        names = [*SHORT, *LOCAL, *desk.tools]
        found = [f"{name} " for name in names if " " not in name]
    elif words[0] == "help":
        found = ["rules", *SHORT, *desk.tools]
    else:
        found = _rest(words, desk)
    return [word for word in dict.fromkeys(found) if word.startswith(text)]


def _rest(words: Sequence[str], desk: Desk) -> list[str]:
    short = SHORT.get(words[0])
    tools = [tool for tool in (short.tools if short else (words[0],)) if tool in desk.tools]
    parameters = {key: item for tool in tools for key, item in desk.parameters(tool).items()}
    if words[-1].endswith("="):
        return _values(words[-1][:-1], parameters, desk)
    found = [] if short is None else _words_of(words[0], parameters, desk)
    return found + [f"{key}=" for key in parameters if key != "items" or short is None]


def _values(key: str, parameters: Mapping[str, Any], desk: Desk) -> list[str]:
    schema = parameters.get(key, {})
    if key == "category":
        return list(CATEGORIES)
    if schema.get("type") == "boolean":
        return ["true", "false"]
    if key.endswith("_id"):
        return list(desk.seen)
    return [str(choice) for choice in schema.get("enum", schema.get("items", {}).get("enum", []))]


def _words_of(name: str, parameters: Mapping[str, Any], desk: Desk) -> list[str]:
    """Plain words that a short form takes."""
    if name in ("show", "list", "price", "delist", "supplier"):
        start = "sup_" if name == "supplier" else "P"
        return [known for known in desk.seen if name == "show" or known.startswith(start)]
    if name == "orders":
        return ["all", *parameters["status"]["enum"]]
    return ["new", "now"] if name == "problems" else []
