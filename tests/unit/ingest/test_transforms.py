"""The transforms of a streams file change events within limits. Invalid transforms are refused with their line."""

import json
from collections import Counter
from pathlib import Path

import pytest

from cordwood.catalog.stream_file import read_stream_file
from cordwood.errors import BadStreamFile
from cordwood.ingest.transforms import CompiledTransforms
from cordwood.model.event import Event

HASH_KEY = b"secret"


def parse_transforms(text: str, folder: Path = Path()) -> CompiledTransforms:
    tables = "".join(f"[[stream.transform]]\n{table}\n" for table in text.strip().split("\n---\n"))
    (stream,) = read_stream_file(str(folder / "streams.toml"), f'[[stream]]\nname = "s"\n{tables}')
    return CompiledTransforms(stream, HASH_KEY)


def event(metadata: object = None, message: str | None = "m", project: str | None = None, **extras: object) -> Event:
    written = None if metadata is None else json.dumps(metadata)
    return Event("id", 1, message, project, written, json.dumps(extras) if extras else None)


def apply_transforms(text: str, event_before: Event, folder: Path = Path()) -> Event | None:
    return parse_transforms(text, folder).apply(event_before, Counter())


def metadata(done: Event | None) -> object:
    assert done is not None
    return json.loads(done.metadata or "null")


@pytest.mark.parametrize(
    ("text", "before", "after"),
    [
        ('remove = ["metadata.a.b"]', {"a": [{"b": 1, "c": 2}, {"b": 3}]}, {"a": [{"c": 2}, {}]}),
        ('copy = {"metadata.a" = "metadata.x.y"}', {"a": [1]}, {"a": [1], "x": {"y": [1]}}),
        ('copy = {"metadata.a" = "metadata.b.c"}', {"a": 1, "b": 2}, {"a": 1, "b": 2}),
        ('rename = {"metadata.a" = "metadata.b"}', {"a": {"n": None}}, {"b": {"n": None}}),
        ('remove = ["metadata.a"]\nwhere = "m.b:>=2 -m.c:x"', {"a": 1, "b": 1}, {"a": 1, "b": 1}),
        ('remove = ["metadata.a"]\nwhere = "m.b:>=2 -m.c:x"', {"a": 1, "b": 2.5}, {"b": 2.5}),
    ],
)
def test_fields_are_removed_copied_and_renamed(text: str, before: object, after: object) -> None:
    assert metadata(apply_transforms(text, event(before))) == after


def test_a_hash_is_the_same_for_the_same_value_and_another_for_another_key() -> None:
    done = metadata(apply_transforms('hash = ["metadata.a", "metadata.b"]', event({"a": "x", "b": [1], "c": "x"})))
    same_value = metadata(apply_transforms('hash = ["metadata.a"]', event({"a": "x"})))
    assert isinstance(done, dict)
    assert isinstance(same_value, dict)
    assert done["a"] == same_value["a"] != "x"
    assert len(done["a"]) == len(done["b"]) == 32
    assert done["c"] == "x"


def test_a_message_is_made_of_fields_and_top_level_keys_can_be_changed() -> None:
    text = (
        'message = "{metadata.a.b} {project} {x}{metadata.gone}"\n---\nrename = {"x" = "project"}\n---\nremove = ["y"]'
    )
    done = apply_transforms(text, event({"a": {"b": [1]}}, project="p", x="q", y=1))
    assert done is not None
    assert (done.event_message, done.project, done.extras) == ("[1] p q", "q", None)


def test_a_file_enriches_by_key(tmp_path: Path) -> None:
    (tmp_path / "users.csv").write_text("id,name,plan\n7,Ann,pro\n")
    (tmp_path / "users.json").write_text('{"8": ["Bob"]}')
    for file, uid, expected in (("users.csv", 7, {"name": "Ann", "plan": "pro"}), ("users.json", "8", ["Bob"])):
        text = f'enrich = {{file = "{file}", from = "metadata.uid", to = "metadata.user"}}'
        assert metadata(apply_transforms(text, event({"uid": uid}), tmp_path)) == {"uid": uid, "user": expected}
        assert metadata(apply_transforms(text, event({"uid": "9"}), tmp_path)) == {"uid": "9"}


@pytest.mark.parametrize(
    ("where", "expected_event"),
    [
        ("disk", "disk full"),
        ('"disk full"', "the disk full of"),
        ("m.level:warning..critical", {"level": "error"}),
        ("m.status:500..599", {"status": "503"}),
        ("m.tags:@>prod", {"tags": ["dev", "prod"]}),
        ("m.flag:true", {"flag": True}),
        ("m.n:0.1", {"n": 0.1}),
        ("m.n:-5", {"n": -5.0}),
        ("m.gone:NULL", {"there": 1}),
        ("-m.level:info", {"other": 1}),
        ("m.a:1 OR m.b:2", {"b": 2}),
        ("project:p", None),
    ],
)
def test_a_filter_matches_as_in_lql(where: str, expected_event: object) -> None:
    event_before = (
        event(None, expected_event, "p") if isinstance(expected_event, str) else event(expected_event, project="p")
    )
    assert apply_transforms(f"drop = '{where}'", event_before) is None
    assert (
        apply_transforms(f"drop = '{where}'", event({"level": "info", "gone": 1, "status": True}, "nothing", "q"))
        is not None
    )


def test_a_sample_is_decided_by_the_id() -> None:
    events = [Event(f"event {number}", 1) for number in range(2000)]
    first_decisions, second_decisions = (
        [parse_transforms("sample = 0.25").apply(sent_event, Counter()) for sent_event in events] for _ in range(2)
    )
    assert first_decisions == second_decisions
    assert 400 < sum(item is not None for item in first_decisions) < 600
    assert apply_transforms("sample = 1.0", event()) is not None
    assert apply_transforms("sample = 0.0", event()) is None


def test_outcomes_are_counted_by_transform() -> None:
    counts: Counter[tuple[str, str]] = Counter()
    text = 'drop = "m.level:debug"\n---\nremove = ["metadata.a"]'
    steps = parse_transforms(text)
    for item in (event({"level": "debug"}), event({"a": 1}), event({"b": 1})):
        steps.apply(item, counts)
    assert counts == {("1 drop", "dropped"): 1, ("2 remove", "changed"): 1, ("2 remove", "unchanged"): 1}


def test_repeated_copies_have_a_size_limit() -> None:
    steps = ['copy = {"metadata.a" = "metadata.b.x"}', 'copy = {"metadata.b" = "metadata.a.x"}'] * 25
    done = apply_transforms("\n---\n".join(steps), event({"a": {"text": "x" * 1000}}))
    assert done is not None
    assert len(done.metadata or "") < 50 * 64 * 1024


def test_a_too_deep_event_is_left_for_the_validator() -> None:
    deep = '{"a":' * 5000 + "1" + "}" * 5000
    event_before = Event("id", 1, None, None, deep)
    assert apply_transforms('remove = ["metadata.a"]', event_before) is event_before


@pytest.mark.parametrize(
    "table",
    [
        "",
        'drop = "m.a:1"\nsample = 0.5',
        'drop = "m.a:~x"',
        'drop = "t:today"',
        'drop = "~x"',
        'drop = "s:id"',
        'drop = ""',
        "drop = 5",
        'drop = "m.a:("',
        'drop = "m.a:1"\nwhere = "m.b:1"',
        "sample = 1.5",
        "sample = true",
        "remove = []",
        'remove = ["id"]',
        'remove = ["metadata..a"]',
        'remove = ["timestamp.a"]',
        'copy = {"metadata.a" = "metadata.a.b"}',
        'rename = {"metadata.a.b" = "metadata.a"}',
        'message = "{"',
        'message = "{a..b}"',
        'enrich = {file = "gone.json", from = "a", to = "b"}',
        'enrich = {file = "gone.json", from = "a"}',
        'erase = ["metadata.a"]',
    ],
)
def test_an_invalid_transform_is_refused_with_its_line(table: str) -> None:
    with pytest.raises(BadStreamFile) as refused:
        parse_transforms(table)
    assert refused.value.span is not None
    assert refused.value.span.line >= 3
