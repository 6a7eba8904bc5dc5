"""JSON Schemas of columns, parameters and streams, and the OpenAPI document."""

from uuid import NAMESPACE_DNS, uuid5

import pytest

from cordwood.model.datatype import Datatype, Kind
from cordwood.model.definitions import Endpoint, Parameter, Stream, TextParameterKind
from cordwood.model.event import EventShape, ValueKind
from cordwood.web.describe.openapi import (
    EndpointWithColumns,
    Schema,
    cell_schema,
    openapi_document,
    parameter_schema,
    row_schema,
    stream_schema,
    type_names_by_dotted_path,
)

TEXT_TYPE, INT_TYPE = Datatype(Kind.STRING), Datatype(Kind.INT64)
RECORD_TYPE = Datatype(Kind.STRUCT, fields=(("a", INT_TYPE), ("b", TEXT_TYPE)))
MEMBER_SCHEMAS = {"a": {"type": ["integer", "null"], "format": "int64"}, "b": {"type": ["string", "null"]}}


def test_a_row_schema_has_the_columns_in_order_and_nullable() -> None:
    schema = row_schema([("path", TEXT_TYPE), ("n", INT_TYPE), ("anything", None)])
    assert list(schema["properties"]) == ["path", "n", "anything"]
    assert schema["properties"]["path"] == {"type": ["string", "null"]}
    assert schema["properties"]["anything"] == {}


def test_columns_of_one_name_are_numbered_as_in_answers() -> None:
    assert list(row_schema([("n", INT_TYPE), ("n", TEXT_TYPE)])["properties"]) == ["n", "n_1"]


def test_a_record_is_in_an_array_of_one_but_not_inside_an_array() -> None:
    inside = {"type": "object", "properties": MEMBER_SCHEMAS}
    assert cell_schema(RECORD_TYPE) == {"type": "array", "items": inside}
    assert cell_schema(Datatype(Kind.ARRAY, element=RECORD_TYPE)) == {"type": "array", "items": inside}
    assert cell_schema(Datatype(Kind.ARRAY, element=TEXT_TYPE)) == {
        "type": "array",
        "items": {"type": ["string", "null"]},
    }


def test_timestamps_are_integers_and_datetimes_are_strings() -> None:
    assert cell_schema(Datatype(Kind.TIMESTAMP))["type"] == "integer"
    assert cell_schema(Datatype(Kind.DATETIME))["type"] == "string"
    assert cell_schema(Datatype(Kind.VARIANT)) == {}


@pytest.mark.parametrize(
    ("parameter", "schema"),
    [
        (Parameter("p"), {"type": "string"}),
        (Parameter("p", kind=TextParameterKind.REGEX), {"type": "string", "format": "regex"}),
        (Parameter("p", one_of=("a", "b"), default="b"), {"type": "string", "enum": ["a", "b"], "default": "b"}),
        (Parameter("p", Kind.INT64, default="5"), {"type": "integer", "format": "int64", "default": 5}),
        (Parameter("p", Kind.FLOAT64, one_of=("0.5", "1")), {"type": "number", "enum": [0.5, 1.0]}),
        (Parameter("p", Kind.BOOL, default="true"), {"type": "boolean", "default": True}),
        (Parameter("p", Kind.TIMESTAMP), {"type": "string", "format": "date-time"}),
    ],
)
def test_a_parameter_schema_has_its_type_values_and_default(parameter: Parameter, schema: Schema) -> None:
    assert parameter_schema(parameter) == schema


SHAPE = EventShape(
    {
        ("metadata",): frozenset({ValueKind.OBJECT}),
        ("metadata", "n"): frozenset({ValueKind.NUMBER, ValueKind.TEXT}),
        ("metadata", "tags"): frozenset({ValueKind.ARRAY}),
        ("metadata", "tags", "[]"): frozenset({ValueKind.TEXT}),
        ("metadata", "calls"): frozenset({ValueKind.ARRAY}),
        ("metadata", "calls", "[]"): frozenset({ValueKind.OBJECT}),
        ("metadata", "calls", "[]", "ms"): frozenset({ValueKind.NUMBER}),
        ("project",): frozenset({ValueKind.TEXT}),
    }
)
STREAM = Stream("app", uuid5(NAMESPACE_DNS, "app"))


def test_a_stream_schema_nests_as_its_events_do() -> None:
    schema = stream_schema(STREAM, SHAPE, "/here")
    assert (schema["$id"], schema["title"], schema["type"]) == ("/here", "app", "object")
    assert {"id", "timestamp", "event_message", "project", "metadata"} == set(schema["properties"])
    assert schema["properties"]["metadata"] == {
        "type": "object",
        "properties": {
            "n": {"type": ["number", "string"]},
            "tags": {"type": "array", "items": {"type": "string"}},
            "calls": {"type": "array", "items": {"type": "object", "properties": {"ms": {"type": "number"}}}},
        },
    }


def test_a_flat_schema_has_the_paths_of_scalars_and_their_arrays() -> None:
    assert type_names_by_dotted_path(SHAPE) == {
        "id": "string",
        "timestamp": "datetime",
        "event_message": "string",
        "metadata.n": "number|string",
        "metadata.tags": "string[]",
        "project": "string",
    }


def endpoint(name: str, *, auth: bool = True, parameters: tuple[Parameter, ...] = ()) -> Endpoint:
    return Endpoint(name, uuid5(NAMESPACE_DNS, name), "select 1", "1", requires_key=auth, parameters=parameters)


def test_names_that_differ_only_in_punctuation_have_distinct_operation_ids() -> None:
    paths = openapi_document([EndpointWithColumns(endpoint("a.b"), []), EndpointWithColumns(endpoint("a-b"), [])], [])[
        "paths"
    ]
    ids = {paths[f"/api/endpoints/query/{name}"]["get"]["operationId"] for name in ("a.b", "a-b")}
    assert len(ids) == 2


def test_braces_in_a_name_are_escaped() -> None:
    assert "/api/endpoints/query/%7Bx%7D" in openapi_document([EndpointWithColumns(endpoint("{x}"), [])], [])["paths"]


def test_a_public_endpoint_is_addressed_by_its_uuid_and_needs_no_key() -> None:
    public = endpoint("open", auth=False)
    path = openapi_document([EndpointWithColumns(public, [])], [])["paths"][f"/api/endpoints/query/{public.id}"]
    assert path["get"]["security"] == [{}]


def test_a_parameter_called_format_replaces_the_common_one() -> None:
    path = openapi_document([EndpointWithColumns(endpoint("f", parameters=(Parameter("format"),)), [])], [])["paths"]
    listed = path["/api/endpoints/query/f"]["get"]["parameters"]
    assert {"$ref": "#/components/parameters/format"} not in listed


def test_documents_do_not_share_state() -> None:
    openapi_document([EndpointWithColumns(endpoint("once"), [])], [])
    assert "/api/endpoints/query/once" not in openapi_document([], [])["paths"]
