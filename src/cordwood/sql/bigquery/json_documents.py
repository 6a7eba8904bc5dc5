"""JSON that stands in a query, read before it runs: more strictly than the engines do, and each key once."""

import json
import math
from decimal import Decimal
from typing import Final, NoReturn

from sqlglot import exp

from cordwood.model.datatype import Kind
from cordwood.sql.constants import constant, constant_text
from cordwood.sql.lowering import name_of, unsupported
from cordwood.sql.typing import kind_of

NO_JSON: Final = "syntax error while parsing JSON, or a number in it is too wide"

_STRINGIFIES: Final = "stringify_wide_numbers"
_INT64_MIN: Final = -(2**63)
_UINT64_MAX: Final = 2**64 - 1


class _Number(str):
    """A number as it is spelled."""

    __slots__ = ()


def rounds_wide(node: exp.Expr, unsaid: str) -> bool:
    """What `wide_number_mode` says of numbers that a FLOAT64 cannot hold."""
    option = node.args.get("expression")
    mode = unsaid if option is None else said(option) if isinstance(option, exp.Kwarg) else None
    if mode not in ("exact", "round") or (option is not None and option.this.name.lower() != "wide_number_mode"):
        unsupported(node, f"{name_of(node)} other than with wide_number_mode => 'exact' or 'round'")
    return mode == "round"


def stringifies_wide(node: exp.Expr) -> bool:
    """TO_JSON's `stringify_wide_numbers`: whether it writes them as TO_JSON_STRING does."""
    option = node.args.get("options")
    if option is None:
        return False
    chosen = said(option)
    if not isinstance(chosen, bool) or (isinstance(option, exp.Kwarg) and option.this.name.lower() != _STRINGIFIES):
        unsupported(node, "TO_JSON other than with stringify_wide_numbers => TRUE or FALSE")
    return chosen


def said(option: exp.Expr) -> object:
    """The value of an option, named or not; None when it is no literal."""
    return constant(option.expression if isinstance(option, exp.Kwarg) else option)


def document(spelled: str, *, rounds: bool) -> str | None:
    """The document that the text spells; None when it is none, or holds a number that can only be kept by rounding."""
    try:
        read = json.loads(
            spelled,
            object_pairs_hook=_first_of_each,
            parse_int=lambda digits: _whole(digits, rounds=rounds),
            parse_float=lambda digits: _fraction(digits, rounds=rounds),
            parse_constant=_no_number,
        )
        told = _told(read)
        told.encode()
    except (ValueError, RecursionError):
        return None
    return told


def _first_of_each(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in pairs:
        found.setdefault(key, value)
    return found


def _whole(digits: str, *, rounds: bool) -> _Number:
    kept = len(digits) < 21 and _INT64_MIN <= int(digits) <= _UINT64_MAX
    return _Number(digits) if kept else _fraction(digits, rounds=rounds)


def _fraction(digits: str, *, rounds: bool) -> _Number:
    value = float(digits)
    if Decimal(digits) == Decimal(repr(value)):
        return _Number(digits)
    if not rounds or math.isinf(value):
        raise ValueError(digits)
    return _Number(repr(value))


def _no_number(name: str) -> NoReturn:
    raise ValueError(name)


def _told(value: object) -> str:
    if isinstance(value, _Number):
        return value
    if isinstance(value, dict):
        return "{" + ",".join(f"{_told(key)}:{_told(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_told, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


Pairs = list[tuple[exp.Expr, exp.Expr]]


def pairs_of(node: exp.Expr) -> Pairs:
    """JSON_OBJECT's keys and values, without those whose key is known and was there before."""
    seen: set[str | None] = set()
    pairs: Pairs = []
    for pair in node.expressions:
        key = constant_text(pair.this)
        if key is None or key not in seen:
            pairs.append((pair.this, pair.expression))
        seen.add(key)
    return pairs


def are_arrays(pairs: Pairs) -> bool:
    return len(pairs) == 1 and kind_of(pairs[0][0]) is Kind.ARRAY


def are_known(pairs: Pairs) -> bool:
    return all(constant_text(key) is not None for key, _ in pairs)
