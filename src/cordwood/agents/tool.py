"""Tools for agents: descriptions and arguments of tools, errors of calls, and answers of limited size.

An answer tells the agent what was left out. The arguments of a tool are a struct: both their JSON Schema and their
validation are derived from it.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import islice
from typing import Any, Final, TypeVar
from urllib.parse import quote

import msgspec

from cordwood.agents.api import ApiCall, ApiClient, ApiResponse, BodyCollector, QueryableEndpoint
from cordwood.errors import Fault, did_you_mean

ToolArguments = Mapping[str, Any]
RunTool = Callable[[ApiClient, ToolArguments], Awaitable[object]]

T = TypeVar("T")

_MAX_QUOTED_QUERY_LINE_LENGTH = 200
_MAX_ERROR_MESSAGE_LENGTH = 4000


class Tool(msgspec.Struct, frozen=True):
    """A tool that an agent can call. `run` returns the result of a call, which is sent as JSON."""

    name: str
    title: str
    description: str
    argument_schema: dict[str, Any]
    run: RunTool


def argument_schema(kind: type, **choices: Sequence[str]) -> dict[str, Any]:
    """Return the JSON Schema of the argument struct `kind`.

    `choices` has the permitted values of arguments whose values are known only at run time.
    """
    document = msgspec.json.schema(kind)
    schema: dict[str, Any] = document["$defs"][document["$ref"].rpartition("/")[2]]
    properties = {
        name: {**member, **({"enum": list(choices[name])} if choices.get(name) else {})}
        for name, member in schema["properties"].items()
    }
    required = {"required": schema["required"]} if schema.get("required") else {}
    return {"type": "object", "properties": properties, **required, "additionalProperties": False}


def convert_arguments(kind: type[T], raw_arguments: ToolArguments) -> T:
    """Convert the arguments of a call to the struct `kind`; raise RefusedCallError if they are invalid."""
    fields: tuple[str, ...] = kind.__struct_fields__  # type: ignore[attr-defined] # a struct
    require_known_arguments(raw_arguments, fields)
    try:
        return msgspec.convert(dict(raw_arguments), kind)
    except msgspec.ValidationError as problem:
        raise RefusedCallError(f"The arguments are wrong: {problem}.") from problem


def require_known_arguments(raw_arguments: ToolArguments, names: Sequence[str]) -> None:
    """Raise RefusedCallError for an argument that is not in `names`."""
    for name in raw_arguments:
        if name not in names:
            known = "The tool has: " + ", ".join(names) + "." if names else "The tool has none."
            hint = did_you_mean(name, names) or known
            raise RefusedCallError(f"There is no argument {name[:60]!r}. {hint}")


class RefusedCallError(Exception):
    """The error of a call that the service or the tool has refused. `text` is shown to the agent."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.message_for_agent = text


def refused_call_error(reply: ApiResponse, query: str | None = None) -> RefusedCallError:
    """Return the error that reports an unsuccessful response to the agent.

    `query` is the query that was sent. The error shows the position of a mistake in it.
    """
    return RefusedCallError(_error_text(reply, query))


def fault_text(fault: Fault) -> str:
    """Return the text that reports an error of this process to the agent."""
    return f"{fault.code}: {fault.one_line_text()}"


def _error_text(reply: ApiResponse, query: str | None) -> str:
    error = _decode_error_object(reply.error_body)
    if error is None:
        return f"The service answered with status {reply.status}."
    lines = [f"{error.get('status', reply.status)}: {str(error.get('message', ''))[:_MAX_ERROR_MESSAGE_LENGTH]}"]
    line, column = error.get("line"), error.get("column")
    if isinstance(line, int) and isinstance(column, int):
        lines += [f"Place: line {line}, column {column}.", *_query_line_with_caret(query, line, column)]
    if error.get("hint"):
        lines.append(f"Hint: {str(error['hint'])[:_MAX_ERROR_MESSAGE_LENGTH]}")
    retry = reply.first_header_value("retry-after")
    if retry is not None:
        lines.append(f"Try again after {retry} s.")
    return "\n".join(lines)


def _decode_error_object(body: bytes) -> Mapping[str, Any] | None:
    try:
        found = msgspec.json.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    error = found.get("error") if isinstance(found, dict) else None
    # In Logflare's error format, the member `error` is a string instead of an object.
    return {"message": error} if isinstance(error, str) else error if isinstance(error, dict) else None


def _query_line_with_caret(query: str | None, line: int, column: int) -> list[str]:
    """Return the line of the query, and a line with a caret below the column."""
    lines = (query or "").splitlines()
    if not 1 <= line <= len(lines) or column > _MAX_QUOTED_QUERY_LINE_LENGTH:
        return []
    text = lines[line - 1][:_MAX_QUOTED_QUERY_LINE_LENGTH].replace("\t", " ")
    return [f"  {text}", f"  {' ' * (column - 1)}^"]


NDJSON_MEDIA_TYPE: Final = "application/x-ndjson"
_MAX_NOTICES: Final = 20
_MAX_NOTICE_LENGTH: Final = 300
_AD_HOC_QUERY_PATH: Final = "/api/query"
DEFAULT_MAX_ROWS: Final = 50
MAX_ANSWER_ROWS: Final = 1000
# The maximum bytes of all rows of an answer as JSON. They correspond to about ten thousand tokens of a language model.
MAX_ANSWER_ROWS_BYTES: Final = 40_000
# The maximum bytes of one line, which is one row, in a response. A longer row ends the reading.
MAX_RESPONSE_LINE_BYTES: Final = 2 * 2**20
# The maximum number of bytes that are read of one response. Every row that is read must be decoded, which takes time.
MAX_RESPONSE_BYTES: Final = 8 * 2**20
_ROW_EXCERPT_BYTES: Final = 2000


class ToolAnswerLimits(msgspec.Struct, frozen=True):
    """The maximum number of rows in an answer, and the maximum bytes of these rows together as JSON."""

    max_rows: int
    max_bytes: int = MAX_ANSWER_ROWS_BYTES


async def fetch_endpoint_rows(
    api: ApiClient,
    endpoint: QueryableEndpoint,
    parameters: Mapping[str, object],
    bounds: ToolAnswerLimits,
    query: str | None = None,
) -> dict[str, Any]:
    """Query an endpoint; return its rows, with notes about what was left out.

    `bounds` limits the number and size of the rows. If the agent wrote a query of its own, it is among `parameters`,
    and also given as `query`, so that errors can quote it.
    """
    call = ApiCall(f"/api/endpoints/query/{quote(endpoint.name, safe='')}", parameters, NDJSON_MEDIA_TYPE)
    return await _fetch_rows(api, call, bounds, endpoint.max_limit, query)


async def fetch_stream_rows(api: ApiClient, sql: str, bounds: ToolAnswerLimits) -> dict[str, Any]:
    """Run an SQL query over whole streams; return its rows, with notes about what was left out."""
    return await _fetch_rows(
        api, ApiCall(_AD_HOC_QUERY_PATH, {"sql": sql}, NDJSON_MEDIA_TYPE), bounds, MAX_ANSWER_ROWS, sql
    )


async def fetch_json_document(api: ApiClient, path: str) -> Any:
    """Send a GET request and return its JSON; raise RefusedCallError if the request is refused.

    Raise RefusedByService if the body is too large or is not JSON.
    """
    body = BodyCollector()
    reply = await api.send(ApiCall(path), body.add_chunk)
    if reply.status >= 400:
        raise refused_call_error(reply)
    return body.decode_json()


async def _fetch_rows(
    api: ApiClient, call: ApiCall, bounds: ToolAnswerLimits, limit: int, query: str | None
) -> dict[str, Any]:
    rows = RowCollector(bounds)
    reply = await api.send(call, rows.add_chunk)
    if reply.status >= 400:
        raise refused_call_error(reply, query)
    if not (reply.first_header_value("content-type") or "").startswith(NDJSON_MEDIA_TYPE):
        # In Logflare's error format, the response to a failed query has the status 200, and its body is an error
        # instead of rows.
        raise refused_call_error(ApiResponse(reply.status, reply.headers, rows.unfinished_line), query)
    # The note about omitted rows comes before the rows, so that the agent reads it first.
    result: dict[str, Any] = {"row_count": len(rows.rows)}
    cut = rows.truncation_reason or _service_truncation_reason(
        reply.first_header_value("cordwood-truncated"), len(rows.rows), limit
    )
    if cut is not None:
        result["truncated"] = f"Not all rows are here: {cut}. Narrow or aggregate the query to see the rest."
    if rows.has_shortened_values:
        result["shortened"] = "Long values are shortened, which is marked with …. Select a part of them to see it."
    notices = [notice[:_MAX_NOTICE_LENGTH] for notice in reply.header_values("cordwood-notice")[:_MAX_NOTICES]]
    return {**result, **({"notices": notices} if notices else {}), "rows": rows.rows}


def _service_truncation_reason(truncated: str | None, count: int, limit: int) -> str | None:
    """Return the reason why the service left out rows, or None if it left out none.

    `truncated` is the reason in the header of the response. A streamed answer lacks this header, because its headers
    are sent before the rows. So an answer whose `count` of rows reaches `limit` is reported as possibly incomplete.
    """
    if truncated is not None:
        return f"the service cut them at {truncated}"
    return f"the service answers with at most {limit} rows, and there may be more" if count >= limit else None


class ShorteningLimits(msgspec.Struct, frozen=True):
    """The maximum lengths of strings, arrays and objects in a row. Longer ones are shortened."""

    max_characters: int
    max_elements: int
    max_members: int


# These limits are tried in order, until the shortened row is small enough.
_SHORTENING_LIMITS_LOOSEST_FIRST: Final = (
    ShorteningLimits(max_characters=2000, max_elements=200, max_members=200),
    ShorteningLimits(max_characters=200, max_elements=10, max_members=40),
    ShorteningLimits(max_characters=80, max_elements=3, max_members=12),
)


class RowCollector:
    """Collects rows of NDJSON as they arrive, until a limit is reached, which `truncation_reason` then names."""

    def __init__(self, bounds: ToolAnswerLimits) -> None:
        self.rows: list[msgspec.Raw] = []
        self.truncation_reason: str | None = None
        self.has_shortened_values = False
        self._answer_limits = bounds
        self._collected_row_bytes = 0
        self._received_bytes = 0
        self._partial_line = bytearray()

    @property
    def unfinished_line(self) -> bytes:
        """The data received after the last line feed.

        Each row of NDJSON ends with a line feed. If data are left at the end of the body, the body is not complete
        NDJSON.
        """
        return bytes(self._partial_line)

    def add_chunk(self, chunk: bytes) -> bool:
        """Add a chunk of the body; return False if a limit was reached, so that no more chunks are needed."""
        begin = 0
        self._received_bytes += len(chunk)
        while self.truncation_reason is None and (end := chunk.find(b"\n", begin)) >= 0:
            self._partial_line += chunk[begin:end]
            self._add_row(bytes(self._partial_line))
            self._partial_line.clear()
            begin = end + 1
        if self.truncation_reason is None:
            self._partial_line += chunk[begin:]
            if len(self._partial_line) > MAX_RESPONSE_LINE_BYTES:
                self.truncation_reason = (
                    f"the next row is larger than {MAX_RESPONSE_LINE_BYTES // 2**20} MiB and was not read"
                )
            elif self._received_bytes > MAX_RESPONSE_BYTES:
                self.truncation_reason = (
                    f"the rows are larger than {MAX_RESPONSE_BYTES // 2**20} MiB before they are shortened"
                )
        return self.truncation_reason is None

    def _add_row(self, line: bytes) -> None:
        if not line:
            return
        if len(self.rows) >= self._answer_limits.max_rows:
            self.truncation_reason = f"there are more rows than max_rows={self._answer_limits.max_rows}"
            return
        encoded = self._encode_shortened(line)
        if self._collected_row_bytes + len(encoded) > self._answer_limits.max_bytes and self.rows:
            self.truncation_reason = f"the rows are larger than {self._answer_limits.max_bytes} bytes together"
            return
        self._collected_row_bytes += len(encoded)
        self.rows.append(msgspec.Raw(encoded))

    def _encode_shortened(self, line: bytes) -> bytes:
        """Return the row as JSON, with long values shortened until it takes at most half of an answer's maximum size.

        If that is not possible, return only the beginning of the row as a text.
        """
        try:
            row = msgspec.json.decode(line)
            for shortening in _SHORTENING_LIMITS_LOOSEST_FIRST:
                short, is_shortened = shorten_value(row, shortening)
                encoded = msgspec.json.encode(short)
                if len(encoded) <= self._answer_limits.max_bytes // 2:
                    self.has_shortened_values = self.has_shortened_values or is_shortened
                    return encoded
        except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError):
            # msgspec cannot decode this row, because a number in it is too large or it is nested too deeply. Therefore
            # return only the beginning of the row, see below.
            pass
        self.has_shortened_values = True
        return msgspec.json.encode({"beginning_of_the_row": line[:_ROW_EXCERPT_BYTES].decode("utf-8", "replace")})


def shorten_value(value: Any, shortening: ShorteningLimits) -> tuple[Any, bool]:
    """Return the value with long strings, arrays and objects shortened, and whether anything was shortened."""
    if isinstance(value, str):
        return _shorten_text(value, shortening.max_characters)
    if isinstance(value, list):
        return _shorten_array(value, shortening)
    return _shorten_object(value, shortening) if isinstance(value, dict) else (value, False)


def _shorten_text(text: str, max_characters: int) -> tuple[str, bool]:
    if len(text) <= max_characters:
        return text, False
    return f"{text[:max_characters]}… ({len(text)} characters)", True


def _shorten_array(array: list[Any], shortening: ShorteningLimits) -> tuple[list[Any], bool]:
    pairs = [shorten_value(element, shortening) for element in array[: shortening.max_elements]]
    is_cut = len(pairs) < len(array)
    if is_cut:
        pairs.append((f"… ({len(array)} elements)", True))
    return [element for element, _ in pairs], any(is_short for _, is_short in pairs)


def _shorten_object(members: dict[str, Any], shortening: ShorteningLimits) -> tuple[dict[str, Any], bool]:
    pairs = {
        name: shorten_value(member, shortening) for name, member in islice(members.items(), shortening.max_members)
    }
    if len(pairs) < len(members):
        pairs["…"] = f"({len(members)} members)", True
    return {name: member for name, (member, _) in pairs.items()}, any(is_short for _, is_short in pairs.values())
