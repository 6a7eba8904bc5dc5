"""On ClickHouse, the columns of a parenthesized query keep their types, because it is read with `SELECT *`."""

from uuid import UUID

from cordwood.engines.clickhouse.target import ClickHouseTarget
from cordwood.model.datatype import Kind
from cordwood.model.definitions import Endpoint
from cordwood.sql.compile import compile_sandbox_query, parse_and_check_endpoint


def test_a_union_of_parenthesized_queries_has_typed_columns() -> None:
    program = parse_and_check_endpoint(
        Endpoint(
            "e",
            UUID(int=3),
            "with t as (select id, timestamp from s) select id from t",
            "s",
            accepts_sandbox_queries=True,
        )
    )
    statement = compile_sandbox_query(
        program, "(select id, timestamp from t) union all (select 'a', null)", ClickHouseTarget(), {}
    )
    assert [datatype.kind if datatype else None for datatype in statement.column_types] == [Kind.STRING, Kind.TIMESTAMP]
