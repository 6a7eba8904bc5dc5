"""Parse the address of a ClickHouse into the arguments of its client."""

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from cordwood.errors import BadSetting

SCHEMES: Final = ("clickhouse", "clickhouses", "chdb")
# The options of a server's address besides `secure`; the client has parameters of the same names.
_TLS_OPTIONS: Final = frozenset({"verify", "ca_cert", "client_cert", "client_cert_key", "server_host_name"})
_OPTIONS: Final = _TLS_OPTIONS | {"compress"}
_FILES: Final = ("ca_cert", "client_cert", "client_cert_key")
# The value of a file option for the certificate authorities that the client ships.
_BUNDLED_CA: Final = "certifi"
_TRUE_TEXTS: Final = frozenset({"1", "true", "yes", "on"})
_FALSE_TEXTS: Final = frozenset({"0", "false", "no", "off"})
# On these ports TLS is the default.
_TLS_PORTS: Final = frozenset({"443", "8443"})
# Bounds, in bytes, of the caches of the in-process engine. By default they may grow with the stored events to gigabytes:
# the marks and the sorting key of every part that was read.
_IN_PROCESS_CACHES: Final = {
    "mark_cache_size": 64 << 20,
    "index_mark_cache_size": 16 << 20,
    "primary_index_cache_size": 32 << 20,
    "query_condition_cache_size": 16 << 20,
    "compiled_expression_cache_size": 16 << 20,
}


def is_in_process(address: str) -> bool:
    """Return whether the engine runs inside this process."""
    return address.startswith("chdb://")


def client_arguments(address: str) -> Mapping[str, Any]:
    """Return the client's arguments; raise BadSetting for an invalid address."""
    if address.partition("://")[0] not in SCHEMES:
        raise BadSetting("engine: a ClickHouse address begins with clickhouse:// or chdb://.")
    return _folder_arguments(address) if is_in_process(address) else _server_arguments(address)


def folder_of(address: str) -> Path | None:
    """Return the folder of the in-process engine; None for one in memory, and for a server."""
    path = unquote(urlsplit(address).path)
    return Path(path) if is_in_process(address) and path else None


def _folder_arguments(address: str) -> Mapping[str, Any]:
    parts = urlsplit(address)
    if parts.netloc not in ("", "memory"):
        raise BadSetting(
            "engine: chdb:// is followed by an absolute path.", hint="With three strokes: chdb:///path/to/folder"
        )
    options = dict(parse_qsl(parts.query))
    for name in sorted(options.keys() - {"database"}):
        raise BadSetting(f"engine: {name!r} means nothing behind chdb://.", hint="There is: database.")
    return {
        "dsn": address.partition("?")[0],
        "database": options.get("database"),
        "chdb_options": dict(_IN_PROCESS_CACHES),
    }


def _server_arguments(address: str) -> Mapping[str, Any]:
    parts = urlsplit(address)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    is_tls = _is_tls(parts, options.pop("secure", None), _port(parts.netloc.rpartition("@")[2]))
    _check(options, is_tls=is_tls)
    dsn = urlunsplit(parts._replace(scheme="clickhouse", query=urlencode(options)))
    return {"dsn": dsn, "interface": "https" if is_tls else "http"}


def _is_tls(parts: SplitResult, secure: str | None, port: str) -> bool:
    if parts.scheme == "clickhouses":
        return True
    return port in _TLS_PORTS if secure is None else _is_true("secure", secure)


def _is_true(name: str, text: str) -> bool:
    if text.lower() not in _TRUE_TEXTS | _FALSE_TEXTS:
        raise BadSetting(f"engine: {name} is 1 or 0, not {text!r}.")
    return text.lower() in _TRUE_TEXTS


def _port(host: str) -> str:
    port = host.rpartition("]")[2].rpartition(":")[2] if ":" in host.rpartition("]")[2] else ""
    if port and not (port.isascii() and port.isdigit() and int(port) < 65536):
        raise BadSetting(
            f"engine: {port!r} is no port.", hint="Write: clickhouse://user:password@host:8443/db?secure=1"
        )
    return port


def _check(options: Mapping[str, str], *, is_tls: bool) -> None:
    for name in sorted(options.keys() - _OPTIONS):
        known = ", ".join(sorted(_OPTIONS | {"secure"}))
        raise BadSetting(f"engine: {name!r} means nothing in an address of ClickHouse.", hint=f"There are: {known}.")
    for name in sorted(options.keys() & _TLS_OPTIONS):
        if not is_tls:
            raise BadSetting(f"engine: {name!r} is for TLS, which the address does not ask for.", hint="Add secure=1.")
    _is_true("verify", options.get("verify", "1"))
    for name in _FILES:
        _check_file(name, options.get(name, _BUNDLED_CA))


def _check_file(name: str, file: str) -> None:
    """Check that a file for TLS exists, and that a CA file can be parsed."""
    if file == _BUNDLED_CA:
        return
    if not Path(file).is_file():
        raise BadSetting(f"engine: {name}: there is no file {file}.")
    try:
        if name == "ca_cert":
            ssl.create_default_context(cafile=file)
    except (OSError, ssl.SSLError) as problem:
        raise BadSetting(f"engine: {name}: {file} holds no certificate that can be read, in PEM.") from problem
