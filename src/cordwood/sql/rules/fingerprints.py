"""FARM_FINGERPRINT: FarmHash's Fingerprint64, as a signed number."""

from typing import Final

_K0: Final = 0xC3A5C85C97CB3127
_K1: Final = 0xB492B66FBE98F273
_K2: Final = 0x9AE16A3B2F90404F
_MASK_64: Final = (1 << 64) - 1
_BLOCK: Final = 64

Pair = tuple[int, int]


def farm_fingerprint(data: bytes) -> int:
    value = _hash_short(data) if len(data) <= _BLOCK else _hash_long(data)
    return value - (1 << 64) if value >> 63 else value


def _fetch(data: bytes, offset: int, size: int = 8) -> int:
    return int.from_bytes(data[offset : offset + size], "little")


def _rotate(value: int, bits: int) -> int:
    value &= _MASK_64
    return (value >> bits | value << (64 - bits)) & _MASK_64


def _shift_mix(value: int) -> int:
    value &= _MASK_64
    return value ^ (value >> 47)


def _hash_pair(first: int, second: int, factor: int) -> int:
    mixed = _shift_mix((first ^ second) * factor)
    return _shift_mix((second ^ mixed) * factor) * factor & _MASK_64


def _hash_short(data: bytes) -> int:
    size = len(data)
    factor = _K2 + size * 2
    if size > 32:
        return _hash_up_to_64(data, factor)
    if size > 16:
        return _hash_up_to_32(data, factor)
    if size >= 8:
        first, second = _fetch(data, 0) + _K2, _fetch(data, size - 8)
        return _hash_pair(
            (_rotate(second, 37) * factor + first) & _MASK_64, (_rotate(first, 25) + second) * factor & _MASK_64, factor
        )
    if size >= 4:
        return _hash_pair(size + (_fetch(data, 0, 4) << 3), _fetch(data, size - 4, 4), factor)
    return _hash_up_to_3(data) if data else _K2


def _hash_up_to_3(data: bytes) -> int:
    low = data[0] + (data[len(data) >> 1] << 8)
    high = len(data) + (data[-1] << 2)
    return _shift_mix(low * _K2 ^ high * _K0) * _K2 & _MASK_64


def _hash_up_to_32(data: bytes, factor: int) -> int:
    first, second = _fetch(data, 0) * _K1 & _MASK_64, _fetch(data, 8)
    third, fourth = _fetch(data, len(data) - 8) * factor, _fetch(data, len(data) - 16) * _K2
    left = (_rotate(first + second, 43) + _rotate(third, 30) + fourth) & _MASK_64
    return _hash_pair(left, (first + _rotate(second + _K2, 18) + third) & _MASK_64, factor)


def _hash_up_to_64(data: bytes, factor: int) -> int:
    size = len(data)
    first, second = _fetch(data, 0) * _K2 & _MASK_64, _fetch(data, 8)
    third, fourth = _fetch(data, size - 8) * factor, _fetch(data, size - 16) * _K2
    left = (_rotate(first + second, 43) + _rotate(third, 30) + fourth) & _MASK_64
    right = _hash_pair(left, (first + _rotate(second + _K2, 18) + third) & _MASK_64, factor)
    fifth, sixth = _fetch(data, 16) * factor & _MASK_64, _fetch(data, 24)
    seventh = (left + _fetch(data, size - 32)) * factor
    eighth = (right + _fetch(data, size - 24)) * factor
    return _hash_pair(
        (_rotate(fifth + sixth, 43) + _rotate(seventh, 30) + eighth) & _MASK_64,
        (fifth + _rotate(sixth + first, 18) + seventh) & _MASK_64,
        factor,
    )


def _weak_hash(data: bytes, offset: int, first: int, second: int) -> Pair:
    w, x, y, z = (_fetch(data, offset + step) for step in (0, 8, 16, 24))
    first += w
    second = _rotate(second + first + z, 21)
    initial = first
    first += x + y
    second += _rotate(first, 44)
    return (first + z) & _MASK_64, (second + initial) & _MASK_64


def _hash_long(data: bytes) -> int:
    """Hash an input longer than 64 bytes: block by block, then the last 64 bytes, which overlap the blocks."""
    end = (len(data) - 1) // _BLOCK * _BLOCK
    remainder = (len(data) - 1) & (_BLOCK - 1)
    x = (81 * _K2 + _fetch(data, 0)) & _MASK_64
    y = (81 * _K1 + 113) & _MASK_64
    z = _shift_mix(y * _K2 + 113) * _K2 & _MASK_64
    v: Pair = (0, 0)
    w: Pair = (0, 0)
    for offset in range(0, end, _BLOCK):
        x, y, z, v, w = _hash_block(data, offset, (x, y, z, v, w), (_K1, 1))
    factor = _K1 + ((z & 0xFF) << 1)
    last = w[0] + remainder
    adjusted = v[0] + last
    x, y, z, v, w = _hash_block(
        data, end + remainder - 63, (x, y, z, (adjusted, v[1]), (last + adjusted, w[1])), (factor, 9)
    )
    left = _hash_pair(v[0], w[0], factor) + _shift_mix(y) * _K0 + z
    return _hash_pair(left & _MASK_64, (_hash_pair(v[1], w[1], factor) + x) & _MASK_64, factor)


State = tuple[int, int, int, Pair, Pair]


def _hash_block(data: bytes, offset: int, state: State, factors: Pair) -> State:
    x, y, z, v, w = state
    factor, multiplier = factors
    x = _rotate(x + y + v[0] + _fetch(data, offset + 8), 37) * factor & _MASK_64
    y = _rotate(y + v[1] + _fetch(data, offset + 48), 42) * factor & _MASK_64
    x ^= w[1] * multiplier & _MASK_64
    y = (y + v[0] * multiplier + _fetch(data, offset + 40)) & _MASK_64
    z = _rotate(z + w[0], 33) * factor & _MASK_64
    v = _weak_hash(data, offset, v[1] * factor, x + w[0])
    w = _weak_hash(data, offset + 32, z + w[1], y + _fetch(data, offset + 16))
    return z, y, x, v, w
