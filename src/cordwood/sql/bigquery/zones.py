"""Time zones with a constant offset from UTC, which need no time zone database."""

import re
from typing import Final

from sqlglot import exp

from cordwood.sql.constants import constant_text

_OFFSET: Final = re.compile(r"(?:UTC|GMT)?([+-])(\d{1,2})(?::?(\d{2}))?", re.IGNORECASE)
_UTC: Final = frozenset(("UTC", "Z", "ETC/UTC", "GMT", "+0", "+00", "+00:00", "-00:00"))


def is_utc(zone: exp.Expr | None) -> bool:
    """Return whether the zone is UTC, which is the default."""
    name = constant_text(zone)
    return zone is None or (name is not None and name.upper() in _UTC)


def offset_minutes(zone: exp.Expr | None) -> int | None:
    """Return the offset east of UTC; None for a named zone and for a zone that is not constant."""
    name = constant_text(zone)
    match = _OFFSET.fullmatch(name) if name else None
    if match is None:
        return None
    minutes = int(match[2]) * 60 + int(match[3] or 0)
    return -minutes if match[1] == "-" else minutes


# The zones where half an hour, not a whole one, is repeated when clocks are set back.
_HALF_HOURS: Final = frozenset(("AUSTRALIA/LORD_HOWE", "AUSTRALIA/LHI"))


def repeated_minutes(zone: exp.Expr | None) -> int:
    """Return for how many minutes clocks in the zone repeat when they are set back."""
    return 30 if (constant_text(zone) or "").upper() in _HALF_HOURS else 60
