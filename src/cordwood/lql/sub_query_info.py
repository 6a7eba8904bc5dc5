"""The metadata of the queried sub-query: its columns, their types, and where arrays have been seen."""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from cordwood.errors import Span, UnknownName, closest
from cordwood.lql.query import Path
from cordwood.model.datatype import Kind
from cordwood.sql.positions import span_at

Keys = tuple[str, ...]

# Keywords of other query languages, and the LQL for them.
_EQUIVALENT_CLAUSES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("sort", "sort_by", "orderby", "order_by"), "order:timestamp@desc"),
    **dict.fromkeys(("since", "earliest"), "t:last@1h"),
    **dict.fromkeys(("fields", "columns"), "s:id s:event_message"),
    **dict.fromkeys(("by", "group", "groupby", "group_by"), "c:group_by(m.level) c:count(*)"),
    **dict.fromkeys(("head", "take"), "limit:5"),
}


class SubQueryInfo(msgspec.Struct, frozen=True):
    """The metadata of a sub-query; `kinds` are the types by column name.

    `has_array` returns whether an array was seen at a column's path. `is_single_value` returns whether values were seen
    there and none was an array, in which case a value is a list of itself; `may_be_single_value` whether that may hold
    for some of the values. `find_similar_path` returns the path of
    events whose last step is similar to a name. `child_keys` returns the keys of the objects that were seen at a path.
    """

    sub_query: str
    kinds: Mapping[str, Kind]
    has_array: Callable[[Keys], bool]
    text: str
    find_similar_path: Callable[[str], str | None] = lambda _name: None
    is_single_value: Callable[[Keys], bool] = lambda _keys: False
    child_keys: Callable[[Keys], Keys] = lambda _keys: ()
    may_be_single_value: Callable[[Keys], bool] = lambda _keys: False

    def has_column(self, name: str) -> bool:
        return self._column_name(name) is not None

    def kind(self, path: Path) -> Kind:
        """Return the type of the value at the path; raise UnknownName if the sub-query has no such column."""
        first = path.parts[0]
        name = self._column_name(first)
        if name is None:
            raise self.unknown_column(first, path.offset)
        return self.kinds[name] if len(path.parts) == 1 else Kind.VARIANT

    def span(self, offset: int) -> Span:
        return span_at(self.text, offset)

    def unknown_column(self, name: str, offset: int) -> UnknownName:
        names = list(self.kinds)
        closest_name = closest(name, names)
        command = _EQUIVALENT_CLAUSES.get(name.lower())
        if command is not None:
            hint = f"Write {command}."
            return UnknownName(f"{self.sub_query} has no column {name[:60]}.", hint=hint, span=self.span(offset))
        path = self.find_similar_path(name)
        path_example = f"m.{path.partition('.')[2]}" if path and path.startswith("metadata.") else path or f"m.{name}"
        hint = (
            f"Did you mean {closest_name}?"
            if closest_name
            else f"It has: {', '.join(names)}. Inside metadata: {path_example}."
        )
        return UnknownName(f"{self.sub_query} has no column {name[:60]}.", hint=hint, span=self.span(offset))

    def _column_name(self, name: str) -> str | None:
        return next((column for column in self.kinds if column.lower() == name.lower()), None)
