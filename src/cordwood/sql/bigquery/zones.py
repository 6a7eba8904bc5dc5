"""Time zones whose clocks stand at one distance from UTC's: what needs no table of zones."""

import re
from typing import Final

from sqlglot import exp

from cordwood.sql.constants import constant_text

_OFFSET: Final = re.compile(r"(?:UTC|GMT)?([+-])(\d{1,2})(?::?(\d{2}))?", re.IGNORECASE)
_UTC: Final = frozenset(("UTC", "Z", "ETC/UTC", "GMT", "+0", "+00", "+00:00", "-00:00"))


def is_utc(zone: exp.Expr | None) -> bool:
    """Where no zone is named it is UTC."""
    name = constant_text(zone)
    return zone is None or (name is not None and name.upper() in _UTC)


def offset_minutes(zone: exp.Expr | None) -> int | None:
    """East of Greenwich; None for the name of a place, and for what is known only when the query runs."""
    name = constant_text(zone)
    match = _OFFSET.fullmatch(name) if name else None
    if match is None:
        return None
    minutes = int(match[2]) * 60 + int(match[3] or 0)
    return -minutes if match[1] == "-" else minutes


# Where clocks are set back, the hour before is shown twice; here half of it.
_HALF_HOURS: Final = frozenset(("AUSTRALIA/LORD_HOWE", "AUSTRALIA/LHI"))


def repeated_minutes(zone: exp.Expr | None) -> int:
    """How long clocks in the zone show again what they have shown, where they do."""
    return 30 if (constant_text(zone) or "").upper() in _HALF_HOURS else 60
