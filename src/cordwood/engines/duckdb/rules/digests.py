"""The digests FARM_FINGERPRINT and SHA512, which DuckDB lacks: of constants in Python, and of columns in SQL.

FARM_FINGERPRINT is FarmHash's Fingerprint64 as a signed number. SHA512 is computed in blocks of 128 bytes, with 80
rounds over eight words of 64 bits for each block. For constants, Python's `hashlib` computes it.

In SQL, words of 64 bits are UHUGEINTs, whose products do not overflow. Each step is a `list_transform` over a list with
one struct, which is the result of the previous step. The lambdas are not nested: DuckDB binds the body of a lambda
twice, so each level of nesting would double the time of planning.
"""

from collections.abc import Iterator
from itertools import count, islice
from typing import Final

_FARMHASH_K0: Final = 0xC3A5C85C97CB3127
_FARMHASH_K1: Final = 0xB492B66FBE98F273
_FARMHASH_K2: Final = 0x9AE16A3B2F90404F
_MASK_64: Final = (1 << 64) - 1
_FARMHASH_BLOCK_BYTES: Final = 64

_WordPair = tuple[int, int]


def farm_fingerprint(data: bytes) -> int:
    """Return FARM_FINGERPRINT of a constant."""
    value = _hash_single_block(data) if len(data) <= _FARMHASH_BLOCK_BYTES else _hash_multiple_blocks(data)
    return value - (1 << 64) if value >> 63 else value


def _word_at(data: bytes, offset: int, size: int = 8) -> int:
    return int.from_bytes(data[offset : offset + size], "little")


def _rotate_word_right(value: int, bits: int) -> int:
    value &= _MASK_64
    return (value >> bits | value << (64 - bits)) & _MASK_64


def _shift_mix(value: int) -> int:
    value &= _MASK_64
    return value ^ (value >> 47)


def _hash_word_pair(first: int, second: int, factor: int) -> int:
    mixed = _shift_mix((first ^ second) * factor)
    return _shift_mix((second ^ mixed) * factor) * factor & _MASK_64


def _hash_single_block(data: bytes) -> int:
    size = len(data)
    factor = _FARMHASH_K2 + size * 2
    if size > 32:
        return _hash_up_to_64_bytes(data, factor)
    if size > 16:
        return _hash_up_to_32_bytes(data, factor)
    if size >= 8:
        first, second = _word_at(data, 0) + _FARMHASH_K2, _word_at(data, size - 8)
        return _hash_word_pair(
            (_rotate_word_right(second, 37) * factor + first) & _MASK_64,
            (_rotate_word_right(first, 25) + second) * factor & _MASK_64,
            factor,
        )
    if size >= 4:
        return _hash_word_pair(size + (_word_at(data, 0, 4) << 3), _word_at(data, size - 4, 4), factor)
    return _hash_up_to_3_bytes(data) if data else _FARMHASH_K2


def _hash_up_to_3_bytes(data: bytes) -> int:
    low = data[0] + (data[len(data) >> 1] << 8)
    high = len(data) + (data[-1] << 2)
    return _shift_mix(low * _FARMHASH_K2 ^ high * _FARMHASH_K0) * _FARMHASH_K2 & _MASK_64


def _hash_up_to_32_bytes(data: bytes, factor: int) -> int:
    first, second = _word_at(data, 0) * _FARMHASH_K1 & _MASK_64, _word_at(data, 8)
    third, fourth = _word_at(data, len(data) - 8) * factor, _word_at(data, len(data) - 16) * _FARMHASH_K2
    left = (_rotate_word_right(first + second, 43) + _rotate_word_right(third, 30) + fourth) & _MASK_64
    return _hash_word_pair(left, (first + _rotate_word_right(second + _FARMHASH_K2, 18) + third) & _MASK_64, factor)


def _hash_up_to_64_bytes(data: bytes, factor: int) -> int:
    size = len(data)
    first, second = _word_at(data, 0) * _FARMHASH_K2 & _MASK_64, _word_at(data, 8)
    third, fourth = _word_at(data, size - 8) * factor, _word_at(data, size - 16) * _FARMHASH_K2
    left = (_rotate_word_right(first + second, 43) + _rotate_word_right(third, 30) + fourth) & _MASK_64
    right = _hash_word_pair(left, (first + _rotate_word_right(second + _FARMHASH_K2, 18) + third) & _MASK_64, factor)
    fifth, sixth = _word_at(data, 16) * factor & _MASK_64, _word_at(data, 24)
    seventh = (left + _word_at(data, size - 32)) * factor
    eighth = (right + _word_at(data, size - 24)) * factor
    return _hash_word_pair(
        (_rotate_word_right(fifth + sixth, 43) + _rotate_word_right(seventh, 30) + eighth) & _MASK_64,
        (fifth + _rotate_word_right(sixth + first, 18) + seventh) & _MASK_64,
        factor,
    )


def _weak_hash_32_bytes(data: bytes, offset: int, first: int, second: int) -> _WordPair:
    w, x, y, z = (_word_at(data, offset + step) for step in (0, 8, 16, 24))
    first += w
    second = _rotate_word_right(second + first + z, 21)
    initial = first
    first += x + y
    second += _rotate_word_right(first, 44)
    return (first + z) & _MASK_64, (second + initial) & _MASK_64


def _hash_multiple_blocks(data: bytes) -> int:
    """Hash an input longer than 64 bytes block by block, and finally its last 64 bytes, which overlap the blocks."""
    end = (len(data) - 1) // _FARMHASH_BLOCK_BYTES * _FARMHASH_BLOCK_BYTES
    remainder = (len(data) - 1) & (_FARMHASH_BLOCK_BYTES - 1)
    x = (81 * _FARMHASH_K2 + _word_at(data, 0)) & _MASK_64
    y = (81 * _FARMHASH_K1 + 113) & _MASK_64
    z = _shift_mix(y * _FARMHASH_K2 + 113) * _FARMHASH_K2 & _MASK_64
    v: _WordPair = (0, 0)
    w: _WordPair = (0, 0)
    for offset in range(0, end, _FARMHASH_BLOCK_BYTES):
        x, y, z, v, w = _hash_farmhash_block(data, offset, (x, y, z, v, w), (_FARMHASH_K1, 1))
    factor = _FARMHASH_K1 + ((z & 0xFF) << 1)
    last = w[0] + remainder
    adjusted = v[0] + last
    x, y, z, v, w = _hash_farmhash_block(
        data, end + remainder - 63, (x, y, z, (adjusted, v[1]), (last + adjusted, w[1])), (factor, 9)
    )
    left = _hash_word_pair(v[0], w[0], factor) + _shift_mix(y) * _FARMHASH_K0 + z
    return _hash_word_pair(left & _MASK_64, (_hash_word_pair(v[1], w[1], factor) + x) & _MASK_64, factor)


_FarmHashState = tuple[int, int, int, _WordPair, _WordPair]


def _hash_farmhash_block(data: bytes, offset: int, state: _FarmHashState, factors: _WordPair) -> _FarmHashState:
    x, y, z, v, w = state
    factor, multiplier = factors
    x = _rotate_word_right(x + y + v[0] + _word_at(data, offset + 8), 37) * factor & _MASK_64
    y = _rotate_word_right(y + v[1] + _word_at(data, offset + 48), 42) * factor & _MASK_64
    x ^= w[1] * multiplier & _MASK_64
    y = (y + v[0] * multiplier + _word_at(data, offset + 40)) & _MASK_64
    z = _rotate_word_right(z + w[0], 33) * factor & _MASK_64
    v = _weak_hash_32_bytes(data, offset, v[1] * factor, x + w[0])
    w = _weak_hash_32_bytes(data, offset + 32, z + w[1], y + _word_at(data, offset + 16))
    return z, y, x, v, w


# Inputs with more bytes than this are refused. Each step copies all digits of the input, so time and memory grow with
# the square of the input's length.
MAX_FINGERPRINT_BYTES: Final = 256

_MASK_64_SQL: Final = f"{_MASK_64}::UHUGEINT"
_K0_SQL, _K1_SQL, _K2_SQL = (f"{word}::UHUGEINT" for word in (_FARMHASH_K0, _FARMHASH_K1, _FARMHASH_K2))


def _add_64_bit_words_sql(*terms: str) -> str:
    return f"(({' + '.join(terms)}) & {_MASK_64_SQL})"


def _multiply_64_bit_words_sql(left: str, right: str) -> str:
    return f"(({left} * {right}) & {_MASK_64_SQL})"


def _rotate_word_right_sql(value: str, bits: int) -> str:
    return f"((({value} >> {bits}) | ({value} << {64 - bits})) & {_MASK_64_SQL})"


def _shift_mix_sql(value: str) -> str:
    return f"xor({value}, {value} >> 47)"


def _word_at_sql(offset: str, size: int = 8) -> str:
    """Return SQL for `size` input bytes as a little-endian number; `_s.r` is the reversed input in hex digits."""
    return f"('0x' || substring(_s.r, 2 * (_s.n - ({offset}) - {size}) + 1, {2 * size}))::UBIGINT::UHUGEINT"


def _chain_steps_sql(first: str, *steps: str) -> str:
    """Return SQL that computes `first`, then the steps one after the other, and returns the value of the last step.

    Each step is an SQL expression, in which `_s` is the value of the step before it.
    """
    result = f"[{first}]"
    for step in steps:
        result = f"list_transform({result}, lambda _s: {step})"
    return f"({result})[1]"


def _derive_struct_sql(kept: str, **fields: str) -> str:
    """Return SQL for a struct with those fields of `_s` that `kept` names, and with the new fields in `fields`."""
    members = [f"{name} := _s.{name}" for name in kept.split()] + [
        f"{name} := {value}" for name, value in fields.items()
    ]
    return f"struct_pack({', '.join(members)})"


# The last steps of the hash of inputs with at least 4 bytes. They hash the fields `u` and `v` with the factor `f`.
_FARMHASH_WORD_PAIR_STEPS: Final = (
    _derive_struct_sql("v f", p=_multiply_64_bit_words_sql("xor(_s.u, _s.v)", "_s.f")),
    _derive_struct_sql("v f", p=_multiply_64_bit_words_sql(f"xor(_s.v, {_shift_mix_sql('_s.p')})", "_s.f")),
    _multiply_64_bit_words_sql(_shift_mix_sql("_s.p"), "_s.f"),
)
_LENGTH_FACTOR_STEP: Final = _derive_struct_sql("r n", f=f"({_K2_SQL} + (_s.n * 2)::UHUGEINT)")
_FARMHASH_MAX_3_BYTES_SQL: Final = _chain_steps_sql(
    "_s",
    _derive_struct_sql(
        "",
        low=f"({_word_at_sql('0', 1)} + ({_word_at_sql('_s.n // 2', 1)} << 8))",
        high=f"(_s.n::UHUGEINT + ({_word_at_sql('_s.n - 1', 1)} << 2))",
    ),
    _derive_struct_sql(
        "", p=f"xor({_multiply_64_bit_words_sql('_s.low', _K2_SQL)}, {_multiply_64_bit_words_sql('_s.high', _K0_SQL)})"
    ),
    _multiply_64_bit_words_sql(_shift_mix_sql("_s.p"), _K2_SQL),
)
_FARMHASH_MAX_7_BYTES_SQL: Final = _chain_steps_sql(
    "_s",
    _LENGTH_FACTOR_STEP,
    _derive_struct_sql("f", u=f"(_s.n::UHUGEINT + ({_word_at_sql('0', 4)} << 3))", v=_word_at_sql("_s.n - 4", 4)),
    *_FARMHASH_WORD_PAIR_STEPS,
)
_FARMHASH_MAX_16_BYTES_SQL: Final = _chain_steps_sql(
    "_s",
    _LENGTH_FACTOR_STEP,
    _derive_struct_sql("f", a=_add_64_bit_words_sql(_word_at_sql("0"), _K2_SQL), b=_word_at_sql("_s.n - 8")),
    _derive_struct_sql(
        "f",
        u=_add_64_bit_words_sql(_multiply_64_bit_words_sql(_rotate_word_right_sql("_s.b", 37), "_s.f"), "_s.a"),
        v=_multiply_64_bit_words_sql(_add_64_bit_words_sql(_rotate_word_right_sql("_s.a", 25), "_s.b"), "_s.f"),
    ),
    *_FARMHASH_WORD_PAIR_STEPS,
)


def _first_and_last_words_step(first_factor: str) -> str:
    """Return the step that computes `a` and `b` from the input's first words, and `c` and `d` from its last words."""
    return _derive_struct_sql(
        "r n f",
        a=_multiply_64_bit_words_sql(_word_at_sql("0"), first_factor),
        b=_word_at_sql("8"),
        c=_multiply_64_bit_words_sql(_word_at_sql("_s.n - 8"), "_s.f"),
        d=_multiply_64_bit_words_sql(_word_at_sql("_s.n - 16"), _K2_SQL),
    )


_LEFT_WORD_SQL: Final = _add_64_bit_words_sql(
    _rotate_word_right_sql(_add_64_bit_words_sql("_s.a", "_s.b"), 43), _rotate_word_right_sql("_s.c", 30), "_s.d"
)
_RIGHT_WORD_SQL: Final = _add_64_bit_words_sql(
    "_s.a", _rotate_word_right_sql(_add_64_bit_words_sql("_s.b", _K2_SQL), 18), "_s.c"
)
_FARMHASH_MAX_32_BYTES_SQL: Final = _chain_steps_sql(
    "_s",
    _LENGTH_FACTOR_STEP,
    _first_and_last_words_step(_K1_SQL),
    _derive_struct_sql("f", u=_LEFT_WORD_SQL, v=_RIGHT_WORD_SQL),
    *_FARMHASH_WORD_PAIR_STEPS,
)
_FARMHASH_MAX_64_BYTES_SQL: Final = _chain_steps_sql(
    "_s",
    _LENGTH_FACTOR_STEP,
    _first_and_last_words_step(_K2_SQL),
    _derive_struct_sql("r n f a", u=_LEFT_WORD_SQL, v=_RIGHT_WORD_SQL),
    _derive_struct_sql("r n f a u v", p=_multiply_64_bit_words_sql("xor(_s.u, _s.v)", "_s.f")),
    _derive_struct_sql("r n f a u", p=_multiply_64_bit_words_sql(f"xor(_s.v, {_shift_mix_sql('_s.p')})", "_s.f")),
    _derive_struct_sql("r n f a u", w=_multiply_64_bit_words_sql(_shift_mix_sql("_s.p"), "_s.f")),
    _derive_struct_sql(
        "f a",
        b=_multiply_64_bit_words_sql(_word_at_sql("16"), "_s.f"),
        c=_word_at_sql("24"),
        d=_multiply_64_bit_words_sql(_add_64_bit_words_sql("_s.u", _word_at_sql("_s.n - 32")), "_s.f"),
        e=_multiply_64_bit_words_sql(_add_64_bit_words_sql("_s.w", _word_at_sql("_s.n - 24")), "_s.f"),
    ),
    _derive_struct_sql(
        "f",
        u=_add_64_bit_words_sql(
            _rotate_word_right_sql(_add_64_bit_words_sql("_s.b", "_s.c"), 43),
            _rotate_word_right_sql("_s.d", 30),
            "_s.e",
        ),
        v=_add_64_bit_words_sql("_s.b", _rotate_word_right_sql(_add_64_bit_words_sql("_s.c", "_s.a"), 18), "_s.d"),
    ),
    *_FARMHASH_WORD_PAIR_STEPS,
)


def _weak_hash_steps(kept: str, offset: str, first: str, second: str, names: tuple[str, str]) -> tuple[str, ...]:
    """Return the steps that hash 32 bytes from `offset` on, with the seeds `first` and `second`.

    The results are stored in the fields `names`. `kept` names the fields that are passed on unchanged.
    """
    data_words = {name: _word_at_sql(f"{offset} + {step}") for name, step in (("i", 0), ("j", 8), ("k", 16), ("l", 24))}
    return (
        _derive_struct_sql(kept, g=_add_64_bit_words_sql(first, data_words["i"]), h=second, **data_words),
        _derive_struct_sql(
            f"{kept} g j k l", h=_rotate_word_right_sql(_add_64_bit_words_sql("_s.h", "_s.g", "_s.l"), 21)
        ),
        _derive_struct_sql(f"{kept} g h l", i=_add_64_bit_words_sql("_s.g", "_s.j", "_s.k")),
        _derive_struct_sql(
            kept,
            **{
                names[0]: _add_64_bit_words_sql("_s.i", "_s.l"),
                names[1]: _add_64_bit_words_sql("_s.h", _rotate_word_right_sql("_s.i", 44), "_s.g"),
            },
        ),
    )


def _farmhash_block_steps(factor: str, multiplier: str) -> tuple[str, ...]:
    """Return the steps that hash the 64 bytes from the offset `_s.o` on into the fields `x y z a b c d` of `_s`."""
    kept = "r n o f"
    return (
        _derive_struct_sql(
            f"{kept} y z a b c d",
            x=_rotate_word_right_sql(_add_64_bit_words_sql("_s.x", "_s.y", "_s.a", _word_at_sql("_s.o + 8")), 37),
            q=_rotate_word_right_sql(_add_64_bit_words_sql("_s.y", "_s.b", _word_at_sql("_s.o + 48")), 42),
            t=_rotate_word_right_sql(_add_64_bit_words_sql("_s.z", "_s.c"), 33),
        ),
        _derive_struct_sql(
            f"{kept} a b c d",
            z=f"xor({_multiply_64_bit_words_sql('_s.x', factor)}, {_multiply_64_bit_words_sql('_s.d', multiplier)})",
            y=_add_64_bit_words_sql(
                _multiply_64_bit_words_sql("_s.q", factor),
                _multiply_64_bit_words_sql("_s.a", multiplier),
                _word_at_sql("_s.o + 40"),
            ),
            x=_multiply_64_bit_words_sql("_s.t", factor),
        ),
        *_weak_hash_steps(
            f"{kept} x y z c d",
            "_s.o",
            _multiply_64_bit_words_sql("_s.b", factor),
            _add_64_bit_words_sql("_s.z", "_s.c"),
            ("a", "b"),
        ),
        *_weak_hash_steps(
            f"{kept} x y z a b",
            "_s.o + 32",
            _add_64_bit_words_sql("_s.x", "_s.d"),
            _add_64_bit_words_sql("_s.y", _word_at_sql("_s.o + 16")),
            ("c", "d"),
        ),
    )


_FARMHASH_STATE_FIELDS: Final = "r n o f x y z a b c d"
_FARMHASH_INITIAL_STATE_STEP: Final = _derive_struct_sql(
    "r n",
    o="0::BIGINT",
    f=_K1_SQL,
    x=_add_64_bit_words_sql(f"81::UHUGEINT * {_K2_SQL}", _word_at_sql("0")),
    y=_add_64_bit_words_sql(f"81::UHUGEINT * {_K1_SQL}", "113::UHUGEINT"),
    z=_multiply_64_bit_words_sql(
        _shift_mix_sql(
            _add_64_bit_words_sql(
                _multiply_64_bit_words_sql(
                    _add_64_bit_words_sql(f"81::UHUGEINT * {_K1_SQL}", "113::UHUGEINT"), _K2_SQL
                ),
                "113::UHUGEINT",
            )
        ),
        _K2_SQL,
    ),
    **dict.fromkeys("abcd", "0::UHUGEINT"),
)
_FARMHASH_STATE_AT_BLOCK_SQL: Final = f"struct_pack({', '.join(f'{name} := ' + ('_o' if name == 'o' else f'_t.{name}') for name in _FARMHASH_STATE_FIELDS.split())})"
_FARMHASH_ALL_BLOCKS_STEP: Final = (
    f"list_reduce(range(0, (_s.n - 1) // 64 * 64, 64), lambda _t, _o: {_chain_steps_sql(_FARMHASH_STATE_AT_BLOCK_SQL, *_farmhash_block_steps('_s.f', '1::UHUGEINT'), _derive_struct_sql(_FARMHASH_STATE_FIELDS))},"
    " _s)"
)
# SQL that hashes inputs of more than 64 bytes block by block, and finally the last 64 bytes, which overlap the blocks.
_FARMHASH_OVER_64_BYTES_SQL: Final = _chain_steps_sql(
    "_s",
    _FARMHASH_INITIAL_STATE_STEP,
    _FARMHASH_ALL_BLOCKS_STEP,
    _derive_struct_sql(
        "r n x y z a b d",
        f=f"({_K1_SQL} + ((_s.z & 255::UHUGEINT) << 1))",
        e=_add_64_bit_words_sql("_s.c", "((_s.n - 1) % 64)::UHUGEINT"),
    ),
    _derive_struct_sql(
        "r n f x y z b d",
        o="_s.n - 64",
        a=_add_64_bit_words_sql("_s.a", "_s.e"),
        c=_add_64_bit_words_sql("_s.a", "_s.e", "_s.e"),
    ),
    *_farmhash_block_steps("_s.f", "9::UHUGEINT"),
    _derive_struct_sql(
        "f x y z c d",
        p=_multiply_64_bit_words_sql("xor(_s.a, _s.c)", "_s.f"),
        q=_multiply_64_bit_words_sql("xor(_s.b, _s.d)", "_s.f"),
    ),
    _derive_struct_sql(
        "f x y z",
        p=_multiply_64_bit_words_sql(f"xor(_s.c, {_shift_mix_sql('_s.p')})", "_s.f"),
        q=_multiply_64_bit_words_sql(f"xor(_s.d, {_shift_mix_sql('_s.q')})", "_s.f"),
    ),
    _derive_struct_sql(
        "f",
        u=_add_64_bit_words_sql(
            _multiply_64_bit_words_sql(_shift_mix_sql("_s.p"), "_s.f"),
            _multiply_64_bit_words_sql(_shift_mix_sql("_s.y"), _K0_SQL),
            "_s.z",
        ),
        v=_add_64_bit_words_sql(_multiply_64_bit_words_sql(_shift_mix_sql("_s.q"), "_s.f"), "_s.x"),
    ),
    *_FARMHASH_WORD_PAIR_STEPS,
)
_REVERSED_HEX_SQL: Final = "array_to_string(list_reverse(regexp_extract_all(hex(@a), '..')), '')"
_FARMHASH_BY_LENGTH_SQL: Final = (
    f"CASE WHEN _s.n = 0 THEN {_K2_SQL} WHEN _s.n <= 3 THEN {_FARMHASH_MAX_3_BYTES_SQL} WHEN _s.n <= 7 THEN {_FARMHASH_MAX_7_BYTES_SQL}"
    f" WHEN _s.n <= 16 THEN {_FARMHASH_MAX_16_BYTES_SQL} WHEN _s.n <= 32 THEN {_FARMHASH_MAX_32_BYTES_SQL} WHEN _s.n <= 64 THEN {_FARMHASH_MAX_64_BYTES_SQL}"
    f" ELSE {_FARMHASH_OVER_64_BYTES_SQL} END"
)
_AS_SIGNED_SQL: Final = f"CASE WHEN _s < {1 << 63}::UHUGEINT THEN _s::BIGINT ELSE (_s::HUGEINT - {1 << 64})::BIGINT END"

# SQL for the fingerprint of the text or bytes `@a`.
FARM_FINGERPRINT_SQL: Final = (
    "CASE WHEN @a IS NOT NULL THEN"
    f" {_chain_steps_sql(f'struct_pack(r := {_REVERSED_HEX_SQL}, n := length(hex(@a)) // 2)', _FARMHASH_BY_LENGTH_SQL, _AS_SIGNED_SQL)} END"
)


# Inputs with more bytes than this are refused, because SHA512 of them takes too long: each block needs 80 rounds, and
# each round is a list operation.
MAX_SHA512_BYTES: Final = 256

_SHA512_WORD_NAMES: Final = "abcdefgh"


def _primes() -> Iterator[int]:
    return (number for number in count(2) if all(number % divisor for divisor in range(2, number)))


def _root_fraction_bits(number: int, degree: int) -> int:
    """Return the first 64 bits after the point of a number's square root (`degree` 2) or cube root (`degree` 3)."""
    scaled, root = number << (64 * degree), 0
    for bit in reversed(range(80)):
        candidate = root | 1 << bit
        root = candidate if candidate**degree <= scaled else root
    return root & _MASK_64


def _xor_sql(*values: str) -> str:
    first, *rest = values
    for value in rest:
        first = f"xor({first}, {value})"
    return first


def _sigma_sql(value: str, first: int, second: int, third: str) -> str:
    return _xor_sql(_rotate_word_right_sql(value, first), _rotate_word_right_sql(value, second), third)


_SHA512_ROUND_CONSTANTS_SQL: Final = ", ".join(
    f"{_root_fraction_bits(prime, 3)}::UHUGEINT" for prime in islice(_primes(), 80)
)
_SHA512_INITIAL_HASH_SQL: Final = ", ".join(
    f"{name} := {_root_fraction_bits(prime, 2)}::UHUGEINT"
    for name, prime in zip(_SHA512_WORD_NAMES, _primes(), strict=False)
)
# SQL for the number of hex digits of the message `@a`, and for the padded message. The padding is a bit 1, as many
# zeros as are needed for whole blocks, and the length of the message in bits.
_MESSAGE_HEX_LENGTH_SQL: Final = "length(hex(@a))"
_PADDED_MESSAGE_SQL: Final = f"hex(@a) || '80' || repeat('0', (256 - ({_MESSAGE_HEX_LENGTH_SQL} + 34) % 256) % 256) || printf('%032x', {_MESSAGE_HEX_LENGTH_SQL} * 4)"

# SQL for the 80 words of a block. The first 16 words are read from the message; each other word is computed from
# earlier words.
_SHA512_FIRST_16_WORDS_SQL: Final = (
    "list_transform(range(0, 16), lambda _i: ('0x' || substring(_s.m, _o + 16 * _i + 1, 16))::UBIGINT::UHUGEINT)"
)
_SHA512_NEXT_WORD_SQL: Final = _add_64_bit_words_sql(
    _sigma_sql("_w[_i - 2]", 19, 61, "(_w[_i - 2] >> 6)"),
    "_w[_i - 7]",
    _sigma_sql("_w[_i - 15]", 1, 8, "(_w[_i - 15] >> 7)"),
    "_w[_i - 16]",
)
_SHA512_MESSAGE_SCHEDULE_SQL: Final = f"list_reduce(range(17, 81), lambda _w, _i: list_concat(_w, [{_SHA512_NEXT_WORD_SQL}]), {_SHA512_FIRST_16_WORDS_SQL})"

_ROUND_T1_SQL: Final = _add_64_bit_words_sql(
    "_r.h",
    _sigma_sql("_r.e", 14, 18, _rotate_word_right_sql("_r.e", 41)),
    "xor(_r.g, _r.e & xor(_r.f, _r.g))",
    "_s.k[_i]",
    "_w[_i]",
)
_ROUND_T1_PLUS_T2_SQL: Final = _add_64_bit_words_sql(
    "_q.t",
    _sigma_sql("_q.s.a", 28, 34, _rotate_word_right_sql("_q.s.a", 39)),
    "((_q.s.a & _q.s.b) | (_q.s.c & (_q.s.a | _q.s.b)))",
)
_SHA512_ROUND_SQL: Final = (
    f"list_transform([struct_pack(s := _r, t := {_ROUND_T1_SQL})], lambda _q: struct_pack(a := {_ROUND_T1_PLUS_T2_SQL}, b := _q.s.a,"
    f" c := _q.s.b, d := _q.s.c, e := {_add_64_bit_words_sql('_q.s.d', '_q.t')}, f := _q.s.e, g := _q.s.f, h := _q.s.g))[1]"
)
_SHA512_ALL_ROUNDS_SQL: Final = f"list_transform([{_SHA512_MESSAGE_SCHEDULE_SQL}], lambda _w: list_reduce(range(1, 81), lambda _r, _i: {_SHA512_ROUND_SQL}, _t))[1]"
_HASH_WORD_SUMS_SQL: Final = ", ".join(
    f"{name} := {_add_64_bit_words_sql(f'_t.{name}', f'_b.{name}')}" for name in _SHA512_WORD_NAMES
)
_SHA512_NEXT_HASH_SQL: Final = (
    f"list_transform([{_SHA512_ALL_ROUNDS_SQL}], lambda _b: struct_pack({_HASH_WORD_SUMS_SQL}))[1]"
)
_DIGEST_HEX_SQL: Final = " || ".join(f"lpad(hex(_s.{name}::UBIGINT), 16, '0')" for name in _SHA512_WORD_NAMES)

# SQL for the SHA512 digest of the text or bytes `@a`.
SHA512_SQL: Final = (
    "CASE WHEN @a IS NOT NULL THEN unhex("
    + _chain_steps_sql(
        f"struct_pack(m := {_PADDED_MESSAGE_SQL}, k := [{_SHA512_ROUND_CONSTANTS_SQL}])",
        f"list_reduce(range(0, length(_s.m), 256), lambda _t, _o: {_SHA512_NEXT_HASH_SQL}, struct_pack({_SHA512_INITIAL_HASH_SQL}))",
        _DIGEST_HEX_SQL,
    )
    + ") END"
)
