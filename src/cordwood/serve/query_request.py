"""A request for an endpoint: the caller, raw parameters, the sandbox query and the answer format."""

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from itertools import count
from typing import Annotated

import msgspec

from cordwood.logql.syntax import read_request
from cordwood.model.datatype import LastRow, Rows
from cordwood.model.definitions import Endpoint
from cordwood.model.key import Caller
from cordwood.sql.paging import SIZE_STEP, Page


class Language(StrEnum):
    """The language of a sandbox query."""

    SQL = "sql"
    LQL = "lql"
    LOGQL = "logql"


class SandboxText(msgspec.Struct, frozen=True, array_like=True):
    """The text of a sandbox query. For LogQL it is the encoded `LogqlRequest`."""

    language: Language
    text: str

    @property
    def written(self) -> str:
        """The query as the caller wrote it."""
        return "\n".join(read_request(self.text).queries) if self.language is Language.LOGQL else self.text


class Format(msgspec.Struct, frozen=True):
    """An answer format. `encode` yields the body in chunks while rows arrive.

    `streams` is true if clients can process the first chunks before the last one is written.
    """

    name: str
    media_type: str
    encode: Callable[[Rows], Iterator[bytes]]
    streams: bool = False


_Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class Position(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Where the next page of an answer begins.

    `now_us` is the time of the first page. If `last_row` is set, the page begins after that row, otherwise after `skip`
    rows. `remaining` is the number of rows that are left of the query's own LIMIT.
    """

    now_us: int
    skip: _Count
    last_row: LastRow | None = None
    remaining: _Count | None = None


class QueryRequest(msgspec.Struct, frozen=True):
    """A request for the answer of an endpoint.

    `redact` is None if redaction is left to the endpoint. `fresh` bypasses the cache. `is_ad_hoc` is true for an
    endpoint that was made for this request. `page_rows` is the requested page size, and `position` the start of the
    page, None for the first page. `tells_next` is true if a cut answer has a cursor for the next page, and `is_paged`
    if the caller requests pages, so that the rows must be in a total order from the first page on. `follows` is true
    for rows of a followed query. `counted_as` is the account of a caller without a key. `ignored` lists the request
    parameters that are not known.
    """

    endpoint: Endpoint
    caller: Caller
    format: Format
    parameters: Mapping[str, str] = msgspec.field(default_factory=dict)
    sandbox: SandboxText | None = None
    redact: bool | None = None
    fresh: bool = False
    is_ad_hoc: bool = False
    page_rows: int | None = None
    position: Position | None = None
    tells_next: bool = False
    is_paged: bool = False
    follows: bool = False
    counted_as: str = ""
    ignored: tuple[str, ...] = ()

    @property
    def account(self) -> str:
        """The account that is charged for the run: the key id, or its substitute for a caller without a key."""
        return self.counted_as or self.caller.key_id

    @property
    def is_callers_own(self) -> bool:
        """Whether the caller wrote the query (sandbox or ad hoc), so that its cost is not known in advance."""
        return self.is_ad_hoc or self.sandbox is not None

    @property
    def pin_items(self) -> tuple[tuple[str, str], ...]:
        """The pins of the key. Only the column names of events that match them appear in `*` and in notices."""
        return self.caller.pin_items

    @property
    def max_rows(self) -> int:
        """The maximum number of rows of the answer."""
        return self.page_rows or self.endpoint.max_rows

    @property
    def page(self) -> Page:
        """The page for which the statement is compiled, which may be larger than the requested one."""
        position = self.position
        if self.follows:
            return Page(follows=True)
        sizes = (SIZE_STEP**power for power in count(1))
        rows = None if self.page_rows is None else next(size for size in sizes if size >= self.page_rows)
        if position is None:
            return Page(rows, is_requested=self.is_paged)
        remaining = position.remaining
        return Page(
            rows,
            position.skip if position.last_row is None else position.last_row.rows,
            position.last_row is not None,
            remaining if remaining is not None and remaining <= self.max_rows else None,
            is_requested=True,
        )

    @property
    def redacts(self) -> bool:
        if self.caller.redact_always or self.redact is None:
            return self.caller.redact_always or self.endpoint.redact_pii
        return self.redact
