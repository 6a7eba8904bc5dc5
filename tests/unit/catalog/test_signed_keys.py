"""Signed keys (JWT): valid claims become terms. All other tokens are refused, and their text is not printed."""

import base64
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from cordwood.catalog.signed_keys import JWTVerifier
from cordwood.errors import BadApiKey, BadSetting
from cordwood.model.key import Caller

SIGNING_SECRET = "a-secret-of-more-than-thirty-two-bytes"
RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
ED_KEY = ed25519.Ed25519PrivateKey.generate()
OTHER_EC_KEY = ec.generate_private_key(ec.SECP256R1())

Claims = Mapping[str, object]


def claims(**more: object) -> dict[str, object]:
    return {"scope": "query", "exp": int(time.time()) + 60, **more}


def sign(claims_to_sign: Claims, key: Any = SIGNING_SECRET, algorithm: str = "HS256", **headers: object) -> str:
    return jwt.encode(dict(claims_to_sign), key, algorithm=algorithm, headers=dict(headers))


def encode_unsigned(header: Claims, claims_to_encode: Claims, signature: bytes = b"") -> str:
    """Return a token with any header and signature, including tokens that PyJWT refuses to encode."""
    parts = (json.dumps(header).encode(), json.dumps(claims_to_encode).encode(), signature)
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


@pytest.fixture
def keys_by_secret() -> JWTVerifier:
    return JWTVerifier(secret=SIGNING_SECRET)


@pytest.fixture
def keys_by_jwks(tmp_path: Path) -> JWTVerifier:
    file = tmp_path / "jwks.json"
    written = [
        {**jwt.algorithms.RSAAlgorithm.to_jwk(RSA_KEY.public_key(), as_dict=True), "kid": "rsa"},
        {**jwt.algorithms.ECAlgorithm.to_jwk(EC_KEY.public_key(), as_dict=True), "kid": "ec"},
        {**jwt.algorithms.OKPAlgorithm.to_jwk(ED_KEY.public_key(), as_dict=True), "kid": "ed"},
    ]
    file.write_text(json.dumps({"keys": written}))
    return JWTVerifier(jwks_file=file)


def assert_refused(keys: JWTVerifier, token: str, message: str) -> None:
    with pytest.raises(BadApiKey, match=message) as caught:
        keys.find_caller(token)
    assert token not in caught.value.one_line_text()


def accepted_caller(keys: JWTVerifier, token: str) -> Caller:
    caller = keys.find_caller(token)
    assert caller is not None
    return caller


def test_claims_become_the_terms_of_the_caller(keys_by_secret: JWTVerifier) -> None:
    token = sign(claims(scope="query ingest", pins={"project": "acme"}, rate="10/s", redact=True, sub="dashboard"))
    assert accepted_caller(keys_by_secret, token) == Caller(
        "jwt:dashboard", frozenset({"query", "ingest"}), {"project": "acme"}, 10.0, redact_always=True
    )


def test_the_claim_endpoints_narrows_the_query_scope(keys_by_secret: JWTVerifier) -> None:
    token = sign(claims(scope="query ingest", endpoints=["logs.all", "mine"]))
    assert accepted_caller(keys_by_secret, token).scopes == {"ingest", "query:endpoint:logs.all", "query:endpoint:mine"}


def test_an_empty_list_of_endpoints_allows_none(keys_by_secret: JWTVerifier) -> None:
    assert accepted_caller(keys_by_secret, sign(claims(endpoints=[]))).scopes == frozenset()


def test_without_a_scope_nothing_is_allowed(keys_by_secret: JWTVerifier) -> None:
    assert accepted_caller(keys_by_secret, sign({"exp": int(time.time()) + 60})).scopes == frozenset()


def test_errors_of_a_jwks_file_have_a_hint(tmp_path: Path) -> None:
    file = tmp_path / "jwks.json"
    with pytest.raises(BadSetting, match=r"jwks\.json cannot be read: No such file"):
        JWTVerifier(jwks_file=file)
    file.write_text('{"kty": "RSA"}')
    with pytest.raises(BadSetting, match="cannot be read as a JWKS file") as raised:
        JWTVerifier(jwks_file=file)
    assert '{"keys": [' in str(raised.value.hint)


@pytest.mark.parametrize(
    ("key", "algorithm", "kid"),
    [(RSA_KEY, "RS256", "rsa"), (EC_KEY, "ES256", "ec"), (ED_KEY, "EdDSA", "ed")],
    ids=["RS256", "ES256", "EdDSA"],
)
def test_tokens_are_verified_by_jwks_keys_with_and_without_a_key_id(
    keys_by_jwks: JWTVerifier, key: Any, algorithm: str, kid: str
) -> None:
    assert accepted_caller(keys_by_jwks, sign(claims(), key, algorithm, kid=kid)).scopes == {"query"}
    assert accepted_caller(keys_by_jwks, sign(claims(), key, algorithm)).scopes == {"query"}
    assert_refused(
        keys_by_jwks, sign(claims(), key, algorithm, kid="another"), "signature of this signed key is not valid"
    )


def test_another_key_of_the_same_type_is_refused(keys_by_jwks: JWTVerifier, keys_by_secret: JWTVerifier) -> None:
    assert_refused(
        keys_by_jwks, sign(claims(), OTHER_EC_KEY, "ES256", kid="ec"), "signature of this signed key is not valid"
    )
    assert_refused(keys_by_secret, sign(claims(), SIGNING_SECRET + "x"), "signature of this signed key is not valid")


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "", "HS512", "HS384", "RS256", "foo"])
def test_other_algorithms_in_the_header_are_refused(keys_by_secret: JWTVerifier, algorithm: str) -> None:
    assert_refused(
        keys_by_secret,
        encode_unsigned({"alg": algorithm, "typ": "JWT"}, claims()),
        "signature of this signed key is not valid",
    )


def test_a_token_without_a_signature_is_refused(keys_by_secret: JWTVerifier) -> None:
    assert_refused(
        keys_by_secret,
        encode_unsigned({"alg": "HS256", "typ": "JWT"}, claims()),
        "signature of this signed key is not valid",
    )


def test_a_public_key_is_not_used_as_an_hmac_secret(keys_by_jwks: JWTVerifier) -> None:
    assert_refused(
        keys_by_jwks,
        encode_unsigned({"alg": "HS256", "kid": "rsa"}, claims(), b"x" * 32),
        "signature of this signed key is not valid",
    )


def test_claims_that_were_changed_after_signing_are_refused(keys_by_secret: JWTVerifier) -> None:
    header, _, signature = sign(claims()).split(".")
    _, forged, _ = sign(claims(scope="private"), "x" * 40).split(".")
    assert_refused(keys_by_secret, f"{header}.{forged}.{signature}", "signature of this signed key is not valid")


def test_an_expiry_is_required(keys_by_secret: JWTVerifier) -> None:
    assert_refused(keys_by_secret, sign({"scope": "query"}), "lacks the claim exp")


def test_an_expired_token_is_refused_with_tolerance_for_clock_skew(keys_by_secret: JWTVerifier) -> None:
    now = int(time.time())
    assert_refused(keys_by_secret, sign(claims(exp=now - 30)), "has expired")
    assert accepted_caller(keys_by_secret, sign(claims(exp=now - 3)))


def test_a_not_yet_valid_token_is_refused_with_tolerance_for_clock_skew(keys_by_secret: JWTVerifier) -> None:
    now = int(time.time())
    assert_refused(keys_by_secret, sign(claims(nbf=now + 60)), "not yet valid")
    assert accepted_caller(keys_by_secret, sign(claims(nbf=now + 3)))


def test_the_time_of_issue_is_ignored(keys_by_secret: JWTVerifier) -> None:
    assert accepted_caller(keys_by_secret, sign(claims(iat=int(time.time()) + 60)))


def test_an_audience_is_required_when_one_is_set() -> None:
    keys = JWTVerifier(secret=SIGNING_SECRET, audience="cordwood")
    assert_refused(keys, sign(claims()), "lacks the claim aud")
    assert_refused(keys, sign(claims(aud="another")), "another audience")
    assert accepted_caller(keys, sign(claims(aud="cordwood")))
    assert accepted_caller(keys, sign(claims(aud=["another", "cordwood"])))


def test_the_audience_is_ignored_when_none_is_set(keys_by_secret: JWTVerifier) -> None:
    assert accepted_caller(keys_by_secret, sign(claims(aud="another")))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"scope": ["query"]}, "scope"),
        ({"endpoints": "logs.all"}, "endpoints"),
        ({"endpoints": [1]}, "endpoints"),
        ({"scope": "private", "endpoints": ["logs.all"]}, "cannot be both"),
        ({"pins": ["project"]}, "pins"),
        ({"pins": {"project": 5}}, "pins"),
        ({"rate": "fast"}, "rate"),
        ({"rate": 0}, "rate"),
        ({"pins": False}, "pins"),
        ({"pins": ""}, "pins"),
        ({"rate": True}, "rate"),
        ({"rate": float("inf")}, "not JSON"),
        ({"rate": 1e-320}, "rate"),
        ({"redact": "yes"}, "redact"),
        ({"redact": 0}, "redact"),
        ({"exp": "soon"}, "signed key"),
        ({"nbf": "soon"}, "signed key"),
    ],
)
def test_invalid_claims_are_refused(keys_by_secret: JWTVerifier, more: Claims, message: str) -> None:
    assert_refused(keys_by_secret, sign(claims(**more)), message)


def test_a_rate_may_be_a_number_per_second(keys_by_secret: JWTVerifier) -> None:
    assert accepted_caller(keys_by_secret, sign(claims(rate=5))).rate_per_second == 5.0


def test_a_token_without_a_subject_is_named_by_its_digest(keys_by_secret: JWTVerifier) -> None:
    token = sign(claims())
    name = accepted_caller(keys_by_secret, token).key_id
    assert name.startswith("jwt:")
    assert name.removeprefix("jwt:") not in token


@pytest.mark.parametrize("presented", ["cw_abc", "a.b", "a.b.c.d", "a b.c.d", ""])
def test_a_key_that_is_not_a_jwt_returns_none(keys_by_secret: JWTVerifier, presented: str) -> None:
    assert keys_by_secret.find_caller(presented) is None


@pytest.mark.parametrize("presented", ["a.b.c", "eyJ.eyJ.x", "eyJhbGciOiJIUzI1NiJ9.e30."])
def test_a_malformed_jwt_is_refused(keys_by_secret: JWTVerifier, presented: str) -> None:
    assert_refused(keys_by_secret, presented, "signed")


def test_a_short_secret_is_refused() -> None:
    with pytest.raises(BadSetting, match="shorter than 32 bytes"):
        JWTVerifier(secret="short")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cannot be read"),
        ("[]", "cannot be read"),
        ('{"keys": [5]}', "cannot be read"),
        ('{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}', "of kind 'oct'"),
        ('{"keys": [{"kty": "RSA", "n": "x"}]}', "key 1 cannot be used"),
        ('{"keys": [{"kty": "EC", "crv": "P-256"}]}', "key 1 cannot be used"),
    ],
)
def test_an_invalid_jwks_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "jwks.json"
    file.write_text(text)
    with pytest.raises(BadSetting, match=message):
        JWTVerifier(jwks_file=file)


def test_a_missing_jwks_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="cannot be read"):
        JWTVerifier(jwks_file=tmp_path / "gone.json")
