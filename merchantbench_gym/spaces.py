"""Spaces of texts and tool calls.

Gymnasium's own ``Text`` enumerates its alphabet; over all of Unicode that costs tens of megabytes and
seconds. :class:`OpenText` is bounded by its length only. :class:`ToolCalls` is the canonical form of an
action, and its samples are calls that satisfy the schemas of the tools on offer.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
from gymnasium import spaces
from gymnasium.error import CustomSpaceError
from gymnasium.spaces.utils import flatten, flatten_space, is_space_dtype_shape_equiv, unflatten
from gymnasium.vector.utils.shared_memory import create_shared_memory
from gymnasium.vector.utils.space_utils import create_empty_array
from numpy.typing import NDArray

__all__ = ["IdRange", "OpenText", "ToolCalls", "draw_arguments", "observation_space", "store_box"]

CODE_POINTS = 0x110000
"""Number of Unicode code points; also the padding value of a flattened text."""

STORE_SIZE = 28
STORE_BOUND = 4.0
TEXT_LENGTH = 4_096
CONTENT_LENGTH = 32_000
ARGUMENTS_LENGTH = 2 * 1024 * 1024
ID_LENGTH = 128
NAME_LENGTH = 64
MAX_ENTRIES = 1_024
END_OF_STEP = "end_of_step"

# Words of product names, one of them outside ASCII: enough for a drawn query to find something.
WORDS = ("wireless", "earbuds", "kitchen", "steel", "yoga", "mat", "desk", "lamp", "cotton", "café")
# A handful of ranges instead of all of Unicode keeps samples readable: ASCII, Latin-1, CJK, emoji.
SAMPLE_RANGES = ((0x20, 0x7F), (0x20, 0x7F), (0xC0, 0x100), (0x4E00, 0x4F00), (0x1F600, 0x1F640))


class OpenText(spaces.Text):
    """Any Unicode string whose length lies within bounds.

    Texts that no Unicode encoding can carry (lone surrogates) are not members. The space has no list of its
    characters, and it pickles to a few hundred bytes. Flattened it is a vector of code points, padded with
    :data:`CODE_POINTS`.

    Args:
        max_length: Largest length in characters, inclusive.
        min_length: Smallest length in characters, inclusive.
        seed: Seed of the sampling generator.
    """

    def __init__(
        self, max_length: int, *, min_length: int = 0, seed: int | np.random.Generator | None = None
    ) -> None:
        super().__init__(max_length, min_length=min_length, charset="", seed=seed)

    def sample(
        self,
        mask: tuple[int | None, NDArray[np.int8] | None] | None = None,
        probability: tuple[int | None, NDArray[np.float64] | None] | None = None,
    ) -> str:
        """Draw a short text.

        Args:
            mask: ``(length, None)`` fixes the length; there is no list of characters to mask.
            probability: Same as ``mask``.

        Raises:
            ValueError: Both arguments are given, one masks characters, or the length is out of bounds.
        """
        if mask is not None and probability is not None:
            raise ValueError("only one of mask and probability can be given")
        length, characters = mask or probability or (None, None)
        if characters is not None:
            raise ValueError("OpenText has no list of characters to mask; give (length, None)")
        if length is None:
            length = min(self.max_length, self.min_length + int(self.np_random.geometric(1 / 12)) - 1)
        elif not self.min_length <= length <= self.max_length:
            raise ValueError(f"length must lie in [{self.min_length}, {self.max_length}], got {length}")
        rows = self.np_random.integers(0, len(SAMPLE_RANGES), length)
        places = self.np_random.random(length)
        ranges = (SAMPLE_RANGES[row] for row in rows.tolist())
        return "".join(
            chr(low + int(place * (high - low)))
            for (low, high), place in zip(ranges, places.tolist(), strict=True)
        )

    def contains(self, x: Any) -> bool:
        """Whether ``x`` is a text of the right length that UTF-8 can encode."""
        return isinstance(x, str) and self.min_length <= len(x) <= self.max_length and is_unicode(x)

    def character_index(self, char: str) -> np.int32:
        """The code point of a character."""
        return np.int32(ord(char))

    @property
    def character_set(self) -> NoReturn:
        """Not available: the characters are not enumerated."""
        raise AttributeError("OpenText does not enumerate its characters; it holds any Unicode text")

    character_list = character_set
    characters = character_set

    def __repr__(self) -> str:
        """Constructor form."""
        return f"OpenText({self.max_length}, min_length={self.min_length})"

    def __eq__(self, other: object, /) -> bool:
        """Equal if both hold the same texts."""
        return (
            isinstance(other, OpenText)
            and self.min_length == other.min_length
            and self.max_length == other.max_length
        )


@flatten.register(OpenText)
def _flatten_open_text(space: OpenText, x: str) -> NDArray[np.int32]:  # type: ignore[misc]
    flat = np.full(space.max_length, CODE_POINTS, dtype=np.int32)
    flat[: len(x)] = np.frombuffer(x.encode("utf-32-le"), dtype="<i4")
    return flat


@unflatten.register(OpenText)
def _unflatten_open_text(space: OpenText, x: NDArray[np.int32]) -> str:  # type: ignore[misc]
    codes = np.asarray(x)
    return codes[codes < CODE_POINTS].astype("<i4").tobytes().decode("utf-32-le")


@flatten_space.register(OpenText)
def _flatten_space_open_text(space: OpenText) -> spaces.Box:
    return spaces.Box(low=0, high=CODE_POINTS, shape=(space.max_length,), dtype=np.int32)


@is_space_dtype_shape_equiv.register(OpenText)
def _equivalent_open_text(space_1: OpenText, space_2: spaces.Space[Any]) -> bool:
    return space_1 == space_2


@create_empty_array.register(OpenText)
def _empty_open_text(space: OpenText, n: int = 1, fn: Any = np.zeros) -> tuple[str, ...]:
    return (" " * space.min_length,) * n


@create_shared_memory.register(OpenText)
def _no_shared_memory(space: OpenText, n: int = 1, ctx: Any = None) -> NoReturn:
    # Gymnasium's shared buffer for texts hands back wrong strings without an error, so refuse it here.
    raise CustomSpaceError(
        f"{space} cannot live in shared memory: "
        "use SyncVectorEnv, or AsyncVectorEnv(..., shared_memory=False)"
    )


class IdRange(Sequence[str]):
    """The ids of a numbered kind, for example ``IdRange("P{:05d}", 1000)``, without holding them.

    Args:
        form: Format string with one place for the number.
        size: How many ids there are; numbers run from 0.
    """

    def __init__(self, form: str, size: int) -> None:
        self.form = form
        self.size = size

    def __len__(self) -> int:
        """Number of ids."""
        return self.size

    def __getitem__(self, index: Any) -> Any:
        """Id (or list of ids, for a slice) at a position."""
        if isinstance(index, slice):
            return [self.form.format(i) for i in range(self.size)[index]]
        return self.form.format(range(self.size)[index])


class ToolCalls(spaces.Sequence):
    """Tool calls of one turn in canonical form.

    An element is a tuple of dicts with exactly the keys ``id`` (1-128 characters), ``name`` (1-64) and
    ``arguments``, a text that holds a strict JSON object. Membership is about the form alone; samples are
    calls of the granted tools whose arguments satisfy the tools' schemas, ``end_of_step`` at most once and
    last.

    Args:
        schemas: Tool schemas in OpenAI function form.
        texts: Plausible values of text parameters by name, ``{"product_id": IdRange("P{:05d}", 9)}``.
        seed: Seed of the sampling generator.
    """

    def __init__(
        self,
        schemas: Iterable[Mapping[str, Any]] = (),
        texts: Mapping[str, Sequence[str]] | None = None,
        seed: int | np.random.Generator | None = None,
    ) -> None:
        call = spaces.Dict(
            id=OpenText(ID_LENGTH, min_length=1),
            name=OpenText(NAME_LENGTH, min_length=1),
            arguments=OpenText(ARGUMENTS_LENGTH, min_length=2),
        )
        super().__init__(call, seed=seed)
        self.grant(schemas, texts)

    def grant(
        self, schemas: Iterable[Mapping[str, Any]], texts: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        """Set the tools that samples are drawn from; what the space contains does not change."""
        functions = [schema["function"] for schema in schemas]
        self.tools: dict[str, Any] = {f["name"]: _bare(f.get("parameters", {})) for f in functions}
        self.texts: dict[str, Sequence[str]] = dict(texts or {})

    def sample(
        self,
        mask: tuple[int | np.integer[Any] | NDArray[np.integer[Any]] | None, Any] | None = None,
        probability: tuple[int | np.integer[Any] | NDArray[np.integer[Any]] | None, Any] | None = None,
    ) -> tuple[dict[str, str], ...]:
        """Draw the calls of one turn.

        Without a mask up to three calls, half of the time followed by ``end_of_step``, which stands alone if
        there are none.

        Args:
            mask: ``(length, None)`` sets the number of calls, ``(array of lengths, None)`` one of several.
            probability: Same as ``mask``.

        Raises:
            ValueError: Both arguments are given, or no tool is granted.
        """
        if mask is not None and probability is not None:
            raise ValueError("only one of mask and probability can be given")
        if not self.tools:
            raise ValueError("no tools to draw from; grant() some")
        chosen = mask or probability
        rng = self.np_random
        plain = [name for name in self.tools if name != END_OF_STEP]
        can_end = END_OF_STEP in self.tools
        if chosen is None:
            count = int(rng.integers(0 if can_end else 1, 4)) if plain else 0
            ends = can_end and (count == 0 or bool(rng.integers(2)))
        else:
            count = int(self.generate_sample_length(chosen[0], "mask"))  # type: ignore[arg-type]
            ends = can_end and count > 0 and (not plain or bool(rng.integers(2)))
            count = (count - 1 if ends else count) if plain else 0
        names = [plain[int(rng.integers(len(plain)))] for _ in range(count)]
        if ends:
            names.append(END_OF_STEP)
        return tuple(
            {"id": f"call_{i}", "name": name, "arguments": self._arguments(name, rng)}
            for i, name in enumerate(names)
        )

    def _arguments(self, name: str, rng: np.random.Generator) -> str:
        drawn = draw_arguments(self.tools[name], rng, self.texts)
        return json.dumps(drawn, ensure_ascii=False, separators=(",", ":"))

    def contains(self, x: Any) -> bool:
        """Whether ``x`` is a tuple of canonical calls."""
        return (
            isinstance(x, tuple)
            and len(x) <= MAX_ENTRIES
            and all(self.feature_space.contains(call) and is_json_object(call["arguments"]) for call in x)
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> ToolCalls:
        """Copy with its own generators; the tools, never changed in place, are shared."""
        twin = type(self)()
        twin.tools, twin.texts = self.tools, self.texts
        copy_generators(self, twin)
        return twin

    def __repr__(self) -> str:
        """Names of the tools that samples are drawn from."""
        return f"ToolCalls({', '.join(self.tools)})"

    def __eq__(self, other: object, /) -> bool:
        """Equal if both hold the same actions; the tools behind the samples do not count."""
        return isinstance(other, ToolCalls)


def store_box() -> spaces.Box:
    """Box of the numeric summary of the store, shape (28,), float32, within [-4, 4]."""
    return spaces.Box(-STORE_BOUND, STORE_BOUND, (STORE_SIZE,), np.float32)


def observation_space() -> spaces.Dict:
    """Raw observations: ``text``, ``tool_results`` (a dict per call of the last turn) and ``store``."""
    # An id made by the environment may be a little longer than any that is accepted.
    result = spaces.Dict(
        tool_call_id=OpenText(2 * ID_LENGTH), name=OpenText(NAME_LENGTH), content=OpenText(CONTENT_LENGTH)
    )
    return spaces.Dict(text=OpenText(TEXT_LENGTH), tool_results=spaces.Sequence(result), store=store_box())


def copy_generators(source: spaces.Space[Any], target: spaces.Space[Any]) -> None:
    """Give ``target``, a space of the same make, copies of the generators of ``source``.

    Several times faster than a deep copy, and nothing to do for spaces nobody sampled from.
    """
    generator = source._np_random
    if generator is not None:
        target._np_random = copy_generator(generator)
    for below, beside in zip(_children(source), _children(target), strict=True):
        copy_generators(below, beside)


def copy_generator(generator: np.random.Generator) -> np.random.Generator:
    """An independent generator in the same state."""
    bits = generator.bit_generator
    twin = type(bits)(0)
    twin.state = bits.state
    return np.random.Generator(twin)


def _children(space: spaces.Space[Any]) -> Iterable[spaces.Space[Any]]:
    if isinstance(space, spaces.Dict):
        return space.spaces.values()
    if isinstance(space, spaces.Sequence):
        return (space.feature_space,)
    return ()


def is_unicode(text: str) -> bool:
    """Whether a text can be encoded, that is, has no lone surrogates."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_json_object(text: str) -> bool:
    """Whether a text is strict JSON (finite numbers, no key twice) of an object."""
    try:
        value = json.loads(text, parse_constant=_refuse, parse_float=_finite, object_pairs_hook=_distinct)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _finite(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ValueError(f"{digits[:40]} is out of range")
    return value


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("duplicate key")
    return value


def _bare(schema: Any) -> Any:
    """A copy of a schema without its prose, which drawing does not need."""
    if isinstance(schema, list | tuple):
        return [_bare(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    bare = {key: _bare(value) for key, value in schema.items() if key not in ("description", "properties")}
    if "properties" in schema:  # whose keys are names of parameters, not keywords
        bare["properties"] = {name: _bare(below) for name, below in schema["properties"].items()}
    return bare


def draw_arguments(
    schema: Mapping[str, Any],
    rng: np.random.Generator,
    texts: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, Any]:
    """Draw arguments that satisfy a tool's parameter schema.

    Required parameters are always there, the others half of the time. Numbers are drawn on a logarithmic
    scale, so that a page number between 1 and a million is usually small.

    Args:
        schema: Object schema with the keywords of tool schemas (types, enums, bounds, items).
        rng: Generator to draw from.
        texts: Plausible values by parameter name.

    Returns:
        Plain JSON values.
    """
    required = schema.get("required", ())
    return {
        name: _draw(below, name, rng, texts or {})
        for name, below in schema.get("properties", {}).items()
        if name in required or rng.integers(2)
    }


def _draw(
    schema: Mapping[str, Any], name: str, rng: np.random.Generator, texts: Mapping[str, Sequence[str]]
) -> Any:
    if "enum" in schema:
        return schema["enum"][int(rng.integers(len(schema["enum"])))]
    match schema.get("type"):
        case "object":
            return draw_arguments(schema, rng, texts)
        case "array":
            low = schema.get("minItems", 0)
            count = min(low + int(rng.geometric(0.5)) - 1, schema.get("maxItems", math.inf))
            singular = name.removesuffix("s")
            return [_draw(schema["items"], singular, rng, texts) for _ in range(int(count))]
        case "boolean":
            return bool(rng.integers(2))
        case "integer":
            low = schema.get("minimum", 0)
            return int(_log_uniform(low, schema.get("maximum", low + 100) + 1, rng))
        case "number":
            low, high = schema.get("minimum", 0.01), schema.get("maximum", 1000.0)
            return min(max(round(_log_uniform(low, high, rng), 2), low), high)
        case "string":
            return _draw_text(schema, texts.get(name), rng)
    raise ValueError(f"cannot draw a value of type {schema.get('type')!r} for {name}")


def _log_uniform(low: float, high: float, rng: np.random.Generator) -> float:
    """A value in [low, high), log(value - low + 1) being uniform."""
    return float(low + math.expm1(float(rng.random()) * math.log1p(high - low)))


def _draw_text(schema: Mapping[str, Any], values: Sequence[str] | None, rng: np.random.Generator) -> str:
    if values:
        text = values[int(rng.integers(len(values)))]
    else:
        text = " ".join(WORDS[int(i)] for i in rng.integers(0, len(WORDS), int(rng.integers(0, 3))))
    text = text[: schema.get("maxLength", len(text))]
    return text.ljust(schema.get("minLength", 0), "x")
