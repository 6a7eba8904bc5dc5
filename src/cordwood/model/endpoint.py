"""A saved query with its settings, as its file states them."""

from uuid import UUID

import msgspec

from cordwood.model.parameter import Parameter


class Endpoint(msgspec.Struct, frozen=True):
    """`revision` is a digest of the whole file: any change of it is another endpoint to the cache.

    `body_line` is the line of the file on which `sql` begins, so that places can be told in the file.
    `zone` is where the days of LQL's `t:today` and its like begin.
    """

    name: str
    id: UUID
    sql: str
    revision: str
    file: str = ""
    body_line: int = 1
    description: str = ""
    max_rows: int = 1000
    cache_seconds: float = 0.0
    warm_seconds: float | None = None
    timeout_seconds: float | None = None
    sandbox: bool = False
    redact_pii: bool = False
    redact_mode: str = "replace"
    auth: bool = True
    zone: str = "UTC"
    parameters: tuple[Parameter, ...] = ()
