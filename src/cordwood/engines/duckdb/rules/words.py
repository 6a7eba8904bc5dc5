"""DuckDB's SQL for the operations of the vocabulary with which the rules that all engines share are written."""

from typing import Final

from sqlglot import exp

from cordwood.engines.duckdb.rules.building_blocks import (
    NAMES,
    attempt,
    fail,
    once,
    type_part,
    utc_wall_clock,
)
from cordwood.engines.duckdb.rules.coercions import read_as, wall_clock
from cordwood.model.datatype import Datatype, Kind
from cordwood.sql.datatypes import kind_of
from cordwood.sql.fragment import fragment
from cordwood.sql.rules.vocabulary import Vocabulary


def null_of(datatype: Datatype | None) -> exp.Expr:
    name = type_part(datatype)
    return exp.Null() if name is None else fragment("NULL::{0}", name)


def _cast(node: exp.Expr, kind: Kind) -> exp.Expr:
    return fragment(f"{{0}}::{NAMES[kind]}", node)


def conditional(condition: str, then: str, otherwise: str = "NULL") -> str:
    return f"CASE WHEN {condition} THEN {then}{'' if otherwise == 'NULL' else f' ELSE {otherwise}'} END"


def fail_if(node: exp.Expr, is_invalid: str, message: str, value: str) -> str:
    return conditional(is_invalid, fail(node, message), value)


def _bracketed(array: exp.Expr, name: str, element_text: exp.Expr, separator: str) -> exp.Expr:
    texts = fragment(f"list_transform({{0}}, lambda {name}: {{1}})", array, element_text)
    joined = f"coalesce(array_to_string(@a, '{separator}'), '')"
    return once(f"CASE WHEN @a IS NOT NULL THEN '[' || {joined} || ']' END", texts)


def json_document(value: exp.Expr) -> exp.Expr:
    """Return a value as a JSON document; a text that is not JSON is NULL."""
    kind = kind_of(value)
    if kind is Kind.JSON:
        return value
    if kind is Kind.VARIANT:
        return fragment("{0}::JSON", value)
    return once("(CASE WHEN json_valid(@a) THEN @a END)::JSON", value)


WORDS: Final = Vocabulary(
    once=once,
    attempt=attempt,
    null_of=null_of,
    read_as=read_as,
    cast=_cast,
    wall_clock=wall_clock,
    utc_wall_clock=utc_wall_clock,
    json_document=json_document,
    fail_if=fail_if,
    conditional=conditional,
    is_missing="{} IS NULL".format,
    is_present="{} IS NOT NULL".format,
    or_else="coalesce({}, {})".format,
    concat=lambda *texts: " || ".join(texts),
    as_text="{}::VARCHAR".format,
    as_integer="{}::BIGINT".format,
    as_float="{}::DOUBLE".format,
    matches="regexp_full_match({}, '{}')".format,
    extract="regexp_extract({}, '{}')".format,
    replace_first="regexp_replace({}, '{}', '{}')".format,
    replace_all="regexp_replace({}, '{}', '{}', 'g')".format,
    with_value="list_transform([{}], lambda {}: {})[1]".format,
    bracketed=_bracketed,
    field="struct_extract_at({}, {})".format,
    nan="'nan'::DOUBLE",
    is_finite="isfinite({})".format,
    is_infinite="isinf({})".format,
    is_nan="isnan({})".format,
    quotient="{} // {}".format,
    micros="epoch_us({})".format,
    moment_of="make_timestamptz({})".format,
)
