"""Labels that the stages `json` and `logfmt` extract from the line, as expressions of SQL."""

import re
from collections.abc import Iterator
from itertools import product
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.logql.syntax import Extraction, LabelRemoval, LineFormat, Parser, ParserKind, Pipeline
from cordwood.sql.query_templates import fill

# Underscores of a label's name that may stand for a step into an object: each doubles the paths that are tried.
MAX_SPLITS: Final = 3

_PLAIN_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Everything before a key of logfmt: whole pairs, so that a key inside a quoted value is not found.
_PAIRS_BEFORE: Final = r'^\s*(?:[^\s="]+(?:=(?:"(?:[^"\\]|\\.)*"|[^\s"]*))?\s+)*?'


class ParserState(msgspec.Struct):
    """The parsers before a stage, the labels that were dropped or kept, and the templates of the line."""

    parsers: tuple[Parser, ...] = ()
    removals: tuple[LabelRemoval, ...] = ()
    formats: tuple[LineFormat, ...] = ()

    @property
    def has_parsers(self) -> bool:
        return bool(self.parsers)

    def is_removed(self, name: str) -> bool:
        return any((name in removal.labels) != removal.keeps for removal in self.removals)

    def parsed(self, name: str, line: exp.Expr) -> list[exp.Expr]:
        """Return the values that the parsers extract under this name."""
        return [value for parser in self.parsers for value in _extracted(parser, name, line)]


def final_state(pipeline: Pipeline) -> ParserState:
    """Return the state after the last stage."""
    parsers = tuple(stage for stage in pipeline.stages if isinstance(stage, Parser))
    removals = tuple(stage for stage in pipeline.stages if isinstance(stage, LabelRemoval))
    formats = tuple(stage for stage in pipeline.stages if isinstance(stage, LineFormat))
    return ParserState(parsers, removals, formats)


def _extracted(parser: Parser, name: str, line: exp.Expr) -> Iterator[exp.Expr]:
    named = next((extraction for extraction in parser.extractions if extraction.label == name), None)
    if parser.extractions and named is None:
        return
    if parser.kind is ParserKind.LOGFMT:
        yield _logfmt_value(str(named.steps[0]) if named else name, line, is_exact=named is not None)
    elif named is not None:
        yield from _json_part(named, line)
    else:
        for steps in _splits(name):
            yield fill("JSON_VALUE(@line, @path)", 0, line=line, path=json_path(steps))


def _json_part(extraction: Extraction, line: exp.Expr) -> Iterator[exp.Expr]:
    """Yield a scalar's text, else the JSON text of an array or an object."""
    path = json_path(extraction.steps)
    yield fill("JSON_VALUE(@line, @path)", 0, line=line, path=path)
    yield fill("JSON_QUERY(@line, @path)", 0, line=line, path=path)


def json_path(steps: tuple[str | int, ...]) -> str:
    """Return the path in BigQuery's notation. The parser admits no quote in a key."""
    return "$" + "".join(_json_step(step) for step in steps)


def _json_step(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    return f".{step}" if _PLAIN_KEY.fullmatch(step) else f'["{step}"]'


def _splits(name: str) -> Iterator[tuple[str, ...]]:
    """Yield the paths that are flattened to a label's name, the unnested key first.

    Of a name with many underscores, either only some of the first ones are steps, or all are.
    """
    parts = name.split("_")
    places = min(len(parts) - 1, MAX_SPLITS)
    for separators in product("_.", repeat=places):
        joined = parts[0] + "".join(
            f"{separator}{part}" for separator, part in zip(separators, parts[1:], strict=False)
        )
        steps = "_".join([joined, *parts[places + 1 :]]).split(".")
        if all(steps):
            yield tuple(steps)
    if len(parts) - 1 > MAX_SPLITS and all(parts):
        yield tuple(parts)


def _logfmt_value(key: str, line: exp.Expr, *, is_exact: bool) -> exp.Expr:
    """Return the value of a key, without quotes. A label's underscore is any character that a label cannot have."""
    pattern = re.escape(key) if is_exact else key.replace("_", r'[^A-Za-z0-9\s="]')
    before = f"{_PAIRS_BEFORE}{pattern}"
    quoted = fill(
        "REPLACE(REGEXP_EXTRACT(@line, @pattern), @escaped, @quote)",
        0,
        line=line,
        pattern=f'{before}="((?:[^"\\\\]|\\\\.)*)"',
        escaped='\\"',
        quote='"',
    )
    plain = fill("REGEXP_EXTRACT(@line, @pattern)", 0, line=line, pattern=rf'{before}=([^\s"]*)')
    return fill("COALESCE(@quoted, @plain)", 0, quoted=quoted, plain=plain)
