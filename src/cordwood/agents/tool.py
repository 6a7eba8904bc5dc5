"""A tool: its name, description and arguments, which are one struct that gives both the schema and the check; and its refusals."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from cordwood.agents.api import KeyedApi, Reply
from cordwood.errors import Fault, did_you_mean

Arguments = Mapping[str, Any]
Run = Callable[[KeyedApi, Arguments], Awaitable[object]]

T = TypeVar("T")

_LONGEST_LINE = 200
_LONGEST_MESSAGE = 4000


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


class RefusedCallError(Exception):
    """A call that the service or a tool refused, with the text for the agent."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


def refused_call(reply: Reply, query: str | None = None) -> RefusedCallError:
    """Return the error for a response. `query` is the text that a place in it refers to."""
    return RefusedCallError(_text(reply, query))


def of_fault(fault: Fault) -> str:
    """Return an error of this process as text."""
    return f"{fault.code}: {fault.told()}"


def _text(reply: Reply, query: str | None) -> str:
    error = _error(reply.body)
    if error is None:
        return f"The service answered with status {reply.status}."
    lines = [f"{error.get('status', reply.status)}: {str(error.get('message', ''))[:_LONGEST_MESSAGE]}"]
    line, column = error.get("line"), error.get("column")
    if isinstance(line, int) and isinstance(column, int):
        lines += [f"Place: line {line}, column {column}.", *_shown(query, line, column)]
    if error.get("hint"):
        lines.append(f"Hint: {str(error['hint'])[:_LONGEST_MESSAGE]}")
    retry = reply.header("retry-after")
    if retry is not None:
        lines.append(f"Try again after {retry} s.")
    return "\n".join(lines)


def _error(body: bytes) -> Mapping[str, Any] | None:
    try:
        found = msgspec.json.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    error = found.get("error") if isinstance(found, dict) else None
    # Logflare's error format has a text there.
    return {"message": error} if isinstance(error, str) else error if isinstance(error, dict) else None


def _shown(query: str | None, line: int, column: int) -> list[str]:
    """Return the line of the query with a caret under the place."""
    lines = (query or "").splitlines()
    if not 1 <= line <= len(lines) or column > _LONGEST_LINE:
        return []
    text = lines[line - 1][:_LONGEST_LINE].replace("\t", " ")
    return [f"  {text}", f"  {' ' * (column - 1)}^"]
