"""Authentication and authorization: the callers of keys, the permissions of each scope, public endpoints and pins."""

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from cordwood import access
from cordwood.access import ANONYMOUS_CALLER, Authenticator, FixedKey
from cordwood.catalog.key_store import hash_secret
from cordwood.catalog.sqlite_keys import SQLiteKeyStore
from cordwood.errors import BadApiKey, Forbidden, MissingApiKey
from cordwood.model.definitions import Endpoint, Parameter, Stream
from cordwood.model.key import Caller, KeyTerms

LOGS_ENDPOINT = Endpoint(
    "logs.all", UUID("0b1e6a52-7f0b-4c5e-9d1a-0e6b5a2f4c01"), "", "", parameters=(Parameter("project"), Parameter("n"))
)
COUNTS_ENDPOINT = Endpoint("usage.api-counts", UUID("0b1e6a52-7f0b-4c5e-9d1a-0e6b5a2f4c02"), "", "")
PUBLIC_ENDPOINT = Endpoint("open", UUID("0b1e6a52-7f0b-4c5e-9d1a-0e6b5a2f4c03"), "", "", requires_key=False)
EDGE_STREAM = Stream("cloudflare.logs.prod", UUID("3c1e8a52-7f0b-4c5e-9d1a-0e6b5a2f4c01"))
DATABASE_STREAM = Stream("postgres.logs", UUID("3c1e8a52-7f0b-4c5e-9d1a-0e6b5a2f4c02"))

NOW_SECONDS = 1_700_000_000.0


@pytest.fixture
def keys(tmp_path: Path) -> Iterator[SQLiteKeyStore]:
    keys = SQLiteKeyStore(tmp_path / "keys.db", lambda: NOW_SECONDS)
    yield keys
    keys.close()


@pytest.fixture
def authenticator(keys: SQLiteKeyStore) -> Authenticator:
    fixed = FixedKey(Caller("settings:private", frozenset({"private"})), hash_secret("from-settings"))
    return Authenticator(keys, (fixed,), clock=lambda: NOW_SECONDS)


def caller_with_scopes(*scopes: str) -> Caller:
    return Caller("1", frozenset(scopes))


@pytest.mark.parametrize("presented", [None, ""])
def test_a_request_without_a_key_is_refused(authenticator: Authenticator, presented: str | None) -> None:
    with pytest.raises(MissingApiKey):
        authenticator.authenticate(presented)


def test_an_unknown_key_is_refused_and_not_printed(authenticator: Authenticator) -> None:
    with pytest.raises(BadApiKey) as caught:
        authenticator.authenticate("cw_wrong")
    assert "cw_wrong" not in caught.value.one_line_text()


def test_a_key_in_the_settings_is_accepted(authenticator: Authenticator) -> None:
    assert authenticator.authenticate("from-settings").key_id == "settings:private"


def test_a_stored_key_has_its_terms_and_its_use_is_recorded(authenticator: Authenticator, keys: SQLiteKeyStore) -> None:
    terms = KeyTerms(frozenset({"query"}), pins={"project": "acme"}, rate_per_second=3.0, redact_always=True)
    new = keys.create(terms)
    assert authenticator.authenticate(new.secret) == Caller(
        new.key.id, terms.scopes, terms.pins, 3.0, redact_always=True
    )
    assert keys.active_keys()[0].last_used_at == NOW_SECONDS


def test_a_key_is_refused_from_its_time_of_expiry(authenticator: Authenticator, keys: SQLiteKeyStore) -> None:
    over = keys.create(KeyTerms(frozenset({"query"}), expires_at=NOW_SECONDS))
    alive = keys.create(KeyTerms(frozenset({"query"}), expires_at=NOW_SECONDS + 0.001))
    with pytest.raises(BadApiKey):
        authenticator.authenticate(over.secret)
    assert authenticator.authenticate(alive.secret)


@pytest.mark.parametrize(
    ("scopes", "edge", "database", "logs", "counts", "manage"),
    [
        (["private"], True, True, True, True, True),
        (["public"], True, True, False, False, False),
        (["ingest"], True, True, False, False, False),
        (["ingest:source:cloudflare.logs.prod"], True, False, False, False, False),
        ([f"ingest:source:{str(DATABASE_STREAM.id).upper()}"], False, True, False, False, False),
        ([f"ingest:collection:{EDGE_STREAM.id}"], True, False, False, False, False),
        (["query"], False, False, True, True, False),
        (["query:endpoint:logs.all"], False, False, True, False, False),
        ([f"query:endpoint:{COUNTS_ENDPOINT.id}"], False, False, False, True, False),
        (["query:endpoint:logs.all", "ingest:source:postgres.logs"], False, True, True, False, False),
        ([], False, False, False, False, False),
    ],
)
def test_each_scope_allows_its_actions_only(
    scopes: list[str],
    edge: bool,  # noqa: FBT001 - a row of the table
    database: bool,  # noqa: FBT001
    logs: bool,  # noqa: FBT001
    counts: bool,  # noqa: FBT001
    manage: bool,  # noqa: FBT001
) -> None:
    caller = caller_with_scopes(*scopes)
    assert access.may_ingest(caller, EDGE_STREAM) is edge
    assert access.may_ingest(caller, DATABASE_STREAM) is database
    assert access.may_query(caller, LOGS_ENDPOINT) is logs
    assert access.may_query(caller, COUNTS_ENDPOINT) is counts
    assert access.may_manage_service(caller) is manage


def test_a_refusal_names_the_scopes_of_the_key() -> None:
    with pytest.raises(Forbidden, match=r"may not query the endpoint logs\.all") as caught:
        access.require_query_permission(caller_with_scopes("public"), LOGS_ENDPOINT)
    assert "public" in caught.value.one_line_text()
    with pytest.raises(Forbidden, match=r"may not send to the stream postgres\.logs"):
        access.require_ingest_permission(caller_with_scopes("query"), DATABASE_STREAM)
    with pytest.raises(Forbidden, match="private key"):
        access.require_management_permission(caller_with_scopes("query"))


def test_an_unknown_name_is_forbidden_to_keys_without_any_such_scope() -> None:
    with pytest.raises(Forbidden):
        access.require_query_permission(caller_with_scopes("public"), None)
    with pytest.raises(Forbidden):
        access.require_ingest_permission(caller_with_scopes("query"), None)
    access.require_query_permission(caller_with_scopes("query:endpoint:other"), None)
    access.require_ingest_permission(caller_with_scopes("ingest:source:other"), None)


def test_a_public_endpoint_needs_no_key_when_called_by_uuid(authenticator: Authenticator) -> None:
    visitor = authenticator.authenticate_for_endpoint(None, PUBLIC_ENDPOINT, str(PUBLIC_ENDPOINT.id).upper())
    assert visitor is ANONYMOUS_CALLER
    access.require_query_permission(visitor, PUBLIC_ENDPOINT)


def test_a_public_endpoint_needs_a_key_when_called_by_name(authenticator: Authenticator) -> None:
    with pytest.raises(MissingApiKey):
        authenticator.authenticate_for_endpoint(None, PUBLIC_ENDPOINT, "open")


def test_an_invalid_key_on_a_public_endpoint_is_treated_as_none(
    authenticator: Authenticator, keys: SQLiteKeyStore
) -> None:
    assert (
        authenticator.authenticate_for_endpoint("cw_wrong", PUBLIC_ENDPOINT, str(PUBLIC_ENDPOINT.id))
        is ANONYMOUS_CALLER
    )
    assert (
        authenticator.authenticate_for_endpoint(
            keys.create(KeyTerms(frozenset({"ingest"}))).secret, PUBLIC_ENDPOINT, str(PUBLIC_ENDPOINT.id)
        )
        is ANONYMOUS_CALLER
    )


def test_a_valid_key_on_a_public_endpoint_identifies_its_caller(authenticator: Authenticator) -> None:
    assert (
        authenticator.authenticate_for_endpoint("from-settings", PUBLIC_ENDPOINT, str(PUBLIC_ENDPOINT.id)).key_id
        == "settings:private"
    )


def test_a_private_endpoint_needs_a_key_when_called_by_uuid(authenticator: Authenticator) -> None:
    with pytest.raises(MissingApiKey):
        authenticator.authenticate_for_endpoint(None, LOGS_ENDPOINT, str(LOGS_ENDPOINT.id))
    with pytest.raises(Forbidden):
        access.require_query_permission(ANONYMOUS_CALLER, LOGS_ENDPOINT)


def caller_pinned_to(**pins: str) -> Caller:
    return Caller("1", frozenset({"query"}), pins)


def test_a_missing_pinned_parameter_gets_the_value_of_the_pin() -> None:
    assert access.apply_pinned_parameters(caller_pinned_to(project="acme"), {"n": "5"}, LOGS_ENDPOINT) == {
        "n": "5",
        "project": "acme",
    }


def test_a_pinned_parameter_may_be_given_with_the_value_of_the_pin() -> None:
    assert access.apply_pinned_parameters(caller_pinned_to(project="acme"), {"project": "acme"}, LOGS_ENDPOINT) == {
        "project": "acme"
    }


@pytest.mark.parametrize("value", ["other", "", "ACME", "acme ", "acme2"])
def test_another_value_of_a_pinned_parameter_is_refused(value: str) -> None:
    with pytest.raises(Forbidden, match=f"pinned to project = 'acme' and may not ask for '{value}'"):
        access.apply_pinned_parameters(caller_pinned_to(project="acme"), {"project": value}, LOGS_ENDPOINT)


def test_a_call_is_refused_if_the_endpoint_lacks_the_pinned_parameter() -> None:
    with pytest.raises(Forbidden, match=r"usage\.api-counts has no parameter"):
        access.apply_pinned_parameters(caller_pinned_to(project="acme"), {}, COUNTS_ENDPOINT)


def test_without_pins_parameters_are_unchanged() -> None:
    parameters = {"project": "a", "x": "y"}
    assert access.apply_pinned_parameters(caller_pinned_to(), parameters, LOGS_ENDPOINT) == parameters
