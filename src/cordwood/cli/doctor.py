"""Diagnose an installation: machine, data folder, service, keys, and a round trip of one event.

The keys are those of dashboards and shippers, in LOGFLARE_PRIVATE_ACCESS_TOKEN, LOGFLARE_PUBLIC_ACCESS_TOKEN and
LOGFLARE_API_KEY of this environment, or of the file that --env names. The round trip sends one event of the project
cordwood-doctor to the stream postgres.logs and queries it with logs.all. With --url this machine is not checked. Exits
with 1 if there is a problem, with 0 for warnings only.

examples:
  cordwood doctor
  cordwood doctor --env /srv/supabase/.env
  cordwood doctor --url https://logs.example.com --key "$PRIVATE_KEY"
"""

import argparse
import json
import os
import re
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

from cordwood.cli.checkup import Finding, Verdict, judge_forecast, judge_tokens, machine
from cordwood.cli.sources import add_config, add_data_dir, loaded_settings
from cordwood.cli.terminal import say
from cordwood.cli.wire import Remote, add_service, local, named
from cordwood.errors import BadSetting, Refused, Unreachable
from cordwood.folder import DataFolder
from cordwood.settings.settings import Settings

_STREAM, _ENDPOINT, _PROJECT = "postgres.logs", "logs.all", "cordwood-doctor"
_PRIVATE = ("LOGFLARE_PRIVATE_ACCESS_TOKEN",)
_PUBLIC = ("LOGFLARE_PUBLIC_ACCESS_TOKEN", "LOGFLARE_API_KEY")
_MARKS = {Verdict.GOOD: "ok     ", Verdict.DOUBTFUL: "warning", Verdict.BAD: "PROBLEM"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--env", type=Path, metavar="FILE", help="the environment of dashboards and senders: lines NAME=VALUE"
    )
    add_service(parser)
    add_data_dir(parser)
    add_config(parser)


def run(arguments: argparse.Namespace) -> int:
    settings = loaded_settings(arguments).settings
    environment = _environment(arguments.env) if arguments.env else os.environ
    problems = 0
    for finding in _findings(arguments, settings, environment):
        say(f"{_MARKS[finding.verdict]}  {finding.about}: {finding.seen}.")
        if finding.verdict is not Verdict.GOOD and finding.advice:
            say(f"         {finding.advice}")
        problems += finding.verdict is Verdict.BAD
    return 1 if problems else 0


def _findings(arguments: argparse.Namespace, settings: Settings, environment: Mapping[str, str]) -> Iterator[Finding]:
    folder = DataFolder(Path(settings.serve.data_dir))
    service = named(arguments)
    if service is None:
        owner = folder.owner()
        service = local(settings, arguments.key)
        yield _folder(folder)
        ceiling_bytes = _told_ceiling(service) or settings.limits.ceiling
        yield from machine(folder.path, ceiling_bytes, owner.pid if owner else None)
    yield from judge_tokens(environment)
    if service is None:
        advice = "Start one: cordwood serve. Or say where it is: --url."
        yield Finding(Verdict.BAD, "service", f"none runs on {folder.path}", advice)
        return
    yield from _service(service, environment)


def _folder(folder: DataFolder) -> Finding:
    path = folder.path
    if not path.exists():
        return Finding(Verdict.DOUBTFUL, "data folder", f"{path} is not there", "It is made at the first start.")
    if not os.access(path, os.W_OK | os.X_OK):
        return Finding(
            Verdict.BAD, "data folder", f"{path} may not be written", "Give it to the service's user: chown."
        )
    return Finding(Verdict.GOOD, "data folder", f"{path} may be written")


def _service(service: Remote, environment: Mapping[str, str]) -> Iterator[Finding]:
    try:
        status = service.send("GET", "/ready").status
        ready = Verdict.GOOD if status == 200 else Verdict.BAD
        yield Finding(ready, "service", f"{service.url} says {status} to /ready", "Its log says what it waits for.")
        yield from _forecast(service)
        yield from _killed(service)
        yield from _keys(service, environment)
        yield _round_trip(service)
    except Unreachable as problem:
        yield Finding(Verdict.BAD, "service", problem.message.rstrip("."), "Start it, or mend the address or firewall.")


def _told_ceiling(service: Remote | None) -> int | None:
    """Return the memory ceiling of the running service, which may differ from the settings here."""
    try:
        told = _gauge(service, "cordwood_memory_ceiling_bytes") if service else None
    except Unreachable:
        return None
    return None if told is None else int(told)


def _forecast(service: Remote) -> Iterator[Finding]:
    told = _gauge(service, "cordwood_disk_full_seconds")
    finding = None if told is None else judge_forecast(told)
    if finding is not None:
        yield finding


def _killed(service: Remote) -> Iterator[Finding]:
    """Report queries that are quarantined because the engine's process was killed."""
    quarantined = _gauge(service, "cordwood_quarantined_queries")
    if quarantined:
        seen = (
            f"{quarantined:.0f} queries of callers' own are refused, because the engine's process was killed with them"
        )
        yield Finding(Verdict.DOUBTFUL, "engine", seen, "The log tells whose they were: query_quarantined.")


def _gauge(service: Remote, name: str) -> float | None:
    told = re.search(rf"^{name} (\S+)$".encode(), service.send("GET", "/metrics").body, re.MULTILINE)
    return float(told[1]) if told else None


def _keys(service: Remote, environment: Mapping[str, str]) -> Iterator[Finding]:
    """Check each key: a private one may list keys; a valid public one is refused only for not naming a stream."""
    for names, method, path, good in (
        (_PRIVATE, "GET", "/api/access-tokens", 200),
        (_PUBLIC, "POST", "/api/logs", 400),
    ):
        for name in names:
            key = environment.get(name)
            if key:
                status = Remote(service.url, key).send(method, path).status
                yield _key(name, status, is_good=status == good)


def _key(name: str, status: int, *, is_good: bool) -> Finding:
    if is_good:
        return Finding(Verdict.GOOD, "keys", f"{name} is in force")
    seen = f"{name} is refused ({status})"
    return Finding(Verdict.BAD, "keys", seen, "Set it to a key of this service: cordwood keys create, or keys.private.")


def _round_trip(service: Remote) -> Finding:
    event = {"id": str(uuid.uuid4()), "event_message": "cordwood doctor was here", "project": _PROJECT}
    asked = {"project": _PROJECT, "sql": "select id from postgres_logs order by timestamp desc limit 100"}
    try:
        service.send("POST", f"/api/logs?source_name={_STREAM}", _json(event), _AS_JSON).checked()
        answer = service.send("POST", f"/api/endpoints/query/{_ENDPOINT}", _json(asked), _FRESH).checked()
    except Refused as refusal:
        advice = "It needs a private key, the stream postgres.logs and the endpoint logs.all."
        return Finding(Verdict.BAD, "round trip", refusal.message.rstrip("."), advice)
    if {"id": event["id"]} in answer.json()["result"]:
        return Finding(Verdict.GOOD, "round trip", "an event was sent, and was in the next answer")
    return Finding(Verdict.BAD, "round trip", "an event was taken, and is not in the next answer", "Look at the log.")


_AS_JSON = {"Content-Type": "application/json"}
_FRESH = _AS_JSON | {"Cache-Control": "no-cache"}


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def _environment(file: Path) -> dict[str, str]:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as problem:
        raise BadSetting(f"{file} cannot be read: {problem}.") from problem
    pairs = (line.strip().removeprefix("export ").partition("=") for line in lines if not line.lstrip().startswith("#"))
    return {name.strip(): value.strip().strip("\"'") for name, equals, value in pairs if equals}
