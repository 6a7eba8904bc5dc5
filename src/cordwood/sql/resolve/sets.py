"""UNION, INTERSECT and EXCEPT: their output columns, with BY NAME rewritten to positions."""

from collections.abc import Callable, Mapping
from typing import Final

from sqlglot import exp

from cordwood.errors import QueryRefused
from cordwood.sql.budget import copied
from cordwood.sql.resolve.work import Output, Work
from cordwood.sql.scope import Nature


def combined(work: Work, operation: exp.Expr, left: list[Output], right: list[Output]) -> list[Output]:
    """Return the columns of the operation; sides that are paired by name are wrapped to reorder theirs."""
    if operation.args.get("by_name"):
        return _by_name(work, operation, left, right)
    if len(left) != len(right):
        raise work.refuse(
            operation.expression,
            f"The sides have {len(left)} and {len(right)} columns: they must have as many.",
            "Select the same columns on both sides.",
        )
    return [_merged(*pair) for pair in zip(left, right, strict=False)] + left[len(right) :]


def _merged(left: Output, right: Output) -> Output:
    nature = left.nature
    if right.nature.is_event:
        nature = Nature(origins=nature.origins | right.nature.origins, fields=nature.fields, element=nature.element)
    return Output(left.name, nature, left.column)


def _by_name(work: Work, operation: exp.Expr, left: list[Output], right: list[Output]) -> list[Output]:
    names = _names(work, operation, left, right)
    sides = (("this", left), ("expression", right))
    for key, outputs in sides:
        _reorder(work, operation.args[key], outputs, names)
    for key in ("by_name", "side", "kind", "on"):
        operation.set(key, None)
    natures = {output.name.lower(): output.nature for output in (*right, *left)}
    return [Output(name, natures[name.lower()]) for name in names]


def _names(work: Work, operation: exp.Expr, left: list[Output], right: list[Output]) -> list[str]:
    """Return the names of the output columns in order."""
    ours, theirs = _by_lower(left), _by_lower(right)
    side = str(operation.args.get("side") or operation.args.get("kind") or "").upper()
    if operation.args.get("on"):
        return _listed(work, operation, _CHOSEN[side if side in _CHOSEN else "INNER"](ours, theirs))
    if side in _CHOSEN:
        return _CHOSEN[side](ours, theirs)
    if ours.keys() != theirs.keys():
        raise _unpaired(work, operation, sorted(ours.keys() ^ theirs.keys()))
    return list(ours.values())


def _listed(work: Work, operation: exp.Expr, found: list[str]) -> list[str]:
    """Return the columns that ON lists, each of which must exist."""
    names = [column.name for column in operation.args["on"]]
    known = {name.lower() for name in found}
    lacking = [name for name in names if name.lower() not in known]
    if lacking:
        raise _unpaired(work, operation, lacking)
    return names


Spelt = dict[str, str]


def _by_lower(outputs: list[Output]) -> Spelt:
    return {output.name.lower(): output.name for output in outputs}


_CHOSEN: Final[Mapping[str, Callable[[Spelt, Spelt], list[str]]]] = {
    "FULL": lambda ours, theirs: [*ours.values(), *_beyond(ours, theirs)],
    "LEFT": lambda ours, _: list(ours.values()),
    "INNER": lambda ours, theirs: [name for lower, name in ours.items() if lower in theirs],
}


def _beyond(ours: Spelt, theirs: Spelt) -> list[str]:
    return [name for lower, name in theirs.items() if lower not in ours]


def _unpaired(work: Work, operation: exp.Expr, names: list[str]) -> QueryRefused:
    return work.refuse(
        operation.expression,
        f"BY NAME needs the same columns on both sides; these are on one only: {', '.join(names)}.",
        "Write FULL OUTER, LEFT OUTER or INNER before the operation.",
    )


def _reorder(work: Work, side: exp.Expr, outputs: list[Output], names: list[str]) -> None:
    if [output.name.lower() for output in outputs] == [name.lower() for name in names]:
        return
    alias = exp.to_identifier(work.unique("_side"), quoted=True)
    spelt = {output.name.lower(): output.name for output in outputs}
    items = [
        exp.Alias(this=_value(spelt.get(name.lower()), alias), alias=exp.to_identifier(name, quoted=True))
        for name in names
    ]
    wrapped = exp.Select(expressions=items)
    side.replace(wrapped)
    inner = side.this if isinstance(side, exp.Subquery) and not side.args.get("limit") else side
    wrapped.set("from_", exp.From(this=exp.Subquery(this=inner, alias=exp.TableAlias(this=copied(alias)))))


def _value(name: str | None, alias: exp.Expr) -> exp.Expr:
    if name is None:
        return exp.Null()
    return exp.Column(this=exp.to_identifier(name, quoted=True), table=copied(alias))
