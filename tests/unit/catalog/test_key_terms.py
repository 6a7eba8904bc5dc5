"""Parsing of the terms of a key, errors that name the field, and warnings about pins."""

from uuid import UUID

import msgspec
import pytest

from cordwood.catalog.catalog import CatalogContents
from cordwood.catalog.endpoint_file import read_endpoint_file
from cordwood.catalog.file_catalog import FileCatalog
from cordwood.catalog.key_store import KeyTermsInput, is_anchored, read_key_terms, unanchored_pin_warnings
from cordwood.catalog.stream_file import read_stream_file
from cordwood.catalog.toml_document import numeric_id
from cordwood.errors import BadApiKeyTerms
from cordwood.model.key import KeyTerms

NOW_SECONDS = 1_700_000_000.0
LOGS_ENDPOINT = read_endpoint_file("a.sql", '/* name = "logs"\n[parameters.project] */ select 1')
COUNTS_ENDPOINT = read_endpoint_file("b.sql", '/* name = "counts"\n[parameters.project]\nkind = "regex" */ select 1')
ENDPOINT_WITH_SPACE = read_endpoint_file("c.sql", '/* name = "with space" */ select 1')
CATALOG = FileCatalog(
    CatalogContents(
        (LOGS_ENDPOINT, COUNTS_ENDPOINT, ENDPOINT_WITH_SPACE), read_stream_file("s.toml", '[[stream]]\nname = "edge"')
    )
)


def parse_key_terms(*scopes: str, **more: object) -> KeyTerms:
    return read_key_terms(KeyTermsInput(scopes, **more), CATALOG, NOW_SECONDS)  # type: ignore[arg-type]  # each test gives its own


@pytest.mark.parametrize(
    "scope",
    ["private", "public", "ingest", "query", "ingest:source:edge", "ingest:collection:edge", "query:endpoint:logs"],
)
def test_every_kind_of_scope_is_parsed(scope: str) -> None:
    assert parse_key_terms(scope).scopes == {scope}


def test_targets_may_be_named_by_uuid() -> None:
    assert parse_key_terms(f"query:endpoint:{LOGS_ENDPOINT.id}", "ingest:source:edge").scopes == {
        f"query:endpoint:{LOGS_ENDPOINT.id}",
        "ingest:source:edge",
    }


def test_a_target_named_by_its_numeric_id_is_stored_by_uuid() -> None:
    assert parse_key_terms(f"query:endpoint:{numeric_id(LOGS_ENDPOINT.id)}").scopes == {
        f"query:endpoint:{LOGS_ENDPOINT.id}"
    }
    (edge,) = CATALOG.streams()
    assert parse_key_terms(f"ingest:source:{numeric_id(edge.id)}").scopes == {f"ingest:source:{edge.id}"}


def test_a_numeric_id_of_two_endpoints_is_refused() -> None:
    twin = msgspec.structs.replace(LOGS_ENDPOINT, name="twin", id=UUID(int=LOGS_ENDPOINT.id.int ^ 1))
    catalog = FileCatalog(CatalogContents((LOGS_ENDPOINT, twin), ()))
    with pytest.raises(BadApiKeyTerms) as caught:
        read_key_terms(KeyTermsInput([f"query:endpoint:{numeric_id(LOGS_ENDPOINT.id)}"]), catalog, NOW_SECONDS)
    assert caught.value.problem == "names more than one endpoint"


def test_a_target_whose_name_has_spaces_is_stored_by_uuid() -> None:
    assert parse_key_terms("query:endpoint:with space").scopes == {f"query:endpoint:{ENDPOINT_WITH_SPACE.id}"}


@pytest.mark.parametrize(
    ("scopes", "problem"),
    [
        ([], "can't be blank"),
        (["admin"], "contains unrecognized scope"),
        (["query", "Query"], "contains unrecognized scope"),
        (["query:logs"], "contains unrecognized scope"),
        ([""], "contains unrecognized scope"),
        (["query:endpoint:gone"], "names an unknown endpoint"),
        (["query:endpoint:"], "names an unknown endpoint"),
        (["query:endpoint:1"], "names an unknown endpoint"),
        (["ingest:source:gone"], "names an unknown stream"),
        (["ingest:source:logs"], "names an unknown stream"),
    ],
)
def test_an_unknown_scope_or_target_is_refused(scopes: list[str], problem: str) -> None:
    with pytest.raises(BadApiKeyTerms) as caught:
        parse_key_terms(*scopes)
    assert (caught.value.field, caught.value.problem) == ("scopes", problem)


def test_the_other_terms_are_read_with_their_units() -> None:
    terms = parse_key_terms("query", note="n", pins={"project": "a"}, expires_in="90d", rate="10/s", redact_always=True)
    assert terms == KeyTerms(
        frozenset({"query"}), "n", {"project": "a"}, 10.0, redact_always=True, expires_at=NOW_SECONDS + 90 * 86400
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("expires_in", "soon"),
        ("expires_in", "0s"),
        ("expires_in", "90"),
        ("expires_in", "1000000000d"),
        ("expires_in", "9" * 400 + "d"),
        ("rate", "fast"),
        ("rate", "0/s"),
        ("rate", "9" * 400 + "/s"),
        ("pins", {"a b": "c"}),
    ],
)
def test_errors_name_the_field(field: str, value: object) -> None:
    with pytest.raises(BadApiKeyTerms) as caught:
        parse_key_terms("query", **{field: value})
    assert caught.value.field == field


def test_the_length_of_a_note_is_limited() -> None:
    with pytest.raises(BadApiKeyTerms, match="description"):
        parse_key_terms("query", note="x" * 501)


@pytest.mark.parametrize(
    "pattern", ["^acme$", r"^https://acme\.example\.co/", "^(acme|other)$", r"\Aacme\z", "^[|]$", r"^a\|b$", "^$"]
)
def test_a_pattern_is_anchored_only_if_both_ends_are(pattern: str) -> None:
    assert is_anchored(pattern) is not pattern.endswith("/")


@pytest.mark.parametrize("pattern", ["acme", "^acme", "acme$", "^acme|other$", r"^acme\$", "", "^a$|b"])
def test_a_pattern_with_an_open_end_is_not_anchored(pattern: str) -> None:
    assert not is_anchored(pattern)


@pytest.mark.parametrize("scope", ["query", "private", "query:endpoint:counts", f"query:endpoint:{COUNTS_ENDPOINT.id}"])
def test_an_unanchored_pin_of_a_regex_parameter_has_a_warning(scope: str) -> None:
    (warning,) = unanchored_pin_warnings(parse_key_terms(scope, pins={"project": "acme"}), CATALOG)
    assert "counts" in warning
    assert "'acme2'" in warning


def test_no_warning_for_plain_anchored_or_unreachable_pins() -> None:
    assert not list(unanchored_pin_warnings(parse_key_terms("query:endpoint:logs", pins={"project": "acme"}), CATALOG))
    assert not list(unanchored_pin_warnings(parse_key_terms("query", pins={"project": "^acme$"}), CATALOG))
    assert not list(unanchored_pin_warnings(parse_key_terms("ingest", pins={"project": "acme"}), CATALOG))
