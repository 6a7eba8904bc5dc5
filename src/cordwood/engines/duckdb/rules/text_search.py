"""Rules for the search in texts: LIKE, regular expressions and CONTAINS_SUBSTR.

Both BigQuery and DuckDB use RE2. But if there is no match, BigQuery's REGEXP_EXTRACT returns NULL, and DuckDB's
`regexp_extract` returns the empty text. Positions are counted in characters.
"""

from typing import Final

from sqlglot import exp

from cordwood.engines.duckdb.rules.building_blocks import (
    failure_sql,
    fill_fallible_template,
    fill_template,
    size_checked_replacement_sql,
)
from cordwood.engines.duckdb.rules.casts import cast_to
from cordwood.engines.duckdb.rules.strings import convert_variant_to_text, is_bytes
from cordwood.errors import BadQueryValue
from cordwood.model.datatype import Datatype, Kind
from cordwood.sql.budget import copy_tree
from cordwood.sql.datatypes import STRING, datatype_of, kind_of, set_datatype
from cordwood.sql.lowering import (
    RuleSet,
    fragment_node,
    raise_unsupported,
    returns_null_on_error,
    span_of_node_or_descendant,
)
from cordwood.sql.nodes import RegexMatch, constant_int, constant_text
from cordwood.sql.rules.strings import (
    count_capturing_groups,
    has_invalid_regexp_rewrite,
    is_invalid_pattern,
    may_capturing_group_be_unmatched,
    strip_contains_substr_lower_calls,
)

# SQL that removes from a pattern each `(` that does not open a capturing group, by removing escapes, character classes
# and the openings of groups that do not capture. `_HAS_SEVERAL_GROUPS_SQL` tests whether more than one `(` is left.
_CAPTURING_GROUP_OPENINGS_SQL: Final = r"regexp_replace(@b, '\\.|\[\^?\]?([^\\\]]|\\.)*\]|\(\?[^P<]', '', 'g')"
_HAS_SEVERAL_GROUPS_SQL: Final = rf"regexp_matches({_CAPTURING_GROUP_OPENINGS_SQL}, '(?s)\(.*\(')"
_TOO_MANY_GROUPS_MESSAGE: Final = (
    "Regular expressions passed into extraction functions must not have more than 1 capturing group."
)


def _all_matches_sql(node: exp.Expr, text_sql: str) -> str:
    """Return SQL for the list of all matches of the capturing group, or of the whole pattern if it has no group.

    DuckDB requires a constant group number. So if the pattern is not constant, a CASE chooses between two calls.
    """
    literal_text = constant_text(node.expression)
    whole_matches, group_matches = (f"regexp_extract_all({text_sql}, @b, {index})" for index in (0, 1))
    if literal_text is None:
        too_many_groups = f"WHEN {_HAS_SEVERAL_GROUPS_SQL} THEN {failure_sql(node, _TOO_MANY_GROUPS_MESSAGE)}"
        return f"CASE {too_many_groups} WHEN contains({_CAPTURING_GROUP_OPENINGS_SQL}, '(') THEN {group_matches} ELSE {whole_matches} END"
    return group_matches if count_capturing_groups(literal_text) else whole_matches


def _returns_null_for_invalid_pattern(node: exp.Expr) -> bool:
    """Return whether the result is NULL, because the call is inside SAFE and its literal pattern is invalid.

    DuckDB compiles a literal pattern before it evaluates rows, so DuckDB's TRY cannot catch the pattern's error.
    """
    literal_text = constant_text(node.expression)
    return literal_text is not None and returns_null_on_error(node) and is_invalid_pattern(literal_text)


def _has_at_most_one_group(node: exp.Expr) -> bool:
    literal_text = constant_text(node.expression)
    if literal_text is None or count_capturing_groups(literal_text) < 2:
        return True
    if returns_null_on_error(node):
        return False
    raise BadQueryValue(
        _TOO_MANY_GROUPS_MESSAGE,
        hint="Write (?:…) for groups that are only to hold together.",
        span=span_of_node_or_descendant(node),
    )


def _refuse_bytes(node: exp.Expr) -> None:
    if kind_of(node.this) is Kind.BYTES:
        raise_unsupported(node, "A regular expression over BYTES")


def _translate_regexp_contains(node: exp.Expr) -> exp.Expr:
    _refuse_bytes(node)
    if _returns_null_for_invalid_pattern(node):
        return fragment_node("NULL::BOOLEAN")
    subject, pattern = convert_variant_to_text(node.this), node.expression
    if returns_null_on_error(node):
        return fill_fallible_template(node, "regexp_matches(@a, @b)", subject, pattern)
    return fragment_node("regexp_matches({0}, {1})", subject, pattern, operation=RegexMatch())


def _translate_regexp_extract(node: exp.Expr) -> exp.Expr:
    """Translate REGEXP_EXTRACT, which returns NULL if there is no match, or if the group took no part in the match.

    Only DuckDB's `regexp_extract_all` distinguishes such a group from a group that matched the empty text.
    """
    _refuse_bytes(node)
    if _returns_null_for_invalid_pattern(node) or not _has_at_most_one_group(node):
        return fragment_node("NULL::VARCHAR")
    value, pattern = convert_variant_to_text(node.this), node.expression
    position, occurrence = node.args.get("position"), node.args.get("occurrence")
    if position is not None or occurrence is not None:
        return _nth_match(node, value, pattern)
    literal_text = constant_text(pattern)
    if literal_text is None or may_capturing_group_be_unmatched(literal_text):
        return fill_fallible_template(node, f"({_all_matches_sql(node, '@a')})[1]", value, pattern)
    group = min(count_capturing_groups(literal_text), 1)
    return fill_fallible_template(
        node, f"CASE WHEN regexp_matches(@a, @b) THEN regexp_extract(@a, @b, {group}) END", value, pattern
    )


def _nth_match(node: exp.Expr, value: exp.Expr, pattern: exp.Expr) -> exp.Expr:
    position = node.args.get("position") or exp.Literal.number(1)
    occurrence = node.args.get("occurrence") or exp.Literal.number(1)
    if (constant_text(pattern) or "").startswith("^") and (constant_int(position) or 1) > 1:
        # The pattern begins with `^`, which matches only at the beginning of the text. The search starts at a later
        # position, so there is no match.
        return fragment_node("NULL::VARCHAR")
    checked = (
        _checked_positive_sql(node, position, "@c", "position"),
        _checked_positive_sql(node, occurrence, "@d", "occurrence"),
    )
    matches = _all_matches_sql(node, f"substring(@a, {checked[0]})")
    body = f"CASE WHEN @c > length(@a) + 1 THEN NULL ELSE list_extract({matches}, {checked[1]}) END"
    return fill_fallible_template(node, body, value, pattern, position, occurrence)


def _checked_positive_sql(node: exp.Expr, value: exp.Expr, name: str, argument_name: str) -> str:
    constant_value = constant_int(value)
    if constant_value is not None and constant_value > 0:
        return name
    return f"CASE WHEN {name} < 1 THEN {failure_sql(node, f'The {argument_name} argument must be positive')} ELSE {name} END"


def _translate_regexp_extract_all(node: exp.Expr) -> exp.Expr:
    _refuse_bytes(node)
    pattern = node.expression
    if _returns_null_for_invalid_pattern(node) or not _has_at_most_one_group(node):
        return fragment_node("NULL::VARCHAR[]")
    return fill_fallible_template(node, _all_matches_sql(node, "@a"), convert_variant_to_text(node.this), pattern)


def _translate_regexp_replace(node: exp.Expr) -> exp.Expr:
    _refuse_bytes(node)
    if _returns_null_for_invalid_pattern(node) or has_invalid_regexp_rewrite(node):
        return fragment_node("NULL::VARCHAR")
    new = node.args["replacement"]
    replacement = "@c" if constant_text(new) == "" else size_checked_replacement_sql(node)
    return fill_fallible_template(
        node, f"regexp_replace(@a, @b, {replacement}, 'g')", convert_variant_to_text(node.this), node.expression, new
    )


def _translate_regexp_instr(node: exp.Expr) -> exp.Expr:
    """Translate REGEXP_INSTR by computing the position from the number of characters before the match."""
    _refuse_bytes(node)
    if not _has_at_most_one_group(node):
        return fragment_node("NULL::BIGINT")
    value, pattern = convert_variant_to_text(node.this), node.expression
    position = node.args.get("position") or exp.Literal.number(1)
    occurrence = node.args.get("occurrence") or exp.Literal.number(1)
    option = node.args.get("option") or exp.Literal.number(0)
    start, count = (
        _checked_positive_sql(node, position, "@c", "position"),
        _checked_positive_sql(node, occurrence, "@d", "occurrence"),
    )
    remaining = f"substring(@a, {start})"
    matches = f"regexp_extract_all({remaining}, @b, 0)"
    match = f"list_extract({matches}, {count})"
    inner = f"list_extract({_all_matches_sql(node, remaining)}, {count})"
    characters_before = f"{_count_characters_before_match_sql(remaining, matches, count)} + instr({match}, {inner}) - 1"
    failure = failure_sql(node, "The occurrence_position argument must be 0 or 1")
    end = f"CASE @e WHEN 0 THEN 0 WHEN 1 THEN length({inner}) ELSE {failure} END"
    body = (
        "CASE WHEN @a IS NULL OR @b IS NULL OR @c IS NULL OR @d IS NULL OR @e IS NULL THEN NULL"
        f" WHEN @c < 1 THEN {failure_sql(node, 'The position argument must be positive')}"
        f" WHEN @d < 1 THEN {failure_sql(node, 'The occurrence argument must be positive')}"
        f" WHEN {start} > length(@a) OR {match} IS NULL OR @b = '' THEN 0 ELSE @c + {characters_before} + {end} END"
    )
    return fill_fallible_template(node, body, value, pattern, position, occurrence, option)


def _count_characters_before_match_sql(remaining: str, matches: str, count: str) -> str:
    """Return SQL for the number of characters before the `count`-th match.

    DuckDB returns matches without their positions. So `list_reduce` goes through the first `count` matches, and
    searches for each of them in the text after the previous match.
    """
    step = "struct_pack(at := _s.at + instr(substring({rest}, _s.at + 1), _m.text) - 1 + length(_m.text), "
    step += "began := _s.at + instr(substring({rest}, _s.at + 1), _m.text) - 1, text := _m.text)"
    match_structs = f"list_transform(list_slice({matches}, 1, {count}), lambda _t: struct_pack(at := 0::BIGINT, began := 0::BIGINT, text := _t))"
    initial = "[struct_pack(at := 0::BIGINT, began := 0::BIGINT, text := '')]"
    total = f"list_reduce(list_concat({initial}, {match_structs}), lambda _s, _m: {step.replace('{rest}', remaining)})"
    return f"({total}).began"


def _translate_like(node: exp.Expr) -> exp.Expr:
    """Translate LIKE; NOT LIKE ANY is true if at least one pattern does not match, NOT LIKE ALL if none matches."""
    test = _like_without_negation(node)
    return fragment_node("(NOT {0})", test) if node.args.get("negate") else test


def _like_without_negation(node: exp.Expr) -> exp.Expr:
    """Return the LIKE test without its negation; a backslash escapes `%`, `_` and itself."""
    value, pattern = convert_variant_to_text(node.this), node.expression
    if isinstance(pattern, (exp.Any, exp.All)):
        is_all = isinstance(pattern, exp.All) is not bool(node.args.get("negate"))
        return _translate_like_patterns(value, pattern.this, is_all=is_all)
    if is_bytes(value):
        raise_unsupported(node, "LIKE of BYTES")
    literal_text = constant_text(pattern)
    if literal_text is not None and "\\" not in literal_text:
        return exp.Like(this=value, expression=pattern)
    return fragment_node("{0} LIKE {1} ESCAPE '\\'", value, pattern)


def _translate_like_patterns(value: exp.Expr, inner: exp.Expr, *, is_all: bool) -> exp.Expr:
    """Return a test whether the value matches any pattern in `inner`, or all patterns if `is_all`.

    The patterns' tests are combined by OR or AND in three-valued logic.
    """
    if isinstance(inner, exp.Tuple):
        items = inner.expressions
    elif isinstance(inner, exp.Paren):
        items = [inner.this]
    else:
        return _like_any_or_all_elements(value, inner, is_all=is_all)
    if len(items) == 1 and isinstance(items[0], exp.Query):
        return _like_any_or_all_elements(value, items[0], is_all=is_all)
    joiner = " AND " if is_all else " OR "
    template = joiner.join(f"({{0}} LIKE {{{index + 1}}} ESCAPE '\\')" for index in range(len(items)))
    return fragment_node(f"({template})", value, *items)


# SQL that selects for each pattern whether the value matches it. The patterns are the elements of an array, or the rows
# of a query.
_LIKE_RESULTS_OF_ARRAY_SQL: Final = "(SELECT {0} LIKE _p ESCAPE '\\' AS _m FROM (SELECT unnest({1}) AS _p))"
_LIKE_RESULTS_OF_QUERY_SQL: Final = "(SELECT {0} LIKE _p ESCAPE '\\' AS _m FROM {1} AS _q(_p))"


def _like_any_or_all_elements(value: exp.Expr, inner: exp.Expr, *, is_all: bool) -> exp.Expr:
    template = _LIKE_RESULTS_OF_QUERY_SQL if isinstance(inner, exp.Query) else _LIKE_RESULTS_OF_ARRAY_SQL
    if isinstance(inner, exp.Unnest):
        inner = inner.expressions[0]
    decisive, undecided = ("NOT bool_and(_m)", "true") if is_all else ("bool_or(_m)", "false")
    result = f"CASE WHEN {decisive} THEN {'false' if is_all else 'true'} WHEN count(*) = count(_m) THEN {undecided} END"
    return fragment_node("(SELECT {0} FROM {1})", fragment_node(result), fragment_node(template, value, inner))


# SQL for the list of the scalars at any depth of a JSON value, without field names.
_JSON_SCALARS_SQL: Final = (
    "list_filter(list_concat([{0}], json_extract({0}, '$..*')), lambda _j: json_type(_j) NOT IN ('OBJECT', 'ARRAY'))"
)


def _translate_contains_substr(node: exp.Expr) -> exp.Expr:
    value = convert_variant_to_text(node.this)
    return _contains_test(
        value, datatype_of(value), fragment_node("lower({0})", convert_variant_to_text(node.expression)), depth=0
    )


def _contains_test(value: exp.Expr, datatype: Datatype | None, text: exp.Expr, depth: int) -> exp.Expr:
    """Return a test whether any part of the value, such as a field or element, contains `text`, ignoring case.

    `text` must be in lower case. The test is NULL if no part contains the text and a part is NULL.
    """
    if datatype is None or datatype == STRING:
        return fragment_node("contains(lower({0}), {1})", value, text)
    if datatype.kind is Kind.STRUCT:
        return _any_field_contains(value, datatype, text, depth)
    if datatype.kind is Kind.ARRAY:
        name = f"_p{depth}"
        inner = _contains_test(set_datatype(fragment_node(name), datatype.element), datatype.element, text, depth + 1)
        return _any_test_true(fragment_node(f"list_transform({{0}}, lambda {name}: {{1}})", value, inner))
    if datatype.kind is Kind.JSON:
        template = (
            f"list_contains(list_transform({_JSON_SCALARS_SQL}, lambda _j: contains(lower(_j->>'$'), {{1}})), true)"
        )
        return fragment_node(template, value, text)
    return _contains_test(cast_to(value, value, STRING), STRING, text, depth)


def _any_field_contains(value: exp.Expr, datatype: Datatype, text: exp.Expr, depth: int) -> exp.Expr:
    tests = [
        _contains_test(
            set_datatype(fragment_node(f"struct_extract_at({{0}}, {index + 1})", copy_tree(value)), field),
            field,
            text,
            depth,
        )
        for index, (_, field) in enumerate(datatype.fields)
    ]
    return fragment_node(" OR ".join(f"({{{index}}})" for index in range(len(tests))), *tests)


def _any_test_true(tests: exp.Expr) -> exp.Expr:
    return fill_template(
        "CASE WHEN list_contains(@a, true) THEN true WHEN list_count(@a) = len(@a) THEN false END", tests
    )


RULES = RuleSet(
    by_node_class={
        exp.RegexpLike: _translate_regexp_contains,
        exp.RegexpExtract: _translate_regexp_extract,
        exp.RegexpExtractAll: _translate_regexp_extract_all,
        exp.RegexpReplace: _translate_regexp_replace,
        exp.RegexpInstr: _translate_regexp_instr,
        exp.Like: _translate_like,
        exp.Contains: _translate_contains_substr,
    },
    by_node_class_before_children={
        exp.Contains: strip_contains_substr_lower_calls,
    },
)
