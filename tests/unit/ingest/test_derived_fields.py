"""Missing fields of events are derived from other fields by the templates of the stream."""

import json
from uuid import UUID

import pytest

from cordwood.ingest.derived_fields import derived_fields_of_stream, fill_template
from cordwood.ingest.shape_inference import ShapeInferrer
from cordwood.model.definitions import Stream
from cordwood.model.event import Event, EventShape

EDGE_STREAM = Stream("edge", UUID(int=1), derive_templates={"metadata.request.url": "https://{project}.{host}{path}"})


def derived_url(metadata: object, project: str | None = "proj") -> object:
    event = Event("a", 1, project=project, metadata=json.dumps(metadata))
    return json.loads(derived_fields_of_stream(EDGE_STREAM).fill_missing_fields(event).metadata or "null")


@pytest.mark.parametrize(
    ("request_", "expected_url"),
    [
        ({"host": "proj.example.co", "path": "/x"}, "https://proj.example.co/x"),
        ({"host": "example.co", "path": "/x"}, "https://proj.example.co/x"),
        ({"path": "/x"}, "https://proj/x"),
        ({"path": "/x", "headers": {"host": "example.co"}}, "https://proj.example.co/x"),
        ({"path": "/x", "host": "", "url": None}, "https://proj/x"),
        ({"path": "/x", "url": "https://as.sent/"}, "https://as.sent/"),
        ({"host": "example.co"}, None),
    ],
)
def test_a_url_is_derived_from_project_host_and_path(request_: dict[str, object], expected_url: str | None) -> None:
    assert derived_url({"request": request_}) == {"request": request_ | ({"url": expected_url} if expected_url else {})}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (False, "false"),
        (0, "0"),
        (-7, "-7"),
        (1.5, "1.5"),
        (0.0, "0.0"),
        ("True", "True"),
        (None, None),
        ([1], None),
        ({}, None),
    ],
)
@pytest.mark.parametrize("is_top_level", [False, True])
def test_numbers_and_booleans_are_written_as_in_json(value: object, text: str | None, *, is_top_level: bool) -> None:
    templates = {"metadata.request.label": "v={value}"}
    fields = {} if is_top_level else {"value": value}
    event = Event(
        "a",
        1,
        metadata=json.dumps({"request": fields}),
        extras=json.dumps({"value": value}) if is_top_level else None,
    )
    filled = derived_fields_of_stream(Stream("s", UUID(int=2), derive_templates=templates)).fill_missing_fields(event)
    expected = fields if text is None else fields | {"label": f"v={text}"}
    assert json.loads(filled.metadata or "null") == {"request": expected}


def test_every_request_of_an_event_is_derived_separately() -> None:
    assert derived_url({"request": [{"path": "/a"}, {"path": "/b", "url": "u"}]}) == {
        "request": [{"path": "/a", "url": "https://proj/a"}, {"path": "/b", "url": "u"}]
    }


@pytest.mark.parametrize("metadata", [None, 7, "text", {}, {"request": None}, {"request": "GET"}, []])
def test_without_a_request_nothing_is_derived(metadata: object) -> None:
    assert derived_url(metadata) == metadata


def test_nothing_is_derived_without_values() -> None:
    assert derived_url({"request": {"path": "/x"}}, project=None) == {"request": {"path": "/x"}}


def test_every_name_outside_a_host_is_required() -> None:
    assert fill_template("{a}-{b}", {"a": "x"}.get) is None
    assert fill_template("{a}-{b}", {"a": "x", "b": "y"}.get) == "x-y"


def test_only_events_without_the_field_are_filled() -> None:
    shapes: dict[str, EventShape] = {}
    reader = ShapeInferrer(lambda: shapes)
    full = Event("a", 1, project="p", metadata='{"request":{"path":"/x","host":"p.example.co","url":"https://own/"}}')
    bare = Event("b", 1, project="p", metadata='{"request":{"path":"/x","host":"p.example.co"}}')
    _, learnt = reader.infer_stream_shape("edge", [full, bare], derived_fields_of_stream(EDGE_STREAM))
    shapes["edge"] = EventShape().merged_with_kinds(learnt)
    reader = ShapeInferrer(lambda: shapes)
    for _ in range(2):
        inspected, _ = reader.infer_stream_shape("edge", [full, bare], derived_fields_of_stream(EDGE_STREAM))
        urls = [json.loads(event.metadata or "null")["request"]["url"] for event in inspected]
        assert urls == ["https://own/", "https://p.example.co/x"]


@pytest.mark.parametrize("number", ["1e999", "-1E+400", "123456789012345678901234567890"])
def test_numbers_beyond_all_types_do_not_prevent_derivation(number: str) -> None:
    """Derive fields of events that contain a number beyond the range of all types.

    Regression: at the top level, the number caused status 500. In the metadata, it left the derived field empty.
    """
    metadata = f'{{"request":{{"path":"/x"}},"in":[{number}]}}'
    event = derived_fields_of_stream(EDGE_STREAM).fill_missing_fields(
        Event("a", 1, project="p", metadata=metadata, extras=f'{{"in":[[{number}]]}}')
    )
    assert json.loads(event.metadata or "null") == {"request": {"path": "/x", "url": "https://p/x"}, "in": [number]}
    assert json.loads(event.extras or "null") == {"in": [[number]]}


def test_a_too_deep_event_is_unchanged() -> None:
    deep = Event(
        "a", 1, project="p", metadata='{"request":{"path":"/x"}}', extras='{"in":' + "[" * 9000 + "]" * 9000 + "}"
    )
    assert derived_fields_of_stream(EDGE_STREAM).fill_missing_fields(deep) == deep
