"""Redaction in ClickHouse's words: functions of one statement, which stand before it and hide what is found.

They are named lambdas in the statement's WITH: nothing has to be made on the server, nobody has to be let in to make
it, and what is printed says all that it does. The key of digests alone is bound, like any value.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from cordwood.model.redaction import RedactionRules, RedactMode
from cordwood.sql.redaction.look import Look, Stage
from cordwood.sql.redaction.patterns import Nature

TEXT: Final = "redacted_text"
JSON: Final = "redacted_json"
EVENT: Final = "redacted_event"
HIDDEN: Final = "REDACTED"

# The value that is bound where a statement hashes. No parameter of an endpoint may be called so.
KEY: Final = "cordwood_redaction_key"

# Marks around finds. They are taken out of every text before it is looked through, so no text can bring its own.
_OPEN: Final = "\x01"
_CUT: Final = "\x02"
_APART: Final = "\x03"

# A long number that stands in an array; in an object, the passes tell it by its key.
_BARE_NUMBER: Final = r"[\[,]\s*-?[0-9]{13}"
# All that stands before a digit outside of strings: the digit is set apart, so that no pass takes it for a card's.
_BEFORE_DIGIT: Final = r'(?s)((?:[^"0-9]|"(?:[^"\\]|\\.)*")*)([0-9]|\z)'
_SET_APART: Final = rf"\1{_APART}\2"
_JSON_PIECES: Final = r'(?s)"(?:[^"\\]|\\.)*"|[^"]+'
_NUMBER: Final = r"^-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?$"

# Letters only, so that no later pass takes a digest for a number or an address.
_DIGEST_LETTERS: Final = "ghijklmnopqrstuv"

# What the functions call their texts: names that no rule gives to anything, for the engine mixes them up.
_VALUE: Final = "_hiding"
_TEXT: Final = "_hiding_text"
_KNOWN: Final = f"assumeNotNull({_TEXT})"
_PIECE: Final = "_hiding_piece"
_STRING: Final = "_hiding_string"


def functions(rules: RedactionRules, mode: RedactMode) -> dict[str, str]:
    """The functions of a mode by their names, each as it stands in WITH."""
    text, json = _text(rules, mode), _json(rules, mode)
    bodies = ((TEXT, text), (JSON, json), (EVENT, f"if(match({_TEXT}, {literal(_NUMBER)}), {_TEXT}, {json})"))
    return {f"{name}_{mode}": f"({_VALUE} -> {_in_turn(body)}) AS {name}_{mode}" for name, body in bodies}


def _in_turn(body: str) -> str:
    """Inside a lambda of its own: the engine then makes the patterns ready once, not at every look at the plan."""
    return f"arrayMap({_TEXT} -> if(isNull({_TEXT}), NULL, {body}), [{_VALUE}])[1]"


def _text(rules: RedactionRules, mode: RedactMode) -> str:
    look = Look(rules)
    hidden = _shipped(_own(_KNOWN, look.own, mode), look.stages, mode)
    return f"if(match({_TEXT}, {literal(look.hint)}), {hidden}, {_TEXT})"


def _json(rules: RedactionRules, mode: RedactMode) -> str:
    """An own pattern sees the texts themselves, and never eats the quotes between them."""
    look, text = Look(rules), _KNOWN
    if look.own:
        each = _own(f"JSONExtractString({_STRING})", look.own, mode)
        pieces = f"extractAll({text}, {literal(_JSON_PIECES)})"
        text = f"arrayStringConcat(arrayMap({_STRING} -> if(startsWith({_STRING}, '\"'), toJSONString({each}), {_STRING}), {pieces}))"
    hint = Look(RedactionRules(rules.detectors)).hint
    apart = (
        f"if(match({text}, {literal(_BARE_NUMBER)}),"
        f" replaceRegexpAll({text}, {literal(_BEFORE_DIGIT)}, {literal(_SET_APART)}), {text})"
    )
    hidden = _shipped(apart, look.stages, mode, marks=(_OPEN, _CUT))
    return f"if(match({text}, {literal(hint)}), replaceAll({hidden}, {literal(_APART)}, ''), {text})"


def _own(text: str, stages: Sequence[Stage], mode: RedactMode) -> str:
    for one in stages:
        text = _looked(text, one, mode)
    return text


def _shipped(
    text: str, stages: Sequence[Stage], mode: RedactMode, marks: tuple[str, ...] = (_OPEN, _CUT, _APART)
) -> str:
    for mark in marks:
        text = f"replaceAll({text}, {literal(mark)}, '')"
    for one in stages:
        text = _looked(text, one, mode)
    for mark in (_OPEN, _CUT):
        text = f"replaceAll({text}, {literal(mark)}, '')"
    return text


def _looked(text: str, one: Stage, mode: RedactMode) -> str:
    if one.nature is Nature.CARD:
        return _cards(text, one, mode)
    if _is_plain(one, mode):
        return _replaced(text, one)
    shown = rf"{_OPEN}{_groups(one.keeps)}{_CUT}{_groups(one.befores)}{_CUT}\0{_CUT}"
    value = _instead("substring(q[3], length(q[2]) + 1)", one.nature, mode)
    return _pieces(_replace_all(text, one.pattern, shown), f"if(q[1] != '', q[1] || q[4], q[2] || {value} || q[4])")


def _is_plain(one: Stage, mode: RedactMode) -> bool:
    if mode is RedactMode.TRUNCATE:
        return one.nature is not Nature.ADDRESS
    return mode is RedactMode.REPLACE or one.nature is Nature.PLAIN


def _replaced(text: str, one: Stage) -> str:
    shown = f"{_groups(one.befores)}{HIDDEN}"
    if not one.keeps:
        return _replace_all(text, one.pattern, shown)
    # A find that is to stay stands between the marks, and is put back without what was set after it.
    found = _replace_all(text, one.pattern, f"{_OPEN}{_groups(one.keeps)}{_CUT}{shown}")
    back = _replace_all(found, f"{_OPEN}([^{_CUT}]+){_CUT}{HIDDEN}", _groups((1,)))
    # The marks of the others go too: a later pass may look for its own.
    return f"replaceAll({back}, {literal(_OPEN + _CUT)}, '')"


def _cards(text: str, one: Stage, mode: RedactMode) -> str:
    """Only numbers whose digits count up as a card's do go; a card's digits are the group after the last before."""
    shown = rf"{_OPEN}\{one.befores[-1] + 1}{_CUT}{_groups(one.befores)}{_CUT}\0{_CUT}"
    digits = _replace_all("q[1]", "[ +-]|%20", "")
    return _pieces(
        _replace_all(text, one.pattern, shown),
        f"if(q[1] != '' AND {_counts_up(digits)}, q[2] || {_instead(digits, one.nature, mode)} || q[4], q[3] || q[4])",
    )


def _counts_up(digits: str) -> str:
    """Every second digit from the right counts double, and nine less when that comes to ten."""
    weighed = "arraySum((d, i) -> if(i % 2 = 1, d * 2 - if(d > 4, 9, 0), d), {0}, arrayEnumerate({0}))"
    return weighed.format(f"arrayMap(d -> toInt64(d), splitByString('', leftPad({digits}, 20, '0')))") + " % 10 = 0"


def _pieces(marked: str, each: str) -> str:
    """The text cut at its marks, every piece put through an expression of its parts, `q[1]` and so on."""
    parts = re.sub(r"\bq\[", f"splitByString({literal(_CUT)}, {_PIECE})[", each)
    is_find = f"position({_PIECE}, {literal(_CUT)}) > 0"
    pieces = f"splitByString({literal(_OPEN)}, {marked})"
    return f"arrayStringConcat(arrayMap({_PIECE} -> if({is_find}, {parts}, {_PIECE}), {pieces}))"


def _replace_all(text: str, pattern: str, shown: str) -> str:
    return f"replaceRegexpAll({text}, {literal(pattern)}, {literal(shown)})"


def _groups(numbers: Sequence[int]) -> str:
    return "".join(rf"\{number}" for number in numbers)


def _instead(value: str, nature: Nature, mode: RedactMode) -> str:
    if mode is RedactMode.HASH:
        inner = f"lower(hex(SHA256({{{KEY}:String}} || lowerUTF8({value}))))"
        digest = f"substring(lower(hex(SHA256({{{KEY}:String}} || {inner}))), 1, 16)"
        return f"'{HIDDEN}-' || translate({digest}, '0123456789abcdef', '{_DIGEST_LETTERS}')"
    if mode is RedactMode.TRUNCATE and nature is Nature.ADDRESS:
        return _network(value)
    return f"'{HIDDEN}'"


def _network(value: str) -> str:
    """/24 and /48. The fourth version inside the sixth is left to its own pass, which comes after."""
    decoded = f"replaceAll(replaceAll(lower({value}), '%25', '%'), '%3a', ':')"
    spelt = f"splitByString('%', {decoded})[1]"
    dotted = f"arrayStringConcat(arraySlice(splitByString('.', {value}), 1, 3), '.') || '.0/24'"
    left = f"arrayStringConcat(arraySlice(splitByString(':', splitByString('::', {spelt})[1]), 1, 3), ':')"
    return (
        f"multiIf(position({spelt}, ':') = 0, {dotted},"
        f" position({spelt}, '.') > 0 AND (startsWith({spelt}, '::') OR startsWith({spelt}, '64:ff9b::')), {value},"
        f" {left} || '::/48')"
    )


def literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def with_functions(sql: str, known: Mapping[str, str]) -> str:
    """The statement with those functions before it that it calls."""
    told = ", ".join(function for name, function in known.items() if f"{name}(" in sql)
    if not told:
        return sql
    for words in ("WITH RECURSIVE ", "WITH "):
        if sql.startswith(words):
            return f"{words}{told}, {sql.removeprefix(words)}"
    return f"WITH {told} {sql}" if sql.startswith("SELECT") else f"WITH {told} SELECT * FROM ({sql})"  # noqa: S608 - a compiled statement
