"""Parsing of the streams file, and errors with their line."""

import pytest

from cordwood.catalog.stream_file import read_stream_file
from cordwood.errors import BadStreamFile
from cordwood.model.definitions import EventTimePolicy, Stream


def read_stream(text: str) -> tuple[Stream, ...]:
    return read_stream_file("s.toml", text)


def test_every_setting_of_a_stream_is_read() -> None:
    (stream,) = read_stream(
        """
        [[stream]]
        name = "my.stream"
        id = "3C1e8a52-7f0b-4c5e-9d1a-0e6b5a2f4c01"
        retention = "30d"
        derive = {"metadata.request.url" = "https://{project}"}
        late = {after = "7d", policy = "quarantine"}
        future = {after = "5m", policy = "clamp"}
        rate = "600/m"
        project = "metadata.owner.ref"
        """
    )
    assert stream.name == "my.stream"
    assert str(stream.id) == "3c1e8a52-7f0b-4c5e-9d1a-0e6b5a2f4c01"
    assert stream.retention_seconds == 30 * 86_400
    assert stream.derive_templates == {"metadata.request.url": "https://{project}"}
    assert (stream.late_policy, stream.late_seconds) == (EventTimePolicy.QUARANTINE, 7 * 86_400)
    assert (stream.future_policy, stream.future_seconds) == (EventTimePolicy.CLAMP, 300)
    assert stream.events_per_second == 10
    assert stream.project_at == ("owner", "ref")


def test_a_stream_with_only_a_name_has_the_defaults() -> None:
    (stream,) = read_stream('[[stream]]\nname = "a"')
    assert stream.retention_seconds is None
    assert (stream.late_policy, stream.future_policy) == (EventTimePolicy.ACCEPT, EventTimePolicy.ACCEPT)


def test_the_default_id_is_derived_from_the_name() -> None:
    first, other = read_stream('[[stream]]\nname = "a"\n[[stream]]\nname = "b"')
    assert first.id == read_stream('[[stream]]\nname = "a"')[0].id != other.id


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ('[[streams]]\nname = "a"', 1, "streams is not a setting"),
        ('stream = "a"', 1, "tables of an array"),
        ("stream = [1]", 1, "must be a table"),
        ('[[stream]]\nid = "x"', 1, "no name"),
        ('[[stream]]\nname = "a"\n[[stream]]\nname = "b"\nretenton = "3d"', 5, "retenton is not a setting"),
        ('[[stream]]\nname = "a"\n\n[[stream]]\nname = "a"', 5, "Two streams have the name a"),
        ('[[stream]]\nname = "a"\n\n[[stream]]\nname = "A"', 5, "only in case"),
        ('[[stream]]\nname = "_mine"', 2, "are reserved"),
        ('[[stream]]\nname = "a`b"', 2, "cannot be a stream's name"),
        ('[[stream]]\nname = "a"\nid = "7"', 3, "is no UUID"),
        ('[[stream]]\nname = "a"\nretention = 30', 3, "add a unit"),
        ('[[stream]]\nname = "a"\nretention = "0s"', 3, "more than 0"),
        ('[[stream]]\nname = "a"\nrate = 10', 3, "is not a rate"),
        ('[[stream]]\nname = "a"\nderive = "x"', 3, "paths and templates"),
        ('[[stream]]\nname = "a"\nderive = {"x" = 5}', 3, "paths and templates"),
        ('[[stream]]\nname = "a"\nderive = {"request.url" = "https://{project}"}', 3, "not a path inside metadata"),
        ('[[stream]]\nname = "a"\nderive = {"metadata.url" = "https://{project"}', 3, "without a name"),
        ('[[stream]]\nname = "a"\nderive = {"metadata.url" = "https://{a.b}"}', 3, "without a name"),
        ('[[stream]]\nname = "a"\nproject = "project_ref"', 3, "not a path inside metadata"),
        ('[[stream]]\nname = "a"\nlate = "drop"', 3, "must be a table"),
        ('[[stream]]\nname = "a"\nlate = {policy = "drop"}', 3, "is not a valid"),
        ('[[stream]]\nname = "a"\nlate = {befor = "3d"}', 3, "befor is not a setting"),
        ('[[stream]]\nname = "a"\n[stream.derive]\nx = 5', 3, "paths and templates"),
        ("[[stream]", 1, "not TOML"),
    ],
)
def test_invalid_settings_are_refused_with_their_line(text: str, line: int, message: str) -> None:
    with pytest.raises(BadStreamFile, match=message) as caught:
        read_stream(text)
    assert caught.value.span is not None
    assert caught.value.span.line == line
