"""PIVOT and UNPIVOT: of the latter the values come before their names, where the engine has it the other way round."""

from itertools import product

from sqlglot import exp

from cordwood.engines.duckdb.sql_values import is_name
from cordwood.sql.budget import copied
from cordwood.sql.constants import constant_int, constant_text
from cordwood.sql.fragment import fragment, holes, named
from cordwood.sql.lowering import Meaning, unsupported


def _pivoted(node: exp.Expr) -> exp.Expr:
    """The pivot and its alias stand around the relation, so that columns are found under that alias."""
    pivots = node.args.get("pivots") or []
    if not pivots:
        return node
    if len(pivots) > 1:
        unsupported(node, "A pivot of a pivot")
    pivot = pivots[0]
    alias = node.alias
    columns, names = _values_first(pivot) if pivot.args.get("unpivot") else _aggregates_first(pivot)
    whole = fragment(f"(SELECT {columns} FROM {{0}})", copied(node), *map(named, names))  # noqa: S608 - a template of ours
    return exp.Alias(this=whole, alias=named(alias)) if alias else whole


def _values_first(pivot: exp.Expr) -> tuple[str, list[str]]:
    """The template of the columns, and the names in its holes; the first hole is the relation's."""
    for item in pivot.find_all(exp.PivotAlias):
        _name_as_identifier(item)
    names = [*(value.name for value in _values(pivot)), pivot.args["fields"][0].this.name]
    last = holes(len(names), first=1)
    return f"* EXCLUDE ({last}), {last}", names


def _aggregates_first(pivot: exp.Expr) -> tuple[str, list[str]]:
    """`sum(v) AS s … IN ('x')` is the column s_x; the engine says x_s."""
    labels = [item.alias or item.name for item in pivot.args["fields"][0].expressions]
    names = [item.alias for item in pivot.expressions]
    if not all(names):
        return "*", []
    renamed = [part for label, name in product(labels, names) for part in (f"{label}_{name}", f"{name}_{label}")]
    pairs = ", ".join(f"{{{at}}} AS {{{at + 1}}}" for at in range(1, len(renamed), 2))
    return f"* RENAME ({pairs})", renamed


def _values(pivot: exp.Expr) -> list[exp.Expr]:
    return [item for value in pivot.expressions for item in (value.expressions or [value])]


def _name_as_identifier(item: exp.Expr) -> None:
    item.set("alias", exp.to_identifier(item.args["alias"].name, quoted=True))


def _labelled(pivot: exp.Expr) -> exp.Expr:
    """Asked while labels and values are as they were written."""
    for value in pivot.args["fields"][0].expressions:
        if pivot.args.get("unpivot"):
            _check_column(pivot, value)
        elif not isinstance(value, exp.PivotAlias):
            _label(value)
    if not all(is_name(alias.name) for alias in _labels(pivot)):
        unsupported(pivot, "A label that the engine can give to no column")
    return pivot


def _labels(pivot: exp.Expr) -> list[exp.Expr]:
    """What the engine makes names of, or values; another name that is found for them would be seen."""
    labelled = [*pivot.args["fields"][0].expressions, *pivot.expressions]
    return [item.args["alias"] for item in labelled if item.args.get("alias") is not None]


def _check_column(pivot: exp.Expr, column: exp.Expr) -> None:
    label = column.args.get("alias")
    if len(_values(pivot)) > 1 or isinstance(column.unalias(), exp.Tuple):
        unsupported(pivot, "UNPIVOT into several columns")
    if label is not None and not isinstance(label, exp.Identifier) and not label.is_string:
        unsupported(column, "A label of UNPIVOT that is no text")


def _label(value: exp.Expr) -> None:
    """BigQuery's names of the columns; the engine's are the values as they are written."""
    name = _name_of(value)
    if name is None:
        unsupported(
            value, "A value of PIVOT that is neither a text, a whole number, a truth nor a date, without a name,"
        )
    named = exp.PivotAlias(this=copied(value), alias=exp.to_identifier(name, quoted=True))
    value.replace(named)


def _name_of(value: exp.Expr) -> str | None:
    if isinstance(value, exp.Boolean):
        return "TRUE" if value.this else "FALSE"
    if isinstance(value, exp.Cast) and value.is_type(exp.DType.DATE):
        text = constant_text(value.this)
        return text and f"_{text.replace('-', '_')}"
    number = constant_int(value)
    if number is not None:
        return f"_minus_{-number}" if number < 0 else f"_{number}"
    return constant_text(value)


MEANING = Meaning(nodes={exp.Subquery: _pivoted, exp.Table: _pivoted}, first={exp.Pivot: _labelled})
