"""JSON_SET, JSON_REMOVE and JSON_STRIP_NULLS: changes of a JSON document."""

from typing import Final

from sqlglot import exp

from cordwood.engines.duckdb.rules.building_blocks import fail, once
from cordwood.engines.duckdb.rules.json_text import as_json
from cordwood.engines.duckdb.rules.json_values import path_text
from cordwood.sql.bigquery.json_documents import option_value
from cordwood.sql.bigquery.json_paths import Steps, steps_of
from cordwood.sql.constants import constant
from cordwood.sql.fragment import text_part
from cordwood.sql.lowering import RuleSet, unsupported

_CREATES: Final = "create_if_missing"


def _set(node: exp.Expr) -> exp.Expr:
    """Apply the pairs of JSON_SET in order, each to the result of the previous one."""
    pairs = [part for part in node.expressions if not isinstance(part, exp.Kwarg)]
    options = {part.name.lower(): constant(part.expression) for part in node.expressions if isinstance(part, exp.Kwarg)}
    creates = options.pop(_CREATES, True)
    if options or not isinstance(creates, bool) or len(pairs) % 2:
        unsupported(node, "JSON_SET with these arguments")
    document: exp.Expr = node.this
    for path, value in zip(pairs[::2], pairs[1::2], strict=True):
        document = _set_value(document, steps_of(path, node), value, node, creates=creates)
    return document


def _set_value(document: exp.Expr, steps: Steps, value: exp.Expr, node: exp.Expr, *, creates: bool) -> exp.Expr:
    """Set one value and create missing parents; fail where DuckDB's json_set would not create them.

    DuckDB replaces no JSON null above the value, and adds no array elements before it.
    """
    # The last hole has the whole path, the others its prefixes.
    paths = [text_part(path_text(steps[:depth])) for depth in range(len(steps) + 1)]
    path_hole = f"{{{len(steps)}}}"
    if not creates:
        return once(f"json_replace(@a, {path_hole}, @b)", document, as_json(value), texts=paths)
    is_unsupported = " OR ".join(_not_created(steps)) or "false"
    failure = fail(node, "JSON_SET below a JSON null, or beyond the end of an array, is not supported")
    body = f"CASE WHEN {is_unsupported} THEN {failure} ELSE json_set(@a, {path_hole}, @b) END"
    return once(body, document, as_json(value), texts=paths)


def _not_created(steps: Steps) -> list[str]:
    """Return the conditions under which DuckDB would leave the document unchanged and BigQuery would not."""
    parents = [f"{{{depth}}}" for depth in range(len(steps))]
    nulls = [f"json_type(@a, {path}) = 'NULL'" for path in parents]
    beyond = [
        f"(coalesce(json_type(@a, {path}), 'ARRAY') = 'ARRAY' AND coalesce(json_array_length(@a, {path}), 0) < {step})"
        for path, step in zip(parents, steps, strict=True)
        if isinstance(step, int) and step
    ]
    return [*nulls, *(f"(@a IS NOT NULL AND {condition})" for condition in beyond)]


def _remove(node: exp.Expr) -> exp.Expr:
    """Apply the paths of JSON_REMOVE in order, each to the result of the previous one."""
    document: exp.Expr = node.this
    for path in node.expressions:
        steps = steps_of(path, node)
        if not steps:
            unsupported(node, "JSON_REMOVE of the whole")
        document = once("json_remove(@a, @b)", document, text_part(path_text(steps)))
    return document


def _strip_nulls(node: exp.Expr) -> exp.Expr:
    """Lower JSON_STRIP_NULLS; DuckDB removes nulls from objects only."""
    in_arrays, empty = (node.args.get(key) for key in ("include_arrays", "remove_empty"))
    if (
        node.expression
        or _option_value(in_arrays) is not False
        or (empty is not None and _option_value(empty) is not False)
    ):
        unsupported(node, "JSON_STRIP_NULLS other than of a whole document with include_arrays => FALSE")
    return once("json_strip_nulls(@a)", node.this)


def _option_value(option: exp.Expr | None) -> object:
    return None if option is None else option_value(option)


RULES = RuleSet(nodes={exp.JSONSet: _set, exp.JSONRemove: _remove, exp.JSONStripNulls: _strip_nulls})
