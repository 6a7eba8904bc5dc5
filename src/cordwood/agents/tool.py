"""Tools: name, description and arguments, and the errors of calls. Schema and check of arguments come from one struct."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from cordwood.agents.api import KeyedApi, Reply
from cordwood.errors import Fault, did_you_mean

Arguments = Mapping[str, Any]
Run = Callable[[KeyedApi, Arguments], Awaitable[object]]

T = TypeVar("T")

_MAX_LINE_LENGTH = 200
_MAX_MESSAGE_LENGTH = 4000


class Tool(msgspec.Struct, frozen=True):
    """A tool that an agent can call. `run` returns a value that is encoded as JSON."""

    name: str
    title: str
    description: str
    schema: dict[str, Any]
    run: Run


def argument_schema(kind: type, **choices: Sequence[str]) -> dict[str, Any]:
    """Return the JSON Schema of an argument struct; `choices` adds allowed values that are known only at run time."""
    document = msgspec.json.schema(kind)
    schema: dict[str, Any] = document["$defs"][document["$ref"].rpartition("/")[2]]
    properties = {
        name: {**member, **({"enum": list(choices[name])} if choices.get(name) else {})}
        for name, member in schema["properties"].items()
    }
    required = {"required": schema["required"]} if schema.get("required") else {}
    return {"type": "object", "properties": properties, **required, "additionalProperties": False}


def arguments_of(kind: type[T], raw_arguments: Arguments) -> T:
    """Convert the arguments to a struct; raise RefusedCallError that says what is wrong with them."""
    fields: tuple[str, ...] = kind.__struct_fields__  # type: ignore[attr-defined] # a struct
    require_known(raw_arguments, fields)
    try:
        return msgspec.convert(dict(raw_arguments), kind)
    except msgspec.ValidationError as problem:
        raise RefusedCallError(f"The arguments are wrong: {problem}.") from problem


def require_known(raw_arguments: Arguments, names: Sequence[str]) -> None:
    """Raise RefusedCallError for an argument that is not in `names`."""
    for name in raw_arguments:
        if name not in names:
            known = "The tool has: " + ", ".join(names) + "." if names else "The tool has none."
            hint = did_you_mean(name, names) or known
            raise RefusedCallError(f"There is no argument {name[:60]!r}. {hint}")


class RefusedCallError(Exception):
    """A refusal by the service or by a tool. `text` is shown to the agent."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


def refused_call(reply: Reply, query: str | None = None) -> RefusedCallError:
    """Return the error for a response. `query` is the text in which the error's position is marked."""
    return RefusedCallError(_error_text(reply, query))


def fault_text(fault: Fault) -> str:
    """Return an error that was raised in this process as text."""
    return f"{fault.code}: {fault.in_one_line()}"


def _error_text(reply: Reply, query: str | None) -> str:
    error = _error_member(reply.body)
    if error is None:
        return f"The service answered with status {reply.status}."
    lines = [f"{error.get('status', reply.status)}: {str(error.get('message', ''))[:_MAX_MESSAGE_LENGTH]}"]
    line, column = error.get("line"), error.get("column")
    if isinstance(line, int) and isinstance(column, int):
        lines += [f"Place: line {line}, column {column}.", *_excerpt(query, line, column)]
    if error.get("hint"):
        lines.append(f"Hint: {str(error['hint'])[:_MAX_MESSAGE_LENGTH]}")
    retry = reply.header("retry-after")
    if retry is not None:
        lines.append(f"Try again after {retry} s.")
    return "\n".join(lines)


def _error_member(body: bytes) -> Mapping[str, Any] | None:
    try:
        found = msgspec.json.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    error = found.get("error") if isinstance(found, dict) else None
    # In Logflare's error format, the member `error` is a text.
    return {"message": error} if isinstance(error, str) else error if isinstance(error, dict) else None


def _excerpt(query: str | None, line: int, column: int) -> list[str]:
    """Return the line of the query with a caret below the position."""
    lines = (query or "").splitlines()
    if not 1 <= line <= len(lines) or column > _MAX_LINE_LENGTH:
        return []
    text = lines[line - 1][:_MAX_LINE_LENGTH].replace("\t", " ")
    return [f"  {text}", f"  {' ' * (column - 1)}^"]
