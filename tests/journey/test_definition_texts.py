"""Definitions of endpoints and streams are read and written over HTTP, in the format of their files.

Dry runs change nothing.
"""

import json
from importlib import resources
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from cordwood.app.definitions import MAX_ENDPOINT_FILE_BYTES, MAX_STREAM_DEFINITION_BYTES
from tests.journey.conftest import Service
from tests.journey.test_cli_clients import cordwood

ENDPOINT = """-- Of the on-call team.
/*
name = "text.{name}" # as dashboards have it
max_rows = 50

[parameters.since]
type = "timestamp"
required = true

[alert]
every = "1h"
condition = "n > 10"
parameters = {{since = "now-1h"}}
*/

select count(*) as n
from `postgres.logs` as t
where t.timestamp >= @since
"""
STREAM = """[[stream]]
name = "text.{name}"
description = "ours"
retention = "36h"
late = {{after = "7d", policy = "quarantine"}}
transform = [{{drop = "m.level:debug"}}, {{hash = ["metadata.email"]}}]
"""
ON_EACH_KIND = pytest.mark.parametrize(("kind", "text"), [("endpoints", ENDPOINT), ("sources", STREAM)])


def send(
    service: Service, method: str, path: str, text: str | bytes, media: str = "text/plain", **headers: str
) -> httpx.Response:
    header_fields = {"content-type": media, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return service.client.request(method, path, content=text, headers=header_fields)


def read_text(service: Service, path: str) -> str:
    answer = service.client.get(f"{path}/text")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/plain; charset=utf-8"), answer.text
    assert (answer.headers["cache-control"], answer.headers["x-content-type-options"]) == ("no-store", "nosniff")
    assert answer.headers["etag"] == service.client.get(path).headers["etag"]
    return answer.text


def definition_files(service: Service) -> dict[str, str]:
    """Return the contents of all files with definitions and with their history."""
    folder = service.data_dir
    places = [*folder.glob("endpoints/*"), *folder.glob("history/*"), *folder.glob("streams.toml*")]
    return {str(place.relative_to(folder)): place.read_text() for place in places}


def audit_lines(service: Service) -> list[str]:
    kinds = ("endpoint.", "source.")
    return [line for line in service.output.read_text().splitlines() if any(kind in line for kind in kinds)]


@ON_EACH_KIND
def test_a_text_is_stored_and_returned_as_it_is(service: Service, kind: str, text: str) -> None:
    text, path = text.format(name="whole"), f"/api/{kind}/text.whole"
    created = send(service, "POST", f"/api/{kind}", text)
    assert (created.status_code, created.json()["name"]) == (201, "text.whole"), created.text
    assert service.client.get(path).json() == created.json()
    assert read_text(service, path) == text
    # Sending the same text again changes nothing. Sending another text replaces all settings.
    before = definition_files(service)
    unchanged = send(service, "PUT", path, text, if_match=created.headers["etag"])
    assert (unchanged.status_code, unchanged.json()) == (200, created.json())
    assert definition_files(service) == before
    changed = text.replace('"36h"', '"2d"').replace("max_rows = 50", "zone = 'Europe/Berlin'")
    media = "application/sql" if kind == "endpoints" else "application/toml; charset=utf-8"
    answer = send(service, "PUT", path, changed.replace("\n", "\r\n"), media, if_match=created.headers["etag"])
    assert (answer.status_code, answer.json()["token"]) == (200, created.json()["token"]), answer.text
    expected = {"zone": "Europe/Berlin", "max_limit": 1000} if kind == "endpoints" else {"retention_days": 2}
    assert expected.items() <= answer.json().items()
    assert read_text(service, path) == changed
    assert send(service, "PUT", path, text, if_match=created.headers["etag"]).status_code == 412
    # The definitions that the service uses equal those that it reads after a restart.
    assert cordwood("reload", "--data-dir", str(service.data_dir)).returncode == 0
    assert service.client.get(path).json() == answer.json()
    assert read_text(service, path) == changed
    versions = service.client.get(f"{path}/versions").json()
    assert [version["version"] for version in versions] == [2, 1]


def test_an_endpoint_keeps_its_id_when_a_text_renames_it(service: Service) -> None:
    created = send(service, "POST", "/api/endpoints", '/* name = "text.old" */ select 1 as n').json()
    answer = send(service, "PUT", "/api/endpoints/text.old", '/* name = "text.new" */ select 2 as n')
    assert (answer.status_code, answer.json()["token"]) == (200, created["token"])
    assert f'id = "{created["token"]}"' in read_text(service, "/api/endpoints/text.new")
    assert service.rows("text.new") == [{"n": 2}]
    # The old name can be used again, although the id that is derived from it is still in use.
    recreated = send(service, "POST", "/api/endpoints", '/* name = "text.old" */\nselect 3 as n')
    assert recreated.status_code == 201
    assert recreated.json()["token"] != created["token"]
    stated = f'/* name = "text.new"\nid = "{recreated.json()["token"]}" */\nselect 2 as n'
    refused = send(service, "PUT", "/api/endpoints/text.new", stated)
    assert (refused.status_code, refused.json()["error"]["line"]) == (422, 2)
    moved = send(service, "PUT", "/api/sources/postgres.logs", '[[stream]]\nname = "other"\n')
    assert (moved.status_code, moved.json()["errors"]["name"]) == (422, ["name cannot be changed."])
    assert moved.json()["error"]["line"] == 2


def test_shipped_definitions_have_texts(service: Service) -> None:
    shipped = resources.files("cordwood") / "endpoints"
    endpoints = service.client.get("/api/endpoints").json()
    texts = {endpoint["name"]: read_text(service, f"/api/endpoints/{endpoint['token']}") for endpoint in endpoints}
    assert texts["logs.all"] in [file.read_text() for file in shipped.iterdir() if file.name.endswith(".sql")]
    refused = send(service, "PUT", "/api/endpoints/logs.all", texts["logs.all"])
    assert (refused.status_code, refused.json()["error"]["status"]) == (409, "request.read-only")
    path = "/api/sources/cloudflare.logs.prod"
    text = read_text(service, path)
    assert text.startswith('[[stream]]\nname = "cloudflare.logs.prod"\n')
    # Sending the text back does not turn the shipped stream into a changed one.
    assert send(service, "PUT", path, text).json()["origin"] == "shipped"
    changed = send(service, "PUT", path, f'{text}retention = "14d"\n')
    assert (changed.json()["origin"], changed.json()["retention_days"]) == ("managed", 14)
    assert read_text(service, path) == f'{text}retention = "14d"\n'
    assert service.client.delete(path).status_code == 204
    assert read_text(service, path) == text


@ON_EACH_KIND
def test_a_dry_run_answers_as_the_request_and_changes_nothing(service: Service, kind: str, text: str) -> None:
    text, path = text.format(name="dry"), f"/api/{kind}/text.dry"
    before, audited = definition_files(service), audit_lines(service)
    dry = send(service, "POST", f"/api/{kind}?dry_run=true", text)
    assert service.client.get(path).status_code == 404
    assert (definition_files(service), audit_lines(service)) == (before, audited)
    created = send(service, "POST", f"/api/{kind}?dry_run=false", text)
    assert (dry.status_code, created.status_code) == (200, 201), dry.text
    assert dry.json() == created.json()
    assert dry.headers["etag"] == created.headers["etag"]
    assert len(audit_lines(service)) == len(audited) + 1
    fields = {"description": "by fields"}
    before, served = definition_files(service), service.client.get(path).json()
    bodies: tuple[dict[str, Any], ...] = (
        {"json": fields},
        {"content": text.replace('"36h"', '"1h"'), "headers": {"content-type": "text/plain"}},
    )
    for sent in bodies:
        dry = service.client.put(path, params={"dry_run": "true"}, **sent)
        assert (dry.status_code, dry.json()["origin"]) == (200, "managed"), dry.text
        assert service.client.patch(path, params={"dry_run": "true"}, json=fields).status_code == 204
        assert (definition_files(service), service.client.get(path).json()) == (before, served)
        changed = service.client.put(path, **sent)
        assert changed.json() == dry.json()
        before, served = definition_files(service), changed.json()


def test_a_dry_run_makes_every_check(service: Service) -> None:
    send(service, "POST", "/api/endpoints", '/* name = "text.checked" */ select 1 as n')
    service.client.post("/api/sources", json={"name": "Text.Case"})
    service.client.delete("/api/sources/Text.Case")
    before = definition_files(service)
    for method, path, fields, status in (
        ("POST", "endpoints", {"name": "text.checked", "query": "select 1 as n"}, 422),
        ("POST", "endpoints", {"name": "text.more", "query": "select x from `nothing` as t"}, 422),
        ("POST", "sources", {"name": "postgres.logs"}, 422),
        # The events of the deleted stream are stored under another spelling of its name.
        ("POST", "sources", {"name": "text.case"}, 422),
        ("PUT", "sources/postgres.logs", {"transform": [{"drop": "((("}]}, 422),
        ("PUT", "endpoints/logs.all", {"description": "x"}, 409),
        ("PUT", "endpoints/text.none", {"description": "x"}, 404),
    ):
        address = f"/api/{path}?dry_run=true"
        answer = service.client.request(method, address, json=fields)
        assert answer.status_code == status, answer.text
        refused = service.client.request(method, f"/api/{path}", json=fields)
        assert refused.json()["error"] == answer.json()["error"]
    stale = service.client.put(
        "/api/endpoints/text.checked?dry_run=true", json={"description": "x"}, headers={"if-match": '"other"'}
    )
    assert stale.status_code == 412
    for value in ("", "yes", "True", "1"):
        answer = service.client.post("/api/sources", params={"dry_run": value}, json={"name": "text.not.made"})
        assert (answer.status_code, answer.json()["error"]["status"]) == (400, "request.bad-parameter")
    for method, path in (("DELETE", "text.checked"), ("POST", "text.checked/versions/1/restore")):
        assert service.client.request(method, f"/api/endpoints/{path}?dry_run=true").status_code == 400
    assert definition_files(service) == before


@pytest.mark.parametrize(
    ("text", "field", "message", "place"),
    [
        ('/*\nname = "text.bad"\n*/\n\nselect t.id\nfrom `postgres.log` as t', "query", "postgres.logs", (6, 6)),
        ('/* name = "text.bad" */ select nope(1) as n', "query", "NOPE", (1, 32)),
        ('-- one\n/* name = "text.bad" */\nselect 1 as n from', "query", "Syntax error", (3, 15)),
        ('/*\nname = "text.bad"\nmax_rows = x\n*/\nselect 1 as n', "query", "not TOML", (3, 12)),
        ("/* name = x */\nselect 1 as n", "query", "not TOML", (1, 11)),
        ('/*\nname = "text.bad"\nzone = "Mars"\n*/\nselect 1 as n', "zone", "not a time zone", (3, 1)),
        ('/*\nname = "text.bad"\nmax_row = 5\n*/\nselect 1 as n', "max_row", "max_rows", (3, 1)),
        ('/*\n\nname = "logs.all"\n*/\nselect 1 as n', "name", "has already been taken", (3, 1)),
        ('/*\nname = "query"\n*/\nselect 1 as n', "name", "reserved", (2, 1)),
        ("/*\nmax_rows = 5\n*/\nselect 1 as n", "query", "no name", (1, 1)),
        ('/*\nname = "text.bad"\n*/', "query", "no query", (3, 1)),
        ("select 1 as n", "query", "begin with its settings", (1, 1)),
        (
            '/*\nname = "text.bad"\n[alert]\nevery = "1m"\ncondition = "m > 1"\n*/\nselect 1 as n',
            "alert",
            "m",
            (3, 1),
        ),
        ('/*\nname = "text.bad"\ndescription = "a */ b"\n*/\nselect 1', "query", "not TOML", (3, None)),
    ],
)
def test_errors_of_an_endpoints_text_have_their_place_in_it(
    service: Service, text: str, field: str, message: str, place: tuple[int, int | None]
) -> None:
    before = definition_files(service)
    for sent in (text, text.replace("\n", "\r\n")):
        answer = send(service, "POST", "/api/endpoints", sent)
        error = answer.json()["error"]
        assert (answer.status_code, error["status"]) == (422, "request.bad-definition"), answer.text
        assert list(answer.json()["errors"]) == [field]
        assert message in f"{error['message']} {error.get('hint')}"
        assert (error["line"], place[1] and error["column"]) == place, error
    assert definition_files(service) == before


@pytest.mark.parametrize(
    ("text", "field", "message", "line"),
    [
        ('[[stream]]\nname = "text.bad"\nretention = "x"\n', "retention_days", "retention", 3),
        ('[[stream]]\nname = "text.bad"\nretention = \n', "name", "not TOML", 3),
        ('[[stream]]\nname = "text.bad"\n\n[[stream.transform]]\ndrop = "((("\n', "transform", "drop", 5),
        ('[[stream]]\nname = "a"\n[[stream]]\nname = "b"\n', "name", "one stream", 3),
        ('[[stream]]\nname = "postgres.logs"\n', "name", "has already been taken", 2),
        ('[stream]\nname = "text.bad"\n', "name", "tables of an array", 1),
        ("", "name", "one stream", 1),
        (
            (
                '[[stream]]\nname = "text.bad"\n[[stream.transform]]\n'
                'enrich = {file = "/etc/passwd", from = "metadata.a", to = "metadata.b"}\n'
            ),
            "transform",
            "not offered over HTTP",
            3,
        ),
    ],
)
def test_errors_of_a_streams_text_have_their_place_in_it(
    service: Service, text: str, field: str, message: str, line: int
) -> None:
    before = definition_files(service)
    answer = send(service, "POST", "/api/sources", text)
    assert (answer.status_code, list(answer.json()["errors"])) == (422, [field]), answer.text
    assert message in answer.json()["error"]["message"]
    assert answer.json()["error"]["line"] == line
    assert definition_files(service) == before


@ON_EACH_KIND
def test_only_an_unrestricted_private_key_reads_and_sends_texts(service: Service, kind: str, text: str) -> None:
    keys = [
        service.client.post("/api/access-tokens", json=terms).json()["token"]
        for terms in (
            {"scopes": "query ingest"},
            {"scopes": "private", "pins": {"project": "p"}},
            {"scopes": "private", "redact": True},
        )
    ]
    before, name = definition_files(service), "logs.all" if kind == "endpoints" else "postgres.logs"
    for method, path, query in (
        ("GET", f"/api/{kind}/{name}/text", ""),
        ("POST", f"/api/{kind}", ""),
        ("PUT", f"/api/{kind}/{name}", ""),
        ("POST", f"/api/{kind}", "?dry_run=true"),
        ("PUT", f"/api/{kind}/{name}", "?dry_run=true"),
    ):
        for key in keys:
            answer = send(service, method, path + query, text.format(name="theirs"), x_api_key=key)
            assert (answer.status_code, answer.json()["error"]["status"]) == (403, "request.forbidden")
        assert send(service, method, path + query, text, x_api_key="nobody").status_code == 401
        assert httpx.request(method, service.url + path + query).status_code == 401
    assert definition_files(service) == before


HOSTILE_ENDPOINT = '/*\nname = "text.hostile"\n{}\n*/\nselect 1 as n'
HOSTILE_STREAM = '[[stream]]\nname = "text.hostile"\n{}\n'
# Texts on which a careless parser would spend much time, much memory or a deep stack.
HOSTILE_VALUES = {
    "arrays": "late = " + "[" * 60_000,
    "tables": "late = " + "{a = " * 10_000,
    "dotted keys": "late" + ".a" * 30_000 + " = 1",
    "a dotted header": "[parameters" + ".a" * 30_000 + "]",
    "brackets in a text": 'description = """\n[' + " " * 60_000 + '"""\nlate = 1',
    "keys in a text": 'description = """\n[' + ".".join("a" * 30_000) + ']\n"""\nlate = 1',
    "many parameters": "\n".join(f"[parameters.p{number}]" for number in range(3_000)) + "\n[parameters.P1]",
    "quotes": 'description = """' + '\\"""' * 15_000,
    "digits": "max_rows = " + "9" * 60_000,
    "a hexadecimal number": "max_rows = 0x" + "f" * 60_000,
    "infinity": "max_rows = inf",
    "a duration": 'timeout = "' + "1" * 60_000 + 'x"',
    "a condition": '[alert]\nevery = "1m"\ncondition = "n > ' + "1" * 60_000 + 'x"',
    "an empty key": '"" = 1',
    "control characters": 'description = "a\x01b"',
    "an escaped NUL": '"a\\u0000b" = 1',
    "a separator of lines": 'description = """\u2028[[ . ]]\u2028"""\nlate = 1',
}


@pytest.mark.parametrize("value", HOSTILE_VALUES.values(), ids=HOSTILE_VALUES.keys())
def test_hostile_settings_are_refused(service: Service, value: str) -> None:
    before = definition_files(service)
    for path, text in (("/api/endpoints", HOSTILE_ENDPOINT), ("/api/sources", HOSTILE_STREAM)):
        answer = send(service, "POST", path, text.format(value))
        assert (answer.status_code, answer.json()["error"]["status"]) == (422, "request.bad-definition"), answer.text
        assert answer.json()["error"]["line"] >= 1
    assert definition_files(service) == before
    assert service.client.get("/health").status_code == 200


HOSTILE_BODIES = {
    "binary": (b"\x89PNG\r\n\x1a\n\x00\xff", 400),
    "NUL": (HOSTILE_ENDPOINT.format("").replace("n", "n\0").encode(), 400),
    "UTF-16": (HOSTILE_ENDPOINT.format("").encode("utf-16"), 400),
    "a large query": ((HOSTILE_ENDPOINT.format("") + " " * MAX_ENDPOINT_FILE_BYTES).encode(), 413),
    "a large table": (HOSTILE_STREAM.format("#" * MAX_STREAM_DEFINITION_BYTES).encode() * 2, 413),
    "a large body": (b"x" * 2**21, 413),
    "nothing": (b"", 422),
    "JSON": (b'{"name": "text.hostile", "query": "select 1 as n"}', 422),
}


@pytest.mark.parametrize(("body", "status"), HOSTILE_BODIES.values(), ids=HOSTILE_BODIES.keys())
def test_hostile_bodies_are_refused(service: Service, body: bytes, status: int) -> None:
    before = definition_files(service)
    for path in ("/api/endpoints", "/api/sources"):
        answer = send(service, "POST", path, body)
        assert answer.status_code == status, answer.text
    assert definition_files(service) == before


@pytest.mark.parametrize("name", ["..", "a/b", "a\\u0000b", " padded ", "Tail", "_own", "x" * 201, "\u202e", ""])
def test_hostile_names_in_texts_are_refused(service: Service, name: str) -> None:
    files_before = definition_files(service)
    answer = send(service, "POST", "/api/endpoints", f'/*\nname = "{name}"\n*/\nselect 1 as n')
    assert (answer.status_code, answer.json()["error"]["status"]) == (422, "request.bad-definition")
    if name not in ("..", "a/b", "Tail"):
        assert send(service, "POST", "/api/sources", f'[[stream]]\nname = "{name}"\n').status_code == 422
    assert definition_files(service) == files_before


def test_a_name_with_odd_characters_is_addressed_and_stored(service: Service) -> None:
    name = "..\\Ünï 'q' \"d\" ; drop * --"
    written = json.dumps(name, ensure_ascii=False)
    text = f'/*\nname = {written}\ndescription = "ends *\\u002F here"\n*/\nselect 1 as n'
    created = send(service, "POST", "/api/endpoints", text)
    assert (created.status_code, created.json()["name"]) == (201, name), created.text
    assert created.json()["description"] == "ends */ here"
    assert read_text(service, f"/api/endpoints/{quote(name)}") == text
    assert {place.parent.name for place in service.data_dir.rglob("*.sql")} == {"endpoints"}
    table = f"[[stream]]\nname = {written}\n"
    assert send(service, "POST", "/api/sources", table).json()["name"] == name
    assert read_text(service, f"/api/sources/{quote(name)}") == table
