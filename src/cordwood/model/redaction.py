"""The rules of redaction: which kinds of personal data are detected, and what replaces them."""

from enum import StrEnum

import msgspec


class Detector(StrEnum):
    """The kinds of personal data that redaction can detect in texts."""

    IP = "ip"
    EMAIL = "email"
    TOKEN = "token"  # noqa: S105 - the name of a detector
    SECRET = "secret"  # noqa: S105
    PAYMENT_CARD = "card"
    PHONE = "phone"


class RedactMode(StrEnum):
    """The replacement for redacted data: a fixed word, a keyed digest or, for an IP address, its network."""

    REPLACE = "replace"
    HASH = "hash"
    TRUNCATE = "truncate"


# The phone detector is off by default, because many other numbers look like phone numbers.
DEFAULT_DETECTORS = tuple(detector for detector in Detector if detector is not Detector.PHONE)


class NamedPattern(msgspec.Struct, frozen=True):
    """A regular expression (RE2) from the service's settings; texts that match it are redacted."""

    name: str
    pattern: str


class RedactionRules(msgspec.Struct, frozen=True):
    """The detectors and patterns that determine which data are redacted, for all endpoints of the process."""

    detectors: tuple[Detector, ...] = DEFAULT_DETECTORS
    patterns: tuple[NamedPattern, ...] = ()


DEFAULT_REDACTION_RULES = RedactionRules()


class RedactionConfig(msgspec.Struct, frozen=True):
    """The redaction rules, and the key for the digests of the mode `hash`. An engine receives both at its start."""

    rules: RedactionRules = DEFAULT_REDACTION_RULES
    hash_key: str = ""


REDACTION_CONFIG_WITHOUT_KEY = RedactionConfig()
