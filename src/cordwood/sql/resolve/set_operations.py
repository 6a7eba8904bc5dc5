"""UNION, INTERSECT and EXCEPT: their output columns, with BY NAME rewritten to positions."""

from collections.abc import Callable, Mapping
from typing import Final

from sqlglot import exp

from cordwood.errors import QueryRefused
from cordwood.sql.budget import copied
from cordwood.sql.resolve.resolution import Output, Resolution
from cordwood.sql.scope import Lineage


def combine_outputs(
    resolution: Resolution, operation: exp.Expr, left: list[Output], right: list[Output]
) -> list[Output]:
    """Return the columns of the operation; sides that are paired by name are wrapped to reorder theirs."""
    if operation.args.get("by_name"):
        return _combine_by_name(resolution, operation, left, right)
    if len(left) != len(right):
        raise resolution.refuse(
            operation.expression,
            f"The sides have {len(left)} and {len(right)} columns: they must have as many.",
            "Select the same columns on both sides.",
        )
    return [_merge_outputs(*pair) for pair in zip(left, right, strict=False)] + left[len(right) :]


def _merge_outputs(left: Output, right: Output) -> Output:
    lineage = left.lineage
    if right.lineage.is_event:
        lineage = Lineage(
            origins=lineage.origins | right.lineage.origins, fields=lineage.fields, element=lineage.element
        )
    return Output(left.name, lineage, left.column)


def _combine_by_name(
    resolution: Resolution, operation: exp.Expr, left: list[Output], right: list[Output]
) -> list[Output]:
    names = _output_names(resolution, operation, left, right)
    sides = (("this", left), ("expression", right))
    for key, outputs in sides:
        _reorder(resolution, operation.args[key], outputs, names)
    for key in ("by_name", "side", "kind", "on"):
        operation.set(key, None)
    lineages = {output.name.lower(): output.lineage for output in (*right, *left)}
    return [Output(name, lineages[name.lower()]) for name in names]


def _output_names(resolution: Resolution, operation: exp.Expr, left: list[Output], right: list[Output]) -> list[str]:
    """Return the names of the output columns in order."""
    left_names, right_names = _names_by_lower(left), _names_by_lower(right)
    side = str(operation.args.get("side") or operation.args.get("kind") or "").upper()
    if operation.args.get("on"):
        return _listed_names(
            resolution, operation, _COLUMN_CHOICE[side if side in _COLUMN_CHOICE else "INNER"](left_names, right_names)
        )
    if side in _COLUMN_CHOICE:
        return _COLUMN_CHOICE[side](left_names, right_names)
    if left_names.keys() != right_names.keys():
        raise _unpaired_columns(resolution, operation, sorted(left_names.keys() ^ right_names.keys()))
    return list(left_names.values())


def _listed_names(resolution: Resolution, operation: exp.Expr, available: list[str]) -> list[str]:
    """Return the columns that ON lists, each of which must exist."""
    names = [column.name for column in operation.args["on"]]
    available_lower = {name.lower() for name in available}
    missing = [name for name in names if name.lower() not in available_lower]
    if missing:
        raise _unpaired_columns(resolution, operation, missing)
    return names


NamesByLower = dict[str, str]


def _names_by_lower(outputs: list[Output]) -> NamesByLower:
    return {output.name.lower(): output.name for output in outputs}


_COLUMN_CHOICE: Final[Mapping[str, Callable[[NamesByLower, NamesByLower], list[str]]]] = {
    "FULL": lambda ours, theirs: [*ours.values(), *_missing_names(ours, theirs)],
    "LEFT": lambda ours, _: list(ours.values()),
    "INNER": lambda ours, theirs: [name for lower, name in ours.items() if lower in theirs],
}


def _missing_names(left_names: NamesByLower, right_names: NamesByLower) -> list[str]:
    return [name for lower, name in right_names.items() if lower not in left_names]


def _unpaired_columns(resolution: Resolution, operation: exp.Expr, names: list[str]) -> QueryRefused:
    return resolution.refuse(
        operation.expression,
        f"BY NAME needs the same columns on both sides; these are on one only: {', '.join(names)}.",
        "Write FULL OUTER, LEFT OUTER or INNER before the operation.",
    )


def _reorder(resolution: Resolution, side: exp.Expr, outputs: list[Output], names: list[str]) -> None:
    if [output.name.lower() for output in outputs] == [name.lower() for name in names]:
        return
    alias = exp.to_identifier(resolution.unique_name("_side"), quoted=True)
    names_by_lower = {output.name.lower(): output.name for output in outputs}
    items = [
        exp.Alias(
            this=_column_or_null(names_by_lower.get(name.lower()), alias), alias=exp.to_identifier(name, quoted=True)
        )
        for name in names
    ]
    wrapper = exp.Select(expressions=items)
    side.replace(wrapper)
    inner = side.this if isinstance(side, exp.Subquery) and not side.args.get("limit") else side
    wrapper.set("from_", exp.From(this=exp.Subquery(this=inner, alias=exp.TableAlias(this=copied(alias)))))


def _column_or_null(name: str | None, alias: exp.Expr) -> exp.Expr:
    if name is None:
        return exp.Null()
    return exp.Column(this=exp.to_identifier(name, quoted=True), table=copied(alias))
