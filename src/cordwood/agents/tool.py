"""A tool: its name, description and arguments, which are one struct that gives both the schema and the check."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from cordwood.agents.api import KeyedApi
from cordwood.agents.refusals import RefusedCallError
from cordwood.errors import did_you_mean

Arguments = Mapping[str, Any]
Run = Callable[[KeyedApi, Arguments], Awaitable[object]]

T = TypeVar("T")


class Tool(msgspec.Struct, frozen=True):
    """A tool. `run` returns a value for the agent, which is encoded as JSON."""

    name: str
    title: str
    description: str
    schema: dict[str, Any]
    run: Run


def argument_schema(kind: type, **choices: Sequence[str]) -> dict[str, Any]:
    """Return the JSON Schema of the arguments in a struct; `choices` are the values of those known only now."""
    told = msgspec.json.schema(kind)
    schema: dict[str, Any] = told["$defs"][told["$ref"].rpartition("/")[2]]
    properties = {
        name: {**member, **({"enum": list(choices[name])} if choices.get(name) else {})}
        for name, member in schema["properties"].items()
    }
    required = {"required": schema["required"]} if schema.get("required") else {}
    return {"type": "object", "properties": properties, **required, "additionalProperties": False}


def arguments_of(kind: type[T], given: Arguments) -> T:
    """Return the arguments as a struct; raise RefusedCallError with what is wrong."""
    fields: tuple[str, ...] = kind.__struct_fields__  # type: ignore[attr-defined] # a struct
    require_known(given, fields)
    try:
        return msgspec.convert(dict(given), kind)
    except msgspec.ValidationError as problem:
        raise RefusedCallError(f"The arguments are wrong: {problem}.") from problem


def require_known(given: Arguments, names: Sequence[str]) -> None:
    """Raise RefusedCallError for an argument that the tool does not have."""
    for name in given:
        if name not in names:
            known = "The tool has: " + ", ".join(names) + "." if names else "The tool has none."
            hint = did_you_mean(name, names) or known
            raise RefusedCallError(f"There is no argument {name[:60]!r}. {hint}")
