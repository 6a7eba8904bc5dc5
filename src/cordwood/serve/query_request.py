"""A request for an endpoint: the caller, raw parameters, the sandbox query and the answer format."""

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from itertools import count
from typing import Annotated

import msgspec

from cordwood.logql.syntax import decode_request
from cordwood.model.datatype import LastRow, Rows
from cordwood.model.definitions import Endpoint
from cordwood.model.key import Caller
from cordwood.sql.paging import PAGE_SIZE_ROUNDING_BASE, Page


class QueryLanguage(StrEnum):
    """The language of a sandbox query."""

    SQL = "sql"
    LQL = "lql"
    LOGQL = "logql"


class SandboxQuery(msgspec.Struct, frozen=True, array_like=True):
    """A sandbox query: its language and its text.

    For LogQL, `text` is an encoded `LogqlRequest`.
    """

    language: QueryLanguage
    text: str

    @property
    def written_text(self) -> str:
        """The text of the query as the caller wrote it."""
        return "\n".join(decode_request(self.text).queries) if self.language is QueryLanguage.LOGQL else self.text


class AnswerFormat(msgspec.Struct, frozen=True):
    """An answer format. `encode` yields the body in chunks while rows arrive.

    `is_streamable` is true if clients can process the first chunks before the last chunk arrives.
    """

    name: str
    media_type: str
    encode: Callable[[Rows], Iterator[bytes]]
    is_streamable: bool = False


_RowCount = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class PagePosition(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The position where the next page of an answer begins.

    `as_of_us` is the time as of which the query runs: the time of the first page. If `last_row` is set, the page begins
    after that row, otherwise after `skipped_rows` rows. `remaining_rows` is the number of rows that the query's own
    LIMIT still permits.
    """

    as_of_us: int
    skipped_rows: _RowCount
    last_row: LastRow | None = None
    remaining_rows: _RowCount | None = None


class QueryRequest(msgspec.Struct, frozen=True):
    """A request for the answer of an endpoint.

    - `is_redaction_requested`: whether to redact the answer; None leaves the choice to the endpoint.
    - `bypasses_cache`: the answer must not come from the cache.
    - `is_ad_hoc`: the endpoint was made for this request only.
    - `page_size`: the requested page size.
    - `position`: the start of the page, or None for the first page.
    - `returns_next_cursor`: an answer that is cut off gets a cursor for the next page.
    - `is_paging_requested`: the caller requests pages, so the rows must be in a total order from the first page on.
    - `is_feed_page`: the request is for rows of a followed query.
    - `anonymous_account`: the account of a caller without a key.
    - `ignored_parameters`: the names of unknown request parameters.
    """

    endpoint: Endpoint
    caller: Caller
    format: AnswerFormat
    parameters: Mapping[str, str] = msgspec.field(default_factory=dict)
    sandbox: SandboxQuery | None = None
    is_redaction_requested: bool | None = None
    bypasses_cache: bool = False
    is_ad_hoc: bool = False
    page_size: int | None = None
    position: PagePosition | None = None
    returns_next_cursor: bool = False
    is_paging_requested: bool = False
    is_feed_page: bool = False
    anonymous_account: str = ""
    ignored_parameters: tuple[str, ...] = ()

    @property
    def account(self) -> str:
        """The account that is charged for the run: the key id, or `anonymous_account` without a key."""
        return self.anonymous_account or self.caller.key_id

    @property
    def is_caller_written(self) -> bool:
        """Whether the caller wrote the query (sandbox or ad hoc), so that its cost is not known in advance."""
        return self.is_ad_hoc or self.sandbox is not None

    @property
    def sorted_pins(self) -> tuple[tuple[str, str], ...]:
        """The pins of the caller's key, in sorted order.

        Notices, and the columns that `*` selects, contain only names that occur in events matching these pins.
        """
        return self.caller.sorted_pins

    @property
    def max_rows(self) -> int:
        """The maximum number of rows of the answer."""
        return self.page_size or self.endpoint.max_rows

    @property
    def page(self) -> Page:
        """The page for which the statement is compiled.

        It may be larger than the requested page, so that requests with similar page sizes share a statement.
        """
        position = self.position
        if self.is_feed_page:
            return Page(is_of_followed_query=True)
        sizes = (PAGE_SIZE_ROUNDING_BASE**power for power in count(1))
        rows = None if self.page_size is None else next(size for size in sizes if size >= self.page_size)
        if position is None:
            return Page(rows, is_paging_requested=self.is_paging_requested)
        remaining = position.remaining_rows
        return Page(
            rows,
            position.skipped_rows if position.last_row is None else position.last_row.tied_row_count,
            position.last_row is not None,
            remaining if remaining is not None and remaining <= self.max_rows else None,
            is_paging_requested=True,
        )

    @property
    def is_redacted(self) -> bool:
        if self.caller.redact_always or self.is_redaction_requested is None:
            return self.caller.redact_always or self.endpoint.redact_pii
        return self.is_redaction_requested
