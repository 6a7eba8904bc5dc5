"""Times of parameters that are relative to the evaluation: `now` and `now-5m`."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from cordwood.model.datatype import Kind
from cordwood.model.parameter import Parameter
from cordwood.model.timestamps import datetime_of
from cordwood.settings.quantities import read_duration

_TIMES: Final = (Kind.TIMESTAMP, Kind.DATETIME, Kind.DATE)
_RELATIVE: Final = re.compile(r"now(?:\s*-\s*(.+))?")


def resolve_times(values: Mapping[str, str], parameters: Sequence[Parameter], now_us: int) -> Mapping[str, str]:
    """Return the values with relative times as times. Other texts stay, and are refused where they are bound."""
    kinds = {parameter.name: parameter.type for parameter in parameters}
    return {name: _resolved(value, kinds.get(name), now_us) for name, value in values.items()}


def _resolved(value: str, kind: Kind | None, now_us: int) -> str:
    found = _RELATIVE.fullmatch(value.strip())
    if found is None or kind not in _TIMES:
        return value
    try:
        moment = datetime_of(now_us - round(read_duration(found[1] or "0") * 1e6))
    except (ValueError, OverflowError):
        return value
    if kind is Kind.DATE:
        return moment.date().isoformat()
    return moment.isoformat() if kind is Kind.TIMESTAMP else moment.replace(tzinfo=None).isoformat()
