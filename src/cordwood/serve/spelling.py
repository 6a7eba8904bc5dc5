"""Index from request digest to cache key, so that a repeated request is found without compiling it again."""

from collections import OrderedDict
from hashlib import sha256

import msgspec

from cordwood.serve.ask import Ask
from cordwood.serve.prepared import StatementKey

MOST_SPELLINGS = 20_000


def spelling(ask: Ask, compiled_from: StatementKey) -> bytes:
    """Return a digest of the inputs of an answer: the inputs of its compilation, the raw values, pins and format."""
    endpoint = ask.endpoint
    values = [ask.parameters.get(parameter.name) for parameter in endpoint.parameters]
    said = (endpoint.id.bytes, compiled_from, values, ask.format.name, ask.knows)
    return sha256(msgspec.msgpack.encode(said)).digest()


class Spellings:
    """The cache key of each request digest, until its answer expires.

    The cache key also depends on the shapes of the streams, so the same request may get another one later. The cached
    answer stays valid for the rest of its lifetime; after that the request has to be compiled again.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, tuple[bytes, int]] = OrderedDict()

    def find(self, spelled: bytes, now_us: int) -> bytes | None:
        """Return the cache key; None if the request was not compiled, or its answer has expired."""
        known = self._known.get(spelled)
        return None if known is None or now_us >= known[1] else known[0]

    def note(self, spelled: bytes, key: bytes, until_us: int) -> None:
        self._known[spelled] = (key, until_us)
        self._known.move_to_end(spelled)
        if len(self._known) > MOST_SPELLINGS:
            self._known.popitem(last=False)
