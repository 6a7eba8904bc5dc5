"""Webhooks and loggers of vendors: signatures, duplicate deliveries, and limits of compressed Erlang terms."""

import hashlib
import hmac
import json
import zlib
from collections.abc import Iterator

import httpx
import pytest

from tests.journey.conftest import PUBLIC, Service, start_service
from tests.journey.test_http_queries import checked_error
from tests.unit.ingest.test_erlang_terms import binary_term, list_term, map_term

STREAM = "postgres.logs"


@pytest.fixture(scope="module")
def service_with_secrets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    settings = {
        "VERCEL_SECRET": "v-secret",
        "VERCEL_VERIFY": "who-i-am",
        "GITHUB_SECRET": "g-secret",
        "INFLATED_SIZE": "1MiB",
    }
    env = {f"CORDWOOD_INGEST_{name}": value for name, value in settings.items()}
    service = start_service(tmp_path_factory.mktemp("hooked") / "data", env=env)
    yield service
    service.stop()


def send(service: Service, suffix: str, body: bytes, media: str = "application/json", **headers: str) -> httpx.Response:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    address = f"{service.url}/logs{suffix}?source_name={STREAM}&api_key={PUBLIC}"
    return httpx.post(address, content=body, headers={"Content-Type": media, **names}, timeout=60)


def messages(service: Service, about: str) -> list[object]:
    sql = f"select event_message as m from `{STREAM}` where strpos(event_message, '{about}') > 0"
    return [row["m"] for row in service.client.get("/api/query", params={"sql": sql}).json()["result"]]


def test_a_github_delivery_is_stored_once_and_only_with_a_signature(service_with_secrets: Service) -> None:
    body = json.dumps({"action": "pushed", "repository": {"full_name": "o/github"}}).encode()
    signature = "sha256=" + hmac.new(b"g-secret", body, hashlib.sha256).hexdigest()
    for wrong in ({}, {"x_hub_signature_256": "sha256=" + "0" * 64}, {"x_hub_signature_256": signature[:-1]}):
        checked_error(
            send(service_with_secrets, "/github", body, x_github_delivery="d1", **wrong), 403, "request.bad-signature"
        )
    checked_error(
        send(service_with_secrets, "/github", body + b" ", x_hub_signature_256=signature), 403, "request.bad-signature"
    )
    for count in ({"accepted": 1, "duplicates": 0}, {"accepted": 0, "duplicates": 1}):
        answer = send(
            service_with_secrets, "/github", body, x_github_delivery="d1", x_hub_signature_256=signature
        ).json()
        assert {name: answer[name] for name in count} == count
    assert messages(service_with_secrets, "o/github") == ["o/github | pushed"]


def test_vercel_requests_are_verified_by_signature_and_answered_with_a_token(service_with_secrets: Service) -> None:
    for body in (b"", b'[{"id": "v", "source": "static", "message": "of vercel"}]'):
        checked_error(send(service_with_secrets, "/vercel", body), 403, "request.bad-signature")
        signed = send(
            service_with_secrets, "/vercel", body, x_vercel_signature=hmac.new(b"v-secret", body, "sha1").hexdigest()
        )
        assert (signed.status_code, signed.headers["x-vercel-verify"]) == (200, "who-i-am")
    assert messages(service_with_secrets, "of vercel") == ["static | of vercel"]


def test_netlify_typecasts_and_erlang_loggers_are_accepted(service_with_secrets: Service) -> None:
    term = map_term(batch=list_term(map_term(message=binary_term("of bert"))))
    packed = b"\x83P" + len(term).to_bytes(4, "big") + zlib.compress(term)
    cast = b'{"batch": [{"body": {"message": "of typecasts"}, "typecasts": []}]}'
    for suffix, body, media in (
        ("/netlify", b'[{"log_type": "of netlify"}]', "application/json"),
        ("/typecasts", cast, "application/json"),
        ("/elixir/logger", b"\x83" + term, "application/bert"),
        ("/erlang/lager", packed, "application/bert"),
        ("/erlang", b'{"batch": [{"message": "of erlang"}]}', "application/json"),
    ):
        assert send(service_with_secrets, suffix, body, media).json()["accepted"] == 1, suffix
    assert len(messages(service_with_secrets, "of ")) >= 5
    assert messages(service_with_secrets, "of bert") == ["of bert"] * 2


def test_a_netlify_drain_sends_its_key_in_the_authorization_header(service_with_secrets: Service) -> None:
    """Send the key in the header that Netlify's settings offer, because Netlify does not sign log drains."""
    lines = b'{"log_type": "first of netlify"}\n{"log_type": "second of netlify", "status_code": 200}\n'
    for key, status in ((PUBLIC, 200), ("nobody's", 401)):
        answer = httpx.post(
            f"{service_with_secrets.url}/logs/netlify?source_name={STREAM}",
            content=lines,
            headers={"Content-Type": "application/x-ndjson", "Authorization": f"Bearer {key}"},
        )
        assert answer.status_code == status, answer.text
    assert messages(service_with_secrets, "first of netlify") == ["first of netlify"]
    assert messages(service_with_secrets, "second of netlify") == ["second of netlify | 200"]


def test_a_compressed_term_is_limited_like_any_body(service_with_secrets: Service) -> None:
    bomb = b"\x83P\x00\x00\x00\x10" + zlib.compress(bytes(64 * 2**20))
    checked_error(send(service_with_secrets, "/erlang", bomb, "application/bert"), 413, "request.too-large")
    checked_error(
        send(service_with_secrets, "/erlang", b"\x83P\x00\x00\x00\x10no zlib", "application/bert"),
        400,
        "request.bad-body",
    )
    checked_error(
        send(service_with_secrets, "/erlang", b"\x83q" + bytes(99), "application/bert"), 400, "request.bad-body"
    )
