"""Signed keys hold only when everything about them does; every other is refused, and none is repeated."""

import base64
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from cordwood.catalog.signed_keys import JWTKeys
from cordwood.errors import BadKey, BadSetting
from cordwood.model.key import Caller

SECRET = "a-secret-of-more-than-thirty-two-bytes"
RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
ED_KEY = ed25519.Ed25519PrivateKey.generate()
OTHER_EC_KEY = ec.generate_private_key(ec.SECP256R1())

Claims = Mapping[str, object]


def claims(**more: object) -> dict[str, object]:
    return {"scope": "query", "exp": int(time.time()) + 60, **more}


def signed(given: Claims, key: Any = SECRET, algorithm: str = "HS256", **headers: object) -> str:
    return jwt.encode(dict(given), key, algorithm=algorithm, headers=dict(headers))


def unsigned(header: Claims, given: Claims, signature: bytes = b"") -> str:
    """A token put together by hand: libraries refuse to make these."""
    parts = (json.dumps(header).encode(), json.dumps(given).encode(), signature)
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


@pytest.fixture
def by_secret() -> JWTKeys:
    return JWTKeys(secret=SECRET)


@pytest.fixture
def by_jwks(tmp_path: Path) -> JWTKeys:
    file = tmp_path / "jwks.json"
    written = [
        {**jwt.algorithms.RSAAlgorithm.to_jwk(RSA_KEY.public_key(), as_dict=True), "kid": "rsa"},
        {**jwt.algorithms.ECAlgorithm.to_jwk(EC_KEY.public_key(), as_dict=True), "kid": "ec"},
        {**jwt.algorithms.OKPAlgorithm.to_jwk(ED_KEY.public_key(), as_dict=True), "kid": "ed"},
    ]
    file.write_text(json.dumps({"keys": written}))
    return JWTKeys(jwks_file=file)


def refuses(keys: JWTKeys, token: str, said: str) -> None:
    with pytest.raises(BadKey, match=said) as caught:
        keys.caller(token)
    assert token not in caught.value.told()


def accepted(keys: JWTKeys, token: str) -> Caller:
    caller = keys.caller(token)
    assert caller is not None
    return caller


def test_the_claims_are_the_terms(by_secret: JWTKeys) -> None:
    token = signed(claims(scope="query ingest", pins={"project": "acme"}, rate="10/s", redact=True, sub="dashboard"))
    assert accepted(by_secret, token) == Caller(
        "jwt:dashboard", frozenset({"query", "ingest"}), {"project": "acme"}, 10.0, redact_always=True
    )


def test_endpoints_narrow_the_scope_query(by_secret: JWTKeys) -> None:
    token = signed(claims(scope="query ingest", endpoints=["logs.all", "mine"]))
    assert accepted(by_secret, token).scopes == {"ingest", "query:endpoint:logs.all", "query:endpoint:mine"}


def test_a_list_of_no_endpoints_allows_none(by_secret: JWTKeys) -> None:
    assert accepted(by_secret, signed(claims(endpoints=[]))).scopes == frozenset()


def test_without_a_scope_nothing_is_allowed(by_secret: JWTKeys) -> None:
    assert accepted(by_secret, signed({"exp": int(time.time()) + 60})).scopes == frozenset()


def test_a_jwks_file_that_is_missing_or_none_is_told(tmp_path: Path) -> None:
    file = tmp_path / "jwks.json"
    with pytest.raises(BadSetting, match=r"jwks\.json cannot be read: No such file"):
        JWTKeys(jwks_file=file)
    file.write_text('{"kty": "RSA"}')
    with pytest.raises(BadSetting, match="cannot be read as a JWKS file") as told:
        JWTKeys(jwks_file=file)
    assert '{"keys": [' in str(told.value.hint)


@pytest.mark.parametrize(
    ("key", "algorithm", "kid"),
    [(RSA_KEY, "RS256", "rsa"), (EC_KEY, "ES256", "ec"), (ED_KEY, "EdDSA", "ed")],
    ids=["RS256", "ES256", "EdDSA"],
)
def test_keys_of_a_jwks_file_are_known_with_their_id_and_without(
    by_jwks: JWTKeys, key: Any, algorithm: str, kid: str
) -> None:
    assert accepted(by_jwks, signed(claims(), key, algorithm, kid=kid)).scopes == {"query"}
    assert accepted(by_jwks, signed(claims(), key, algorithm)).scopes == {"query"}
    refuses(by_jwks, signed(claims(), key, algorithm, kid="another"), "signature of this signed key is not valid")


def test_the_wrong_key_of_the_right_kind_is_refused(by_jwks: JWTKeys, by_secret: JWTKeys) -> None:
    refuses(by_jwks, signed(claims(), OTHER_EC_KEY, "ES256", kid="ec"), "signature of this signed key is not valid")
    refuses(by_secret, signed(claims(), SECRET + "x"), "signature of this signed key is not valid")


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "", "HS512", "HS384", "RS256", "foo"])
def test_an_algorithm_is_never_the_tokens_to_choose(by_secret: JWTKeys, algorithm: str) -> None:
    refuses(
        by_secret, unsigned({"alg": algorithm, "typ": "JWT"}, claims()), "signature of this signed key is not valid"
    )


def test_a_token_without_a_signature_is_refused(by_secret: JWTKeys) -> None:
    refuses(by_secret, unsigned({"alg": "HS256", "typ": "JWT"}, claims()), "signature of this signed key is not valid")


def test_a_public_key_is_never_taken_for_a_secret(by_jwks: JWTKeys) -> None:
    refuses(
        by_jwks,
        unsigned({"alg": "HS256", "kid": "rsa"}, claims(), b"x" * 32),
        "signature of this signed key is not valid",
    )


def test_claims_that_were_changed_after_signing_are_refused(by_secret: JWTKeys) -> None:
    header, _, signature = signed(claims()).split(".")
    _, forged, _ = signed(claims(scope="private"), "x" * 40).split(".")
    refuses(by_secret, f"{header}.{forged}.{signature}", "signature of this signed key is not valid")


def test_an_end_is_required(by_secret: JWTKeys) -> None:
    refuses(by_secret, signed({"scope": "query"}), "lacks the claim exp")


def test_an_expired_token_is_refused_and_a_little_skew_forgiven(by_secret: JWTKeys) -> None:
    now = int(time.time())
    refuses(by_secret, signed(claims(exp=now - 30)), "has expired")
    assert accepted(by_secret, signed(claims(exp=now - 3)))


def test_a_token_from_the_future_is_refused_and_a_little_skew_forgiven(by_secret: JWTKeys) -> None:
    now = int(time.time())
    refuses(by_secret, signed(claims(nbf=now + 60)), "not yet valid")
    assert accepted(by_secret, signed(claims(nbf=now + 3)))


def test_when_it_was_made_is_no_matter(by_secret: JWTKeys) -> None:
    assert accepted(by_secret, signed(claims(iat=int(time.time()) + 60)))


def test_an_audience_is_required_when_one_is_set() -> None:
    keys = JWTKeys(secret=SECRET, audience="cordwood")
    refuses(keys, signed(claims()), "lacks the claim aud")
    refuses(keys, signed(claims(aud="another")), "another audience")
    assert accepted(keys, signed(claims(aud="cordwood")))
    assert accepted(keys, signed(claims(aud=["another", "cordwood"])))


def test_an_audience_is_no_matter_when_none_is_set(by_secret: JWTKeys) -> None:
    assert accepted(by_secret, signed(claims(aud="another")))


@pytest.mark.parametrize(
    ("more", "said"),
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
def test_claims_that_cannot_be_meant_are_refused(by_secret: JWTKeys, more: Claims, said: str) -> None:
    refuses(by_secret, signed(claims(**more)), said)


def test_a_rate_may_be_a_number_a_second(by_secret: JWTKeys) -> None:
    assert accepted(by_secret, signed(claims(rate=5))).rate_per_second == 5.0


def test_what_has_no_name_is_called_by_its_digest(by_secret: JWTKeys) -> None:
    token = signed(claims())
    name = accepted(by_secret, token).key_id
    assert name.startswith("jwt:")
    assert name.removeprefix("jwt:") not in token


@pytest.mark.parametrize("presented", ["cw_abc", "a.b", "a.b.c.d", "a b.c.d", ""])
def test_what_is_no_signed_key_is_left_to_others(by_secret: JWTKeys, presented: str) -> None:
    assert by_secret.caller(presented) is None


@pytest.mark.parametrize("presented", ["a.b.c", "eyJ.eyJ.x", "eyJhbGciOiJIUzI1NiJ9.e30."])
def test_what_only_looks_like_one_is_refused(by_secret: JWTKeys, presented: str) -> None:
    refuses(by_secret, presented, "signed")


def test_a_secret_that_could_be_guessed_is_refused() -> None:
    with pytest.raises(BadSetting, match="shorter than 32 bytes"):
        JWTKeys(secret="short")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "cannot be read"),
        ("[]", "cannot be read"),
        ('{"keys": [5]}', "cannot be read"),
        ('{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}', "of kind 'oct'"),
        ('{"keys": [{"kty": "RSA", "n": "x"}]}', "key 1 cannot be used"),
        ('{"keys": [{"kty": "EC", "crv": "P-256"}]}', "key 1 cannot be used"),
    ],
)
def test_a_jwks_file_that_cannot_be_used_is_refused(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "jwks.json"
    file.write_text(text)
    with pytest.raises(BadSetting, match=said):
        JWTKeys(jwks_file=file)


def test_a_jwks_file_that_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="cannot be read"):
        JWTKeys(jwks_file=tmp_path / "gone.json")
