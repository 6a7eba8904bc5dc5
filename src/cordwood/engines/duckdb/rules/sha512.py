"""SHA512 of a column in DuckDB's arithmetic: blocks of 128 bytes in 80 rounds of eight words of 64 bits."""

from collections.abc import Iterator
from itertools import count, islice
from typing import Final

from cordwood.engines.duckdb.rules.fingerprints import chain

# Longer inputs are refused: a block takes 80 rounds of lists.
MAX_BYTES: Final = 256

_MASK: Final = (1 << 64) - 1
_MASK_SQL: Final = f"{_MASK}::UHUGEINT"
_NAMES: Final = "abcdefgh"


def _primes() -> Iterator[int]:
    return (number for number in count(2) if all(number % divisor for divisor in range(2, number)))


def _fraction_of_root(number: int, degree: int) -> int:
    """Return the first 64 bits after the point of a root."""
    scaled, root = number << (64 * degree), 0
    for bit in reversed(range(80)):
        candidate = root | 1 << bit
        root = candidate if candidate**degree <= scaled else root
    return root & _MASK


def _rotated(value: str, bits: int) -> str:
    return f"((({value} >> {bits}) | ({value} << {64 - bits})) & {_MASK_SQL})"


def _xor(*values: str) -> str:
    first, *rest = values
    for value in rest:
        first = f"xor({first}, {value})"
    return first


def _scrambled(value: str, first: int, second: int, third: str) -> str:
    return _xor(_rotated(value, first), _rotated(value, second), third)


def _add(*terms: str) -> str:
    return f"(({' + '.join(terms)}) & {_MASK_SQL})"


_ROUND_WORDS: Final = ", ".join(f"{_fraction_of_root(prime, 3)}::UHUGEINT" for prime in islice(_primes(), 80))
_INITIAL: Final = ", ".join(
    f"{name} := {_fraction_of_root(prime, 2)}::UHUGEINT" for name, prime in zip(_NAMES, _primes(), strict=False)
)
# The digits of the message @a with its end, zeros up to whole blocks, and its length in bits.
_DIGITS: Final = "length(hex(@a))"
_PADDED: Final = (
    f"hex(@a) || '80' || repeat('0', (256 - ({_DIGITS} + 34) % 256) % 256) || printf('%032x', {_DIGITS} * 4)"
)

# The words of a block, of which each further one is made of earlier ones.
_FIRST_WORDS: Final = (
    "list_transform(range(0, 16), lambda _i: ('0x' || substring(_s.m, _o + 16 * _i + 1, 16))::UBIGINT::UHUGEINT)"
)
_NEXT_WORD: Final = _add(
    _scrambled("_w[_i - 2]", 19, 61, "(_w[_i - 2] >> 6)"),
    "_w[_i - 7]",
    _scrambled("_w[_i - 15]", 1, 8, "(_w[_i - 15] >> 7)"),
    "_w[_i - 16]",
)
_WORDS: Final = f"list_reduce(range(17, 81), lambda _w, _i: list_concat(_w, [{_NEXT_WORD}]), {_FIRST_WORDS})"

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
_ROUNDS: Final = f"list_transform([{_WORDS}], lambda _w: list_reduce(range(1, 81), lambda _r, _i: {_ROUND}, _t))[1]"
_SUMS: Final = ", ".join(f"{name} := {_add(f'_t.{name}', f'_b.{name}')}" for name in _NAMES)
_BLOCK: Final = f"list_transform([{_ROUNDS}], lambda _b: struct_pack({_SUMS}))[1]"
_DIGEST: Final = " || ".join(f"lpad(hex(_s.{name}::UBIGINT), 16, '0')" for name in _NAMES)

# The digest of the text or bytes @a.
SHA512: Final = (
    "CASE WHEN @a IS NOT NULL THEN unhex("
    + chain(
        f"struct_pack(m := {_PADDED}, k := [{_ROUND_WORDS}])",
        f"list_reduce(range(0, length(_s.m), 256), lambda _t, _o: {_BLOCK}, struct_pack({_INITIAL}))",
        _DIGEST,
    )
    + ") END"
)
