"""Who presents a key, and what each scope allows: CONTRACT's table, line by line."""

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from cordwood import access
from cordwood.access import ANONYMOUS, Access, FixedKey
from cordwood.catalog.key_store import digest
from cordwood.catalog.sqlite_keys import SQLiteKeys
from cordwood.errors import BadKey, Forbidden, NoKey
from cordwood.model.endpoint import Endpoint
from cordwood.model.key import Caller, KeyTerms
from cordwood.model.parameter import Parameter
from cordwood.model.stream import Stream

LOGS = Endpoint(
    "logs.all", UUID("0b1e6a52-7f0b-4c5e-9d1a-0e6b5a2f4c01"), "", "", parameters=(Parameter("project"), Parameter("n"))
)
COUNTS = Endpoint("usage.api-counts", UUID("0b1e6a52-7f0b-4c5e-9d1a-0e6b5a2f4c02"), "", "")
OPEN = Endpoint("open", UUID("0b1e6a52-7f0b-4c5e-9d1a-0e6b5a2f4c03"), "", "", auth=False)
EDGE = Stream("cloudflare.logs.prod", UUID("3c1e8a52-7f0b-4c5e-9d1a-0e6b5a2f4c01"))
DATABASE = Stream("postgres.logs", UUID("3c1e8a52-7f0b-4c5e-9d1a-0e6b5a2f4c02"))

NOW = 1_700_000_000.0


@pytest.fixture
def keys(tmp_path: Path) -> Iterator[SQLiteKeys]:
    keys = SQLiteKeys(tmp_path / "keys.db", lambda: NOW)
    yield keys
    keys.close()


@pytest.fixture
def door(keys: SQLiteKeys) -> Access:
    fixed = FixedKey(Caller("settings:private", frozenset({"private"})), digest("from-settings"))
    return Access(keys, (fixed,), clock=lambda: NOW)


def with_scopes(*scopes: str) -> Caller:
    return Caller("1", frozenset(scopes))


@pytest.mark.parametrize("presented", [None, ""])
def test_without_a_key_nobody_is_known(door: Access, presented: str | None) -> None:
    with pytest.raises(NoKey):
        door.who(presented)


def test_a_key_that_is_not_in_force_is_refused_and_not_repeated(door: Access) -> None:
    with pytest.raises(BadKey) as caught:
        door.who("cw_wrong")
    assert "cw_wrong" not in caught.value.told()


def test_a_key_of_the_settings_is_known(door: Access) -> None:
    assert door.who("from-settings").key_id == "settings:private"


def test_a_key_of_the_store_comes_with_its_terms_and_its_use_is_noted(door: Access, keys: SQLiteKeys) -> None:
    terms = KeyTerms(frozenset({"query"}), pins={"project": "acme"}, rate_per_second=3.0, redact_always=True)
    new = keys.create(terms)
    assert door.who(new.secret) == Caller(new.key.id, terms.scopes, terms.pins, 3.0, redact_always=True)
    assert keys.in_force()[0].last_used_at == NOW


def test_a_key_ends_at_the_second_it_expires(door: Access, keys: SQLiteKeys) -> None:
    over = keys.create(KeyTerms(frozenset({"query"}), expires_at=NOW))
    alive = keys.create(KeyTerms(frozenset({"query"}), expires_at=NOW + 0.001))
    with pytest.raises(BadKey):
        door.who(over.secret)
    assert door.who(alive.secret)


@pytest.mark.parametrize(
    ("scopes", "edge", "database", "logs", "counts", "manage"),
    [
        (["private"], True, True, True, True, True),
        (["public"], True, True, False, False, False),
        (["ingest"], True, True, False, False, False),
        (["ingest:source:cloudflare.logs.prod"], True, False, False, False, False),
        ([f"ingest:source:{str(DATABASE.id).upper()}"], False, True, False, False, False),
        ([f"ingest:collection:{EDGE.id}"], True, False, False, False, False),
        (["query"], False, False, True, True, False),
        (["query:endpoint:logs.all"], False, False, True, False, False),
        ([f"query:endpoint:{COUNTS.id}"], False, False, False, True, False),
        (["query:endpoint:logs.all", "ingest:source:postgres.logs"], False, True, True, False, False),
        ([], False, False, False, False, False),
    ],
)
def test_a_scope_allows_what_its_line_says(
    scopes: list[str],
    edge: bool,  # noqa: FBT001 - a row of the table
    database: bool,  # noqa: FBT001
    logs: bool,  # noqa: FBT001
    counts: bool,  # noqa: FBT001
    manage: bool,  # noqa: FBT001
) -> None:
    caller = with_scopes(*scopes)
    assert access.may_ingest(caller, EDGE) is edge
    assert access.may_ingest(caller, DATABASE) is database
    assert access.may_query(caller, LOGS) is logs
    assert access.may_query(caller, COUNTS) is counts
    assert access.may_manage(caller) is manage


def test_a_refusal_says_what_the_key_may_do() -> None:
    with pytest.raises(Forbidden, match=r"may not query the endpoint logs\.all") as caught:
        access.require_query(with_scopes("public"), LOGS)
    assert "public" in caught.value.told()
    with pytest.raises(Forbidden, match=r"may not send to the stream postgres\.logs"):
        access.require_ingest(with_scopes("query"), DATABASE)
    with pytest.raises(Forbidden, match="private key"):
        access.require_management(with_scopes("query"))


def test_who_may_do_a_thing_nowhere_is_not_told_whether_it_exists() -> None:
    with pytest.raises(Forbidden):
        access.require_query(with_scopes("public"), None)
    with pytest.raises(Forbidden):
        access.require_ingest(with_scopes("query"), None)
    access.require_query(with_scopes("query:endpoint:other"), None)
    access.require_ingest(with_scopes("ingest:source:other"), None)


def test_a_public_endpoint_asks_for_no_key_when_called_by_its_uuid(door: Access) -> None:
    visitor = door.visitor(None, OPEN, str(OPEN.id).upper())
    assert visitor is ANONYMOUS
    access.require_query(visitor, OPEN)


def test_a_public_endpoint_asks_for_a_key_when_called_by_name(door: Access) -> None:
    with pytest.raises(NoKey):
        door.visitor(None, OPEN, "open")


def test_a_wrong_key_is_no_worse_than_none_on_a_public_endpoint(door: Access, keys: SQLiteKeys) -> None:
    assert door.visitor("cw_wrong", OPEN, str(OPEN.id)) is ANONYMOUS
    assert door.visitor(keys.create(KeyTerms(frozenset({"ingest"}))).secret, OPEN, str(OPEN.id)) is ANONYMOUS


def test_a_right_key_is_known_on_a_public_endpoint(door: Access) -> None:
    assert door.visitor("from-settings", OPEN, str(OPEN.id)).key_id == "settings:private"


def test_an_endpoint_that_is_not_public_asks_for_a_key_by_uuid_too(door: Access) -> None:
    with pytest.raises(NoKey):
        door.visitor(None, LOGS, str(LOGS.id))
    with pytest.raises(Forbidden):
        access.require_query(ANONYMOUS, LOGS)


def pinned_to(**pins: str) -> Caller:
    return Caller("1", frozenset({"query"}), pins)


def test_a_pinned_parameter_that_is_left_out_gets_the_keys_value() -> None:
    assert access.pinned(pinned_to(project="acme"), {"n": "5"}, LOGS) == {"n": "5", "project": "acme"}


def test_a_pinned_parameter_may_be_named_with_the_keys_own_value() -> None:
    assert access.pinned(pinned_to(project="acme"), {"project": "acme"}, LOGS) == {"project": "acme"}


@pytest.mark.parametrize("value", ["other", "", "ACME", "acme ", "acme2"])
def test_any_other_value_of_a_pinned_parameter_is_refused_and_says_which(value: str) -> None:
    with pytest.raises(Forbidden, match=f"pinned to project = 'acme' and may not ask for '{value}'"):
        access.pinned(pinned_to(project="acme"), {"project": value}, LOGS)


def test_a_pin_that_an_endpoint_cannot_obey_refuses_the_call() -> None:
    with pytest.raises(Forbidden, match=r"usage\.api-counts has no parameter"):
        access.pinned(pinned_to(project="acme"), {}, COUNTS)


def test_without_pins_parameters_stay_as_they_came() -> None:
    given = {"project": "a", "x": "y"}
    assert access.pinned(pinned_to(), given, LOGS) == given
