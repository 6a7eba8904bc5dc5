"""The initial keys: those in the settings, or one of each kind created at the first start."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from cordwood.access import FixedKey
from cordwood.catalog.keys import digest
from cordwood.catalog.sqlite import SQLiteKeys
from cordwood.errors import BadSetting
from cordwood.model.caller import Caller
from cordwood.model.key import Terms
from cordwood.settings.settings import Keys


class MadeKeys(msgspec.Struct, frozen=True):
    """The secrets of the created keys, which are stored only as digests."""

    private: str
    public: str


def fixed_keys(settings: Keys) -> tuple[FixedKey, ...]:
    """Return the keys in the settings, given as values or as files."""
    return tuple(_given("private", settings.private, settings.private_file)) + tuple(
        _given("public", settings.public, settings.public_file)
    )


def first_keys(keys: SQLiteKeys) -> MadeKeys | None:
    """Create one key of each kind in a store that never had any; return None for any other store."""
    if not keys.is_new():
        return None
    return MadeKeys(
        *(keys.create(Terms(frozenset({scope}), note="made at first start")).secret for scope in ("private", "public"))
    )


def fixed_key(scope: str, secret: str, origin: str = "settings") -> FixedKey:
    return FixedKey(Caller(f"{origin}:{scope}", frozenset({scope})), digest(secret))


def _given(scope: str, secret: str, file: str) -> Iterator[FixedKey]:
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
