"""Redaction as ClickHouse functions that a statement defines in its own WITH.

They are named lambdas: nothing has to be created on the server, and no privilege is needed for it. Only the key of
digests is a bound value.
"""

from typing import Final

from cordwood.engines.clickhouse.tables import literal
from cordwood.model.redaction import RedactionRules, RedactMode
from cordwood.sql.lowering import RAISED
from cordwood.sql.redaction.masking import (
    BEFORE_DIGIT,
    DIGIT_MARKER,
    JSON_SEGMENTS,
    MARKED_DIGIT,
    MATCH_CUT,
    MATCH_START,
    MAY_NEED_REDACTION,
    OPTIMISTIC_TEXT,
    REDACT_EVENT,
    REDACT_JSON,
    REDACT_TEXT,
    Masking,
)
from cordwood.sql.redaction.patterns import Detection

# The name of the bound key in a statement that hashes. No parameter of an endpoint may have this name.
KEY: Final = "cordwood_redaction_key"

# The separator of JSON texts; no JSON text contains this character unescaped.
SEPARATOR: Final = "\x04"

# A number in an array that is long enough for a card number; a number in an object is recognised by the key before it.
_ARRAY_NUMBER: Final = r"[\[,]\s*-?[0-9]{13}"
_NUMBER: Final = r"^-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?$"

# The names of the functions' variables. Lowering rules use other names: ClickHouse confuses variables of the same name.
_VALUE: Final = "_redacted_value"
_TEXT: Final = "_redacted_text"
_KNOWN: Final = f"assumeNotNull({_TEXT})"
_PIECE: Final = "_redacted_segment"
_STRING: Final = "_redacted_string"


def functions(rules: RedactionRules, mode: RedactMode) -> dict[str, str]:
    """Return the functions of a mode by name, each as an element of WITH."""
    masking = Masking(_RedactionSQL(), mode)
    text, json = _text(rules, masking), _json(rules, masking)
    event = f"if(match({_TEXT}, {literal(_NUMBER)}), {_TEXT}, {json})"
    bodies = (
        (REDACT_TEXT, text),
        (REDACT_JSON, json),
        (REDACT_EVENT, event),
        (OPTIMISTIC_TEXT, _optimistic_text(rules)),
    )
    return {f"{name}_{mode}": f"({_VALUE} -> {_apply_once(body)}) AS {name}_{mode}" for name, body in bodies}


def redact_texts_sql(rules: RedactionRules, mode: RedactMode, chunk_count: int) -> str:
    """Return the statement that redacts JSON texts in their order.

    `piece0` and so on are slices of the texts joined by `SEPARATOR`.
    """
    chunks = ", ".join(f"{{piece{index}:String}}" for index in range(chunk_count))
    # `materialize` prevents constant folding, by which ClickHouse would redact the texts while it plans the query.
    texts = f"splitByString({literal(SEPARATOR)}, materialize(arrayStringConcat([{chunks}])))"
    return f"SELECT arrayMap({_TEXT} -> {_json(rules, Masking(_RedactionSQL(), mode))}, {texts})"


def _apply_once(body: str) -> str:
    """Apply the body inside a lambda, so that ClickHouse compiles the patterns once, not in each planner pass."""
    return f"arrayMap({_TEXT} -> if(isNull({_TEXT}), NULL, {body}), [{_VALUE}])[1]"


def _text(rules: RedactionRules, masking: Masking) -> str:
    detection = Detection(rules)
    redacted = masking.mask_builtin(masking.apply_stages(_KNOWN, detection.operator_stages), detection.builtin_stages)
    return f"if(match({_TEXT}, {literal(detection.hint)}), {redacted}, {_TEXT})"


def _optimistic_text(rules: RedactionRules) -> str:
    failure = f"throwIf(match({_TEXT}, {literal(Detection(rules).hint)}), {literal(RAISED + MAY_NEED_REDACTION)})"
    return f"if(assumeNotNull({failure}) = 1, '', {_TEXT})"


def _json(rules: RedactionRules, masking: Masking) -> str:
    """Return SQL that redacts a JSON text; custom patterns are applied to each string in it without its quotes."""
    detection, text = Detection(rules), _KNOWN
    if detection.operator_stages:
        redacted_text = masking.apply_stages(f"JSONExtractString({_STRING})", detection.operator_stages)
        segments = f"extractAll({text}, {literal(JSON_SEGMENTS)})"
        text = f"arrayStringConcat(arrayMap({_STRING} -> if(startsWith({_STRING}, '\"'), toJSONString({redacted_text}), {_STRING}), {segments}))"
    hint = Detection(RedactionRules(rules.detectors)).hint
    separated = (
        f"if(match({text}, {literal(_ARRAY_NUMBER)}),"
        f" replaceRegexpAll({text}, {literal(BEFORE_DIGIT)}, {literal(MARKED_DIGIT)}), {text})"
    )
    redacted = masking.mask_builtin(separated, detection.builtin_stages, digits_are_marked=True)
    return f"if(match({text}, {literal(hint)}), replaceAll({redacted}, {literal(DIGIT_MARKER)}, ''), {text})"


class _RedactionSQL:
    def remove(self, text: str, mark: str) -> str:
        return f"replaceAll({text}, {literal(mark)}, '')"

    def replace_matches(self, text: str, pattern: str, shown: str) -> str:
        return f"replaceRegexpAll({text}, {literal(pattern)}, {literal(shown)})"

    def conditional(self, condition: str, then: str, otherwise: str) -> str:
        return f"if({condition}, {then}, {otherwise})"

    def part(self, at: int) -> str:
        return f"splitByString({literal(MATCH_CUT)}, {_PIECE})[{at}]"

    def map_segments(self, marked: str, each: str) -> str:
        is_find = f"position({_PIECE}, {literal(MATCH_CUT)}) > 0"
        segments = f"splitByString({literal(MATCH_START)}, {marked})"
        return f"arrayStringConcat(arrayMap({_PIECE} -> if({is_find}, {each}, {_PIECE}), {segments}))"

    def digits(self, text: str) -> str:
        return self.replace_matches(text, "[ +-]|%20", "")

    def passes_luhn(self, digits: str) -> str:
        """Return SQL for the Luhn check; nine is subtracted where a doubled digit reaches ten."""
        weighted_sum = "arraySum((d, i) -> if(i % 2 = 1, d * 2 - if(d > 4, 9, 0), d), {0}, arrayEnumerate({0}))"
        return (
            weighted_sum.format(f"arrayMap(d -> toInt64(d), splitByString('', leftPad({digits}, 20, '0')))")
            + " % 10 = 0"
        )

    def digest(self, value: str) -> str:
        inner = f"lower(hex(SHA256({{{KEY}:String}} || lowerUTF8({value}))))"
        return f"substring(lower(hex(SHA256({{{KEY}:String}} || {inner}))), 1, 16)"

    def network(self, value: str) -> str:
        decoded = f"replaceAll(replaceAll(lower({value}), '%25', '%'), '%3a', ':')"
        normalized = f"splitByString('%', {decoded})[1]"
        ipv4_network = f"arrayStringConcat(arraySlice(splitByString('.', {value}), 1, 3), '.') || '.0/24'"
        leading_groups = (
            f"arrayStringConcat(arraySlice(splitByString(':', splitByString('::', {normalized})[1]), 1, 3), ':')"
        )
        return (
            f"multiIf(position({normalized}, ':') = 0, {ipv4_network},"
            f" position({normalized}, '.') > 0 AND (startsWith({normalized}, '::') OR startsWith({normalized}, '64:ff9b::')), {value},"
            f" {leading_groups} || '::/48')"
        )
