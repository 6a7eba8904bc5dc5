"""Translation of paths to columns: objects on the path are unnested once, arrays of objects in each condition."""

import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Final

from sqlglot import exp

from cordwood.lql.known import Keys, Known
from cordwood.lql.query import Path
from cordwood.sql.query_templates import column

_SHORT: Final[Mapping[Keys, str]] = {("metadata",): "m"}
_UNCLEAN: Final = re.compile(r"\W")


class Records:
    """The unnests of one SELECT for the paths that it reads."""

    def __init__(self, known: Known) -> None:
        self._known = known
        self._aliases: dict[Keys, str] = {}
        self._taken = {name.lower() for name in (*known.kinds, known.sub_query, "item")}

    def column(self, path: Path) -> exp.Expr:
        """Return the column at the path; raise UnknownName if the sub-query has no column of its first part."""
        self._known.kind(path)
        if len(path.parts) == 1:
            return column(path.parts, path.at)
        return column((self._alias(path.parts[:-1]), path.last), path.at)

    def is_many(self, path: Path) -> bool:
        """Return whether an event may have several values there, because arrays were seen on the path."""
        return any(self._known.has_array(path.parts[:length]) for length in range(1, len(path.parts)))

    def where_any(self, path: Path, made: Callable[[exp.Expr], exp.Expr]) -> exp.Expr:
        """Return the condition on the path's value, or on any of its values if there may be several."""
        self._known.kind(path)
        if not self.is_many(path):
            return made(self.column(path))
        aliases = [self._unique(keys) for keys in _prefixes(path)]
        unnested = _unnest(column(path.parts[:1], path.at), aliases[0], path.at)
        query = exp.select("1").from_(unnested, copy=False)
        for (parent, alias), step in zip(pairwise(aliases), path.parts[1:-1], strict=True):
            query.join(_unnest(column((parent, step), path.at), alias, path.at), join_type="CROSS", copy=False)
        query.where(made(column((aliases[-1], path.last), path.at)), copy=False)
        return exp.Exists(this=query)

    def join_into(self, query: exp.Select) -> None:
        """Add the unnests as LEFT JOINs, so that a missing record leaves its columns NULL and keeps the event."""
        for keys, alias in self._aliases.items():
            value = column((self._aliases[keys[:-1]], keys[-1])) if len(keys) > 1 else column(keys)
            query.join(_unnest(value, alias, 0), join_type="LEFT", on=exp.true(), copy=False)

    def _alias(self, keys: Keys) -> str:
        if len(keys) > 1:
            self._alias(keys[:-1])
        if keys not in self._aliases:
            self._aliases[keys] = self._unique(keys)
        return self._aliases[keys]

    def _unique(self, keys: Keys) -> str:
        wanted = _SHORT.get(keys) or _UNCLEAN.sub("_", keys[-1])
        wanted = f"_{wanted}" if wanted[:1].isdigit() else wanted
        name, count = wanted, 1
        while name.lower() in self._taken:
            count += 1
            name = f"{wanted}_{count}"
        self._taken.add(name.lower())
        return name


def _prefixes(path: Path) -> list[Keys]:
    return [path.parts[:length] for length in range(1, len(path.parts))]


def _unnest(value: exp.Expr, alias: str, at: int) -> exp.Expr:
    unnest = exp.Unnest(expressions=[value], alias=exp.TableAlias(columns=[exp.to_identifier(alias)]), offset=False)
    unnest.meta["start"] = unnest.meta["end"] = at
    return unnest
