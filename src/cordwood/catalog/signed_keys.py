"""The verifier of signed keys (JWT), which contain their own terms and are not stored. It requires the extra `jwt`."""

import hashlib
import json
import re
from base64 import urlsafe_b64decode
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jwt
import msgspec

from cordwood.catalog.key_store import is_valid_pin_name
from cordwood.errors import BadApiKey, BadSetting
from cordwood.model.json_checks import find_duplicate_member_name
from cordwood.model.key import Caller, split_scopes
from cordwood.settings.quantities import MAX_RATE_PER_SECOND, MIN_RATE_PER_SECOND, parse_rate

_JWT_PATTERN = re.compile(r"[\w-]+\.[\w-]+\.[\w-]*", re.ASCII)
# The tolerated difference in seconds between the clocks of the issuer and of the service.
CLOCK_LEEWAY_SECONDS = 10
MIN_SIGNING_SECRET_BYTES = 32
# The end of the year 9999, in seconds since 1970. A larger time is refused: it is probably in milliseconds by mistake,
# and as seconds it would be so late that the key would practically never expire.
MAX_EXPIRY_TIMESTAMP = 253_402_300_799
# The algorithms that each type of verification key allows. The algorithm in a token's header is not trusted, because a
# sender could forge it.
_ALGORITHMS_BY_KEY_TYPE = {"RSA": ("RS256",), "EC": ("ES256",), "OKP": ("EdDSA",), "oct": ("HS256",)}


class _VerificationKey(msgspec.Struct, frozen=True):
    """A key with which the signatures of tokens are verified, and the algorithms that it allows."""

    key: Any
    algorithms: tuple[str, ...]
    id: str | None = None


class JWTVerifier:
    """A verifier of tokens that are signed with the secret in the settings or with a key of the JWKS file."""

    def __init__(self, *, secret: str = "", jwks_file: Path | None = None, audience: str = "") -> None:
        self._audience = audience
        self._verification_keys = (*_keys_from_secret(secret), *(_keys_from_jwks(jwks_file) if jwks_file else ()))

    def find_caller(self, token: str) -> Caller | None:
        if not _JWT_PATTERN.fullmatch(token):
            return None
        self._verify_with_any_key(token)
        return _caller_from_claims(_read_claims(token), token)

    def _verify_with_any_key(self, token: str) -> None:
        problem: jwt.PyJWTError | None = None
        for verifier in self._candidate_keys(token):
            try:
                self._verify_with_key(token, verifier)
            except jwt.InvalidSignatureError as mismatch:
                problem = problem or mismatch
            except jwt.PyJWTError as other:
                problem = other
            except (OverflowError, TypeError, ValueError, RecursionError) as nonsense:
                raise BadApiKey("This signed key has invalid claims.") from nonsense
            else:
                return
        raise _rejection_fault(problem)

    def _candidate_keys(self, token: str) -> Iterator[_VerificationKey]:
        try:
            header = jwt.get_unverified_header(token)
        except jwt.PyJWTError as problem:
            raise _rejection_fault(problem) from problem
        except RecursionError as problem:
            raise _rejection_fault(None) from problem
        key_id = header.get("kid")
        for verifier in self._verification_keys:
            key_id_matches = key_id is None or verifier.id is None or verifier.id == key_id
            if key_id_matches and header.get("alg") in verifier.algorithms:
                yield verifier

    def _verify_with_key(self, token: str, verifier: _VerificationKey) -> None:
        jwt.decode(
            token,
            verifier.key,
            algorithms=list(verifier.algorithms),
            audience=self._audience or None,
            leeway=CLOCK_LEEWAY_SECONDS,
            options={
                "require": ["exp", "aud"] if self._audience else ["exp"],
                "verify_aud": bool(self._audience),
                "verify_iat": False,
                "verify_sub": False,
                "verify_jti": False,
            },
        )


def _keys_from_secret(secret: str) -> Iterator[_VerificationKey]:
    if secret and len(secret.encode()) < MIN_SIGNING_SECRET_BYTES:
        raise BadSetting(
            f"keys.jwt_secret is shorter than {MIN_SIGNING_SECRET_BYTES} bytes, and could be guessed.",
            hint="Make one with: openssl rand -base64 48",
        )
    if secret:
        yield _VerificationKey(secret, _ALGORITHMS_BY_KEY_TYPE["oct"])


def _keys_from_jwks(file: Path) -> Iterator[_VerificationKey]:
    try:
        jwks = json.loads(file.read_text(encoding="utf-8"))["keys"]
        for number, key in enumerate(jwks):
            # A JWKS file may also contain keys for encryption, which must not be used to verify signatures.
            if key.get("use", "sig") == "sig":
                yield _key_from_jwk(key, number)
    except BadSetting:
        raise
    except OSError as problem:
        raise BadSetting(f"keys.jwt_jwks_file: {file} cannot be read: {problem.strerror}.") from problem
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise BadSetting(
            f"keys.jwt_jwks_file: {file} cannot be read as a JWKS file: {problem!r}.",
            hint='It is JSON like {"keys": [{"kty": "RSA", "kid": "…", "n": "…", "e": "AQAB"}]}.',
        ) from problem


def _key_from_jwk(jwk: Mapping[str, Any], number: int) -> _VerificationKey:
    algorithms = _ALGORITHMS_BY_KEY_TYPE.get(str(jwk.get("kty")), ())
    kind = jwk.get("kty")
    if kind == "oct" or not algorithms:
        raise BadSetting(
            f"keys.jwt_jwks_file: key {number + 1} is of kind {kind!r}; RSA, EC (P-256) and OKP (Ed25519) are taken."
        )
    try:
        key = jwt.PyJWK(dict(jwk), algorithm=algorithms[0])
    except jwt.PyJWTError as problem:
        raise BadSetting(f"keys.jwt_jwks_file: key {number + 1} cannot be used: {problem}.") from problem
    return _VerificationKey(key.key, algorithms, jwk.get("kid"))


def _read_claims(token: str) -> Mapping[str, Any]:
    """Return the claims of a token whose signature is valid; raise BadApiKey for ambiguous or malformed claims.

    The checks are necessary because PyJWT accepts duplicate claims, strings as times, and JSON in UTF-16.
    """
    payload = urlsafe_b64decode(token.split(".")[1] + "==")
    try:
        duplicate = find_duplicate_member_name(payload)
        claims: Mapping[str, Any] = msgspec.json.decode(payload, type=dict[str, Any])
    except (ValueError, RecursionError) as problem:
        raise BadApiKey("The claims of this signed key are not JSON in UTF-8.") from problem
    if duplicate is not None:
        raise BadApiKey(f"The claims of this signed key have the name {duplicate[:40]!r} twice in one object.")
    for name in ("exp", "nbf"):
        _check_time_claim(name, claims.get(name, 0))
    return claims


def _check_time_claim(name: str, seconds: object) -> None:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise BadApiKey(f"The claim {name} of this signed key is not a number of seconds.")
    if seconds > MAX_EXPIRY_TIMESTAMP:
        raise BadApiKey(f"The claim {name} of this signed key is too large: it is in seconds since 1970.")


def _caller_from_claims(claims: Mapping[str, Any], token: str) -> Caller:
    rate, redact = claims.get("rate"), claims.get("redact")
    if redact is not None and not isinstance(redact, bool):
        raise BadApiKey("The claim redact of this signed key is neither true nor false.")
    return Caller(
        key_id=f"jwt:{_read_key_name(claims, token)}",
        scopes=_read_scopes(claims),
        pins=_read_pins(claims.get("pins")),
        rate_per_second=None if rate is None else _read_rate_per_second(rate),
        redact_always=bool(redact),
    )


def _read_pins(pins: object) -> dict[str, str]:
    if pins is None:
        return {}
    if not isinstance(pins, dict) or not all(isinstance(value, str) for value in pins.values()):
        raise BadApiKey("The claim pins of this signed key is not an object of strings.")
    if not all(map(is_valid_pin_name, pins)):
        raise BadApiKey("The claim pins of this signed key has a name that no parameter can have.")
    return pins


def _read_key_name(claims: Mapping[str, Any], token: str) -> str:
    """Return the name of a token for logs and limits: its claim `jti` or `sub`, or else a digest of the token."""
    claimed_name = claims.get("jti") or claims.get("sub")
    return str(claimed_name)[:64] if claimed_name else hashlib.sha256(token.encode()).hexdigest()[:16]


def _read_scopes(claims: Mapping[str, Any]) -> frozenset[str]:
    """Return the scopes in the claim `scope`; if there is a claim `endpoints`, restrict them to these endpoints."""
    scope, endpoints = claims.get("scope") or "", claims.get("endpoints")
    if not isinstance(scope, str):
        raise BadApiKey("The claim scope of this signed key is not a string.")
    scopes = frozenset(split_scopes(scope))
    return scopes if endpoints is None else _restrict_to_endpoints(scopes, endpoints)


def _restrict_to_endpoints(scopes: frozenset[str], endpoints: object) -> frozenset[str]:
    if not isinstance(endpoints, list) or not all(isinstance(name, str) for name in endpoints):
        raise BadApiKey("The claim endpoints of this signed key is not a list of names.")
    if "private" in scopes:
        raise BadApiKey("This signed key is private and also restricted to endpoints; it cannot be both.")
    endpoint_scopes = frozenset(f"query:endpoint:{name}" for name in endpoints)
    other_scopes = frozenset(scope for scope in scopes if not scope.startswith("query"))
    return other_scopes | (endpoint_scopes if "query" in scopes else endpoint_scopes & scopes)


def _read_rate_per_second(rate: object) -> float:
    try:
        per_second = (
            float(rate) if isinstance(rate, int | float) and not isinstance(rate, bool) else parse_rate(str(rate))
        )
    except (ValueError, OverflowError) as problem:
        raise BadApiKey(f"The claim rate of this signed key is invalid: {problem}.") from problem
    if not MIN_RATE_PER_SECOND <= per_second <= MAX_RATE_PER_SECOND:
        raise BadApiKey("The claim rate of this signed key is out of range.")
    return per_second


def _rejection_fault(problem: jwt.PyJWTError | None) -> BadApiKey:
    match problem:
        case jwt.ExpiredSignatureError():
            return BadApiKey("This signed key has expired.")
        case jwt.ImmatureSignatureError():
            return BadApiKey("This signed key is not yet valid.")
        case jwt.InvalidAudienceError():
            return BadApiKey("This signed key is for another audience.")
        case jwt.MissingRequiredClaimError():
            return BadApiKey(f"This signed key lacks the claim {problem.claim}.")
        case _:
            return BadApiKey("The signature of this signed key is not valid.")
