"""The rows of an answer within the bounds of an agent: taken as they arrive, shortened, and cut with a statement of it."""

from itertools import islice
from typing import Any, Final

import msgspec

DEFAULT_ROWS: Final = 50
MOST_ROWS: Final = 1000
# All rows of one answer as JSON: ten thousand tokens or so.
MOST_BYTES: Final = 40_000
# A row that is longer than this as it arrives is not read.
MOST_LINE_BYTES: Final = 2 * 2**20
# No more than this is read of an answer, since each row is decoded to be shortened.
MOST_READ_BYTES: Final = 8 * 2**20


class Bounds(msgspec.Struct, frozen=True):
    """The most rows of an answer, and their bytes as JSON together."""

    rows: int
    bytes: int = MOST_BYTES


class Shortening(msgspec.Struct, frozen=True):
    """The longest text, array and object that are left as they are."""

    letters: int
    elements: int
    members: int


# From the first to the last until a row fits.
_SHORTENINGS: Final = (
    Shortening(letters=2000, elements=200, members=200),
    Shortening(letters=200, elements=10, members=40),
    Shortening(letters=80, elements=3, members=12),
)
_SHOWN_LETTERS: Final = 2000


class AgentRows:
    """Collects rows in NDJSON as they arrive, until a bound is reached; `cut` says which."""

    def __init__(self, bounds: Bounds) -> None:
        self.rows: list[msgspec.Raw] = []
        self.cut: str | None = None
        self.is_shortened = False
        self._most = bounds
        self._bytes = 0
        self._read_bytes = 0
        self._line = bytearray()

    @property
    def unfinished(self) -> bytes:
        """The last line if it has no end: an answer that is something else than rows."""
        return bytes(self._line)

    def take(self, piece: bytes) -> bool:
        """Add a piece of the body; return False if no more rows are needed."""
        begin = 0
        self._read_bytes += len(piece)
        while self.cut is None and (end := piece.find(b"\n", begin)) >= 0:
            self._line += piece[begin:end]
            self._add(bytes(self._line))
            self._line.clear()
            begin = end + 1
        if self.cut is None:
            self._line += piece[begin:]
            if len(self._line) > MOST_LINE_BYTES:
                self.cut = f"the next row is larger than {MOST_LINE_BYTES // 2**20} MiB and was not read"
            elif self._read_bytes > MOST_READ_BYTES:
                self.cut = f"the rows are larger than {MOST_READ_BYTES // 2**20} MiB before they are shortened"
        return self.cut is None

    def _add(self, line: bytes) -> None:
        if not line:
            return
        if len(self.rows) >= self._most.rows:
            self.cut = f"there are more rows than max_rows={self._most.rows}"
            return
        encoded = self._encoded(line)
        if self._bytes + len(encoded) > self._most.bytes and self.rows:
            self.cut = f"the rows are larger than {self._most.bytes} bytes together"
            return
        self._bytes += len(encoded)
        self.rows.append(msgspec.Raw(encoded))

    def _encoded(self, line: bytes) -> bytes:
        """Return the row as JSON with long values shortened, more so if it would be too large."""
        try:
            row = msgspec.json.decode(line)
            for shortening in _SHORTENINGS:
                short, is_shortened = shortened(row, shortening)
                encoded = msgspec.json.encode(short)
                if len(encoded) <= self._most.bytes // 2:
                    self.is_shortened = self.is_shortened or is_shortened
                    return encoded
        except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError):
            # A number or a nesting that only other decoders read.
            pass
        self.is_shortened = True
        return msgspec.json.encode({"beginning_of_the_row": line[:_SHOWN_LETTERS].decode("utf-8", "replace")})


def shortened(value: Any, shortening: Shortening) -> tuple[Any, bool]:
    """Return the value with long texts, arrays and objects shortened, and whether any was."""
    if isinstance(value, str):
        return _short_text(value, shortening.letters)
    if isinstance(value, list):
        return _short_array(value, shortening)
    return _short_object(value, shortening) if isinstance(value, dict) else (value, False)


def _short_text(text: str, letters: int) -> tuple[str, bool]:
    if len(text) <= letters:
        return text, False
    return f"{text[:letters]}… ({len(text)} characters)", True


def _short_array(array: list[Any], shortening: Shortening) -> tuple[list[Any], bool]:
    pairs = [shortened(element, shortening) for element in array[: shortening.elements]]
    is_cut = len(pairs) < len(array)
    if is_cut:
        pairs.append((f"… ({len(array)} elements)", True))
    return [element for element, _ in pairs], any(is_short for _, is_short in pairs)


def _short_object(members: dict[str, Any], shortening: Shortening) -> tuple[dict[str, Any], bool]:
    pairs = {name: shortened(member, shortening) for name, member in islice(members.items(), shortening.members)}
    if len(pairs) < len(members):
        pairs["…"] = f"({len(members)} members)", True
    return {name: member for name, (member, _) in pairs.items()}, any(is_short for _, is_short in pairs.values())
