"""The interface of the key store, which has only digests of keys."""

import hashlib
import secrets
from collections.abc import Sequence
from typing import Protocol

import msgspec

from cordwood.model.key import Key, KeyTerms


class NewKey(msgspec.Struct, frozen=True):
    """A created key with its `secret`, which is shown once and not stored."""

    key: Key
    secret: str


def make_secret() -> str:
    """Return 256 random bits with a prefix that secret scanners recognize."""
    return "cw_" + secrets.token_urlsafe(32)


def digest(secret: str) -> str:
    """Return the SHA-256 of a key. A key of 256 random bits needs no slow password hash."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


class Keys(Protocol):
    def find(self, secret_digest: str) -> Key | None:
        """Return the key with that digest. Changes by other processes must be visible within a second."""

    def in_force(self) -> Sequence[Key]:
        """Return all keys in force, oldest first."""

    def create(self, terms: KeyTerms) -> NewKey:
        """Create a key durably."""

    def revoke(self, key_id: str) -> bool:
        """Revoke a key at once; return False if the id is unknown."""

    def rotate(self, key_id: str, grace_seconds: float) -> NewKey | None:
        """Create a key with the same terms, and end the old one after a grace period; return None for an unknown id."""

    def copy_database(self) -> bytes:
        """Return a consistent copy of the store's file, for backups."""

    def note_use(self, key_id: str) -> None:
        """Record that the key was used now. This must be fast; it may be written later."""
