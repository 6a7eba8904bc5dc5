"""What a caller asks of an endpoint, as it came over the wire."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from cordwood.model.caller import Caller


class Language(StrEnum):
    """What a sandbox query is written in."""

    SQL = "sql"
    LQL = "lql"


@dataclass(frozen=True, slots=True)
class SandboxText:
    """A caller's own query, as it was sent."""

    language: Language
    text: str


@dataclass(frozen=True, slots=True)
class Ask:
    """`endpoint` is a name or a UUID; `redact` is None where the caller leaves it to the endpoint."""

    endpoint: str
    caller: Caller
    parameters: Mapping[str, str] = field(default_factory=dict)
    sandbox: SandboxText | None = None
    redact: bool | None = None
    format: str = "json"
    fresh: bool = False
