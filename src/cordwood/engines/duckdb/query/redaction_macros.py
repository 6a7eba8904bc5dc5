"""Redaction with DuckDB macros, which redact texts and events inside a query, and columns of its answer.

The macros are created on first use. They consist mainly of regular expressions, which run in DuckDB's threads. The hint
is a pattern that matches every text in which something may have to be redacted. If the hint does not match a text, no
other pattern is tested on it. DuckDB's library RE2 compiles a pattern again for every expression that uses it.
Therefore few and small patterns are more important than fast ones.
"""

from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Final

import duckdb
import msgspec
from duckdb.sqltypes import DuckDBPyType

from cordwood.engines.duckdb.storage.tables import text_literal
from cordwood.engines.late_redaction import OptionalTexts, RedactTexts, TextRedactor
from cordwood.model.datatype import Row
from cordwood.model.redaction import RedactionConfig, RedactionRules, RedactMode
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
from cordwood.sql.stages import Statement

# The beginning of a number in a JSON array that has enough digits to match the pattern of card numbers. The pattern of
# card numbers excludes a number after a JSON key, so the numbers in objects need no test.
_LONG_NUMBER_IN_ARRAY_PATTERN: Final = r"[\[,]-?[0-9]{13}"
_DIGEST_KEY_PLACEHOLDER: Final = "$key"


def create_macro_statements(rules: RedactionRules, key: str, mode: RedactMode) -> list[str]:
    """Return the statements that create the macros of a redaction mode, with one macro for each kind of value.

    The statements contain `key`, the secret key with which digests are computed.
    """
    detection, masking = DetectionRules(rules), MaskingBuilder(_RedactionSQL(), mode)
    bodies = (
        (REDACT_TEXT_FUNCTION_PREFIX, _text_macro_body(detection, masking)),
        (REDACT_JSON_FUNCTION_PREFIX, _json_macro_body(detection, masking)),
        (REDACT_EVENT_FUNCTION_PREFIX, _event_macro_body(mode)),
        (OPTIMISTIC_TEXT_FUNCTION_PREFIX, _fail_if_redaction_needed_macro_body(detection)),
    )
    return [
        f"CREATE OR REPLACE MACRO memory.main.{name}_{mode}(t) AS {body.replace(_DIGEST_KEY_PLACEHOLDER, text_literal(key))}"
        for name, body in bodies
    ]


def _redact_json_list_statement(mode: RedactMode) -> str:
    """Return the statement that redacts each JSON text in the list that is passed as the parameter `$texts`."""
    return f"SELECT list_transform($texts::VARCHAR[], lambda t: {REDACT_JSON_FUNCTION_PREFIX}_{mode}(t))"


def _text_macro_body(detection: DetectionRules, masking: MaskingBuilder) -> str:
    return f"CASE WHEN {_matches_hint_sql('t', detection.combined_prefilter_pattern)} THEN {_redact_text_sql(detection, masking)} ELSE t END"


def _redact_text_sql(detection: DetectionRules, masking: MaskingBuilder) -> str:
    """Return SQL that redacts a text in stages.

    Each stage has a hint: a pattern that matches every text in which the stage may find something. If the operator has
    no patterns of their own, the stages before those for IP addresses are skipped for a text that none of their hints
    matches.
    """
    if detection.configured_stages or not detection.stages_before_ip_addresses:
        return masking.apply_builtin_stages(
            masking.apply_stages("t", detection.configured_stages), detection.builtin_stages
        )
    unmarked = masking.remove_markers("t")
    before_addresses = masking.apply_stages(unmarked, detection.stages_before_ip_addresses)
    hint = "|".join(stage.prefilter_pattern for stage in detection.stages_before_ip_addresses)
    checked = f"CASE WHEN {_matches_hint_sql(unmarked, hint)} THEN {before_addresses} ELSE {unmarked} END"
    return masking.remove_match_markers(
        masking.apply_stages(checked, detection.builtin_stages[len(detection.stages_before_ip_addresses) :])
    )


def _fail_if_redaction_needed_macro_body(detection: DetectionRules) -> str:
    """Return the body of a macro that fails if the text may need redaction, and otherwise returns the text.

    The error is raised by a cast that fails. DuckDB's function `error` cannot be used, because it is volatile, and
    DuckDB does not accept volatile functions in windows.
    """
    failure = (
        f"CAST({text_literal(RAISED_ERROR_PREFIX + MAY_NEED_REDACTION_MESSAGE)} || left(t, 0) AS INTEGER)::VARCHAR"
    )
    return f"CASE WHEN {_matches_hint_sql('t', detection.combined_prefilter_pattern)} THEN {failure} ELSE t END"


def _matches_hint_sql(text: str, hint: str) -> str:
    """Return SQL that tests whether the pattern `hint` has a match in `text` that is not empty.

    The SQL avoids `regexp_matches`, for which DuckDB would compile the pattern three times.
    """
    return f"regexp_extract({text}, {text_literal(hint)}) <> ''"


def _json_macro_body(detection: DetectionRules, masking: MaskingBuilder) -> str:
    separated = (
        f"CASE WHEN regexp_matches(t, {text_literal(_LONG_NUMBER_IN_ARRAY_PATTERN)})"
        f" THEN regexp_replace(t, {text_literal(TEXT_BEFORE_DIGIT_PATTERN)}, {text_literal(MARKED_DIGIT_REPLACEMENT)}, 'g') ELSE t END"
    )
    if detection.configured_stages:
        # A custom pattern is applied to each JSON string separately, so that it cannot match the quotes between
        # strings.
        redacted_text = masking.apply_stages("(s::JSON->>'$')", detection.configured_stages)
        tokens = f"regexp_extract_all({separated}, {text_literal(JSON_STRING_OR_GAP_PATTERN)})"
        separated = _join_array_sql(
            f"list_transform({tokens}, lambda s: CASE WHEN s[1] = '\"' THEN to_json({redacted_text})::VARCHAR ELSE s END)"
        )
    return f"replace({masking.apply_builtin_stages(separated, detection.builtin_stages, digits_are_marked=True)}, {text_literal(DIGIT_MARKER)}, '')"


def _event_macro_body(mode: RedactMode) -> str:
    """Return the body of a macro that redacts a value of an event, whatever its kind.

    Texts, objects and arrays are all converted to JSON first, so that one expression redacts them. An expression for
    each kind would take twice the time and memory.
    """
    kind = "variant_typeof(t)"
    return (
        f"CASE WHEN {kind} = 'VARCHAR' OR starts_with({kind}, 'OBJECT') OR starts_with({kind}, 'ARRAY')"
        f" THEN list_transform([t::JSON::VARCHAR], lambda x: {REDACT_JSON_FUNCTION_PREFIX}_{mode}(x))[1]::JSON::VARIANT ELSE t END"
    )


class _RedactionSQL:
    def remove_marker(self, text: str, mark: str) -> str:
        return f"replace({text}, {text_literal(mark)}, '')"

    def replace_matches(self, text: str, pattern: str, shown: str) -> str:
        return f"regexp_replace({text}, {text_literal(pattern)}, {text_literal(shown)}, 'g')"

    def case_when(self, condition: str, then: str, otherwise: str) -> str:
        return f"CASE WHEN {condition} THEN {then} ELSE {otherwise} END"

    def current_match_part(self, at: int) -> str:
        return f"string_split(p, {text_literal(MATCH_PART_SEPARATOR)})[{at}]"

    def replace_marked_segments(self, marked: str, each: str) -> str:
        """Return SQL that applies `each` to the segments with a match in `marked`, a text with marks at its matches.

        The SQL has only one lambda, because DuckDB binds the list of a nested lambda twice.
        """
        find = f"CASE WHEN contains(p, {text_literal(MATCH_PART_SEPARATOR)}) THEN {each} ELSE p END"
        return _join_array_sql(
            f"list_transform(string_split({marked}, {text_literal(MATCH_START_MARKER)}), lambda p: {find})"
        )

    def remove_card_separators(self, text: str) -> str:
        return f"translate(replace({text}, '%20', ''), ' +-', '')"

    def passes_luhn(self, digits: str) -> str:
        """Return SQL for the Luhn check of card numbers, which doubles every second digit and sums all digits.

        If a doubled digit is at least ten, the SQL adds one to it instead of summing its two digits. Both have the same
        remainder modulo ten, on which the check depends.
        """
        padded = f"lpad({digits}, 20, '0')"
        weighted_sum = f"list_dot_product(string_split({padded}, '')::DOUBLE[], {[2.0, 1.0] * 10})"
        carried = rf"length(translate(regexp_replace({padded}, '(.).', '\1', 'g'), '01234', ''))"
        return f"({weighted_sum} + {carried}) % 10 = 0"

    def keyed_digest(self, value: str) -> str:
        return (
            f"substr(sha256({_DIGEST_KEY_PLACEHOLDER} || sha256({_DIGEST_KEY_PLACEHOLDER} || lower({value}))), 1, 16)"
        )

    def network_of_ip_address(self, value: str) -> str:
        normalized = f"split_part(replace(replace(lower({value}), '%25', '%'), '%3a', ':'), '%', 1)"
        ipv4_network = f"array_to_string(string_split({value}, '.')[1:3], '.') || '.0/24'"
        leading_groups = f"string_split(split_part({normalized}, '::', 1), ':')[1:3]"
        return (
            f"CASE WHEN NOT contains({normalized}, ':') THEN {ipv4_network}"
            f" WHEN contains({normalized}, '.') AND (starts_with({normalized}, '::') OR starts_with({normalized}, '64:ff9b::')) THEN {value}"
            f" ELSE array_to_string({leading_groups}, ':') || '::/48' END"
        )


def _join_array_sql(array: str) -> str:
    """Return SQL for the joined texts of an array; `array_to_string` is avoided, because it duplicates its argument."""
    return f"list_aggregate({array}, 'string_agg', '')"


CursorCallback = Callable[[duckdb.DuckDBPyConnection], None]


class AnswerRedactor:
    """Redacts columns of answers, on connections of its own that `cursor` returns; safe to use from several threads."""

    def __init__(
        self,
        cursor: Callable[[], duckdb.DuckDBPyConnection],
        redacting: RedactionConfig,
        texts: TextRedactor | None = None,
    ) -> None:
        self._open_cursor = cursor
        self._redaction_config = redacting
        self._lock = Lock()
        self._modes_with_created_macros: set[RedactMode] = set()
        self._text_redactor = texts or TextRedactor()

    def columns_to_redact(self, statement: Statement) -> "ColumnsToRedact":
        """Return the columns of the statement's answer that must be redacted after they are fetched."""
        return ColumnsToRedact(self, statement.redact_mode, statement.unredacted_column_indexes)

    def create_macros(self, mode: RedactMode) -> None:
        """Create the macros of a redaction mode unless they exist; their creation takes a third of a second."""
        with self._lock:
            if mode in self._modes_with_created_macros:
                return
            with self._open_cursor() as cursor:
                for statement in create_macro_statements(
                    self._redaction_config.rules, self._redaction_config.hash_key, mode
                ):
                    cursor.execute(statement)
            self._modes_with_created_macros.add(mode)

    def redact_json(self, mode: RedactMode, texts: OptionalTexts, on_cursor: CursorCallback) -> list[str | None]:
        """Redact JSON texts; each connection used is passed to `on_cursor`, so that the caller can interrupt it."""
        return self._text_redactor.redact_json(mode, texts, self._make_redact_function(mode, on_cursor))

    def redact_rows(
        self, mode: RedactMode, rows: Sequence[Row], positions: Mapping[int, bool], on_cursor: CursorCallback
    ) -> list[Row]:
        return self._text_redactor.redact_rows(mode, rows, positions, self._make_redact_function(mode, on_cursor))

    def _make_redact_function(self, mode: RedactMode, on_cursor: CursorCallback) -> RedactTexts:
        def redact(texts: Sequence[str]) -> Sequence[str]:
            with self._open_cursor() as cursor:
                on_cursor(cursor)
                redacted: Sequence[str] = cursor.execute(
                    _redact_json_list_statement(mode), {"texts": texts}
                ).fetchall()[0][0]
                return redacted

        return redact


class ColumnsToRedact(msgspec.Struct, frozen=True):
    """The columns of an answer that are redacted after they are fetched."""

    redactor: AnswerRedactor
    mode: RedactMode | None
    column_positions: tuple[int, ...]

    def redact(self, rows: Sequence[Row], types: Sequence[DuckDBPyType], on_cursor: CursorCallback) -> list[Row]:
        if self.mode is None:
            return list(rows)
        are_texts = {position: str(types[position].id) == "varchar" for position in self.column_positions}
        return self.redactor.redact_rows(self.mode, rows, are_texts, on_cursor)
