"""A complete answer: its bytes and its receipt."""

from collections.abc import Callable
from functools import cached_property
from hashlib import blake2b

import msgspec

from cordwood.bounded_cache import bytes_of


class Receipt(msgspec.Struct, frozen=True, dict=True):
    """The facts about an answer when it was made. `truncated` names the limit that cut it."""

    rows: int
    truncated: str | None
    notices: tuple[str, ...]
    revision: str
    made_us: int
    compile_seconds: float
    engine_seconds: float

    @cached_property
    def timing(self) -> bytes:
        """The value of the Server-Timing header."""
        made = self.compile_seconds * 1000, self.engine_seconds * 1000
        return b"compile;dur=%.3f, engine;dur=%.3f" % made


class Finished(msgspec.Struct):
    """A complete answer body.

    `codings` holds it compressed, by content coding, once a caller has requested that coding. `heads` holds the
    rendered HTTP headers by coding; the empty coding is the uncompressed body.
    """

    body: bytes
    receipt: Receipt
    etag: str = ""
    size: int = 0
    codings: dict[str, bytes] = msgspec.field(default_factory=dict)
    heads: dict[str, bytes] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        self.etag = blake2b(self.body, digest_size=16).hexdigest()
        self.size = len(self.body) + bytes_of(self.receipt.notices)

    def coded(self, coding: str, compress: Callable[[bytes, str], bytes]) -> bytes:
        if coding not in self.codings:
            body = compress(self.body, coding)
            # Another thread may have compressed it meanwhile.
            if coding not in self.codings:
                self.codings[coding] = body
                self.size += len(body)
        return self.codings[coding]
