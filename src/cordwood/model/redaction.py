"""The rules of redaction: the kinds of personal data to detect, and the replacement of the detected data."""

from enum import StrEnum

import msgspec


class Detector(StrEnum):
    """The kinds of personal data that can be detected in texts."""

    IP = "ip"
    EMAIL = "email"
    TOKEN = "token"  # noqa: S105 - the name of a detector
    SECRET = "secret"  # noqa: S105
    CARD = "card"
    PHONE = "phone"


class RedactMode(StrEnum):
    """The replacement of redacted data: a fixed word, a keyed digest, or the network of an IP address."""

    REPLACE = "replace"
    HASH = "hash"
    TRUNCATE = "truncate"


# Phone numbers are off by default, because they resemble many other numbers.
DEFAULT_DETECTORS = tuple(detector for detector in Detector if detector is not Detector.PHONE)


class NamedPattern(msgspec.Struct, frozen=True):
    """A pattern of texts to redact, in RE2 syntax, that is configured in the service's settings."""

    name: str
    pattern: str


class RedactionRules(msgspec.Struct, frozen=True):
    """The rules that determine the data to redact. They are the same for all endpoints of the process."""

    detectors: tuple[Detector, ...] = DEFAULT_DETECTORS
    patterns: tuple[NamedPattern, ...] = ()


DEFAULT_REDACTION_RULES = RedactionRules()


class RedactionConfig(msgspec.Struct, frozen=True):
    """The redaction rules and the key of the digests in mode `hash`, as an engine receives them."""

    rules: RedactionRules = DEFAULT_REDACTION_RULES
    key: str = ""


UNKEYED_REDACTION = RedactionConfig()
