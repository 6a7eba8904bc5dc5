"""Diagnose an installation: machine, data folder, listeners, service, keys, and a round trip of one event.

The command tests the keys of dashboards and shippers. It reads them from the variables LOGFLARE_PRIVATE_ACCESS_TOKEN,
LOGFLARE_PUBLIC_ACCESS_TOKEN and LOGFLARE_API_KEY of the environment, or of the file that --env names. For the round
trip, it sends one event of the project cordwood-doctor to the stream postgres.logs, and queries this event with
logs.all. With --url, only the service is checked, not this machine. The exit code is 1 if there is a problem, and 0 if
there are only warnings.

examples:
  cordwood doctor
  cordwood doctor --env /srv/supabase/.env
  cordwood doctor --url https://logs.example.com --key "$PRIVATE_KEY"
"""

import argparse
import json
import math
import os
import re
import resource
import shutil
import socket
import time
import uuid
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from cordwood.cli.arguments import add_config_option, add_data_dir_option, load_settings_with_flags
from cordwood.cli.client import (
    RemoteService,
    add_service_options,
    find_service_on_data_folder,
    remote_service_from_arguments,
)
from cordwood.cli.terminal import print_output
from cordwood.errors import BadSetting, RefusedByService, ServiceUnreachable
from cordwood.folder import DataFolder
from cordwood.listeners.address import ListenAddress, read_otlp_grpc_addresses, read_syslog_and_fluent_addresses
from cordwood.observe.disk import DISK_FULL_ADVICE, describe_forecast
from cordwood.settings.settings import ListenSettings, Settings, read_allowed_memory_bytes

# Ingestion and queries need some free disk space for group commits, flushes and spilled data. With less free space than
# this, ingestion will soon fail.
_MIN_FREE_DISK_BYTES = 256 * 10**6
_MIN_FREE_DISK_SHARE = 0.1
_SOON_SECONDS, _FAR_SECONDS = 4 * 3600.0, 7 * 86_400.0
_MIN_FILES, _GOOD_FILES = 256, 4096
_MIN_PLAUSIBLE_YEAR = 2024
_MAX_CLOCK_SKEW_SECONDS = 60.0
_CONNECT_TIMEOUT_SECONDS = 5.0


class CheckVerdict(StrEnum):
    GOOD = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


class CheckResult(msgspec.Struct, frozen=True):
    """The result of one check. `advice` says what to do if the result is not good."""

    verdict: CheckVerdict
    subject: str
    observation: str
    advice: str = ""


def check_disk(free_bytes: int, whole_bytes: int) -> CheckResult:
    seen = f"{_format_gigabytes(free_bytes)} of {_format_gigabytes(whole_bytes)} are free"
    if free_bytes < _MIN_FREE_DISK_BYTES:
        return CheckResult(
            CheckVerdict.PROBLEM, "disk", seen, "Free some space, or shorten `retention` in the streams file."
        )
    if free_bytes < whole_bytes * _MIN_FREE_DISK_SHARE:
        return CheckResult(
            CheckVerdict.WARNING, "disk", seen, "Free space soon: when the disk is full, ingest answers 507."
        )
    return CheckResult(CheckVerdict.GOOD, "disk", seen)


def check_disk_forecast(seconds_left: float) -> CheckResult | None:
    """Check when the disk will be full, by the service's forecast; return None if it will not be full within a week."""
    if math.isinf(seconds_left):
        return None
    seen = describe_forecast(seconds_left).rstrip(".")
    verdict = CheckVerdict.PROBLEM if seconds_left < _SOON_SECONDS else CheckVerdict.WARNING
    return CheckResult(verdict, "disk", seen, DISK_FULL_ADVICE) if seconds_left < _FAR_SECONDS else None


def check_memory(ceiling_bytes: int, allowed_bytes: int | None) -> CheckResult:
    """Check the memory ceiling against `allowed_bytes`.

    `allowed_bytes` is the memory of the machine or the limit of the cgroup, or None if it cannot be read.
    """
    if allowed_bytes is None:
        return CheckResult(
            CheckVerdict.WARNING, "memory", "what this machine has cannot be read", "Set --memory yourself."
        )
    seen = f"the ceiling is {_format_gigabytes(ceiling_bytes)}, {_format_gigabytes(allowed_bytes)} may be used"
    if ceiling_bytes > allowed_bytes:
        return CheckResult(
            CheckVerdict.PROBLEM, "memory", seen, "Lower limits.memory (--memory), or give the container more."
        )
    if ceiling_bytes > allowed_bytes * 0.8:
        return CheckResult(
            CheckVerdict.WARNING, "memory", seen, "Leave a fifth to the rest of the machine: lower --memory."
        )
    return CheckResult(CheckVerdict.GOOD, "memory", seen)


def check_open_file_limit(limit: int) -> CheckResult:
    seen = f"{limit} may be open at once"
    advice = f"Raise it: ulimit -n {_GOOD_FILES}, or LimitNOFILE={_GOOD_FILES} in the unit."
    if limit < _MIN_FILES:
        return CheckResult(CheckVerdict.PROBLEM, "open files", seen, advice)
    return CheckResult(CheckVerdict.WARNING if limit < 1024 else CheckVerdict.GOOD, "open files", seen, advice)


def check_clock(now: float, newest_file: float | None) -> CheckResult:
    """Check the clock of this machine.

    `newest_file` is the newest modification time in the data folder. If it is in the future, the clock was set back.
    """
    seen = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now))
    advice = "Set the clock, and have NTP keep it: events without a time get this one."
    if time.gmtime(now).tm_year < _MIN_PLAUSIBLE_YEAR:
        return CheckResult(CheckVerdict.PROBLEM, "clock", seen, advice)
    if newest_file is not None and newest_file > now + _MAX_CLOCK_SKEW_SECONDS:
        ahead = f"{seen}, {newest_file - now:,.0f} s before the last write to the data folder"
        return CheckResult(CheckVerdict.PROBLEM, "clock", ahead, advice)
    return CheckResult(CheckVerdict.GOOD, "clock", seen)


def check_key_environment_variables(environment: Mapping[str, str]) -> Iterator[CheckResult]:
    """Yield the problems with the keys in Logflare's environment variables, which dashboards and log shippers use."""
    public, older = environment.get("LOGFLARE_PUBLIC_ACCESS_TOKEN"), environment.get("LOGFLARE_API_KEY")
    private = environment.get("LOGFLARE_PRIVATE_ACCESS_TOKEN")
    if public and older and public != older:
        seen = "LOGFLARE_PUBLIC_ACCESS_TOKEN and LOGFLARE_API_KEY differ"
        yield CheckResult(
            CheckVerdict.WARNING, "keys", seen, "The first is used: give both one value, or drop the older."
        )
    if private and private in (public, older):
        seen = "the private token is also the public one"
        yield CheckResult(
            CheckVerdict.PROBLEM, "keys", seen, "Shippers would hold a key to everything: make another for them."
        )


def check_listener(protocol: str, address: ListenAddress, *, is_guarded: bool) -> CheckResult:
    """Check whether anybody may send events to a listener.

    `is_guarded` is true if senders need a certificate or a key.
    """
    if address.is_private or is_guarded:
        return CheckResult(CheckVerdict.GOOD, "listener", f"{protocol} on {address}")
    seen = f"{protocol} on {address} takes events of whoever reaches it"
    advice = "Listen on a private address, or set listen.tls_client_ca (for tls://) or listen.fluent_shared_key."
    return CheckResult(CheckVerdict.WARNING, "listener", seen, advice)


def check_listeners(listen: ListenSettings) -> Iterator[CheckResult]:
    """Yield a check result for each configured listener other than the HTTP listener."""
    syslog, fluent = read_syslog_and_fluent_addresses(listen)
    for address in syslog:
        yield check_listener("syslog", address, is_guarded=_requires_certificate(listen, address))
    for address in fluent:
        is_guarded = _requires_certificate(listen, address) or bool(listen.fluent_shared_key)
        yield check_listener("fluent", address, is_guarded=is_guarded)
    for address in read_otlp_grpc_addresses(listen):
        # The listener for OTLP over gRPC is always guarded, because its callers need a key.
        yield check_listener("OTLP over gRPC", address, is_guarded=True)


def _requires_certificate(listen: ListenSettings, address: ListenAddress) -> bool:
    return address.scheme == "tls" and bool(listen.tls_client_ca)


def check_unreachable_listeners(listen: ListenSettings) -> Iterator[CheckResult]:
    """Yield a problem for each configured TCP address on which nothing listens."""
    advice = "The service was started without it: start it again."
    for address in (
        one
        for several in (*read_syslog_and_fluent_addresses(listen), read_otlp_grpc_addresses(listen))
        for one in several
    ):
        if address.port and not address.is_datagram and not _accepts_connection(address):
            yield CheckResult(CheckVerdict.PROBLEM, "listener", f"nothing listens on {address}", advice)


def _accepts_connection(address: ListenAddress) -> bool:
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address.host, address.host)  # noqa: S104 - a name, not a bind
    try:
        socket.create_connection((host, address.port), timeout=_CONNECT_TIMEOUT_SECONDS).close()
    except OSError:
        return False
    return True


def check_machine(folder: Path, ceiling_bytes: int, pid: int | None) -> Iterator[CheckResult]:
    """Yield the check results for this machine: disk, memory, open files and clock.

    The limits on memory and open files are those of the process `pid`, or of this process if `pid` is None.
    """
    place = _nearest_existing_folder(folder)
    usage = shutil.disk_usage(place)
    yield check_disk(usage.free, usage.total)
    yield check_memory(ceiling_bytes, read_allowed_memory_bytes(pid=pid))
    yield check_open_file_limit(open_file_limit(pid))
    yield check_clock(time.time(), _newest_modification_time(folder))


def open_file_limit(pid: int | None) -> int:
    for line in _read_text_or_empty(f"/proc/{pid}/limits").splitlines() if pid else ():
        if line.startswith("Max open files") and line.split()[3].isdecimal():
            return int(line.split()[3])
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def _format_gigabytes(byte_count: int) -> str:
    return f"{byte_count / 1e9:,.1f} GB"


def _newest_modification_time(folder: Path) -> float | None:
    try:
        return max((file.stat().st_mtime for file in folder.iterdir()), default=None)
    except OSError:
        return None


def _nearest_existing_folder(folder: Path) -> Path:
    """Return the folder if it exists, otherwise its nearest parent folder that exists."""
    place = folder.absolute()
    while not place.exists():
        place = place.parent
    return place


def _read_text_or_empty(file: str) -> str:
    try:
        return Path(file).read_text(encoding="ascii")
    except OSError:
        return ""


_STREAM, _ENDPOINT, _PROJECT = "postgres.logs", "logs.all", "cordwood-doctor"
_PRIVATE_API_KEY_VARIABLES = ("LOGFLARE_PRIVATE_ACCESS_TOKEN",)
_PUBLIC_API_KEY_VARIABLES = ("LOGFLARE_PUBLIC_ACCESS_TOKEN", "LOGFLARE_API_KEY")
_QUOTED_VALUE_REGEX: Final = re.compile(r"""\s*(["'])(.*?)\1\s*(?:$|\s#)""")
_COMMENT_AFTER_VALUE_REGEX: Final = re.compile(r"\s#.*")
_VERDICT_LABELS = {CheckVerdict.GOOD: "ok     ", CheckVerdict.WARNING: "warning", CheckVerdict.PROBLEM: "PROBLEM"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--env",
        type=Path,
        metavar="FILE",
        help="file with the environment of dashboards and senders, in lines NAME=VALUE",
    )
    add_service_options(parser)
    add_data_dir_option(parser)
    add_config_option(parser)


def run(arguments: argparse.Namespace) -> int:
    settings = load_settings_with_flags(arguments).settings
    environment = read_environment_file(arguments.env) if arguments.env else os.environ
    problems = 0
    for finding in _check_results(arguments, settings, environment):
        print_output(f"{_VERDICT_LABELS[finding.verdict]}  {finding.subject}: {finding.observation}.")
        if finding.verdict is not CheckVerdict.GOOD and finding.advice:
            print_output(f"         {finding.advice}")
        problems += finding.verdict is CheckVerdict.PROBLEM
    return 1 if problems else 0


def _check_results(
    arguments: argparse.Namespace, settings: Settings, environment: Mapping[str, str]
) -> Iterator[CheckResult]:
    folder = DataFolder(Path(settings.serve.data_dir))
    service = remote_service_from_arguments(arguments)
    if service is None:
        owner = folder.find_owner()
        service = find_service_on_data_folder(settings, arguments.key)
        yield _check_folder(folder)
        ceiling_bytes = _service_memory_ceiling(service) or settings.limits.memory_ceiling
        yield from check_machine(folder.path, ceiling_bytes, owner.pid if owner else None)
        yield from check_listeners(settings.listen)
        if service is not None:
            yield from check_unreachable_listeners(settings.listen)
    yield from check_key_environment_variables(environment)
    if service is None:
        advice = "Start one: cordwood serve. Or say where it is: --url."
        yield CheckResult(CheckVerdict.PROBLEM, "service", f"none runs on {folder.path}", advice)
        return
    yield from _check_service(service, environment)


def _check_folder(folder: DataFolder) -> CheckResult:
    path = folder.path
    if not path.exists():
        return CheckResult(
            CheckVerdict.WARNING, "data folder", f"{path} is not there", "It is made at the first start."
        )
    if not os.access(path, os.W_OK | os.X_OK):
        return CheckResult(
            CheckVerdict.PROBLEM, "data folder", f"{path} may not be written", "Give it to the service's user: chown."
        )
    return CheckResult(CheckVerdict.GOOD, "data folder", f"{path} may be written")


def _check_service(service: RemoteService, environment: Mapping[str, str]) -> Iterator[CheckResult]:
    try:
        status = service.send("GET", "/ready").status
        ready = CheckVerdict.GOOD if status == 200 else CheckVerdict.PROBLEM
        yield CheckResult(ready, "service", f"{service.url} says {status} to /ready", "Its log says what it waits for.")
        yield from _check_service_disk_forecast(service)
        yield from _check_quarantined_queries(service)
        yield from _check_keys(service, environment)
        yield _check_ingest_and_query(service)
        yield from _check_alerts(service)
    except ServiceUnreachable as problem:
        yield CheckResult(
            CheckVerdict.PROBLEM, "service", problem.message.rstrip("."), "Start it, or mend the address or firewall."
        )


def _service_memory_ceiling(service: RemoteService | None) -> int | None:
    """Return the memory ceiling that the running service uses, or None if it cannot be read.

    This ceiling may differ from the one in the settings that this command has loaded.
    """
    try:
        ceiling = _read_gauge(service, "cordwood_memory_ceiling_bytes") if service else None
    except ServiceUnreachable:
        return None
    return None if ceiling is None else int(ceiling)


def _check_service_disk_forecast(service: RemoteService) -> Iterator[CheckResult]:
    seconds_left = _read_gauge(service, "cordwood_disk_full_seconds")
    finding = None if seconds_left is None else check_disk_forecast(seconds_left)
    if finding is not None:
        yield finding


def _check_quarantined_queries(service: RemoteService) -> Iterator[CheckResult]:
    """Yield a warning if queries are refused because the engine's process was killed when they ran."""
    quarantined = _read_gauge(service, "cordwood_quarantined_queries")
    if quarantined:
        seen = (
            f"{quarantined:.0f} queries of callers' own are refused, because the engine's process was killed with them"
        )
        yield CheckResult(CheckVerdict.WARNING, "engine", seen, "The log tells whose they were: query_quarantined.")


def _read_gauge(service: RemoteService, name: str) -> float | None:
    match = re.search(rf"^{name} (\S+)$".encode(), service.send("GET", "/metrics").body, re.MULTILINE)
    return float(match[1]) if match else None


def _check_keys(service: RemoteService, environment: Mapping[str, str]) -> Iterator[CheckResult]:
    """Check whether the service accepts each key in the environment.

    A private key is accepted if it may list the keys. A public key is tested by a POST of events that names no stream.
    The service checks the key first, so the status 400 means that it accepted the key.
    """
    for names, method, path, good in (
        (_PRIVATE_API_KEY_VARIABLES, "GET", "/api/access-tokens", 200),
        (_PUBLIC_API_KEY_VARIABLES, "POST", "/api/logs", 400),
    ):
        for name in names:
            key = environment.get(name)
            if key:
                status = RemoteService(service.url, key).send(method, path).status
                yield _key_check_result(name, status, is_good=status == good)


def _key_check_result(name: str, status: int, *, is_good: bool) -> CheckResult:
    if is_good:
        return CheckResult(CheckVerdict.GOOD, "keys", f"{name} is in force")
    seen = f"{name} is refused ({status})"
    return CheckResult(
        CheckVerdict.PROBLEM, "keys", seen, "Set it to a key of this service: cordwood keys create, or keys.private."
    )


def _check_ingest_and_query(service: RemoteService) -> CheckResult:
    event = {"id": str(uuid.uuid4()), "event_message": "cordwood doctor was here", "project": _PROJECT}
    parameters = {"project": _PROJECT, "sql": "select id from postgres_logs order by timestamp desc limit 100"}
    try:
        service.send("POST", f"/api/logs?source_name={_STREAM}", _encode_json(event), _JSON_HEADERS).raise_for_error()
        answer = service.send(
            "POST", f"/api/endpoints/query/{_ENDPOINT}", _encode_json(parameters), _NO_CACHE_HEADERS
        ).raise_for_error()
    except RefusedByService as refusal:
        advice = "It needs a private key, the stream postgres.logs and the endpoint logs.all."
        return CheckResult(CheckVerdict.PROBLEM, "round trip", refusal.message.rstrip("."), advice)
    if {"id": event["id"]} in answer.json()["result"]:
        return CheckResult(CheckVerdict.GOOD, "round trip", "an event was sent, and was in the next answer")
    return CheckResult(
        CheckVerdict.PROBLEM, "round trip", "an event was taken, and is not in the next answer", "Look at the log."
    )


def _check_alerts(service: RemoteService) -> Iterator[CheckResult]:
    """Yield a problem for each alert that cannot be evaluated, and for each target that fails.

    Yield nothing if the key may not list alerts.
    """
    answer = service.send("GET", "/api/alerts")
    if answer.status != 200:
        return
    listed = answer.json()
    for alert in listed["alerts"]:
        if alert.get("error"):
            yield CheckResult(
                CheckVerdict.PROBLEM,
                "alerts",
                f"{alert['name']}: {alert['error'].rstrip('.')}",
                "Change its query or its alert.",
            )
    for target in listed["targets"]:
        if target.get("failures"):
            seen = f"{target['name']} failed {target['failures']} times: {target['error'].rstrip('.')}"
            advice = f"Mend the target or alerts.targets, and try it: cordwood alerts test-target {target['name']}"
            yield CheckResult(CheckVerdict.PROBLEM, "alerts", seen, advice)
    if listed["alerts"]:
        yield CheckResult(CheckVerdict.GOOD, "alerts", f"{len(listed['alerts'])} are evaluated")


_JSON_HEADERS = {"Content-Type": "application/json"}
_NO_CACHE_HEADERS = _JSON_HEADERS | {"Cache-Control": "no-cache"}


def _encode_json(value: object) -> bytes:
    return json.dumps(value).encode()


def read_environment_file(file: Path) -> dict[str, str]:
    """Return the variables in lines `NAME=VALUE`, as a shell or Docker Compose reads them."""
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as problem:
        raise BadSetting(f"{file} cannot be read: {problem}.") from problem
    pairs = (line.strip().removeprefix("export ").partition("=") for line in lines if not line.lstrip().startswith("#"))
    return {name.strip(): _environment_value(value) for name, equals, value in pairs if equals}


def _environment_value(text: str) -> str:
    """Return the value without quotes, and without a comment after it. A comment begins with a space and `#`."""
    quoted = _QUOTED_VALUE_REGEX.match(text)
    return quoted[2] if quoted else _COMMENT_AFTER_VALUE_REGEX.sub("", text).strip().strip("\"'")
