"""The service's errors as an agent reads them: the code, the message, the place in its query, and what to do."""

from collections.abc import Mapping
from typing import Any

import msgspec

from cordwood.agents.api import Reply
from cordwood.errors import Fault

_LONGEST_LINE = 200
_LONGEST_MESSAGE = 4000


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
