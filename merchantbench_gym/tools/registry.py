"""From a typed function to a tool: argument model, JSON schema, description and error messages.

A tool is one module-level function `name(ctx, *, param: type = default, …) -> dict` with a Google-style
docstring, registered by the decorator `@tool(kind="READ", examples=[{…}])`. Summary and body of the docstring
are the tool's description, the entries under Args the descriptions of its parameters.

The signature is turned into a pydantic model once, at registration. That model is the only validator, and
the JSON schema is derived from it, so that the two cannot drift apart.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

import annotated_types
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError, PydanticUndefined

from merchantbench_gym.scenario import TOOL_NAMES, Scenario
from merchantbench_gym.tools.context import Context
from merchantbench_gym.tools.results import ToolError, canonical, echo

Kind = Literal["READ", "WRITE", "CONTROL"]
Handler = Callable[..., dict[str, Any]]

#: Type of an entity id parameter.
EntityId = Annotated[str, Field(max_length=64)]

#: Most problems of one call that are reported.
MAX_ERRORS = 20

_CONFIG = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
_KEYWORDS = {
    *("type", "description", "properties", "required", "additionalProperties", "items", "enum", "default"),
    *("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"),
}
_BOUNDS = (annotated_types.Ge, annotated_types.Le, annotated_types.MinLen, annotated_types.MaxLen)


class ToolDefinitionError(TypeError):
    """A function cannot be registered as a tool; the message says what to change."""


# --- from a signature to a model -------------------------------------------------------------------------


def _integral(value: Any) -> Any:
    if type(value) is float and value.is_integer() and abs(value) <= 2**53:
        return int(value)
    return value


def _integral_choice(choices: tuple[int, ...]) -> Callable[[Any], Any]:
    expected = _either([str(choice) for choice in choices])

    def convert(value: Any) -> Any:
        if isinstance(value, bool):  # would pass as 0 or 1
            raise PydanticCustomError("literal_error", "no bool", {"expected": expected})
        return _integral(value)

    return convert


def _either(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _split(annotation: Any) -> tuple[Any, list[Any]]:
    """Take `Annotated` apart into the bare type and its bounds."""
    if typing.get_origin(annotation) is not Annotated:
        return annotation, []
    base, *metadata = typing.get_args(annotation)
    bounds: list[Any] = []
    for item in metadata:
        bounds.extend(item.metadata if isinstance(item, FieldInfo) else [item])
    return base, bounds


def _tolerant(annotation: Any, where: str, extra_bounds: Sequence[Any] = ()) -> Any:
    """Return the annotation with the tolerance for whole floats built in.

    Bounds stay inside the converting validator: outside it they would leave the JSON schema under other
    keywords.
    """
    base, bounds = _split(annotation)
    bounds = [*bounds, *extra_bounds]
    for bound in bounds:
        if not isinstance(bound, _BOUNDS):
            raise ToolDefinitionError(f"{where}: only ge, le, min_length and max_length are allowed")
    origin = typing.get_origin(base)
    result: Any
    if base is int:
        return _annotated(int, [*bounds, BeforeValidator(_integral)])
    if base in (str, float, bool):
        result = base
    elif origin is Literal:
        choices = typing.get_args(base)
        if all(type(choice) is int for choice in choices):
            return Annotated[base, BeforeValidator(_integral_choice(choices))]
        if not all(type(choice) is str for choice in choices):
            raise ToolDefinitionError(f"{where}: choices must be all strings or all integers")
        result = base
    elif origin is list:
        result = list[_tolerant(typing.get_args(base)[0], f"{where}[]")]  # type: ignore[misc]
    elif isinstance(base, type) and issubclass(base, BaseModel):
        result = _item_model(base, where)
    else:
        raise ToolDefinitionError(f"{where}: unsupported annotation {annotation!r}")
    return _annotated(result, bounds)


def _annotated(base: Any, metadata: Sequence[Any]) -> Any:
    for item in metadata:
        base = Annotated[base, item]
    return base


def _item_model(model: type[BaseModel], where: str) -> type[BaseModel]:
    """Rebuild a flat item model strict and tolerant; instances remain instances of `model`."""
    described = _arguments(model.__doc__ or "", "Attributes")
    fields: dict[str, Any] = {}
    for name, info in model.model_fields.items():
        place = f"{where}.{name}"
        if not info.is_required():
            raise ToolDefinitionError(f"{place}: every key of an item must be required")
        base = _split(info.annotation)[0]
        if typing.get_origin(base) is list or (isinstance(base, type) and issubclass(base, BaseModel)):
            raise ToolDefinitionError(f"{place}: an item must be flat")
        description = info.description or described.get(name)
        if not description:
            raise ToolDefinitionError(f"{place}: no description")
        fields[name] = (_tolerant(info.annotation, place, info.metadata), Field(description=description))
    return create_model(model.__name__, __base__=_strict(model), **fields)


def _strict(model: type[BaseModel]) -> type[BaseModel]:
    return typing.cast("type[BaseModel]", type(model.__name__, (model,), {"model_config": _CONFIG}))


def _optional(annotation: Any) -> tuple[Any, bool]:
    """Return the annotation without `| None`, and whether it had it."""
    base, bounds = _split(annotation)
    if typing.get_origin(base) not in (typing.Union, types.UnionType):
        return annotation, False
    members = [member for member in typing.get_args(base) if member is not type(None)]
    if len(members) != 1:
        return annotation, False
    return _annotated(members[0], bounds), True


# --- descriptions ----------------------------------------------------------------------------------------

_SECTION = re.compile(r"^(Args|Attributes|Returns|Raises|Yields|Examples?|Notes?):\s*$")
_ENTRY = re.compile(r"^(\w+):\s*(.*)$")


def _sections(docstring: str) -> dict[str, str]:
    """Cut a Google-style docstring into sections; the text before the first is under ""."""
    parts: dict[str, list[str]] = {"": []}
    current = ""
    for line in inspect.cleandoc(docstring).splitlines():
        match = _SECTION.match(line)
        if match:
            current = match.group(1)
            parts[current] = []
        else:
            parts[current].append(line)
    return {name: "\n".join(lines) for name, lines in parts.items()}


def _arguments(docstring: str, section: str) -> dict[str, str]:
    """Return the entries of an `Args:` or `Attributes:` section, each as one line."""
    found: dict[str, str] = {}
    name = ""
    for line in inspect.cleandoc("\n" + _sections(docstring).get(section, "")).splitlines():
        match = _ENTRY.match(line)
        if match:
            name, text = match.groups()
            found[name] = text.strip()
        elif name and line.strip():
            found[name] = f"{found[name]} {line.strip()}".strip()
    return {key: text for key, text in found.items() if text}


# --- from a model to a schema ----------------------------------------------------------------------------


def _flatten(node: Any, definitions: Mapping[str, Any]) -> Any:
    """Inline references and drop everything but the keywords a tool schema may use."""
    if "$ref" in node:
        target = definitions[node["$ref"].rsplit("/", 1)[1]]
        node = {**target, **{key: value for key, value in node.items() if key != "$ref"}}
    out = {key: value for key, value in node.items() if key in _KEYWORDS}
    if out.get("default", ...) is None:
        del out["default"]
    if "properties" in out:
        out["properties"] = {k: _flatten(v, definitions) for k, v in out["properties"].items()}
        out.setdefault("required", [])
    if "items" in out:
        out["items"] = _flatten(out["items"], definitions)
    order = ("type", "description", "enum", "default")
    return {key: out[key] for key in (*order, *out) if key in out}


# --- messages --------------------------------------------------------------------------------------------


def path_text(location: Iterable[int | str]) -> str:
    """Return a place in the arguments as text: `$`, `$.field`, `$.items[3].sale_price`."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{echo(step)}" for step in location)
    return "$" + "".join(steps)


def _bound(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else str(value)


#: Kind of problem -> message; {v} is the echoed input, other names come from pydantic's context.
_MESSAGES: dict[str, str] = {
    "missing": "is required",
    "int_type": "must be an integer, got {v}",
    "int_from_float": "must be an integer, got {v}",
    "float_type": "must be a number, got {v}",
    "finite_number": "must be a finite number, got {v}",
    "string_type": "must be a string, got {v}",
    "string_unicode": "must not hold a lone surrogate",
    "bool_type": "must be true or false, got {v}",
    "list_type": "must be an array, got {v}",
    "model_type": "must be an object, got {v}",
    "dict_type": "must be an object, got {v}",
    "literal_error": "must be {expected}, got {v}",
    "greater_than_equal": "must be at least {ge}, got {v}",
    "less_than_equal": "must be at most {le}, got {v}",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "too_short": "must have at least {min_length} entries, got {actual_length}",
    "too_long": "must have at most {max_length} entries, got {actual_length}",
}


def _shown(value: Any) -> str:
    return f'"{echo(value)}"' if isinstance(value, str) else echo(value)


class Tool:
    """A registered tool.

    Args:
        function: Handler `name(ctx, *, param: type = default, …) -> dict`; a bound method will do.
        kind: READ changes nothing, WRITE changes the merchant's shelf or notes, CONTROL ends the window.
        examples: Argument objects that must validate.

    Attributes:
        name: Name of the function.
        kind: As given.
        description: Summary and body of the docstring.
        parameters: Names of the parameters in order.
        examples: As given, copied.

    Raises:
        ToolDefinitionError: Undocumented parameter, unsupported annotation or bad example.
    """

    def __init__(self, function: Handler, *, kind: Kind, examples: Sequence[Mapping[str, Any]]) -> None:
        self.function = function
        self.name: str = function.__name__
        self.kind: Kind = kind
        if kind not in ("READ", "WRITE", "CONTROL"):
            raise ToolDefinitionError(f"{self.name}: kind must be READ, WRITE or CONTROL")
        docstring = inspect.getdoc(function) or ""
        paragraphs = re.split(r"\n\s*\n", _sections(docstring)[""].strip())
        self.description = " ".join(" ".join(text.split()) for text in paragraphs)
        if not self.description:
            raise ToolDefinitionError(f"{self.name}: no docstring")
        fields = self._fields(_arguments(docstring, "Args"))
        self.parameters = tuple(fields)
        self._model = create_model(self.name, __config__=_CONFIG, **fields)
        self._validate = self._model.__pydantic_validator__.validate_python
        self._defaults = {n: f.default for n, f in self._model.model_fields.items() if not f.is_required()}
        self._has_required = len(self._defaults) < len(fields)
        self._schema = json.dumps(self._build_schema())
        self.examples: tuple[dict[str, Any], ...] = tuple(json.loads(json.dumps(e)) for e in examples)
        if not self.examples:
            raise ToolDefinitionError(f"{self.name}: needs at least one example")
        for example in self.examples:
            try:
                self.validate(example)
            except ToolError as error:
                raise ToolDefinitionError(f"{self.name}: bad example: {error.message}") from None

    def __repr__(self) -> str:
        """Return name and kind."""
        return f"Tool({self.name!r}, kind={self.kind!r})"

    def _fields(self, described: Mapping[str, str]) -> dict[str, Any]:
        """Return pydantic field definitions made from the signature."""
        signature = list(inspect.signature(self.function).parameters.values())
        if not signature or signature[0].kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD:
            raise ToolDefinitionError(f"{self.name}: the first parameter must be ctx")
        hints = self._hints([parameter.name for parameter in signature[1:]])
        self._nullable: set[str] = set()
        fields: dict[str, Any] = {}
        for parameter in signature[1:]:
            name = parameter.name
            where = f"{self.name}.{name}"
            if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
                raise ToolDefinitionError(f"{where}: must be keyword-only")
            if name not in hints:
                raise ToolDefinitionError(f"{where}: no annotation")
            if name not in described:
                raise ToolDefinitionError(f"{where}: no entry under Args")
            annotation, nullable = _optional(hints[name])
            default = parameter.default
            if default is inspect.Parameter.empty:
                default = PydanticUndefined
            elif default is not None and type(default) not in (str, int, float, bool):
                raise ToolDefinitionError(f"{where}: the default must be a scalar")
            if nullable != (default is None):
                raise ToolDefinitionError(f"{where}: `| None` and the default None go together")
            if nullable:
                self._nullable.add(name)
            fields[name] = (
                _tolerant(annotation, where),
                Field(default=default, description=described[name]),
            )
        unknown = sorted(set(described) - set(fields))
        if unknown:
            raise ToolDefinitionError(f"{self.name}: Args names unknown parameters {', '.join(unknown)}")
        return fields

    def _hints(self, names: Sequence[str]) -> dict[str, Any]:
        # The context's annotation is left out: it may name something imported for type checkers only.
        raw = getattr(self.function, "__annotations__", {})
        wanted = types.SimpleNamespace(__annotations__={name: raw[name] for name in names if name in raw})
        scope = getattr(self.function, "__globals__", None) or getattr(
            getattr(self.function, "__func__", None), "__globals__", {}
        )
        return typing.get_type_hints(wanted, globalns=scope, include_extras=True)

    def _build_schema(self) -> dict[str, Any]:
        raw = self._model.model_json_schema()
        parameters = _flatten(raw, raw.get("$defs", {}))
        parameters.pop("description", None)
        parameters.setdefault("properties", {})
        parameters.setdefault("required", [])
        function = {"name": self.name, "description": self.description, "parameters": parameters}
        return {"type": "function", "function": function}

    def schema(self) -> dict[str, Any]:
        """Return a fresh copy of the schema in OpenAI function format."""
        copy: dict[str, Any] = json.loads(self._schema)
        return copy

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Check arguments and return the handler's keyword arguments, typed and with defaults.

        Args:
            arguments: A mapping of JSON values; not changed.

        Raises:
            ToolError: `invalid_arguments` with every problem found, at most 20.
        """
        if not arguments and not self._has_required:
            return self._defaults.copy()
        given = arguments
        for name, value in arguments.items():
            if (value is None and name in self._defaults) or (value == "" and name in self._nullable):
                given = {
                    n: v
                    for n, v in arguments.items()
                    if not (v is None and n in self._defaults) and not (v == "" and n in self._nullable)
                }
                break
        try:
            return typing.cast("dict[str, Any]", self._validate(given).__dict__)
        except ValidationError as error:
            problems = self._problems(error)
        raise invalid_arguments(problems) from None

    def _problems(self, error: ValidationError) -> list[dict[str, str]]:
        problems: list[dict[str, str]] = []
        for entry in error.errors(include_url=False)[:MAX_ERRORS]:
            kind, location = entry["type"], entry["loc"]
            context = {
                key: _bound(value) if isinstance(value, float) else value
                for key, value in entry.get("ctx", {}).items()
            }
            if kind == "extra_forbidden":
                message = self._unknown(location)
            elif kind == "float_type" and type(entry["input"]) is int:
                message = "must be a finite number"
            else:
                template = _MESSAGES.get(kind, "is not a valid value, got {v}")
                message = template.format(v=_shown(entry["input"]), **context)
            problems.append({"path": path_text(location), "message": message})
        return problems

    def _unknown(self, location: tuple[int | str, ...]) -> str:
        if len(location) > 1:
            return "is not a key of an item"
        if not self.parameters:
            return "is unknown: this tool takes no arguments"
        return f"is unknown; the arguments are {', '.join(self.parameters)}"

    def run(self, ctx: Context, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Call the handler with validated arguments and return its result in the success envelope.

        Raises:
            ToolError: A refusal for a documented reason.
            Exception: Whatever a faulty handler raises.
        """
        return {"ok": True, **self.function(ctx, **arguments)}


def invalid_arguments(problems: Sequence[dict[str, str]]) -> ToolError:
    """Return the error that reports these problems, the first 20 of them."""
    first = problems[0]
    more = f" ({len(problems)} problems, see errors)" if len(problems) > 1 else ""
    return ToolError(
        "invalid_arguments",
        f"{first['path']} {first['message']}{more}",
        path=first["path"],
        errors=problems[:MAX_ERRORS],
    )


def tool(*, kind: Kind, examples: Sequence[Mapping[str, Any]]) -> Callable[[Handler], Tool]:
    """Turn a function into a `Tool`; see the module's docstring for the form of the function."""

    def register(function: Handler) -> Tool:
        return Tool(function, kind=kind, examples=examples)

    return register


class Registry:
    """Tools by name, in the order of the tool index; others follow in the order given.

    Args:
        tools: The tools.

    Raises:
        ValueError: Two tools have the same name.
    """

    def __init__(self, tools: Iterable[Tool]) -> None:
        given = {}
        for item in tools:
            if item.name in given:
                raise ValueError(f"two tools are named {item.name!r}")
            given[item.name] = item
        known = [name for name in TOOL_NAMES if name in given]
        self._tools = {name: given[name] for name in (*known, *given)}
        self.names: tuple[str, ...] = tuple(self._tools)

    def __iter__(self) -> typing.Iterator[Tool]:
        """Iterate over the tools in order."""
        return iter(self._tools.values())

    def __len__(self) -> int:
        """Return the number of tools."""
        return len(self._tools)

    def get(self, name: str) -> Tool | None:
        """Return the tool of exactly this name, or None."""
        return self._tools.get(name)

    def schemas(self, denied: Iterable[str] = ()) -> list[dict[str, Any]]:
        """Return fresh schemas of all tools but the denied, in order."""
        without = frozenset(denied)
        return [item.schema() for item in self if item.name not in without]


def tool_schema_hash(registry: Registry, scenario: Scenario) -> str:
    """Return SHA-256 (hex) of the canonical JSON of the schemas a scenario grants, without providers."""
    text = canonical(registry.schemas(scenario.tools.denied))
    return hashlib.sha256(text.encode()).hexdigest()
