"""The addresses of Loki's read API."""

import re
from collections.abc import Mapping
from typing import Final

from cordwood.web.loki_api.handlers import PATHS, PREFIX, answer_below_endpoint, answer_root
from cordwood.web.route import Route

_METHODS: Final = ("GET", "HEAD", "POST", "OPTIONS")
_ROOT: Final = Route("loki_read", _METHODS, answer_root)

EXACT: Final[Mapping[bytes, Route]] = {f"{PREFIX}{path}".encode(): _ROOT for path in PATHS}
NAMED: Final[tuple[tuple[re.Pattern[bytes], Route], ...]] = (
    (re.compile(rb"/loki/api/v1/label/([^/]+)/values"), _ROOT),
    # What is not offered, and what does not exist.
    (re.compile(rb"/loki/api/v1/([^/]+)"), _ROOT),
    (
        re.compile(rb"/api/endpoints/([^/]+/loki/api/v1/.+)"),
        Route("loki_read", _METHODS, answer_below_endpoint),
    ),
)
