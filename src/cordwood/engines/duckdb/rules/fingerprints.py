"""FARM_FINGERPRINT of a column: FarmHash's Fingerprint64 in DuckDB's arithmetic.

Words of 64 bits are UHUGEINTs, whose products do not overflow. Steps follow each other as lists of one struct: DuckDB
binds the body of a lambda twice, so that lambdas inside of each other would double the work of planning.
"""

from typing import Final

# Longer inputs are refused: each step holds all digits, so that time and memory grow with the square of the length.
MAX_BYTES: Final = 256

_MASK: Final = "18446744073709551615::UHUGEINT"
_K0, _K1, _K2 = (f"{word}::UHUGEINT" for word in (0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F))


def _add(*terms: str) -> str:
    return f"(({' + '.join(terms)}) & {_MASK})"


def _multiply(left: str, right: str) -> str:
    return f"(({left} * {right}) & {_MASK})"


def _rotated(value: str, bits: int) -> str:
    return f"((({value} >> {bits}) | ({value} << {64 - bits})) & {_MASK})"


def _mixed(value: str) -> str:
    return f"xor({value}, {value} >> 47)"


def _fetch(offset: str, size: int = 8) -> str:
    """Return the bytes at an offset as a little-endian number, from the digits of the reversed bytes `_s.r`."""
    return f"('0x' || substring(_s.r, 2 * (_s.n - ({offset}) - {size}) + 1, {2 * size}))::UBIGINT::UHUGEINT"


def chain(first: str, *steps: str) -> str:
    """Return the last of several values; each step is an expression over the previous value `_s`."""
    result = f"[{first}]"
    for step in steps:
        result = f"list_transform({result}, lambda _s: {step})"
    return f"({result})[1]"


def _struct(kept: str, **fields: str) -> str:
    """Return a struct of fields of `_s` that are kept, and of new ones."""
    members = [f"{name} := _s.{name}" for name in kept.split()] + [
        f"{name} := {value}" for name, value in fields.items()
    ]
    return f"struct_pack({', '.join(members)})"


# The last steps of every length from 4 on: the hash of the pair `u`, `v` with the factor `f`.
_PAIR_HASH: Final = (
    _struct("v f", p=_multiply("xor(_s.u, _s.v)", "_s.f")),
    _struct("v f", p=_multiply(f"xor(_s.v, {_mixed('_s.p')})", "_s.f")),
    _multiply(_mixed("_s.p"), "_s.f"),
)
_WORDS: Final = _struct("r n", f=f"({_K2} + (_s.n * 2)::UHUGEINT)")
_UP_TO_3: Final = chain(
    "_s",
    _struct(
        "",
        low=f"({_fetch('0', 1)} + ({_fetch('_s.n // 2', 1)} << 8))",
        high=f"(_s.n::UHUGEINT + ({_fetch('_s.n - 1', 1)} << 2))",
    ),
    _struct("", p=f"xor({_multiply('_s.low', _K2)}, {_multiply('_s.high', _K0)})"),
    _multiply(_mixed("_s.p"), _K2),
)
_UP_TO_7: Final = chain(
    "_s", _WORDS, _struct("f", u=f"(_s.n::UHUGEINT + ({_fetch('0', 4)} << 3))", v=_fetch("_s.n - 4", 4)), *_PAIR_HASH
)
_UP_TO_16: Final = chain(
    "_s",
    _WORDS,
    _struct("f", a=_add(_fetch("0"), _K2), b=_fetch("_s.n - 8")),
    _struct(
        "f",
        u=_add(_multiply(_rotated("_s.b", 37), "_s.f"), "_s.a"),
        v=_multiply(_add(_rotated("_s.a", 25), "_s.b"), "_s.f"),
    ),
    *_PAIR_HASH,
)


def _ends(first_factor: str) -> str:
    """Return the words at both ends: `a` and `b` from the start, `c` and `d` from the end."""
    return _struct(
        "r n f",
        a=_multiply(_fetch("0"), first_factor),
        b=_fetch("8"),
        c=_multiply(_fetch("_s.n - 8"), "_s.f"),
        d=_multiply(_fetch("_s.n - 16"), _K2),
    )


_LEFT: Final = _add(_rotated(_add("_s.a", "_s.b"), 43), _rotated("_s.c", 30), "_s.d")
_RIGHT: Final = _add("_s.a", _rotated(_add("_s.b", _K2), 18), "_s.c")
_UP_TO_32: Final = chain("_s", _WORDS, _ends(_K1), _struct("f", u=_LEFT, v=_RIGHT), *_PAIR_HASH)
_UP_TO_64: Final = chain(
    "_s",
    _WORDS,
    _ends(_K2),
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


def _weak_hash(kept: str, offset: str, first: str, second: str, names: tuple[str, str]) -> tuple[str, ...]:
    """Return the steps that hash 32 bytes with two words into two fields."""
    words = {name: _fetch(f"{offset} + {step}") for name, step in (("i", 0), ("j", 8), ("k", 16), ("l", 24))}
    return (
        _struct(kept, g=_add(first, words["i"]), h=second, **words),
        _struct(f"{kept} g j k l", h=_rotated(_add("_s.h", "_s.g", "_s.l"), 21)),
        _struct(f"{kept} g h l", i=_add("_s.g", "_s.j", "_s.k")),
        _struct(kept, **{names[0]: _add("_s.i", "_s.l"), names[1]: _add("_s.h", _rotated("_s.i", 44), "_s.g")}),
    )


def _block(factor: str, multiplier: str) -> tuple[str, ...]:
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
        *_weak_hash(f"{kept} x y z c d", "_s.o", _multiply("_s.b", factor), _add("_s.z", "_s.c"), ("a", "b")),
        *_weak_hash(
            f"{kept} x y z a b", "_s.o + 32", _add("_s.x", "_s.d"), _add("_s.y", _fetch("_s.o + 16")), ("c", "d")
        ),
    )


_STATE: Final = "r n o f x y z a b c d"
_INITIAL: Final = _struct(
    "r n",
    o="0::BIGINT",
    f=_K1,
    x=_add(f"81::UHUGEINT * {_K2}", _fetch("0")),
    y=_add(f"81::UHUGEINT * {_K1}", "113::UHUGEINT"),
    z=_multiply(_mixed(_add(_multiply(_add(f"81::UHUGEINT * {_K1}", "113::UHUGEINT"), _K2), "113::UHUGEINT")), _K2),
    **dict.fromkeys("abcd", "0::UHUGEINT"),
)
_STATE_AT_BLOCK: Final = (
    f"struct_pack({', '.join(f'{name} := ' + ('_o' if name == 'o' else f'_t.{name}') for name in _STATE.split())})"
)
_BLOCKS: Final = (
    f"list_reduce(range(0, (_s.n - 1) // 64 * 64, 64), lambda _t, _o: {chain(_STATE_AT_BLOCK, *_block('_s.f', '1::UHUGEINT'), _struct(_STATE))},"
    " _s)"
)
# Block by block, then the last 64 bytes, which overlap the blocks.
_LONGER: Final = chain(
    "_s",
    _INITIAL,
    _BLOCKS,
    _struct(
        "r n x y z a b d", f=f"({_K1} + ((_s.z & 255::UHUGEINT) << 1))", e=_add("_s.c", "((_s.n - 1) % 64)::UHUGEINT")
    ),
    _struct("r n f x y z b d", o="_s.n - 64", a=_add("_s.a", "_s.e"), c=_add("_s.a", "_s.e", "_s.e")),
    *_block("_s.f", "9::UHUGEINT"),
    _struct("f x y z c d", p=_multiply("xor(_s.a, _s.c)", "_s.f"), q=_multiply("xor(_s.b, _s.d)", "_s.f")),
    _struct(
        "f x y z",
        p=_multiply(f"xor(_s.c, {_mixed('_s.p')})", "_s.f"),
        q=_multiply(f"xor(_s.d, {_mixed('_s.q')})", "_s.f"),
    ),
    _struct(
        "f",
        u=_add(_multiply(_mixed("_s.p"), "_s.f"), _multiply(_mixed("_s.y"), _K0), "_s.z"),
        v=_add(_multiply(_mixed("_s.q"), "_s.f"), "_s.x"),
    ),
    *_PAIR_HASH,
)
_REVERSED: Final = "array_to_string(list_reverse(regexp_extract_all(hex(@a), '..')), '')"
_BY_LENGTH: Final = (
    f"CASE WHEN _s.n = 0 THEN {_K2} WHEN _s.n <= 3 THEN {_UP_TO_3} WHEN _s.n <= 7 THEN {_UP_TO_7}"
    f" WHEN _s.n <= 16 THEN {_UP_TO_16} WHEN _s.n <= 32 THEN {_UP_TO_32} WHEN _s.n <= 64 THEN {_UP_TO_64}"
    f" ELSE {_LONGER} END"
)
_SIGNED: Final = f"CASE WHEN _s < {1 << 63}::UHUGEINT THEN _s::BIGINT ELSE (_s::HUGEINT - {1 << 64})::BIGINT END"

# The fingerprint of the text or bytes @a.
FINGERPRINT: Final = (
    "CASE WHEN @a IS NOT NULL THEN"
    f" {chain(f'struct_pack(r := {_REVERSED}, n := length(hex(@a)) // 2)', _BY_LENGTH, _SIGNED)} END"
)
