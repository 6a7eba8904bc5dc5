"""Digests that DuckDB lacks, FARM_FINGERPRINT and SHA512: of constants in Python, of columns in DuckDB's arithmetic.

FARM_FINGERPRINT is FarmHash's Fingerprint64 as a signed number. SHA512 is computed in blocks of 128 bytes, in 80 rounds
of eight words of 64 bits; for constants, Python's library has it.

In DuckDB's arithmetic, words of 64 bits are UHUGEINTs, whose products do not overflow. Each step is a `list_transform`
over a list of one struct, the result of the previous step. The lambdas are not nested, because DuckDB binds the body of
a lambda twice, so each level of nesting would double the time of planning.
"""

from collections.abc import Iterator
from itertools import count, islice
from typing import Final

_K0: Final = 0xC3A5C85C97CB3127
_K1: Final = 0xB492B66FBE98F273
_K2: Final = 0x9AE16A3B2F90404F
_MASK_64: Final = (1 << 64) - 1
_BLOCK_BYTES: Final = 64

_Pair = tuple[int, int]


def farm_fingerprint(data: bytes) -> int:
    """Return FARM_FINGERPRINT of a constant."""
    value = _hash_short(data) if len(data) <= _BLOCK_BYTES else _hash_long(data)
    return value - (1 << 64) if value >> 63 else value


def _word_at(data: bytes, offset: int, size: int = 8) -> int:
    return int.from_bytes(data[offset : offset + size], "little")


def _rotate_word(value: int, bits: int) -> int:
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
        first, second = _word_at(data, 0) + _K2, _word_at(data, size - 8)
        return _hash_pair(
            (_rotate_word(second, 37) * factor + first) & _MASK_64,
            (_rotate_word(first, 25) + second) * factor & _MASK_64,
            factor,
        )
    if size >= 4:
        return _hash_pair(size + (_word_at(data, 0, 4) << 3), _word_at(data, size - 4, 4), factor)
    return _hash_up_to_3(data) if data else _K2


def _hash_up_to_3(data: bytes) -> int:
    low = data[0] + (data[len(data) >> 1] << 8)
    high = len(data) + (data[-1] << 2)
    return _shift_mix(low * _K2 ^ high * _K0) * _K2 & _MASK_64


def _hash_up_to_32(data: bytes, factor: int) -> int:
    first, second = _word_at(data, 0) * _K1 & _MASK_64, _word_at(data, 8)
    third, fourth = _word_at(data, len(data) - 8) * factor, _word_at(data, len(data) - 16) * _K2
    left = (_rotate_word(first + second, 43) + _rotate_word(third, 30) + fourth) & _MASK_64
    return _hash_pair(left, (first + _rotate_word(second + _K2, 18) + third) & _MASK_64, factor)


def _hash_up_to_64(data: bytes, factor: int) -> int:
    size = len(data)
    first, second = _word_at(data, 0) * _K2 & _MASK_64, _word_at(data, 8)
    third, fourth = _word_at(data, size - 8) * factor, _word_at(data, size - 16) * _K2
    left = (_rotate_word(first + second, 43) + _rotate_word(third, 30) + fourth) & _MASK_64
    right = _hash_pair(left, (first + _rotate_word(second + _K2, 18) + third) & _MASK_64, factor)
    fifth, sixth = _word_at(data, 16) * factor & _MASK_64, _word_at(data, 24)
    seventh = (left + _word_at(data, size - 32)) * factor
    eighth = (right + _word_at(data, size - 24)) * factor
    return _hash_pair(
        (_rotate_word(fifth + sixth, 43) + _rotate_word(seventh, 30) + eighth) & _MASK_64,
        (fifth + _rotate_word(sixth + first, 18) + seventh) & _MASK_64,
        factor,
    )


def _hash_32_bytes(data: bytes, offset: int, first: int, second: int) -> _Pair:
    w, x, y, z = (_word_at(data, offset + step) for step in (0, 8, 16, 24))
    first += w
    second = _rotate_word(second + first + z, 21)
    initial = first
    first += x + y
    second += _rotate_word(first, 44)
    return (first + z) & _MASK_64, (second + initial) & _MASK_64


def _hash_long(data: bytes) -> int:
    """Hash an input longer than 64 bytes: block by block, then the last 64 bytes, which overlap the blocks."""
    end = (len(data) - 1) // _BLOCK_BYTES * _BLOCK_BYTES
    remainder = (len(data) - 1) & (_BLOCK_BYTES - 1)
    x = (81 * _K2 + _word_at(data, 0)) & _MASK_64
    y = (81 * _K1 + 113) & _MASK_64
    z = _shift_mix(y * _K2 + 113) * _K2 & _MASK_64
    v: _Pair = (0, 0)
    w: _Pair = (0, 0)
    for offset in range(0, end, _BLOCK_BYTES):
        x, y, z, v, w = _hash_block(data, offset, (x, y, z, v, w), (_K1, 1))
    factor = _K1 + ((z & 0xFF) << 1)
    last = w[0] + remainder
    adjusted = v[0] + last
    x, y, z, v, w = _hash_block(
        data, end + remainder - 63, (x, y, z, (adjusted, v[1]), (last + adjusted, w[1])), (factor, 9)
    )
    left = _hash_pair(v[0], w[0], factor) + _shift_mix(y) * _K0 + z
    return _hash_pair(left & _MASK_64, (_hash_pair(v[1], w[1], factor) + x) & _MASK_64, factor)


_State = tuple[int, int, int, _Pair, _Pair]


def _hash_block(data: bytes, offset: int, state: _State, factors: _Pair) -> _State:
    x, y, z, v, w = state
    factor, multiplier = factors
    x = _rotate_word(x + y + v[0] + _word_at(data, offset + 8), 37) * factor & _MASK_64
    y = _rotate_word(y + v[1] + _word_at(data, offset + 48), 42) * factor & _MASK_64
    x ^= w[1] * multiplier & _MASK_64
    y = (y + v[0] * multiplier + _word_at(data, offset + 40)) & _MASK_64
    z = _rotate_word(z + w[0], 33) * factor & _MASK_64
    v = _hash_32_bytes(data, offset, v[1] * factor, x + w[0])
    w = _hash_32_bytes(data, offset + 32, z + w[1], y + _word_at(data, offset + 16))
    return z, y, x, v, w


# Longer inputs are refused: each step copies all digits, so time and memory grow with the square of the length.
MAX_FINGERPRINT_BYTES: Final = 256

_MASK_SQL: Final = f"{_MASK_64}::UHUGEINT"
_K0_SQL, _K1_SQL, _K2_SQL = (f"{word}::UHUGEINT" for word in (_K0, _K1, _K2))


def _add(*terms: str) -> str:
    return f"(({' + '.join(terms)}) & {_MASK_SQL})"


def _multiply(left: str, right: str) -> str:
    return f"(({left} * {right}) & {_MASK_SQL})"


def _rotated(value: str, bits: int) -> str:
    return f"((({value} >> {bits}) | ({value} << {64 - bits})) & {_MASK_SQL})"


def _mixed(value: str) -> str:
    return f"xor({value}, {value} >> 47)"


def _fetch(offset: str, size: int = 8) -> str:
    """Return SQL for the bytes at an offset as a little-endian number; `_s.r` has the reversed bytes in hex digits."""
    return f"('0x' || substring(_s.r, 2 * (_s.n - ({offset}) - {size}) + 1, {2 * size}))::UBIGINT::UHUGEINT"


def _chain(first: str, *steps: str) -> str:
    """Return SQL for the last of several values; each step is an expression over the previous value `_s`."""
    result = f"[{first}]"
    for step in steps:
        result = f"list_transform({result}, lambda _s: {step})"
    return f"({result})[1]"


def _struct(kept: str, **fields: str) -> str:
    """Return SQL for a struct with the fields `kept` of `_s`, and with new fields."""
    members = [f"{name} := _s.{name}" for name in kept.split()] + [
        f"{name} := {value}" for name, value in fields.items()
    ]
    return f"struct_pack({', '.join(members)})"


# The last steps for inputs of 4 bytes or more: the hash of the pair `u`, `v` with the factor `f`.
_PAIR_HASH: Final = (
    _struct("v f", p=_multiply("xor(_s.u, _s.v)", "_s.f")),
    _struct("v f", p=_multiply(f"xor(_s.v, {_mixed('_s.p')})", "_s.f")),
    _multiply(_mixed("_s.p"), "_s.f"),
)
_LENGTH_FACTOR: Final = _struct("r n", f=f"({_K2_SQL} + (_s.n * 2)::UHUGEINT)")
_UP_TO_3: Final = _chain(
    "_s",
    _struct(
        "",
        low=f"({_fetch('0', 1)} + ({_fetch('_s.n // 2', 1)} << 8))",
        high=f"(_s.n::UHUGEINT + ({_fetch('_s.n - 1', 1)} << 2))",
    ),
    _struct("", p=f"xor({_multiply('_s.low', _K2_SQL)}, {_multiply('_s.high', _K0_SQL)})"),
    _multiply(_mixed("_s.p"), _K2_SQL),
)
_UP_TO_7: Final = _chain(
    "_s",
    _LENGTH_FACTOR,
    _struct("f", u=f"(_s.n::UHUGEINT + ({_fetch('0', 4)} << 3))", v=_fetch("_s.n - 4", 4)),
    *_PAIR_HASH,
)
_UP_TO_16: Final = _chain(
    "_s",
    _LENGTH_FACTOR,
    _struct("f", a=_add(_fetch("0"), _K2_SQL), b=_fetch("_s.n - 8")),
    _struct(
        "f",
        u=_add(_multiply(_rotated("_s.b", 37), "_s.f"), "_s.a"),
        v=_multiply(_add(_rotated("_s.a", 25), "_s.b"), "_s.f"),
    ),
    *_PAIR_HASH,
)


def _ends(first_factor: str) -> str:
    """Return the step that computes `a` and `b` from the first words of a text, and `c` and `d` from its last words."""
    return _struct(
        "r n f",
        a=_multiply(_fetch("0"), first_factor),
        b=_fetch("8"),
        c=_multiply(_fetch("_s.n - 8"), "_s.f"),
        d=_multiply(_fetch("_s.n - 16"), _K2_SQL),
    )


_LEFT: Final = _add(_rotated(_add("_s.a", "_s.b"), 43), _rotated("_s.c", 30), "_s.d")
_RIGHT: Final = _add("_s.a", _rotated(_add("_s.b", _K2_SQL), 18), "_s.c")
_UP_TO_32: Final = _chain("_s", _LENGTH_FACTOR, _ends(_K1_SQL), _struct("f", u=_LEFT, v=_RIGHT), *_PAIR_HASH)
_UP_TO_64: Final = _chain(
    "_s",
    _LENGTH_FACTOR,
    _ends(_K2_SQL),
    _struct("r n f a", u=_LEFT, v=_RIGHT),
    _struct("r n f a u v", p=_multiply("xor(_s.u, _s.v)", "_s.f")),
    _struct("r n f a u", p=_multiply(f"xor(_s.v, {_mixed('_s.p')})", "_s.f")),
    _struct("r n f a u", w=_multiply(_mixed("_s.p"), "_s.f")),
    _struct(
        "f a",
        b=_multiply(_fetch("16"), "_s.f"),
        c=_fetch("24"),
        d=_multiply(_add("_s.u", _fetch("_s.n - 32")), "_s.f"),
        e=_multiply(_add("_s.w", _fetch("_s.n - 24")), "_s.f"),
    ),
    _struct(
        "f",
        u=_add(_rotated(_add("_s.b", "_s.c"), 43), _rotated("_s.d", 30), "_s.e"),
        v=_add("_s.b", _rotated(_add("_s.c", "_s.a"), 18), "_s.d"),
    ),
    *_PAIR_HASH,
)


def _weak_hash_steps(kept: str, offset: str, first: str, second: str, names: tuple[str, str]) -> tuple[str, ...]:
    """Return the steps that hash the 32 bytes at `offset`, with the seeds `first` and `second`, to the fields `names`.

    `kept` are the fields to pass on.
    """
    data_words = {name: _fetch(f"{offset} + {step}") for name, step in (("i", 0), ("j", 8), ("k", 16), ("l", 24))}
    return (
        _struct(kept, g=_add(first, data_words["i"]), h=second, **data_words),
        _struct(f"{kept} g j k l", h=_rotated(_add("_s.h", "_s.g", "_s.l"), 21)),
        _struct(f"{kept} g h l", i=_add("_s.g", "_s.j", "_s.k")),
        _struct(kept, **{names[0]: _add("_s.i", "_s.l"), names[1]: _add("_s.h", _rotated("_s.i", 44), "_s.g")}),
    )


def _block_steps(factor: str, multiplier: str) -> tuple[str, ...]:
    """Return the steps that hash the 64 bytes at `o` into the state `x y z a b c d`."""
    kept = "r n o f"
    return (
        _struct(
            f"{kept} y z a b c d",
            x=_rotated(_add("_s.x", "_s.y", "_s.a", _fetch("_s.o + 8")), 37),
            q=_rotated(_add("_s.y", "_s.b", _fetch("_s.o + 48")), 42),
            t=_rotated(_add("_s.z", "_s.c"), 33),
        ),
        _struct(
            f"{kept} a b c d",
            z=f"xor({_multiply('_s.x', factor)}, {_multiply('_s.d', multiplier)})",
            y=_add(_multiply("_s.q", factor), _multiply("_s.a", multiplier), _fetch("_s.o + 40")),
            x=_multiply("_s.t", factor),
        ),
        *_weak_hash_steps(f"{kept} x y z c d", "_s.o", _multiply("_s.b", factor), _add("_s.z", "_s.c"), ("a", "b")),
        *_weak_hash_steps(
            f"{kept} x y z a b", "_s.o + 32", _add("_s.x", "_s.d"), _add("_s.y", _fetch("_s.o + 16")), ("c", "d")
        ),
    )


_STATE: Final = "r n o f x y z a b c d"
_INITIAL_STATE: Final = _struct(
    "r n",
    o="0::BIGINT",
    f=_K1_SQL,
    x=_add(f"81::UHUGEINT * {_K2_SQL}", _fetch("0")),
    y=_add(f"81::UHUGEINT * {_K1_SQL}", "113::UHUGEINT"),
    z=_multiply(
        _mixed(_add(_multiply(_add(f"81::UHUGEINT * {_K1_SQL}", "113::UHUGEINT"), _K2_SQL), "113::UHUGEINT")), _K2_SQL
    ),
    **dict.fromkeys("abcd", "0::UHUGEINT"),
)
_STATE_AT_BLOCK: Final = (
    f"struct_pack({', '.join(f'{name} := ' + ('_o' if name == 'o' else f'_t.{name}') for name in _STATE.split())})"
)
_ALL_BLOCKS: Final = (
    f"list_reduce(range(0, (_s.n - 1) // 64 * 64, 64), lambda _t, _o: {_chain(_STATE_AT_BLOCK, *_block_steps('_s.f', '1::UHUGEINT'), _struct(_STATE))},"
    " _s)"
)
# Inputs of more than 64 bytes: block by block, then the last 64 bytes, which overlap the blocks.
_LONGER: Final = _chain(
    "_s",
    _INITIAL_STATE,
    _ALL_BLOCKS,
    _struct(
        "r n x y z a b d",
        f=f"({_K1_SQL} + ((_s.z & 255::UHUGEINT) << 1))",
        e=_add("_s.c", "((_s.n - 1) % 64)::UHUGEINT"),
    ),
    _struct("r n f x y z b d", o="_s.n - 64", a=_add("_s.a", "_s.e"), c=_add("_s.a", "_s.e", "_s.e")),
    *_block_steps("_s.f", "9::UHUGEINT"),
    _struct("f x y z c d", p=_multiply("xor(_s.a, _s.c)", "_s.f"), q=_multiply("xor(_s.b, _s.d)", "_s.f")),
    _struct(
        "f x y z",
        p=_multiply(f"xor(_s.c, {_mixed('_s.p')})", "_s.f"),
        q=_multiply(f"xor(_s.d, {_mixed('_s.q')})", "_s.f"),
    ),
    _struct(
        "f",
        u=_add(_multiply(_mixed("_s.p"), "_s.f"), _multiply(_mixed("_s.y"), _K0_SQL), "_s.z"),
        v=_add(_multiply(_mixed("_s.q"), "_s.f"), "_s.x"),
    ),
    *_PAIR_HASH,
)
_REVERSED: Final = "array_to_string(list_reverse(regexp_extract_all(hex(@a), '..')), '')"
_BY_LENGTH: Final = (
    f"CASE WHEN _s.n = 0 THEN {_K2_SQL} WHEN _s.n <= 3 THEN {_UP_TO_3} WHEN _s.n <= 7 THEN {_UP_TO_7}"
    f" WHEN _s.n <= 16 THEN {_UP_TO_16} WHEN _s.n <= 32 THEN {_UP_TO_32} WHEN _s.n <= 64 THEN {_UP_TO_64}"
    f" ELSE {_LONGER} END"
)
_SIGNED: Final = f"CASE WHEN _s < {1 << 63}::UHUGEINT THEN _s::BIGINT ELSE (_s::HUGEINT - {1 << 64})::BIGINT END"

# The fingerprint of the text or bytes @a.
FINGERPRINT: Final = (
    "CASE WHEN @a IS NOT NULL THEN"
    f" {_chain(f'struct_pack(r := {_REVERSED}, n := length(hex(@a)) // 2)', _BY_LENGTH, _SIGNED)} END"
)


# Longer inputs are refused: each block takes 80 rounds, each of which is a list operation.
MAX_SHA512_BYTES: Final = 256

_HASH_NAMES: Final = "abcdefgh"


def _primes() -> Iterator[int]:
    return (number for number in count(2) if all(number % divisor for divisor in range(2, number)))


def _fraction_of_root(number: int, degree: int) -> int:
    """Return the first 64 bits of the fractional part of a root of a number."""
    scaled, root = number << (64 * degree), 0
    for bit in reversed(range(80)):
        candidate = root | 1 << bit
        root = candidate if candidate**degree <= scaled else root
    return root & _MASK_64


def _xor(*values: str) -> str:
    first, *rest = values
    for value in rest:
        first = f"xor({first}, {value})"
    return first


def _scrambled(value: str, first: int, second: int, third: str) -> str:
    return _xor(_rotated(value, first), _rotated(value, second), third)


_ROUND_WORDS: Final = ", ".join(f"{_fraction_of_root(prime, 3)}::UHUGEINT" for prime in islice(_primes(), 80))
_INITIAL_HASH: Final = ", ".join(
    f"{name} := {_fraction_of_root(prime, 2)}::UHUGEINT" for name, prime in zip(_HASH_NAMES, _primes(), strict=False)
)
# The number of hex digits of the message @a; and the padded message, with a bit 1, zeros up to whole blocks, and the
# length in bits at its end.
_MESSAGE_DIGITS: Final = "length(hex(@a))"
_PADDED: Final = f"hex(@a) || '80' || repeat('0', (256 - ({_MESSAGE_DIGITS} + 34) % 256) % 256) || printf('%032x', {_MESSAGE_DIGITS} * 4)"

# The 80 words of a block: 16 are read from the message, each further word is computed from earlier ones.
_FIRST_WORDS: Final = (
    "list_transform(range(0, 16), lambda _i: ('0x' || substring(_s.m, _o + 16 * _i + 1, 16))::UBIGINT::UHUGEINT)"
)
_NEXT_WORD: Final = _add(
    _scrambled("_w[_i - 2]", 19, 61, "(_w[_i - 2] >> 6)"),
    "_w[_i - 7]",
    _scrambled("_w[_i - 15]", 1, 8, "(_w[_i - 15] >> 7)"),
    "_w[_i - 16]",
)
_BLOCK_WORDS: Final = f"list_reduce(range(17, 81), lambda _w, _i: list_concat(_w, [{_NEXT_WORD}]), {_FIRST_WORDS})"

_FIRST_SUM: Final = _add(
    "_r.h",
    _scrambled("_r.e", 14, 18, _rotated("_r.e", 41)),
    "xor(_r.g, _r.e & xor(_r.f, _r.g))",
    "_s.k[_i]",
    "_w[_i]",
)
_SECOND_SUM: Final = _add(
    "_q.t",
    _scrambled("_q.s.a", 28, 34, _rotated("_q.s.a", 39)),
    "((_q.s.a & _q.s.b) | (_q.s.c & (_q.s.a | _q.s.b)))",
)
_ROUND: Final = (
    f"list_transform([struct_pack(s := _r, t := {_FIRST_SUM})], lambda _q: struct_pack(a := {_SECOND_SUM}, b := _q.s.a,"
    f" c := _q.s.b, d := _q.s.c, e := {_add('_q.s.d', '_q.t')}, f := _q.s.e, g := _q.s.f, h := _q.s.g))[1]"
)
_ROUNDS: Final = (
    f"list_transform([{_BLOCK_WORDS}], lambda _w: list_reduce(range(1, 81), lambda _r, _i: {_ROUND}, _t))[1]"
)
_SUMS: Final = ", ".join(f"{name} := {_add(f'_t.{name}', f'_b.{name}')}" for name in _HASH_NAMES)
_NEXT_HASH: Final = f"list_transform([{_ROUNDS}], lambda _b: struct_pack({_SUMS}))[1]"
_DIGEST: Final = " || ".join(f"lpad(hex(_s.{name}::UBIGINT), 16, '0')" for name in _HASH_NAMES)

# The digest of the text or bytes @a.
SHA512: Final = (
    "CASE WHEN @a IS NOT NULL THEN unhex("
    + _chain(
        f"struct_pack(m := {_PADDED}, k := [{_ROUND_WORDS}])",
        f"list_reduce(range(0, length(_s.m), 256), lambda _t, _o: {_NEXT_HASH}, struct_pack({_INITIAL_HASH}))",
        _DIGEST,
    )
    + ") END"
)
