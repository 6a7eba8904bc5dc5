"""Walks an engine's parse tree, whose nodes are structs that know their own fields: a field of no struct is refused."""

from collections.abc import Callable, Iterable
from functools import cache
from types import NoneType, UnionType
from typing import Final, Literal, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec.structs import fields

from cordwood.engines.isolation import BreachError
from cordwood.errors import QueryRefused, QueryUnsupported

# The names of the CTEs that a table reference may mean at a place of the tree.
Scope = frozenset[str]
Below = Iterable[tuple[msgspec.Struct, Scope]]
Visit = Callable[[msgspec.Struct, Scope], Below]

T = TypeVar("T")

_PLAIN: Final = (bool, float, int, str, NoneType, msgspec.Raw)


class UnlistedFunctionError(Exception):
    """A function that is on no list of the engine's, by its name."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def check_functions(inspect: Callable[[], None], is_known: Callable[[str], bool]) -> None:
    """Inspect a tree; a function that is unlisted is a breach where the engine has it, and else a form not supported."""
    try:
        inspect()
    except UnlistedFunctionError as unlisted:
        if is_known(unlisted.name):
            raise BreachError(f"the function {unlisted.name}") from unlisted
        raise QueryUnsupported("This query takes a form that is not supported.") from unlisted


def decoded(decoder: msgspec.json.Decoder[T], told: bytes | str) -> T:
    """The parser's answer as the structs that are known; BreachError for a node or field that is not."""
    try:
        return decoder.decode(told)
    except msgspec.ValidationError as unknown:
        raise BreachError(f"an unknown node or field: {unknown}") from unknown
    except RecursionError as deep:
        raise QueryRefused("The query is nested too deeply.", hint="Split it into sub-queries in WITH.") from deep


def walk(root: msgspec.Struct, visit: Visit) -> None:
    """Visit each node with its scope; `visit` returns the nodes below it. Without recursion: trees may be deep."""
    waiting: list[tuple[msgspec.Struct, Scope]] = [(root, frozenset())]
    while waiting:
        waiting += visit(*waiting.pop())


def parts(node: msgspec.Struct, scope: Scope, *without: str) -> list[tuple[msgspec.Struct, Scope]]:
    """The structs right below a node, those in lists among them, each with the scope."""
    found: list[tuple[msgspec.Struct, Scope]] = []
    for name in _fields(type(node)):
        value = getattr(node, name)
        if not value or name in without:
            continue
        if type(value) is list:
            found.extend([(part, scope) for part in value])
        else:
            found.append((value, scope))
    return found


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """The fields that hold structs, or lists of them."""
    return tuple(field.name for field in fields(kind) if not _is_plain(field.type))


def _is_plain(kind: object) -> bool:
    if get_origin(kind) in (list, Union, UnionType):
        return all(map(_is_plain, get_args(kind)))
    return kind in _PLAIN or get_origin(kind) is Literal
