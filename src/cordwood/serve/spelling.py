"""Asks that were answered before: the identity of each, found without compiling it again."""

from collections import OrderedDict
from hashlib import sha256

import msgspec

from cordwood.serve.ask import Ask
from cordwood.serve.prepared import StatementKey

MOST_SPELLINGS = 20_000


def spelling(ask: Ask, compiled_from: StatementKey) -> bytes:
    """Return a digest of all that the answer is made from: what is compiled, for whom, and the raw values."""
    endpoint = ask.endpoint
    values = [ask.parameters.get(parameter.name) for parameter in endpoint.parameters]
    said = (endpoint.id.bytes, compiled_from, values, ask.format.name, ask.knows)
    return sha256(msgspec.msgpack.encode(said)).digest()


class Spellings:
    """What each spelling was compiled to, for a while.

    A statement depends on the shapes of its streams, too, so the same spelling may have another identity later. An
    answer that is kept stays good for the rest of its lifetime; after that the spelling has to be compiled again.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, tuple[bytes, int]] = OrderedDict()

    def find(self, spelled: bytes, now_us: int) -> bytes | None:
        """Return the identity, unless the spelling was compiled too long ago, or never."""
        known = self._known.get(spelled)
        return None if known is None or now_us >= known[1] else known[0]

    def note(self, spelled: bytes, key: bytes, until_us: int) -> None:
        self._known[spelled] = (key, until_us)
        self._known.move_to_end(spelled)
        if len(self._known) > MOST_SPELLINGS:
            self._known.popitem(last=False)
