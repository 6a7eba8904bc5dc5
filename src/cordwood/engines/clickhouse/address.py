"""The address of a ClickHouse, read: what the client is told of where it is, and how to get there."""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from cordwood.errors import BadSetting

SCHEMES: Final = ("clickhouse", "clickhouses", "chdb")
# What may stand behind the question mark of a server's address beside `secure`; the client knows these by name.
_OPTIONS: Final = frozenset({"verify", "ca_cert", "client_cert", "client_cert_key", "server_host_name", "compress"})
_YES: Final = frozenset({"1", "true", "yes", "on"})


def is_inside(address: str) -> bool:
    """Whether the engine runs inside this process."""
    return address.startswith("chdb://")


def client_arguments(address: str) -> Mapping[str, Any]:
    """What to make a client of; BadSetting for what no client can be made of."""
    if address.partition("://")[0] not in SCHEMES:
        raise BadSetting("engine: a ClickHouse address begins with clickhouse:// or chdb://.")
    if is_inside(address):
        place, _, asked = address.partition("?")
        return {"dsn": place, "database": dict(parse_qsl(asked)).get("database")}
    return _of_server(address)


def _of_server(address: str) -> Mapping[str, Any]:
    place = urlsplit(address)
    options = dict(parse_qsl(place.query, keep_blank_values=True))
    secure = "1" if place.scheme == "clickhouses" else options.pop("secure", None)
    _check(place.netloc.rpartition("@")[2], options)
    dsn = urlunsplit(place._replace(scheme="clickhouse", query=urlencode(options)))
    # Without a word on it the client goes by the port: 8443 and 443 are TLS.
    spoken = None if secure is None else "https" if secure.lower() in _YES else "http"
    return {"dsn": dsn, "interface": spoken}


def _check(host: str, options: Mapping[str, str]) -> None:
    port = host.rpartition("]")[2].rpartition(":")[2] if ":" in host.rpartition("]")[2] else ""
    if port and not (port.isascii() and port.isdigit() and int(port) < 65536):
        raise BadSetting(
            f"engine: {port!r} is no port.", hint="Write: clickhouse://user:password@host:8443/db?secure=1"
        )
    for name in sorted(options.keys() - _OPTIONS):
        known = ", ".join(sorted(_OPTIONS | {"secure"}))
        raise BadSetting(f"engine: {name!r} means nothing in an address of ClickHouse.", hint=f"There are: {known}.")
