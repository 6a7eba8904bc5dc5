"""CSV bodies: each CSV record becomes the event of a JSON object, with the names of the header as keys."""

import csv
import io
import json
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cordwood.errors import BadBody, BodyTooLarge
from cordwood.ingest.build_events import build_events
from cordwood.ingest.formats import BodyFormat, read_body
from cordwood.ingest.formats.csv import detect_delimiter
from cordwood.ingest.parsed_body import Body, ParsedBody
from cordwood.model.event import Event

NOW_US = 1_700_000_000_000_000

# Hypothesis generates fewer examples, because it is slow on a loaded machine.
FEWER_EXAMPLES = settings(max_examples=60)


def read_csv(text: str, media: str = "text/csv", *, max_items: int = 1000, item_bytes: int = 100_000) -> ParsedBody:
    return read_body(BodyFormat.EVENTS, Body(text.encode(), media, max_items=max_items, max_item_bytes=item_bytes))


def events(text: str, media: str = "text/csv") -> list[Event]:
    return build_events(read_csv(text, media), NOW_US)


def extras(event: Event) -> dict[str, object]:
    decoded = json.loads(event.extras or "{}")
    assert isinstance(decoded, dict)
    return decoded


def test_columns_become_the_fields_of_events() -> None:
    text = (
        "id,timestamp,event_message,project,metadata,level,count\r\n"
        'a,2023-11-14T22:13:20Z,"two\nlines, ""quoted""",p,"{""x"":[1,{""y"":null}]}",info,007\r\n'
        "b,,m,,not json,,5\r\n"
    )
    first, second = events(text)
    assert (first.id, first.timestamp_us, first.project) == ("a", NOW_US, "p")
    assert first.event_message == 'two\nlines, "quoted"'
    assert first.metadata == '{"x":[1,{"y":null}]}'
    assert extras(first) == {"level": "info", "count": "007"}
    assert (second.timestamp_inferred, second.project, second.metadata) == (True, None, '"not json"')
    assert extras(second) == {"count": "5"}


def test_a_message_column_and_a_byte_order_mark_are_read() -> None:
    (event,) = events("\ufeffid,message\n1,hello\n")
    assert (event.id, event.event_message) == ("1", "hello")


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_detected(delimiter: str) -> None:
    rows = [["id", "event_message", "note"], ["1", "a, b; c", "x"], ["2", "d | e, f", "y"]]
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter).writerows(rows)
    decoded = events(out.getvalue())
    assert [(event.id, event.event_message, extras(event)) for event in decoded] == [
        ("1", "a, b; c", {"note": "x"}),
        ("2", "d | e, f", {"note": "y"}),
    ]


def test_delimiter_and_types_may_be_parameters_of_the_content_type() -> None:
    text = "id:status:ok:path:tags\n1:200:true:404:[1]\n2:n/a:no:5:[\n"
    first, second = events(text, 'text/csv; delimiter=":"; types="status=number,ok=bool,tags=json"')
    assert extras(first) == {"status": 200, "ok": True, "path": "404", "tags": [1]}
    assert extras(second) == {"status": "n/a", "ok": "no", "path": "5", "tags": "["}


def test_types_auto_infers_the_type_of_each_cell() -> None:
    (event,) = events("a,b,c,d,e,f\n1,-2.5e3,True,007,+1,null\n", "text/csv; types=auto")
    assert extras(event) == {"a": 1, "b": -2500.0, "c": True, "d": "007", "e": "+1", "f": "null"}


def test_a_record_that_does_not_fit_is_quarantined_with_its_line() -> None:
    parsed = read_csv('id,m\n1,"a\nb"\n2\n3,c,d\n\n4,"e"f\n5,g\n6,"open\n')
    assert [event.id for event in parsed.events] == ["1", "5"]
    assert [(item.index + 1, item.text) for item in parsed.refused_items] == [
        (4, "2"),
        (5, "3,c,d"),
        (7, '4,"e"f'),
        (9, '6,"open'),
    ]
    assert [item.reason for item in parsed.refused_items] == [
        "The record has 1 fields, but the header has 2.",
        "The record has 3 fields, but the header has 2.",
        "The record is not CSV: ',' expected after '\"'.",
        "The record has a quoted field that is not closed.",
    ]


@pytest.mark.parametrize(
    ("text", "media", "message"),
    [
        ("", "text/csv", "no header line"),
        ("\n\n", "text/csv", "no header line"),
        ("a,b,a\n1,2,3\n", "text/csv", "column 'a' 2 times"),
        ('a,"b\n1,2\n', "text/csv", "header of the CSV cannot be read"),
        (",".join(f"c{number}" for number in range(5001)) + "\n", "text/csv", "more than 5000 columns"),
        ("a,b\n1,2\n", "text/csv; header=absent", "without a header line"),
        ("a,b\n1,2\n", "text/csv; delimiter=ab", "not a single character"),
        ("a,b\n1,2\n", 'text/csv; types="a=date"', "not a column with its type"),
        ("a,b\n1\n2\n", "text/csv", "Line 2: The record has 1 fields"),
        ('a,b\n1,2\n3,"' + ("x" * 600 + "\n") * 200, "text/csv", "Line 3: the record is longer"),
    ],
    ids=["empty", "blank", "twice", "broken", "columns", "absent", "delimiter", "types", "ragged", "open"],
)
def test_invalid_csv_is_refused_as_a_whole(text: str, media: str, message: str) -> None:
    with pytest.raises(BadBody, match=".*" + message.replace("(", r"\(")):
        read_csv(text, media)


def test_a_line_that_is_too_long_is_quarantined_and_the_next_is_read() -> None:
    parsed = read_csv("a,b\n1," + "x" * 200_000 + "\n2,y\n")
    (item,) = parsed.refused_items
    assert (item.index, item.reason) == (1, "The line is longer than 100,000 characters.")
    assert len(item.text) <= 100_001
    assert len(parsed.events) == 1


@pytest.mark.parametrize(
    "bomb", ["a,b\n" + "1,2\n" * 1001, "a\n" * 8010, "a,b\n" + "," * 70_000, f"{'n' * 9000}\n" + "1\n" * 900]
)
def test_bodies_of_too_many_records_or_cells_or_repeated_names_are_refused(bomb: str) -> None:
    with pytest.raises(BodyTooLarge):
        read_csv(bomb)


def test_tab_separated_values_are_read_without_detection() -> None:
    (event,) = events("id\tm,x\n1\ta\n", "text/tab-separated-values")
    assert extras(event) == {"m,x": "a"}


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"), max_size=20)


@FEWER_EXAMPLES
@given(
    rows=st.lists(st.lists(TEXTS, min_size=3, max_size=3), min_size=1, max_size=20),
    delimiter=st.sampled_from(",;\t|"),
    quotes_all=st.booleans(),
)
def test_output_of_pythons_csv_module_is_parsed(rows: list[list[str]], delimiter: str, *, quotes_all: bool) -> None:
    out = io.StringIO()
    writer = csv.writer(out, delimiter=delimiter, quoting=csv.QUOTE_ALL if quotes_all else csv.QUOTE_MINIMAL)
    writer.writerow(["a", "b", "c"])
    writer.writerows(rows)
    media = f'text/csv; delimiter="{delimiter}"'
    expected = [{name: cell for name, cell in zip("abc", row, strict=True) if cell} for row in rows]
    assert [extras(event) for event in events(out.getvalue(), media)] == expected


@FEWER_EXAMPLES
@given(sample=st.text(string.ascii_letters + ',;\t|"\n', max_size=300))
def test_any_text_has_a_delimiter_and_is_parsed_or_refused(sample: str) -> None:
    assert detect_delimiter(sample) in ",;\t|"
    try:
        parsed = read_csv(sample)
    except BadBody:
        return
    places = [*(parsed.item_indexes or ()), *(item.index for item in parsed.refused_items)]
    assert len(set(places)) == len(places)
    assert all(0 < place <= sample.count("\n") for place in places)
