"""Redaction in ClickHouse's words: functions of one statement, which stand before it and hide what is found.

They are named lambdas in the statement's WITH: nothing has to be made on the server, nobody has to be let in to make
it, and what is printed says all that it does. The key of digests alone is bound, like any value.
"""

from typing import Final

from cordwood.engines.clickhouse.tables import literal
from cordwood.model.redaction import RedactionRules, RedactMode
from cordwood.sql.lowering import RAISED
from cordwood.sql.redaction.detection import Detection
from cordwood.sql.redaction.masking import (
    APART,
    BEFORE_DIGIT,
    CUT,
    FOUND,
    JSON_PIECES,
    OPEN,
    OPTIMISTIC_TEXT,
    REDACT_EVENT,
    REDACT_JSON,
    REDACT_TEXT,
    SET_APART,
    Masking,
)

# The value that is bound where a statement hashes. No parameter of an endpoint may be called so.
KEY: Final = "cordwood_redaction_key"

# Between JSON texts: in none of them it stands as it is.
PARTED: Final = "\x04"

# A long number that stands in an array; in an object, the passes tell it by its key.
_BARE_NUMBER: Final = r"[\[,]\s*-?[0-9]{13}"
_NUMBER: Final = r"^-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?$"

# What the functions call their texts: names that no rule gives to anything, for the engine mixes them up.
_VALUE: Final = "_hiding"
_TEXT: Final = "_hiding_text"
_KNOWN: Final = f"assumeNotNull({_TEXT})"
_PIECE: Final = "_hiding_piece"
_STRING: Final = "_hiding_string"


def functions(rules: RedactionRules, mode: RedactMode) -> dict[str, str]:
    """The functions of a mode by their names, each as it stands in WITH."""
    masking = Masking(_Words(), mode)
    text, json = _text(rules, masking), _json(rules, masking)
    event = f"if(match({_TEXT}, {literal(_NUMBER)}), {_TEXT}, {json})"
    bodies = ((REDACT_TEXT, text), (REDACT_JSON, json), (REDACT_EVENT, event), (OPTIMISTIC_TEXT, _trusted(rules)))
    return {f"{name}_{mode}": f"({_VALUE} -> {_in_turn(body)}) AS {name}_{mode}" for name, body in bodies}


def hide_texts(rules: RedactionRules, mode: RedactMode, pieces: int) -> str:
    """The statement that redacts JSON texts, in their order: `piece0` and so on are cut from all of them, parted by `PARTED`."""
    bound = ", ".join(f"{{piece{at}:String}}" for at in range(pieces))
    # Not a constant: the engine would do all the work while it plans.
    texts = f"splitByString({literal(PARTED)}, materialize(arrayStringConcat([{bound}])))"
    return f"SELECT arrayMap({_TEXT} -> {_json(rules, Masking(_Words(), mode))}, {texts})"


def _in_turn(body: str) -> str:
    """Inside a lambda of its own: the engine then makes the patterns ready once, not at every look at the plan."""
    return f"arrayMap({_TEXT} -> if(isNull({_TEXT}), NULL, {body}), [{_VALUE}])[1]"


def _text(rules: RedactionRules, masking: Masking) -> str:
    look = Detection(rules)
    hidden = masking.shipped(masking.own(_KNOWN, look.own), look.stages)
    return f"if(match({_TEXT}, {literal(look.hint)}), {hidden}, {_TEXT})"


def _trusted(rules: RedactionRules) -> str:
    failure = f"throwIf(match({_TEXT}, {literal(Detection(rules).hint)}), {literal(RAISED + FOUND)})"
    return f"if(assumeNotNull({failure}) = 1, '', {_TEXT})"


def _json(rules: RedactionRules, masking: Masking) -> str:
    """An own pattern sees the texts themselves, and never eats the quotes between them."""
    look, text = Detection(rules), _KNOWN
    if look.own:
        each = masking.own(f"JSONExtractString({_STRING})", look.own)
        pieces = f"extractAll({text}, {literal(JSON_PIECES)})"
        text = f"arrayStringConcat(arrayMap({_STRING} -> if(startsWith({_STRING}, '\"'), toJSONString({each}), {_STRING}), {pieces}))"
    hint = Detection(RedactionRules(rules.detectors)).hint
    apart = (
        f"if(match({text}, {literal(_BARE_NUMBER)}),"
        f" replaceRegexpAll({text}, {literal(BEFORE_DIGIT)}, {literal(SET_APART)}), {text})"
    )
    hidden = masking.shipped(apart, look.stages, is_set_apart=True)
    return f"if(match({text}, {literal(hint)}), replaceAll({hidden}, {literal(APART)}, ''), {text})"


class _Words:
    def without(self, text: str, mark: str) -> str:
        return f"replaceAll({text}, {literal(mark)}, '')"

    def replace_all(self, text: str, pattern: str, shown: str) -> str:
        return f"replaceRegexpAll({text}, {literal(pattern)}, {literal(shown)})"

    def either(self, condition: str, then: str, otherwise: str) -> str:
        return f"if({condition}, {then}, {otherwise})"

    def part(self, at: int) -> str:
        return f"splitByString({literal(CUT)}, {_PIECE})[{at}]"

    def pieces(self, marked: str, each: str) -> str:
        is_find = f"position({_PIECE}, {literal(CUT)}) > 0"
        pieces = f"splitByString({literal(OPEN)}, {marked})"
        return f"arrayStringConcat(arrayMap({_PIECE} -> if({is_find}, {each}, {_PIECE}), {pieces}))"

    def digits(self, text: str) -> str:
        return self.replace_all(text, "[ +-]|%20", "")

    def counts_up(self, digits: str) -> str:
        """Nine less where the double comes to ten."""
        weighed = "arraySum((d, i) -> if(i % 2 = 1, d * 2 - if(d > 4, 9, 0), d), {0}, arrayEnumerate({0}))"
        return weighed.format(f"arrayMap(d -> toInt64(d), splitByString('', leftPad({digits}, 20, '0')))") + " % 10 = 0"

    def digest(self, value: str) -> str:
        inner = f"lower(hex(SHA256({{{KEY}:String}} || lowerUTF8({value}))))"
        return f"substring(lower(hex(SHA256({{{KEY}:String}} || {inner}))), 1, 16)"

    def network(self, value: str) -> str:
        decoded = f"replaceAll(replaceAll(lower({value}), '%25', '%'), '%3a', ':')"
        spelt = f"splitByString('%', {decoded})[1]"
        dotted = f"arrayStringConcat(arraySlice(splitByString('.', {value}), 1, 3), '.') || '.0/24'"
        left = f"arrayStringConcat(arraySlice(splitByString(':', splitByString('::', {spelt})[1]), 1, 3), ':')"
        return (
            f"multiIf(position({spelt}, ':') = 0, {dotted},"
            f" position({spelt}, '.') > 0 AND (startsWith({spelt}, '::') OR startsWith({spelt}, '64:ff9b::')), {value},"
            f" {left} || '::/48')"
        )
