"""Translation of paths to columns: objects on the path are unnested once, arrays of objects in each condition."""

import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Final

from sqlglot import exp

from cordwood.lql.query import Path
from cordwood.lql.sub_query_info import Keys, SubQueryInfo
from cordwood.sql.query_templates import column

_SHORT_ALIASES: Final[Mapping[Keys, str]] = {("metadata",): "m"}
_SPECIAL_CHARACTER: Final = re.compile(r"\W")


class RecordUnnests:
    """The unnests of one SELECT for the paths that it reads."""

    def __init__(self, info: SubQueryInfo) -> None:
        self._info = info
        self._aliases: dict[Keys, str] = {}
        self._used_names = {name.lower() for name in (*info.kinds, info.sub_query, "item")}

    def column(self, path: Path) -> exp.Expr:
        """Return the column at the path; raise UnknownName if the sub-query has no column of its first part."""
        self._info.kind(path)
        if len(path.parts) == 1:
            return column(path.parts, path.offset)
        return column((self._alias(path.parts[:-1]), path.last), path.offset)

    def is_many(self, path: Path) -> bool:
        """Return whether an event may have several values there, because arrays were seen on the path."""
        return any(self._info.has_array(path.parts[:length]) for length in range(1, len(path.parts)))

    def where_any(self, path: Path, condition: Callable[[exp.Expr], exp.Expr]) -> exp.Expr:
        """Return the condition on the path's value, or on any of its values if there may be several."""
        self._info.kind(path)
        if not self.is_many(path):
            return condition(self.column(path))
        aliases = [self._unique_alias(keys) for keys in _prefixes(path)]
        first_unnest = _unnest(column(path.parts[:1], path.offset), aliases[0], path.offset)
        query = exp.select("1").from_(first_unnest, copy=False)
        for (parent, alias), step in zip(pairwise(aliases), path.parts[1:-1], strict=True):
            query.join(_unnest(column((parent, step), path.offset), alias, path.offset), join_type="CROSS", copy=False)
        query.where(condition(column((aliases[-1], path.last), path.offset)), copy=False)
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
            self._aliases[keys] = self._unique_alias(keys)
        return self._aliases[keys]

    def _unique_alias(self, keys: Keys) -> str:
        base = _SHORT_ALIASES.get(keys) or _SPECIAL_CHARACTER.sub("_", keys[-1])
        base = f"_{base}" if base[:1].isdigit() else base
        name, count = base, 1
        while name.lower() in self._used_names:
            count += 1
            name = f"{base}_{count}"
        self._used_names.add(name.lower())
        return name


def _prefixes(path: Path) -> list[Keys]:
    return [path.parts[:length] for length in range(1, len(path.parts))]


def _unnest(value: exp.Expr, alias: str, offset: int) -> exp.Expr:
    unnest = exp.Unnest(expressions=[value], alias=exp.TableAlias(columns=[exp.to_identifier(alias)]), offset=False)
    unnest.meta["start"] = unnest.meta["end"] = offset
    return unnest
