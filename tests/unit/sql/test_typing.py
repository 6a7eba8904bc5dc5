"""The type of every expression, inferred from the tree alone."""

import pytest
import sqlglot

from cordwood.model.datatype import Datatype, Kind
from cordwood.sql.datatypes import (
    EVENT_NUMBER,
    FLOAT64,
    INT64,
    STRING,
    TIMESTAMP,
    VARIANT,
    array_of,
    common_stored_type,
    common_type,
    datatype_of,
    inherit_metadata,
    set_datatype,
    struct_of,
)
from cordwood.sql.type_inference import annotate_types


def kinds(sql: str) -> list[Kind | None]:
    relation = annotate_types(sqlglot.parse_one(sql, read="bigquery"))
    return [datatype.kind if datatype else None for _, datatype in relation.columns]


@pytest.mark.parametrize(
    ("expression", "kind"),
    [
        ("1", Kind.INT64),
        ("1.5", Kind.FLOAT64),
        ("1 + 1.5", Kind.FLOAT64),
        ("1 / 2", Kind.FLOAT64),
        ("numeric '1' * 2", Kind.NUMERIC),
        ("'a' || 'b'", Kind.STRING),
        ("b'a' || b'b'", Kind.BYTES),
        ("[1] || [2]", Kind.ARRAY),
        ("1 < 2 and true", Kind.BOOL),
        ("date '2024-01-01' + 1", Kind.DATE),
        ("date '2024-01-01' - date '2023-01-01'", Kind.INTERVAL),
        ("timestamp '2024-01-01' + interval 1 day", Kind.TIMESTAMP),
        ("date '2024-01-01' + interval 1 day", Kind.DATETIME),
        ("timestamp_trunc('2024-01-01', day)", Kind.TIMESTAMP),
        ("date_trunc(datetime '2024-01-01', day)", Kind.DATETIME),
        ("extract(date from timestamp '2024-01-01')", Kind.DATE),
        ("round(1)", Kind.FLOAT64),
        ("sum(1)", Kind.INT64),
        ("avg(numeric '1')", Kind.NUMERIC),
        ("count(distinct 'a')", Kind.INT64),
        ("string_agg('a' order by 1 limit 1)", Kind.STRING),
        ("[1, 2.5][offset(0)]", Kind.FLOAT64),
        ("struct(1 as a, 'x' as b).b", Kind.STRING),
        ("json_query(json '{}', '$')", Kind.JSON),
        ("json_query('{}', '$')", Kind.STRING),
        ("if(true, 1, 2.5)", Kind.FLOAT64),
        ("case when true then null else 'x' end", Kind.STRING),
        ("safe.parse_date('%Y', '2024')", Kind.DATE),
        ("net.host('x')", Kind.STRING),
        ("cast('1' as numeric)", Kind.NUMERIC),
        ("(select max(x) from unnest([date '2024-01-01']) as x)", Kind.DATE),
    ],
)
def test_an_expression_has_its_type(expression: str, kind: Kind) -> None:
    assert kinds(f"select {expression}") == [kind]


def test_types_pass_through_ctes_joins_and_set_operations() -> None:
    sql = """
        with a as (select 1 as x, 'p' as y), b as (select 2.5 as x union all select 1)
        select a.y, b.x, u from a join b on a.x = b.x cross join unnest([a.y]) as u
    """
    assert kinds(sql) == [Kind.STRING, Kind.FLOAT64, Kind.STRING]


def test_a_recursive_cte_takes_its_types_from_its_first_branch() -> None:
    assert kinds("with recursive t as (select 1 as n union all select n + 1 from t) select n from t") == [Kind.INT64]


def test_stars_and_value_tables_keep_their_types() -> None:
    assert kinds("select * except (a) from (select 1 as a, 'x' as b)") == [Kind.STRING]
    assert kinds("select a, t from unnest([struct(1 as a)]) as t") == [Kind.INT64, Kind.STRUCT]
    assert kinds("select * from (select as struct 1 as a, 'b' as c)") == [Kind.INT64, Kind.STRING]


def test_a_field_is_read_through_an_array_of_structs() -> None:
    sql = "select x from (select [struct([1] as b)] as a) as t cross join unnest(t.a.b) as x"
    assert kinds(sql) == [Kind.INT64]


def test_unknown_expressions_have_no_type() -> None:
    assert kinds("select nothing from nowhere") == [None]


def test_the_common_type_is_the_wider_one() -> None:
    assert common_type([INT64, None, FLOAT64]) == FLOAT64
    assert common_type([STRING, TIMESTAMP]) == TIMESTAMP
    assert common_type([VARIANT, INT64]) == EVENT_NUMBER
    assert common_type([EVENT_NUMBER, INT64]) == EVENT_NUMBER
    assert common_type([EVENT_NUMBER, FLOAT64]) == common_type([FLOAT64, EVENT_NUMBER]) == FLOAT64
    assert common_stored_type([VARIANT, INT64]) == VARIANT
    assert common_type([array_of(INT64), array_of(FLOAT64)]) == array_of(FLOAT64)
    assert common_type([struct_of([("a", INT64)]), struct_of([("b", FLOAT64)])]) == struct_of([("a", FLOAT64)])
    assert common_type([]) is None


def test_a_replacement_inherits_the_type_and_position() -> None:
    replaced = set_datatype(sqlglot.exp.Literal.number(1), Datatype(Kind.INT64))
    replaced.meta["line"] = 3
    replacement = inherit_metadata(sqlglot.exp.Literal.number(2), replaced)
    assert datatype_of(replacement) == INT64
    assert replacement.meta["line"] == 3


def test_copies_of_a_node_share_its_type() -> None:
    node = set_datatype(sqlglot.exp.Literal.number(1), array_of(INT64))
    assert datatype_of(node.copy()) is datatype_of(node)
