"""PIVOT and UNPIVOT: of the latter the values come before their names, where the engine has it the other way round."""

from sqlglot import exp

from cordwood.sql.fragment import fragment, literal_name
from cordwood.sql.lowering import Meaning, unsupported


def _pivoted(node: exp.Expr) -> exp.Expr:
    """The pivot and its alias stand around the relation, so that columns are found under that alias."""
    pivots = node.args.get("pivots") or []
    if not pivots:
        return node
    if len(pivots) > 1:
        unsupported(node, "A pivot of a pivot")
    pivot = pivots[0]
    alias = pivot.alias or node.alias
    pivot.set("alias", None)
    columns = _values_first(pivot) if pivot.args.get("unpivot") else _aggregates_first(pivot)
    whole = fragment(f"(SELECT {columns} FROM {{0}})", node.copy())  # noqa: S608 - a template of ours
    return exp.Alias(this=whole, alias=exp.to_identifier(alias, quoted=True)) if alias else whole


def _values_first(pivot: exp.Expr) -> str:
    for item in pivot.find_all(exp.PivotAlias):
        _name_as_identifier(item)
    names = [literal_name(pivot.args["fields"][0].this.name), *(literal_name(value.name) for value in _values(pivot))]
    last = ", ".join((*names[1:], names[0]))
    return f"* EXCLUDE ({last}), {last}"


def _aggregates_first(pivot: exp.Expr) -> str:
    """`sum(v) AS s … IN ('x')` is the column s_x; the engine says x_s."""
    labels = [item.alias or item.name for item in pivot.args["fields"][0].expressions]
    names = [item.alias for item in pivot.expressions]
    if not all(names):
        return "*"
    renamed = [(f"{label}_{name}", f"{name}_{label}") for label in labels for name in names]
    return "* RENAME (" + ", ".join(f"{literal_name(old)} AS {literal_name(new)}" for old, new in renamed) + ")"


def _values(pivot: exp.Expr) -> list[exp.Expr]:
    return [item for value in pivot.expressions for item in (value.expressions or [value])]


def _name_as_identifier(item: exp.Expr) -> None:
    label = item.args["alias"]
    if isinstance(label, exp.Literal) and not label.is_string:
        unsupported(item, "A number as the label of UNPIVOT")
    item.set("alias", exp.to_identifier(label.name, quoted=True))


MEANING = Meaning(nodes={exp.Subquery: _pivoted, exp.Table: _pivoted})
