"""What is taken out of the texts of events before a caller's query sees them."""

from enum import StrEnum

import msgspec


class Detector(StrEnum):
    """What can be looked for in a text."""

    IP = "ip"
    EMAIL = "email"
    TOKEN = "token"  # noqa: S105 - what is looked for
    SECRET = "secret"  # noqa: S105
    CARD = "card"
    PHONE = "phone"


class RedactMode(StrEnum):
    """What stands where something was found: one word, a keyed digest of it, or the network of an address."""

    REPLACE = "replace"
    HASH = "hash"
    TRUNCATE = "truncate"


# Telephone numbers look like too many other numbers to be taken out unasked.
DEFAULT_DETECTORS = tuple(detector for detector in Detector if detector is not Detector.PHONE)


class NamedPattern(msgspec.Struct, frozen=True):
    """A regular expression (RE2) of the operator's own."""

    name: str
    pattern: str


class RedactionRules(msgspec.Struct, frozen=True):
    """What the service looks for; the same for every endpoint of one process."""

    detectors: tuple[Detector, ...] = DEFAULT_DETECTORS
    patterns: tuple[NamedPattern, ...] = ()


SHIPPED_RULES = RedactionRules()


class Redacting(msgspec.Struct, frozen=True):
    """What an engine needs: what is looked for, and the key of digests."""

    rules: RedactionRules = SHIPPED_RULES
    key: str = ""


UNKEYED = Redacting()
