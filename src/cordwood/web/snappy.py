"""Decompress the block format of Snappy, within limits of size and time.

The format: https://github.com/google/snappy/blob/main/format_description.txt
"""

from collections.abc import Callable
from typing import Final

from cordwood.errors import BadBody, TooLarge

# The maximum number of elements, which are literals or copies. A body of two million short elements takes about a
# second; 16 MiB of compressed text have fewer.
MAX_ELEMENTS: Final = 2_000_000
# The maximum bytes of the uncompressed length at the beginning, a varint of 32 bits.
_LENGTH_BYTES: Final = 5
# By tag: the length of the element in the body. The two low bits of a tag are the kind of element: 0 is a literal, 1 to
# 3 are copies with an offset of 11, 16 and 32 bits. The length of a literal of more than 60 bytes is in the bytes after
# its tag.
_SIZES: Final = tuple((tag >> 2 & 7) + 4 if tag & 3 == 1 else (tag >> 2) + 1 for tag in range(256))


def decompress(block: bytes, max_bytes: int, on_growth: Callable[[int], object]) -> bytes:
    """Return the content of a block. `on_growth` is called with the announced length before memory is allocated."""
    length, position = _read_length(block)
    if length > max_bytes:
        raise TooLarge(f"The body inflates to more than {max_bytes // 2**20} MiB.", hint="Send less at once.")
    on_growth(length)
    try:
        content = _content(block, position, length)
    except IndexError:
        raise _broken() from None
    if len(content) != length:
        raise _broken()
    return bytes(content)


def _read_length(block: bytes) -> tuple[int, int]:
    """Return the announced length of the content, and the position of the first element."""
    length = 0
    for place, byte in enumerate(block[:_LENGTH_BYTES]):
        length |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return length, place + 1
    raise _broken()


def _content(block: bytes, position: int, length: int) -> bytearray:
    """Return the content of the elements from position `position` on, at most a few bytes more than `length`."""
    content = bytearray()
    end, left = len(block), MAX_ELEMENTS
    while position < end:
        tag = block[position]
        size, kind = _SIZES[tag], tag & 3
        if kind == 0:
            begin, size = (position + 1, size) if size <= 60 else _long_literal(block, position, size)
            position = begin + size
            content += block[begin:position]
        else:
            if kind == 2:
                offset = block[position + 1] | block[position + 2] << 8
                position += 3
            elif kind == 1:
                offset = (tag & 0xE0) << 3 | block[position + 1]
                position += 2
            else:
                offset = int.from_bytes(block[position + 1 : position + 5], "little")
                position += 5
            begin = len(content) - offset
            content += (
                content[begin : begin + size]
                if begin >= 0 and size <= offset
                else _overlapping_copy(content, begin, size)
            )
        left -= 1
        if len(content) > length or position > end or left < 0:
            raise _broken() if left >= 0 else _too_many()
    return content


def _overlapping_copy(content: bytearray, begin: int, size: int) -> bytearray:
    """Return the bytes of a copy that overlaps its own output, which repeats the last bytes of the content."""
    offset = len(content) - begin
    if begin < 0 or offset == 0:
        raise _broken()
    return (content[begin:] * (size // offset + 1))[:size]


def _long_literal(block: bytes, position: int, size: int) -> tuple[int, int]:
    """Return the position and the length of the bytes of a long literal."""
    begin = position + 1 + size - 60
    return begin, int.from_bytes(block[position + 1 : begin], "little") + 1


def _broken() -> BadBody:
    return BadBody("The body is not snappy, or it is broken.", hint="Send the block format, without frames.")


def _too_many() -> TooLarge:
    return TooLarge(f"The body has more than {MAX_ELEMENTS} compressed elements.", hint="Send less at once.")
