"""Redaction in DuckDB's words: macros that take a text, a JSON text or an event's value, and hide what is found.

Regular expressions alone do the work where they can: they run in the engine's threads, and a text in which the
hint finds nothing costs one of them. RE2 compiles them anew for every expression that uses them, so few and small
ones matter more than how long they look.
"""

import re
from collections.abc import Sequence
from typing import Final

from cordwood.engines.duckdb.faults import RAISED
from cordwood.model.redaction import RedactionRules, RedactMode
from cordwood.sql.redaction.look import Look, Stage
from cordwood.sql.redaction.patterns import Nature

TEXT_MACRO: Final = "redacted_text"
JSON_MACRO: Final = "redacted_json"
EVENT_MACRO: Final = "redacted_event"
# Takes a text for one in which nothing is to be found, and fails where that is not so.
TRUSTING_MACRO: Final = "trusted_text"
HIDDEN: Final = "REDACTED"

FOUND: Final = "A text may hold something to redact."

# Marks around finds. They are taken out of every text before it is looked through, so no text can bring its own.
_OPEN: Final = "\x01"
_CUT: Final = "\x02"
_APART: Final = "\x03"

# A long number that stands in an array; in an object, the passes tell it by its key.
_BARE_NUMBER: Final = r"[\[,]-?[0-9]{13}"
# All that stands before a digit outside of strings: the digit is set apart, so that no pass takes it for a card's.
_BEFORE_DIGIT: Final = r'(?s)((?:[^"0-9]|"(?:[^"\\]|\\.)*")*)([0-9]|\z)'
_SET_APART: Final = rf"\1{_APART}\2"
_JSON_PIECES: Final = r'(?s)"(?:[^"\\]|\\.)*"|[^"]+'

# Letters only, so that no later pass takes a digest for a number or an address.
_DIGEST_LETTERS: Final = "ghijklmnopqrstuv"
_KEY: Final = "$key"


def macros(rules: RedactionRules, key: str, mode: RedactMode) -> list[str]:
    """The statements that make the macros of a mode, one a kind of value. The key of digests stands nowhere else."""
    look = Look(rules)
    bodies = (
        (TEXT_MACRO, _text(look, mode)),
        (JSON_MACRO, _json(look, mode)),
        (EVENT_MACRO, _event(mode)),
        (TRUSTING_MACRO, _trusted(look)),
    )
    return [
        f"CREATE OR REPLACE MACRO memory.main.{name}_{mode}(t) AS {body.replace(_KEY, literal(key))}"
        for name, body in bodies
    ]


def hide_texts(mode: RedactMode) -> str:
    """The statement that redacts the JSON texts `$texts`, in their order: what is compiled for one serves all."""
    return f"SELECT list_transform($texts::VARCHAR[], lambda t: {JSON_MACRO}_{mode}(t))"


def _text(look: Look, mode: RedactMode) -> str:
    own = _own("t", look.own, mode)
    return f"CASE WHEN {_has_hint(look)} THEN {_shipped(own, look.stages, mode)} ELSE t END"


def _trusted(look: Look) -> str:
    """Not by error(): the engine lets nothing so volatile stand in a window. What is cast is no constant, or it would be tried at once."""
    failure = f"CAST({literal(RAISED + FOUND)} || left(t, 0) AS INTEGER)::VARCHAR"
    return f"CASE WHEN {_has_hint(look)} THEN {failure} ELSE t END"


def _has_hint(look: Look) -> str:
    """Not regexp_matches: the engine makes its pattern ready three times before it has begun. No hint is empty."""
    return f"regexp_extract(t, {literal(look.hint)}) <> ''"


def _json(look: Look, mode: RedactMode) -> str:
    apart = (
        f"CASE WHEN regexp_matches(t, {literal(_BARE_NUMBER)})"
        f" THEN regexp_replace(t, {literal(_BEFORE_DIGIT)}, {literal(_SET_APART)}, 'g') ELSE t END"
    )
    if look.own:
        # An own pattern must see the texts themselves, and must never eat the quotes between them.
        each = _own("(s::JSON->>'$')", look.own, mode)
        pieces = f"regexp_extract_all({apart}, {literal(_JSON_PIECES)})"
        apart = _joined(
            f"list_transform({pieces}, lambda s: CASE WHEN s[1] = '\"' THEN to_json({each})::VARCHAR ELSE s END)"
        )
    return f"replace({_shipped(apart, look.stages, mode, marks=(_OPEN, _CUT))}, {literal(_APART)}, '')"


def _event(mode: RedactMode) -> str:
    """A text too goes through JSON: one body for all kinds is half to make ready, and half to keep in memory."""
    kind = "variant_typeof(t)"
    return (
        f"CASE WHEN {kind} = 'VARCHAR' OR starts_with({kind}, 'OBJECT') OR starts_with({kind}, 'ARRAY')"
        f" THEN list_transform([t::JSON::VARCHAR], lambda x: {JSON_MACRO}_{mode}(x))[1]::JSON::VARIANT ELSE t END"
    )


def _own(text: str, stages: Sequence[Stage], mode: RedactMode) -> str:
    for one in stages:
        text = _looked(text, one, mode)
    return text


def _shipped(
    text: str, stages: Sequence[Stage], mode: RedactMode, marks: tuple[str, ...] = (_OPEN, _CUT, _APART)
) -> str:
    for mark in marks:
        text = f"replace({text}, {literal(mark)}, '')"
    for one in stages:
        text = _looked(text, one, mode)
    for mark in (_OPEN, _CUT):
        text = f"replace({text}, {literal(mark)}, '')"
    return text


def _looked(text: str, one: Stage, mode: RedactMode) -> str:
    if one.nature is Nature.CARD:
        return _cards(text, one, mode)
    if _is_plain(one, mode):
        return _replaced(text, one)
    shown = rf"{_OPEN}{_groups(one.keeps)}{_CUT}{_groups(one.befores)}{_CUT}\0{_CUT}"
    value = _instead("substr(q[3], length(q[2]) + 1)", one.nature, mode)
    return _pieces(
        f"regexp_replace({text}, {literal(one.pattern)}, {literal(shown)}, 'g')",
        f"CASE WHEN q[1] <> '' THEN q[1] || q[4] ELSE q[2] || {value} || q[4] END",
    )


def _is_plain(one: Stage, mode: RedactMode) -> bool:
    if mode is RedactMode.TRUNCATE:
        return one.nature is not Nature.ADDRESS
    return mode is RedactMode.REPLACE or one.nature is Nature.PLAIN


def _replaced(text: str, one: Stage) -> str:
    shown = f"{_groups(one.befores)}{HIDDEN}"
    if not one.keeps:
        return f"regexp_replace({text}, {literal(one.pattern)}, {literal(shown)}, 'g')"
    # A find that is to stay stands between the marks, and is put back without what was set after it.
    marked = f"{_OPEN}{_groups(one.keeps)}{_CUT}{shown}"
    found = f"regexp_replace({text}, {literal(one.pattern)}, {literal(marked)}, 'g')"
    back = f"{_OPEN}([^{_CUT}]+){_CUT}{HIDDEN}"
    # The marks of the others go too: a later pass may look for its own.
    return f"replace(regexp_replace({found}, {literal(back)}, '{_groups((1,))}', 'g'), {literal(_OPEN + _CUT)}, '')"


def _cards(text: str, one: Stage, mode: RedactMode) -> str:
    """Only numbers whose digits count up as a card's do go; a card's digits are the group after the last before."""
    shown = rf"{_OPEN}\{one.befores[-1] + 1}{_CUT}{_groups(one.befores)}{_CUT}\0{_CUT}"
    digits = "translate(replace(q[1], '%20', ''), ' +-', '')"
    return _pieces(
        f"regexp_replace({text}, {literal(one.pattern)}, {literal(shown)}, 'g')",
        f"CASE WHEN q[1] <> '' AND {_counts_up(digits)} THEN q[2] || {_instead(digits, one.nature, mode)} || q[4]"
        " ELSE q[3] || q[4] END",
    )


def _counts_up(digits: str) -> str:
    """Every second digit from the right counts double, and one more when that comes to ten."""
    weighed = f"list_dot_product(string_split(lpad({digits}, 20, '0'), '')::DOUBLE[], {[2.0, 1.0] * 10})"
    carried = f"length(translate(regexp_replace(lpad({digits}, 20, '0'), '(.).', '{_groups((1,))}', 'g'), '01234', ''))"
    return f"({weighed} + {carried}) % 10 = 0"


def _pieces(marked: str, each: str) -> str:
    """The text cut at its marks, every piece put through an expression of its parts, `q[1]` and so on.

    One lambda, not one in the other: the engine binds what a lambda goes through twice for each.
    """
    parts = re.sub(r"\bq\[", f"string_split(p, {literal(_CUT)})[", each)
    pieces = f"string_split({marked}, {literal(_OPEN)})"
    return _joined(
        f"list_transform({pieces}, lambda p: CASE WHEN contains(p, {literal(_CUT)}) THEN {parts} ELSE p END)"
    )


def _joined(pieces: str) -> str:
    """Not array_to_string: the engine writes its argument out twice, and all that it stands on with it."""
    return f"list_aggregate({pieces}, 'string_agg', '')"


def _groups(numbers: Sequence[int]) -> str:
    return "".join(rf"\{number}" for number in numbers)


def _instead(value: str, nature: Nature, mode: RedactMode) -> str:
    if mode is RedactMode.HASH:
        digest = f"substr(sha256({_KEY} || sha256({_KEY} || lower({value}))), 1, 16)"
        return f"'{HIDDEN}-' || translate({digest}, '0123456789abcdef', '{_DIGEST_LETTERS}')"
    if mode is RedactMode.TRUNCATE and nature is Nature.ADDRESS:
        return _network(value)
    return f"'{HIDDEN}'"


def _network(value: str) -> str:
    """/24 and /48. The fourth version inside the sixth is left to its own pass, which comes after."""
    spelt = f"split_part(replace(replace(lower({value}), '%25', '%'), '%3a', ':'), '%', 1)"
    dotted = f"array_to_string(string_split({value}, '.')[1:3], '.') || '.0/24'"
    left = f"string_split(split_part({spelt}, '::', 1), ':')[1:3]"
    return (
        f"CASE WHEN NOT contains({spelt}, ':') THEN {dotted}"
        f" WHEN contains({spelt}, '.') AND (starts_with({spelt}, '::') OR starts_with({spelt}, '64:ff9b::')) THEN {value}"
        f" ELSE array_to_string({left}, ':') || '::/48' END"
    )


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
