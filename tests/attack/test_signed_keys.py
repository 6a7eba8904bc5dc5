"""Signed keys (JWT): claims are parsed strictly, and additional claims only restrict what the scopes permit."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from cordwood.app.in_process import InProcessApp, open_in_process_app
from cordwood.catalog.signed_keys import JWTVerifier
from cordwood.errors import BadApiKey
from cordwood.model.key import Caller
from tests.attack.test_pinned_queries import event, make_settings, send

SIGNING_SECRET = "a-secret-of-more-than-thirty-two-bytes"
LOGS_ADDRESS = "/api/endpoints/query/logs.all"
# Characters that some parser treats as white space or a delimiter. Only U+0020 separates scopes.
ODD_SPACES = (
    "\t\n\v\f\r\x1c\x1d\x1e\x1f\x85\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\u200b\u200c\u200d\u2060\ufeff\u180e\x00,;|+/"
)


def sign_claims(claims: bytes, header: bytes = b'{"alg":"HS256","typ":"JWT"}') -> str:
    """Return a validly signed token whose claims are exactly these bytes."""
    signed_text = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in (header, claims))
    signature = hmac.new(SIGNING_SECRET.encode(), signed_text, hashlib.sha256).digest()
    return f"{signed_text.decode()}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


def token_of_claims(**claims: object) -> str:
    return sign_claims(json.dumps({"exp": int(time.time()) + 60, **claims}).encode())


def token_of_text(claims: str) -> str:
    """Return a token whose claims are `exp` and the claims in a JSON text."""
    return sign_claims(f'{{"exp":{int(time.time()) + 60},{claims}}}'.encode("utf-8", "surrogatepass"))


def caller_of_token(presented: str) -> Caller:
    signed_caller = JWTVerifier(secret=SIGNING_SECRET).find_caller(presented)
    assert signed_caller is not None
    return signed_caller


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessApp]:
    chosen = make_settings(tmp_path_factory.mktemp("signed") / "data")
    keys = msgspec.structs.replace(chosen.keys, jwt_secret=SIGNING_SECRET)
    with open_in_process_app(msgspec.structs.replace(chosen, keys=keys)) as app:
        assert send(app, "/api/logs?source_name=postgres.logs", [event("default", "x")])[0] == 200
        yield app


def query_status(app: InProcessApp, path: str, presented: str, body: object = None) -> int:
    return send(app, path, body or {"project": "default"}, x_api_key=presented)[0]


@pytest.mark.parametrize("scope", ["", "ingest", "public", "ingest:source:postgres.logs", "profile"])
def test_endpoints_grant_nothing_to_a_key_that_may_not_query(app: InProcessApp, scope: str) -> None:
    assert query_status(app, LOGS_ADDRESS, token_of_claims(scope=scope, endpoints=["logs.all"])) == 403
    assert "query:endpoint:logs.all" not in caller_of_token(token_of_claims(scope=scope, endpoints=["logs.all"])).scopes


def test_endpoints_without_a_scope_grant_nothing(app: InProcessApp) -> None:
    assert query_status(app, LOGS_ADDRESS, token_of_claims(endpoints=["logs.all"])) == 403


@pytest.mark.parametrize("endpoints", [["logs.all"], ["*"], [""], [" "], ["logs.all private"], ["x", "logs.all"], []])
def test_endpoints_never_extend_the_scopes(app: InProcessApp, endpoints: list[str]) -> None:
    for scope in ("query", "query:endpoint:usage.api-counts", "ingest", "query ingest"):
        with_claim, without = token_of_claims(scope=scope, endpoints=endpoints), token_of_claims(scope=scope)
        for path in (LOGS_ADDRESS, "/api/endpoints/query/usage.api-counts", "/api/access-tokens"):
            body = {"project": "default", "iso_timestamp_start": "2026-01-01T00:00:00Z"}
            if query_status(app, path, without, body) == 403:
                assert query_status(app, path, with_claim, body) == 403


def test_endpoints_narrow_scopes_that_name_endpoints_too() -> None:
    scope = "query:endpoint:a query:endpoint:b ingest"
    assert caller_of_token(token_of_claims(scope=scope, endpoints=["b", "c"])).scopes == {"query:endpoint:b", "ingest"}


@pytest.mark.parametrize("odd", ODD_SPACES, ids=lambda odd: f"U+{ord(odd):04X}")
def test_only_a_space_separates_scopes(app: InProcessApp, odd: str) -> None:
    presented = token_of_claims(scope=f"query{odd}private")
    assert caller_of_token(presented).scopes == {f"query{odd}private"}
    assert query_status(app, "/api/access-tokens", presented, {"scopes": "private"}) == 403


@pytest.mark.parametrize("odd", ODD_SPACES, ids=lambda odd: f"U+{ord(odd):04X}")
def test_only_a_space_separates_the_scopes_of_a_new_key(app: InProcessApp, odd: str) -> None:
    for scopes in (f"query{odd}private", [f"query{odd}private"], ["query private"]):
        status_code, answer = send(app, "/api/access-tokens", {"scopes": scopes})
        assert status_code == 422, answer
        assert "contains unrecognized scope" in answer


@pytest.mark.parametrize(
    "scope", ["Private", "PRIVATE", "pr\u0131vate", "\uff50rivate", "privat\u0435", "private\u0301"]
)
def test_a_scope_with_lookalike_letters_permits_nothing(app: InProcessApp, scope: str) -> None:
    assert query_status(app, "/api/access-tokens", token_of_claims(scope=scope), {"scopes": "private"}) == 403
    assert send(app, "/api/access-tokens", {"scopes": [scope]})[0] == 422


@pytest.mark.parametrize(
    "claims",
    [
        '"scope":"query","scope":"private"',
        '"scope":"private","scope":"query"',
        '"scope":"query","sc\\u006fpe":"private"',
        '"scope":"query","pins":{"project":"a"},"pins":{}',
        '"scope":"query","pins":{"project":"a","project":"b"}',
        '"scope":"query","redact":true,"redact":false',
        '"scope":"query","endpoints":["a"],"endpoints":null',
        '"scope":"query","exp":99999999999',
    ],
)
def test_a_duplicate_claim_is_refused(claims: str) -> None:
    with pytest.raises(BadApiKey, match="twice in one object"):
        caller_of_token(token_of_text(claims))


@pytest.mark.parametrize(
    "body",
    [
        '{"scopes":"query","pins":{"project":"a"},"pins":{}}',
        '{"scopes":"query","pins":{"project":"a","project":"b"}}',
        '{"scopes":"public","sc\\u006fpes":"private"}',
    ],
)
def test_a_duplicate_field_of_a_new_key_is_refused(app: InProcessApp, body: str) -> None:
    answered, _, answer = app.send("POST", "/api/access-tokens", body.encode(), {"content-type": "application/json"})
    assert (answered, b"twice in one object" in answer) == (400, True)


@pytest.mark.parametrize(
    "exp", ['"9999999999"', '"\uff19\uff19\uff19\uff19\uff19\uff19\uff19\uff19\uff19\uff19"', "true", "[]", "{}"]
)
def test_an_exp_that_is_not_a_number_is_refused(exp: str) -> None:
    with pytest.raises(BadApiKey):
        caller_of_token(sign_claims(f'{{"scope":"query","exp":{exp}}}'.encode()))


@pytest.mark.parametrize("exp", ["4102444800000", "1e300", "1" + "0" * 400, "253402300800"])
def test_an_exp_that_is_too_large_is_refused(exp: str) -> None:
    with pytest.raises(BadApiKey, match="is too large"):
        caller_of_token(sign_claims(f'{{"scope":"query","exp":{exp}}}'.encode()))


@pytest.mark.parametrize(
    "exp", ["1e400", "-1e400", "Infinity", "-Infinity", "NaN", "1" + "0" * 5000, "null", "0", "-1"]
)
def test_an_exp_that_is_infinite_or_past_is_refused(exp: str) -> None:
    with pytest.raises(BadApiKey):
        caller_of_token(sign_claims(f'{{"scope":"query","exp":{exp}}}'.encode()))


@pytest.mark.parametrize("nbf", ['"1"', "true", "false", "null", "[]", "1e400", "NaN"])
def test_an_nbf_that_is_not_a_number_is_refused(nbf: str) -> None:
    with pytest.raises(BadApiKey):
        caller_of_token(token_of_text(f'"scope":"query","nbf":{nbf}'))


@pytest.mark.parametrize(
    "name", ["", " ", "project ", "\uff50roject", "pr\u043eject", "a.b", "1", "project\u0000", "*"]
)
def test_a_pin_with_an_invalid_parameter_name_is_refused(app: InProcessApp, name: str) -> None:
    """Refuse a pin whose name cannot be the name of a parameter.

    If it were accepted, ingest would write the pin's value to a field that no query reads.
    """
    with pytest.raises(BadApiKey, match="pins"):
        caller_of_token(token_of_claims(scope="ingest", pins={name: "acme"}))
    assert send(app, "/api/access-tokens", {"scopes": "ingest", "pins": {name: "acme"}})[0] == 422


@pytest.mark.parametrize("claims", ['"pins":{"project":"\\ud800"}', '"sub":"\\udfff"', '"jti":"\\ud800x"'])
def test_a_lone_surrogate_is_refused(app: InProcessApp, claims: str) -> None:
    assert query_status(app, LOGS_ADDRESS, token_of_text(f'"scope":"query",{claims}')) == 401


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "utf-8-sig", "latin-1"])
def test_claims_in_another_encoding_are_refused(encoding: str) -> None:
    claims = f'{{"scope":"query","exp":{int(time.time()) + 60},"sub":"\u00e9"}}'
    with pytest.raises(BadApiKey):
        caller_of_token(sign_claims(claims.encode(encoding)))


@pytest.mark.parametrize("rate", ["1" + "0" * 400, "1e400", "-1", "[]", "{}", '""', "false"])
def test_an_invalid_rate_is_refused(app: InProcessApp, rate: str) -> None:
    assert query_status(app, LOGS_ADDRESS, token_of_text(f'"scope":"query","rate":{rate}')) == 401


@pytest.mark.parametrize(
    "header",
    [
        b'{"alg":"HS256","kid":5}',
        b'{"alg":"HS256","crit":["exp"]}',
        b'{"alg":"HS256","crit":["unknown"],"unknown":1}',
        b'{"alg":"HS256","b64":false,"crit":["b64"]}',
        b'{"alg":"hs256"}',
        b'{"alg":["HS256"]}',
        b'{"alg":"HS256","x":' + b"[" * 40_000,
        b'{"alg":"HS256","x":' + b"[" * 40_000 + b"]" * 40_000 + b"}",
    ],
)
def test_an_invalid_header_is_refused(app: InProcessApp, header: bytes) -> None:
    claims = b'{"exp":%d,"scope":"private"}' % (time.time() + 60)
    assert query_status(app, "/api/access-tokens", sign_claims(claims, header), {"scopes": "public"}) == 401


def test_claims_nested_too_deeply_are_refused(app: InProcessApp) -> None:
    assert query_status(app, LOGS_ADDRESS, token_of_text('"scope":"query","x":' + "[" * 20_000 + "]" * 20_000)) == 401


def test_a_body_nested_too_deeply_is_refused(app: InProcessApp) -> None:
    body = b'{"scopes":"public","x":' + b"[" * 200_000 + b"]" * 200_000 + b"}"
    assert app.send("POST", "/api/access-tokens", body, {"content-type": "application/json"})[0] == 400


def test_a_key_for_encryption_verifies_no_signature(tmp_path: Path) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    public: dict[str, Any] = jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
    presented = jwt.encode({"scope": "private", "exp": int(time.time()) + 60}, key, algorithm="RS256")
    for use, holds in (("sig", True), ("enc", False)):
        file = tmp_path / f"{use}.json"
        file.write_text(json.dumps({"keys": [{**public, "kid": "1", "use": use}]}))
        keys = JWTVerifier(jwks_file=file)
        if holds:
            assert keys.find_caller(presented)
        else:
            with pytest.raises(BadApiKey):
                keys.find_caller(presented)
