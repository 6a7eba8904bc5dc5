"""The keys in the settings: fixed keys, keys that are created at the first start, and the verifier of signed keys.

The JWT library is an optional dependency, imported on demand.
"""

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import msgspec

from cordwood.access import FixedKey, SignedKeys
from cordwood.catalog.key_store import digest
from cordwood.catalog.sqlite_keys import SQLiteKeys
from cordwood.errors import BadSetting
from cordwood.model.key import Caller, KeyTerms
from cordwood.settings.settings import Keys


class CreatedKeys(msgspec.Struct, frozen=True):
    """The secrets of created keys, of which only digests are stored."""

    private: str
    public: str


def fixed_keys(settings: Keys) -> tuple[FixedKey, ...]:
    """Return the keys that the settings have as values or as files."""
    return tuple(_configured_key("private", settings.private, settings.private_file)) + tuple(
        _configured_key("public", settings.public, settings.public_file)
    )


def first_keys(keys: SQLiteKeys) -> CreatedKeys | None:
    """Create one key of each kind in a store that never had a key; return None for any other store."""
    if not keys.is_new():
        return None
    return CreatedKeys(
        *(
            keys.create(KeyTerms(frozenset({scope}), note="made at first start")).secret
            for scope in ("private", "public")
        )
    )


def fixed_key(scope: str, secret: str, origin: str = "settings") -> FixedKey:
    return FixedKey(Caller(f"{origin}:{scope}", frozenset({scope})), digest(secret))


def _configured_key(scope: str, secret: str, file: str) -> Iterator[FixedKey]:
    if secret and file:
        raise BadSetting(f"keys.{scope} and keys.{scope}_file are both given.", hint="Give one of them.")
    if file:
        secret = _first_line(scope, Path(file))
    if secret:
        yield fixed_key(scope, secret)


def _first_line(scope: str, file: Path) -> str:
    try:
        line = file.read_text(encoding="utf-8").partition("\n")[0].strip()
    except (OSError, UnicodeDecodeError) as problem:
        raise BadSetting(f"keys.{scope}_file: {file} cannot be read: {problem}.") from problem
    if not line:
        raise BadSetting(f"keys.{scope}_file: the first line of {file} is empty.")
    return line


def signed_keys(settings: Keys) -> SignedKeys | None:
    """Return the verifier of signed keys, or None if neither a secret nor a JWKS file is configured."""
    if not (settings.jwt_secret or settings.jwt_jwks_file):
        return None
    try:
        module = importlib.import_module("cordwood.catalog.signed_keys")
    except ModuleNotFoundError as problem:
        raise BadSetting(
            f"Signed keys need the package {problem.name}, which is not installed.",
            hint="Install the extra: pip install 'cordwood[jwt]'",
        ) from problem
    jwks_file = Path(settings.jwt_jwks_file) if settings.jwt_jwks_file else None
    keys = module.JWTKeys(secret=settings.jwt_secret, jwks_file=jwks_file, audience=settings.jwt_audience)
    return cast(SignedKeys, keys)
