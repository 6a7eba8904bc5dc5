"""Redaction by functions that a statement defines in its own WITH, as named lambdas of ClickHouse.

Because the statement defines them, nothing has to be created on the server, and the service's user needs no privilege
for it. The key of digests is a bound value; everything else is part of the statement's text.
"""

from typing import Final

from cordwood.engines.clickhouse.tables import text_literal
from cordwood.model.redaction import RedactionRules, RedactMode
from cordwood.sql.lowering import RAISED_ERROR_PREFIX
from cordwood.sql.redaction.masking import (
    DIGIT_MARKER,
    JSON_STRING_OR_GAP_PATTERN,
    MARKED_DIGIT_REPLACEMENT,
    MATCH_PART_SEPARATOR,
    MATCH_START_MARKER,
    MAY_NEED_REDACTION_MESSAGE,
    OPTIMISTIC_TEXT_FUNCTION_PREFIX,
    REDACT_EVENT_FUNCTION_PREFIX,
    REDACT_JSON_FUNCTION_PREFIX,
    REDACT_TEXT_FUNCTION_PREFIX,
    TEXT_BEFORE_DIGIT_PATTERN,
    MaskingBuilder,
)
from cordwood.sql.redaction.patterns import DetectionRules

# The name of the parameter for the key of digests, in statements with the redaction mode `hash`. No parameter of an
# endpoint may have this name.
REDACTION_KEY_PARAMETER: Final = "cordwood_redaction_key"

# The separator between JSON texts that are joined to one text. No JSON text contains this character unescaped.
JSON_TEXT_SEPARATOR: Final = "\x04"

# Matches a number in an array that is long enough to be a card number. A number that is the value of a key needs no
# such pattern, because the other patterns recognise it by the key in front of it.
_LONG_NUMBER_IN_ARRAY_PATTERN: Final = r"[\[,]\s*-?[0-9]{13}"
_JSON_NUMBER_PATTERN: Final = r"^-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?$"

# The names of the variables in the redaction functions. Lowering rules must use other names, because ClickHouse
# confuses variables of the same name.
_VALUE_VARIABLE: Final = "_redacted_value"
_TEXT_VARIABLE: Final = "_redacted_text"
_NON_NULL_TEXT_SQL: Final = f"assumeNotNull({_TEXT_VARIABLE})"
_SEGMENT_VARIABLE: Final = "_redacted_segment"
_STRING_VARIABLE: Final = "_redacted_string"


def redaction_function_definitions(rules: RedactionRules, mode: RedactMode) -> dict[str, str]:
    """Return the SQL that defines the redaction functions of a mode in WITH, by the function's name."""
    masking = MaskingBuilder(_RedactionSQL(), mode)
    text, json = _redacted_text_sql(rules, masking), _redacted_json_sql(rules, masking)
    event = f"if(match({_TEXT_VARIABLE}, {text_literal(_JSON_NUMBER_PATTERN)}), {_TEXT_VARIABLE}, {json})"
    bodies = (
        (REDACT_TEXT_FUNCTION_PREFIX, text),
        (REDACT_JSON_FUNCTION_PREFIX, json),
        (REDACT_EVENT_FUNCTION_PREFIX, event),
        (OPTIMISTIC_TEXT_FUNCTION_PREFIX, _fail_if_redaction_needed_sql(rules)),
    )
    return {
        f"{name}_{mode}": f"({_VALUE_VARIABLE} -> {_apply_in_lambda_sql(body)}) AS {name}_{mode}"
        for name, body in bodies
    }


def redact_texts_sql(rules: RedactionRules, mode: RedactMode, chunk_count: int) -> str:
    """Return a statement that redacts an array of JSON texts, and returns the redacted texts in the same order.

    The texts are joined by `JSON_TEXT_SEPARATOR`, and the result is cut into `chunk_count` slices. The slices are bound
    to the parameters `piece0`, `piece1` and so on.
    """
    chunks = ", ".join(f"{{piece{index}:String}}" for index in range(chunk_count))
    # `materialize` prevents constant folding. Otherwise, ClickHouse would redact the texts while it plans the query.
    texts = f"splitByString({text_literal(JSON_TEXT_SEPARATOR)}, materialize(arrayStringConcat([{chunks}])))"
    return f"SELECT arrayMap({_TEXT_VARIABLE} -> {_redacted_json_sql(rules, MaskingBuilder(_RedactionSQL(), mode))}, {texts})"


def _apply_in_lambda_sql(body: str) -> str:
    """Return SQL that evaluates `body`, which is SQL over `_TEXT_VARIABLE`, inside a lambda.

    In a lambda, ClickHouse compiles the patterns of the body only once, and not in each pass of its planner.
    """
    return f"arrayMap({_TEXT_VARIABLE} -> if(isNull({_TEXT_VARIABLE}), NULL, {body}), [{_VALUE_VARIABLE}])[1]"


def _redacted_text_sql(rules: RedactionRules, masking: MaskingBuilder) -> str:
    detection = DetectionRules(rules)
    redacted = masking.apply_builtin_stages(
        masking.apply_stages(_NON_NULL_TEXT_SQL, detection.configured_stages), detection.builtin_stages
    )
    return f"if(match({_TEXT_VARIABLE}, {text_literal(detection.combined_prefilter_pattern)}), {redacted}, {_TEXT_VARIABLE})"


def _fail_if_redaction_needed_sql(rules: RedactionRules) -> str:
    failure = f"throwIf(match({_TEXT_VARIABLE}, {text_literal(DetectionRules(rules).combined_prefilter_pattern)}), {text_literal(RAISED_ERROR_PREFIX + MAY_NEED_REDACTION_MESSAGE)})"
    return f"if(assumeNotNull({failure}) = 1, '', {_TEXT_VARIABLE})"


def _redacted_json_sql(rules: RedactionRules, masking: MaskingBuilder) -> str:
    """Return SQL that redacts a JSON text; the operator's own patterns are applied to each string in the text."""
    detection, text = DetectionRules(rules), _NON_NULL_TEXT_SQL
    if detection.configured_stages:
        redacted_text = masking.apply_stages(f"JSONExtractString({_STRING_VARIABLE})", detection.configured_stages)
        segments = f"extractAll({text}, {text_literal(JSON_STRING_OR_GAP_PATTERN)})"
        text = f"arrayStringConcat(arrayMap({_STRING_VARIABLE} -> if(startsWith({_STRING_VARIABLE}, '\"'), toJSONString({redacted_text}), {_STRING_VARIABLE}), {segments}))"
    hint = DetectionRules(RedactionRules(rules.detectors)).combined_prefilter_pattern
    separated = (
        f"if(match({text}, {text_literal(_LONG_NUMBER_IN_ARRAY_PATTERN)}),"
        f" replaceRegexpAll({text}, {text_literal(TEXT_BEFORE_DIGIT_PATTERN)}, {text_literal(MARKED_DIGIT_REPLACEMENT)}), {text})"
    )
    redacted = masking.apply_builtin_stages(separated, detection.builtin_stages, digits_are_marked=True)
    return f"if(match({text}, {text_literal(hint)}), replaceAll({redacted}, {text_literal(DIGIT_MARKER)}, ''), {text})"


class _RedactionSQL:
    def remove_marker(self, text: str, mark: str) -> str:
        return f"replaceAll({text}, {text_literal(mark)}, '')"

    def replace_matches(self, text: str, pattern: str, shown: str) -> str:
        return f"replaceRegexpAll({text}, {text_literal(pattern)}, {text_literal(shown)})"

    def case_when(self, condition: str, then: str, otherwise: str) -> str:
        return f"if({condition}, {then}, {otherwise})"

    def current_match_part(self, at: int) -> str:
        return f"splitByString({text_literal(MATCH_PART_SEPARATOR)}, {_SEGMENT_VARIABLE})[{at}]"

    def replace_marked_segments(self, marked: str, each: str) -> str:
        is_find = f"position({_SEGMENT_VARIABLE}, {text_literal(MATCH_PART_SEPARATOR)}) > 0"
        segments = f"splitByString({text_literal(MATCH_START_MARKER)}, {marked})"
        return f"arrayStringConcat(arrayMap({_SEGMENT_VARIABLE} -> if({is_find}, {each}, {_SEGMENT_VARIABLE}), {segments}))"

    def remove_card_separators(self, text: str) -> str:
        return self.replace_matches(text, "[ +-]|%20", "")

    def passes_luhn(self, digits: str) -> str:
        """Return SQL for the Luhn check of a card number; if a doubled digit is at least ten, nine is subtracted."""
        weighted_sum = "arraySum((d, i) -> if(i % 2 = 1, d * 2 - if(d > 4, 9, 0), d), {0}, arrayEnumerate({0}))"
        return (
            weighted_sum.format(f"arrayMap(d -> toInt64(d), splitByString('', leftPad({digits}, 20, '0')))")
            + " % 10 = 0"
        )

    def keyed_digest(self, value: str) -> str:
        inner = f"lower(hex(SHA256({{{REDACTION_KEY_PARAMETER}:String}} || lowerUTF8({value}))))"
        return f"substring(lower(hex(SHA256({{{REDACTION_KEY_PARAMETER}:String}} || {inner}))), 1, 16)"

    def network_of_ip_address(self, value: str) -> str:
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
