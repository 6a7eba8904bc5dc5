"""Regular expressions: RE2 in both dialects, but no match is NULL, and positions count characters."""

from typing import Final

from sqlglot import exp

from cordwood.engines.duckdb.rules.strings import as_text
from cordwood.engines.duckdb.rules.words import attempt, bounded, fail
from cordwood.errors import QueryValue
from cordwood.model.datatype import Kind
from cordwood.sql.bigquery.patterns import count_groups, group_is_optional, has_bad_rewrite, is_invalid
from cordwood.sql.constants import constant_int, constant_text
from cordwood.sql.fragment import fragment
from cordwood.sql.lowering import RuleSet, is_safe, span_in_text, unsupported
from cordwood.sql.operations import RegexMatch
from cordwood.sql.typing import kind_of

# Tests at run time whether a pattern has more than one capturing group, after removal of escapes and other brackets.
_BARE: Final = r"regexp_replace(@b, '\\.|\[\^?\]?([^\\\]]|\\.)*\]|\(\?[^P<]', '', 'g')"
_HAS_SEVERAL: Final = rf"regexp_matches({_BARE}, '(?s)\(.*\(')"
_ONE_GROUP: Final = "Regular expressions passed into extraction functions must not have more than 1 capturing group."


def _by_group(node: exp.Expr, all_of: str) -> str:
    """Return the call that extracts the capturing group.

    DuckDB needs a constant group, so there is one call per group.
    """
    spelled = constant_text(node.expression)
    whole, group = (f"regexp_extract_all({all_of}, @b, {at})" for at in (0, 1))
    if spelled is None:
        several = f"WHEN {_HAS_SEVERAL} THEN {fail(node, _ONE_GROUP)}"
        return f"CASE {several} WHEN contains({_BARE}, '(') THEN {group} ELSE {whole} END"
    return group if count_groups(spelled) else whole


def _is_broken(node: exp.Expr) -> bool:
    """Return whether SAFE yields NULL for a broken pattern.

    DuckDB compiles literal patterns early, where TRY has no effect.
    """
    spelled = constant_text(node.expression)
    return spelled is not None and is_safe(node) and is_invalid(spelled)


def _one_group_at_most(node: exp.Expr) -> bool:
    spelled = constant_text(node.expression)
    if spelled is None or count_groups(spelled) < 2:
        return True
    if is_safe(node):
        return False
    raise QueryValue(
        _ONE_GROUP,
        hint="Write (?:…) for groups that are only to hold together.",
        span=span_in_text(node),
    )


def _refuse_bytes(node: exp.Expr) -> None:
    if kind_of(node.this) is Kind.BYTES:
        unsupported(node, "A regular expression over BYTES")


def _matches(node: exp.Expr) -> exp.Expr:
    _refuse_bytes(node)
    if _is_broken(node):
        return fragment("NULL::BOOLEAN")
    subject, pattern = as_text(node.this), node.expression
    if is_safe(node):
        return attempt(node, "regexp_matches(@a, @b)", subject, pattern)
    return fragment("regexp_matches({0}, {1})", subject, pattern, operation=RegexMatch())


def _extract(node: exp.Expr) -> exp.Expr:
    """Lower REGEXP_EXTRACT: NULL without a match, and NULL for a group that did not take part in the match.

    DuckDB distinguishes the latter in regexp_extract_all only.
    """
    _refuse_bytes(node)
    if _is_broken(node) or not _one_group_at_most(node):
        return fragment("NULL::VARCHAR")
    value, pattern = as_text(node.this), node.expression
    position, occurrence = node.args.get("position"), node.args.get("occurrence")
    if position is not None or occurrence is not None:
        return _nth(node, value, pattern)
    spelled = constant_text(pattern)
    if spelled is None or group_is_optional(spelled):
        return attempt(node, f"({_by_group(node, '@a')})[1]", value, pattern)
    group = min(count_groups(spelled), 1)
    return attempt(node, f"CASE WHEN regexp_matches(@a, @b) THEN regexp_extract(@a, @b, {group}) END", value, pattern)


def _nth(node: exp.Expr, value: exp.Expr, pattern: exp.Expr) -> exp.Expr:
    position = node.args.get("position") or exp.Literal.number(1)
    occurrence = node.args.get("occurrence") or exp.Literal.number(1)
    if (constant_text(pattern) or "").startswith("^") and (constant_int(position) or 1) > 1:
        return fragment("NULL::VARCHAR")  # `^` matches only at the beginning of the text, which is before the position
    low = _checked(node, position, "@c", "position"), _checked(node, occurrence, "@d", "occurrence")
    found = _by_group(node, f"substring(@a, {low[0]})")
    body = f"CASE WHEN @c > length(@a) + 1 THEN NULL ELSE list_extract({found}, {low[1]}) END"
    return attempt(node, body, value, pattern, position, occurrence)


def _checked(node: exp.Expr, value: exp.Expr, name: str, what: str) -> str:
    known = constant_int(value)
    if known is not None and known > 0:
        return name
    return f"CASE WHEN {name} < 1 THEN {fail(node, f'The {what} argument must be positive')} ELSE {name} END"


def _extract_all(node: exp.Expr) -> exp.Expr:
    _refuse_bytes(node)
    pattern = node.expression
    if _is_broken(node) or not _one_group_at_most(node):
        return fragment("NULL::VARCHAR[]")
    return attempt(node, _by_group(node, "@a"), as_text(node.this), pattern)


def _replace(node: exp.Expr) -> exp.Expr:
    _refuse_bytes(node)
    if _is_broken(node) or has_bad_rewrite(node):
        return fragment("NULL::VARCHAR")
    new = node.args["replacement"]
    replacement = "@c" if constant_text(new) == "" else bounded(node)
    return attempt(node, f"regexp_replace(@a, @b, {replacement}, 'g')", as_text(node.this), node.expression, new)


def _place(node: exp.Expr) -> exp.Expr:
    """Lower REGEXP_INSTR: add up the lengths of the text before the match."""
    _refuse_bytes(node)
    if not _one_group_at_most(node):
        return fragment("NULL::BIGINT")
    value, pattern = as_text(node.this), node.expression
    position = node.args.get("position") or exp.Literal.number(1)
    occurrence = node.args.get("occurrence") or exp.Literal.number(1)
    option = node.args.get("option") or exp.Literal.number(0)
    start, count = _checked(node, position, "@c", "position"), _checked(node, occurrence, "@d", "occurrence")
    rest = f"substring(@a, {start})"
    whole = f"regexp_extract_all({rest}, @b, 0)"
    nth = f"list_extract({whole}, {count})"
    inner = f"list_extract({_by_group(node, rest)}, {count})"
    lead = f"{_text_before(rest, whole, count)} + instr({nth}, {inner}) - 1"
    bad = fail(node, "The occurrence_position argument must be 0 or 1")
    end = f"CASE @e WHEN 0 THEN 0 WHEN 1 THEN length({inner}) ELSE {bad} END"
    body = (
        "CASE WHEN @a IS NULL OR @b IS NULL OR @c IS NULL OR @d IS NULL OR @e IS NULL THEN NULL"
        f" WHEN @c < 1 THEN {fail(node, 'The position argument must be positive')}"
        f" WHEN @d < 1 THEN {fail(node, 'The occurrence argument must be positive')}"
        f" WHEN {start} > length(@a) OR {nth} IS NULL OR @b = '' THEN 0 ELSE @c + {lead} + {end} END"
    )
    return attempt(node, body, value, pattern, position, occurrence, option)


def _text_before(rest: str, whole: str, count: str) -> str:
    """Return SQL for the number of characters before the wanted match.

    Each match is searched for after the previous one.
    """
    step = "struct_pack(at := _s.at + instr(substring({rest}, _s.at + 1), _m.text) - 1 + length(_m.text), "
    step += "began := _s.at + instr(substring({rest}, _s.at + 1), _m.text) - 1, text := _m.text)"
    listed = f"list_transform(list_slice({whole}, 1, {count}), lambda _t: struct_pack(at := 0::BIGINT, began := 0::BIGINT, text := _t))"
    seed = "[struct_pack(at := 0::BIGINT, began := 0::BIGINT, text := '')]"
    folded = f"list_reduce(list_concat({seed}, {listed}), lambda _s, _m: {step.replace('{rest}', rest)})"
    return f"({folded}).began"


MEANING = RuleSet(
    nodes={
        exp.RegexpLike: _matches,
        exp.RegexpExtract: _extract,
        exp.RegexpExtractAll: _extract_all,
        exp.RegexpReplace: _replace,
        exp.RegexpInstr: _place,
    }
)
