"""A compile-time reader of JSON literals: stricter than the engines, and the first of duplicate keys wins."""

import json
import math
from decimal import Decimal
from typing import Final, NoReturn

from sqlglot import exp

from cordwood.model.datatype import Kind
from cordwood.sql.constants import constant, constant_text
from cordwood.sql.lowering import function_name, unsupported
from cordwood.sql.typing import kind_of

NO_JSON: Final = "syntax error while parsing JSON, or a number in it is too wide"

_STRINGIFIES: Final = "stringify_wide_numbers"
_INT64_MIN: Final = -(2**63)
_UINT64_MAX: Final = 2**64 - 1


class _Number(str):
    """A number in its original spelling."""

    __slots__ = ()


def rounds_wide(node: exp.Expr, unsaid: str) -> bool:
    """Return whether `wide_number_mode` is 'round'; `unsaid` is the default mode."""
    option = node.args.get("expression")
    mode = unsaid if option is None else said(option) if isinstance(option, exp.Kwarg) else None
    if mode not in ("exact", "round") or (option is not None and option.this.name.lower() != "wide_number_mode"):
        unsupported(node, f"{function_name(node)} other than with wide_number_mode => 'exact' or 'round'")
    return mode == "round"


def stringifies_wide(node: exp.Expr) -> bool:
    """Return TO_JSON's option `stringify_wide_numbers`: whether wide integers are written as strings."""
    option = node.args.get("options")
    if option is None:
        return False
    chosen = said(option)
    if not isinstance(chosen, bool) or (isinstance(option, exp.Kwarg) and option.this.name.lower() != _STRINGIFIES):
        unsupported(node, "TO_JSON other than with stringify_wide_numbers => TRUE or FALSE")
    return chosen


def said(option: exp.Expr) -> object:
    """Return the value of an option, named or positional; None if it is not a literal."""
    return constant(option.expression if isinstance(option, exp.Kwarg) else option)


def document(spelled: str, *, rounds: bool) -> str | None:
    """Return the JSON document in canonical spelling; None if it is invalid or a number would have to be rounded.

    With `rounds`, numbers are rounded to FLOAT64 instead.
    """
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
    """Return JSON_OBJECT's keys and values, without later duplicates of constant keys."""
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
