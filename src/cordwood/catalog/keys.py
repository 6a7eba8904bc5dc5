"""The port of the key store: keys go in as digests, and only a digest finds one again."""

import hashlib
import secrets
from collections.abc import Sequence
from typing import Protocol

import msgspec

from cordwood.model.key import Key, Terms


class NewKey(msgspec.Struct, frozen=True):
    """The one moment at which a key is known: `secret` is shown once and kept nowhere."""

    key: Key
    secret: str


def make_secret() -> str:
    """256 random bits; the prefix lets scanners of leaked secrets recognise it."""
    return "cw_" + secrets.token_urlsafe(32)


def digest(secret: str) -> str:
    """A plain SHA-256 is right here: a random key of 256 bits has no dictionary to be guessed from."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


class Keys(Protocol):
    def find(self, secret_digest: str) -> Key | None:
        """The key in force with that digest. Changes by another process must show within a second."""

    def in_force(self) -> Sequence[Key]:
        """All keys in force, oldest first."""

    def create(self, terms: Terms) -> NewKey:
        """Keep a new key, durably, before returning it."""

    def revoke(self, key_id: str) -> bool:
        """End a key at once; False when there is none of that id."""

    def rotate(self, key_id: str, grace_seconds: float) -> NewKey | None:
        """A new key with the same terms; the old one ends after the grace. None when there is none of that id."""

    def copied(self) -> bytes:
        """The whole store as of now, as the file that it would be; for backups."""

    def note_use(self, key_id: str) -> None:
        """Remember that the key was used now; may be written down later, must not be slow."""
