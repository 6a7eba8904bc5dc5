"""Fields that events lack are filled from others, by the stream's templates."""

import json
from uuid import UUID

import pytest

from cordwood.ingest.derived_fields import derived_fields, filled
from cordwood.ingest.shape_inference import ShapeReader
from cordwood.model.event import Event
from cordwood.model.shape import Shape
from cordwood.model.stream import Stream

EDGE = Stream("edge", UUID(int=1), derive={"metadata.request.url": "https://{project}.{host}{path}"})


def url(metadata: object, project: str | None = "proj") -> object:
    event = Event("a", 1, project=project, metadata=json.dumps(metadata))
    return json.loads(derived_fields(EDGE).filled(event).metadata or "null")


@pytest.mark.parametrize(
    ("request_", "filled_in"),
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
def test_an_address_is_made_from_project_host_and_path(request_: dict[str, object], filled_in: str | None) -> None:
    assert url({"request": request_}) == {"request": request_ | ({"url": filled_in} if filled_in else {})}


def test_every_request_of_an_event_is_filled_by_itself() -> None:
    assert url({"request": [{"path": "/a"}, {"path": "/b", "url": "u"}]}) == {
        "request": [{"path": "/a", "url": "https://proj/a"}, {"path": "/b", "url": "u"}]
    }


@pytest.mark.parametrize("metadata", [None, 7, "text", {}, {"request": None}, {"request": "GET"}, []])
def test_where_there_is_no_request_nothing_is_made(metadata: object) -> None:
    assert url(metadata) == metadata


def test_nothing_is_made_of_nothing() -> None:
    assert url({"request": {"path": "/x"}}, project=None) == {"request": {"path": "/x"}}


def test_a_name_outside_a_host_must_be_there() -> None:
    assert filled("{a}-{b}", {"a": "x"}.get) is None
    assert filled("{a}-{b}", {"a": "x", "b": "y"}.get) == "x-y"


def test_what_has_the_field_already_is_left_and_what_lacks_it_is_filled_when_its_shape_is_learnt() -> None:
    shapes: dict[str, Shape] = {}
    reader = ShapeReader(lambda: shapes)
    full = Event("a", 1, project="p", metadata='{"request":{"path":"/x","host":"p.example.co","url":"https://own/"}}')
    bare = Event("b", 1, project="p", metadata='{"request":{"path":"/x","host":"p.example.co"}}')
    _, learnt = reader.learn("edge", [full, bare], derived_fields(EDGE))
    shapes["edge"] = Shape().with_learnt(learnt)
    reader = ShapeReader(lambda: shapes)
    for _ in range(2):
        inspected, _ = reader.learn("edge", [full, bare], derived_fields(EDGE))
        urls = [json.loads(event.metadata or "null")["request"]["url"] for event in inspected]
        assert urls == ["https://own/", "https://p.example.co/x"]


@pytest.mark.parametrize("number", ["1e999", "-1E+400", "123456789012345678901234567890"])
def test_numbers_that_no_decoder_can_hold_are_kept_and_the_field_is_filled_all_the_same(number: str) -> None:
    """One at the top of an event was answered with 500, and one in its metadata left the field unfilled."""
    metadata = f'{{"request":{{"path":"/x"}},"in":[{number}]}}'
    event = derived_fields(EDGE).filled(Event("a", 1, project="p", metadata=metadata, extras=f'{{"in":[[{number}]]}}'))
    assert json.loads(event.metadata or "null") == {"request": {"path": "/x", "url": "https://p/x"}, "in": [number]}
    assert json.loads(event.extras or "null") == {"in": [[number]]}


def test_what_is_nested_too_deeply_to_be_decoded_is_left_as_it_is() -> None:
    deep = Event(
        "a", 1, project="p", metadata='{"request":{"path":"/x"}}', extras='{"in":' + "[" * 9000 + "]" * 9000 + "}"
    )
    assert derived_fields(EDGE).filled(deep) == deep
