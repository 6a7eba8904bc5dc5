"""FARM_FINGERPRINT: FarmHash's Fingerprint64, as a signed number."""

from typing import Final

_K0: Final = 0xC3A5C85C97CB3127
_K1: Final = 0xB492B66FBE98F273
_K2: Final = 0x9AE16A3B2F90404F
_WORD: Final = (1 << 64) - 1
_BLOCK: Final = 64

Pair = tuple[int, int]


def farm_fingerprint(data: bytes) -> int:
    value = _short(data) if len(data) <= _BLOCK else _long(data)
    return value - (1 << 64) if value >> 63 else value


def _fetch(data: bytes, at: int, size: int = 8) -> int:
    return int.from_bytes(data[at : at + size], "little")


def _rotate(value: int, by: int) -> int:
    value &= _WORD
    return (value >> by | value << (64 - by)) & _WORD


def _shift_mix(value: int) -> int:
    value &= _WORD
    return value ^ (value >> 47)


def _both(first: int, second: int, factor: int) -> int:
    mixed = _shift_mix((first ^ second) * factor)
    return _shift_mix((second ^ mixed) * factor) * factor & _WORD


def _short(data: bytes) -> int:
    size = len(data)
    factor = _K2 + size * 2
    if size > 32:
        return _up_to_64(data, factor)
    if size > 16:
        return _up_to_32(data, factor)
    if size >= 8:
        first, second = _fetch(data, 0) + _K2, _fetch(data, size - 8)
        return _both(
            (_rotate(second, 37) * factor + first) & _WORD, (_rotate(first, 25) + second) * factor & _WORD, factor
        )
    if size >= 4:
        return _both(size + (_fetch(data, 0, 4) << 3), _fetch(data, size - 4, 4), factor)
    return _tiny(data) if data else _K2


def _tiny(data: bytes) -> int:
    low = data[0] + (data[len(data) >> 1] << 8)
    high = len(data) + (data[-1] << 2)
    return _shift_mix(low * _K2 ^ high * _K0) * _K2 & _WORD


def _up_to_32(data: bytes, factor: int) -> int:
    first, second = _fetch(data, 0) * _K1 & _WORD, _fetch(data, 8)
    third, fourth = _fetch(data, len(data) - 8) * factor, _fetch(data, len(data) - 16) * _K2
    left = (_rotate(first + second, 43) + _rotate(third, 30) + fourth) & _WORD
    return _both(left, (first + _rotate(second + _K2, 18) + third) & _WORD, factor)


def _up_to_64(data: bytes, factor: int) -> int:
    size = len(data)
    first, second = _fetch(data, 0) * _K2 & _WORD, _fetch(data, 8)
    third, fourth = _fetch(data, size - 8) * factor, _fetch(data, size - 16) * _K2
    left = (_rotate(first + second, 43) + _rotate(third, 30) + fourth) & _WORD
    right = _both(left, (first + _rotate(second + _K2, 18) + third) & _WORD, factor)
    fifth, sixth = _fetch(data, 16) * factor & _WORD, _fetch(data, 24)
    seventh = (left + _fetch(data, size - 32)) * factor
    eighth = (right + _fetch(data, size - 24)) * factor
    return _both(
        (_rotate(fifth + sixth, 43) + _rotate(seventh, 30) + eighth) & _WORD,
        (fifth + _rotate(sixth + first, 18) + seventh) & _WORD,
        factor,
    )


def _weak(data: bytes, at: int, first: int, second: int) -> Pair:
    w, x, y, z = (_fetch(data, at + step) for step in (0, 8, 16, 24))
    first += w
    second = _rotate(second + first + z, 21)
    begun = first
    first += x + y
    second += _rotate(first, 44)
    return (first + z) & _WORD, (second + begun) & _WORD


def _long(data: bytes) -> int:
    """Hash an input longer than 64 bytes: block by block, then the last 64 bytes, which overlap the blocks."""
    end = (len(data) - 1) // _BLOCK * _BLOCK
    rest = (len(data) - 1) & (_BLOCK - 1)
    x = (81 * _K2 + _fetch(data, 0)) & _WORD
    y = (81 * _K1 + 113) & _WORD
    z = _shift_mix(y * _K2 + 113) * _K2 & _WORD
    v: Pair = (0, 0)
    w: Pair = (0, 0)
    for at in range(0, end, _BLOCK):
        x, y, z, v, w = _block(data, at, (x, y, z, v, w), (_K1, 1))
    factor = _K1 + ((z & 0xFF) << 1)
    last = w[0] + rest
    begun = v[0] + last
    x, y, z, v, w = _block(data, end + rest - 63, (x, y, z, (begun, v[1]), (last + begun, w[1])), (factor, 9))
    left = _both(v[0], w[0], factor) + _shift_mix(y) * _K0 + z
    return _both(left & _WORD, (_both(v[1], w[1], factor) + x) & _WORD, factor)


State = tuple[int, int, int, Pair, Pair]


def _block(data: bytes, at: int, state: State, factors: Pair) -> State:
    x, y, z, v, w = state
    factor, more = factors
    x = _rotate(x + y + v[0] + _fetch(data, at + 8), 37) * factor & _WORD
    y = _rotate(y + v[1] + _fetch(data, at + 48), 42) * factor & _WORD
    x ^= w[1] * more & _WORD
    y = (y + v[0] * more + _fetch(data, at + 40)) & _WORD
    z = _rotate(z + w[0], 33) * factor & _WORD
    v = _weak(data, at, v[1] * factor, x + w[0])
    w = _weak(data, at + 32, z + w[1], y + _fetch(data, at + 16))
    return z, y, x, v, w
