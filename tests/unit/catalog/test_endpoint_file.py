"""Parsing of endpoint files, and errors with their line."""

from uuid import UUID

import pytest

from cordwood.catalog.endpoint_file import add_endpoint_id, endpoint_text, read_endpoint_file
from cordwood.errors import BadEndpointFile
from cordwood.model.datatype import Kind
from cordwood.model.definitions import Endpoint, Parameter, TextParameterKind

ENDPOINT_WITH_ALL_SETTINGS = """
-- A word before the settings is allowed.
/*
name = "my.endpoint"
id = "0B1E6A52-7f0b-4c5e-9d1a-0e6b5a2f4c01"
description = "Says things."
max_rows = 50
cache = "900s"
warm = "5m"
timeout = "1500ms"
sandbox = true
redact_pii = true
redact_mode = "hash"
zone = "Europe/Berlin"
auth = false

[parameters.project]
required = true
kind = "regex"
description = "Which one."
example = "a.*"

[parameters.size]
type = "int64"
default = 5
one_of = [5, 10]
*/
select @project,
  @size
"""


def read_endpoint(text: str) -> Endpoint:
    return read_endpoint_file("my.sql", text)


def test_every_setting_of_a_file_is_read() -> None:
    endpoint = read_endpoint(ENDPOINT_WITH_ALL_SETTINGS)
    assert endpoint.name == "my.endpoint"
    assert str(endpoint.id) == "0b1e6a52-7f0b-4c5e-9d1a-0e6b5a2f4c01"
    assert (endpoint.cache_seconds, endpoint.warm_seconds, endpoint.timeout_seconds) == (900.0, 300.0, 1.5)
    assert (endpoint.max_rows, endpoint.redact_mode, endpoint.description) == (50, "hash", "Says things.")
    assert endpoint.time_zone == "Europe/Berlin"
    assert (endpoint.accepts_sandbox_queries, endpoint.redact_pii, endpoint.requires_key) == (True, True, False)
    assert endpoint.parameters == (
        Parameter("project", required=True, kind=TextParameterKind.REGEX, description="Which one.", example="a.*"),
        Parameter("size", type=Kind.INT64, default="5", one_of=("5", "10")),
    )


def test_a_file_with_only_a_name_has_the_defaults() -> None:
    endpoint = read_endpoint('/* name = "a" */ select 1')
    assert (endpoint.max_rows, endpoint.cache_seconds, endpoint.warm_seconds) == (1000, 0.0, None)
    assert (endpoint.accepts_sandbox_queries, endpoint.redact_pii, endpoint.requires_key, endpoint.parameters) == (
        False,
        False,
        True,
        (),
    )


def test_the_default_id_is_derived_from_the_name() -> None:
    first, same_name, other_name = (read_endpoint(f'/* name = "{name}" */ select 1') for name in ("a", "a", "b"))
    assert first.id == same_name.id != other_name.id


def test_the_query_keeps_its_line_numbers() -> None:
    endpoint = read_endpoint(ENDPOINT_WITH_ALL_SETTINGS)
    lines = ENDPOINT_WITH_ALL_SETTINGS.splitlines()
    for offset, line in enumerate(endpoint.sql.rstrip().splitlines()):
        assert lines[endpoint.query_first_line - 1 + offset] == line


def test_a_query_on_the_line_of_the_comment_keeps_its_columns() -> None:
    text = '/* name = "a" */ select 1'
    endpoint = read_endpoint(text)
    assert endpoint.query_first_line == 1
    assert endpoint.sql.index("select") == text.index("select")


def test_any_change_of_the_file_changes_the_revision() -> None:
    assert (
        read_endpoint(ENDPOINT_WITH_ALL_SETTINGS).revision
        == read_endpoint(ENDPOINT_WITH_ALL_SETTINGS).revision
        != read_endpoint(ENDPOINT_WITH_ALL_SETTINGS.replace("50", "51")).revision
    )


def test_crlf_and_byte_order_mark_are_accepted() -> None:
    endpoint = read_endpoint("\ufeff" + ENDPOINT_WITH_ALL_SETTINGS.replace("\n", "\r\n"))
    assert endpoint == read_endpoint(ENDPOINT_WITH_ALL_SETTINGS)


@pytest.mark.parametrize(
    ("header", "line", "message"),
    [
        ('nam = "a"', 1, "nam is not a setting here"),
        ('name = "a"\nmax_row = 5', 2, "max_row is not a setting here"),
        ('name = "a"\n\n[parameters.p]\nrequird = true', 4, "requird is not a setting here"),
        ("max_rows = 5", 1, "no name"),
        ('name = ""', 1, "no name"),
        ("name = 5", 1, "name must be a text"),
        ('name = "a/b"', 1, "cannot be a name"),
        ('name = "0b1e6a52-7f0b-4c5e-9d1a-0e6b5a2f4c01"', 1, "never be called by name"),
        ('name = "a"\nid = "7"', 2, "is no UUID"),
        ('name = "a"\nmax_rows = 0', 2, "at least 1"),
        ('name = "a"\nmax_rows = true', 2, "a whole number"),
        ('name = "a"\nsandbox = 1', 2, "true or false"),
        ('name = "a"\ncache = 900', 2, "add a unit"),
        ('name = "a"\ncache = "9s"\nwarm = "9s"', 3, "shorter than cache"),
        ('name = "a"\nwarm = "9s"', 2, "shorter than cache"),
        ('name = "a"\ncache = "9s"\nwarm = "0s"', 3, "must be more than 0"),
        ('name = "a"\ntimeout = "0s"', 2, "more than 0"),
        ('name = "a"\nredact_mode = "blur"', 2, "not a redact_mode"),
        ('name = "a"\nzone = "Berlin"', 2, "not a time zone"),
        ('name = "a"\nparameters = 5', 2, "must be a table"),
        ('name = "a"\n[parameters]\np = 5', 3, "must be a table"),
        ('name = "a"\n[parameters."a-b"]', 2, "cannot be a parameter's name"),
        ('name = "a"\n[parameters.sql]', 2, "cannot be a parameter's name"),
        ('name = "a"\n[parameters.p]\ntype = "number"', 3, "is not a type"),
        ('name = "a"\n[parameters.p]\nkind = "glob"', 3, "is not a kind"),
        ('name = "a"\n[parameters.p]\nkind = "regex"\ntype = "int64"', 3, "Only a text"),
        ('name = "a"\n[parameters.p]\nrequired = true\ndefault = "x"', 4, "cannot have a default"),
        ('name = "a"\n[parameters.p]\none_of = ["x"]\ndefault = "y"', 4, "not in one_of"),
        ('name = "a"\n[parameters.p]\none_of = ["x"]\nexample = "y"', 4, "not in one_of"),
        ('name = "a"\n[parameters.p]\ntype = "date"\nexample = "y"', 4, "8601 date"),
        ('name = "a"\n[parameters.p]\none_of = "x"', 3, "must be a list"),
        ('name = "a"\n[parameters.p]\none_of = []', 3, "must be a list"),
        ('name = "a"\n[parameters.p]\ntype = "variant"', 3, "is not a type"),
        ('name = "a"\n[parameters.p]\ntype = "int64"\ndefault = "x"', 4, "a whole number"),
        ('name = "a"\n[parameters.p]\ntype = "int64"\none_of = [1, "x"]', 4, "a whole number"),
        ('name = "a"\n[parameters.p]\ntype = "timestamp"\ndefault = "soon"', 4, "ISO 8601"),
        ('name = "a"\nname = "b"', 2, "not TOML"),
        ('name = "a"\nmax_rows =', 2, "not TOML"),
    ],
)
def test_invalid_settings_are_refused_with_their_line(header: str, line: int, message: str) -> None:
    with pytest.raises(BadEndpointFile, match=message) as caught:
        read_endpoint(f"/*{header}*/\nselect 1")
    assert caught.value.span is not None
    assert (caught.value.span.file, caught.value.span.line) == ("my.sql", line)


def test_lines_are_counted_from_the_start_of_the_file() -> None:
    with pytest.raises(BadEndpointFile) as caught:
        read_endpoint('\n\n/*\nname = "a"\nmax_row = 5\n*/ select 1')
    assert str(caught.value.span) == "my.sql:5:1"


def test_an_unknown_setting_has_a_suggestion() -> None:
    with pytest.raises(BadEndpointFile) as caught:
        read_endpoint('/* name = "a"\nredact_pi = true */ select 1')
    assert caught.value.hint == "Did you mean redact_pii?"


@pytest.mark.parametrize("text", ["", "select 1", "select /* name = 'a' */ 1"])
def test_a_file_that_does_not_begin_with_settings_is_refused(text: str) -> None:
    with pytest.raises(BadEndpointFile, match="does not begin with its settings"):
        read_endpoint(text)


def test_settings_without_a_query_are_refused() -> None:
    with pytest.raises(BadEndpointFile, match="no query"):
        read_endpoint('/* name = "a" */\n  \n')


@pytest.mark.parametrize(
    "text",
    [
        ENDPOINT_WITH_ALL_SETTINGS,
        '/* name = "a" */ select 1 as n',
        '# one\n/* name = "a" */\n\n  select 1 as n\n\n',
        '/* name = "a" */select 1 as n',
    ],
)
def test_the_text_of_an_endpoint_is_that_of_its_file(text: str) -> None:
    assert endpoint_text(read_endpoint(text)) == text
    assert endpoint_text(read_endpoint("\ufeff" + text.replace("\n", "\r\n"))) == text


@pytest.mark.parametrize("text", ['-- a\n/* name = "a" */  select\n nope', '/*\nname = "a"\n*/\nselect nope'])
def test_an_id_is_added_above_the_settings(text: str) -> None:
    endpoint_id = UUID("0b1e6a52-7f0b-4c5e-9d1a-0e6b5a2f4c01")
    before, endpoint = read_endpoint(text), read_endpoint(add_endpoint_id(text, endpoint_id))
    assert (endpoint.id, endpoint.name, endpoint.sql) == (endpoint_id, "a", before.sql)
    added = add_endpoint_id(text, endpoint_id).count("\n") - text.count("\n")
    assert endpoint.query_first_line - added == before.query_first_line


def test_the_end_of_the_settings_within_a_text_is_explained() -> None:
    with pytest.raises(BadEndpointFile) as caught:
        read_endpoint('/* name = "a"\ndescription = "b */ c" */ select 1 as n')
    assert caught.value.hint == "The settings end at the first */: in a text, write *\\u002F."
