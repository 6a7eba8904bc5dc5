"""Real senders of syslog, Fluent Forward and journald entries, configured as in the guide."""

import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
from fluent import sender as fluent_sender

from tests.debian import require_program, require_rsyslog_module
from tests.journey.conftest import PRIVATE, Service, Start, start_service
from tests.journey.protocols import port_of
from tests.journey.test_real_senders import guide_fence
from tests.waiting import until

STREAM = "postgres.logs"
LISTENER_SETTINGS = {
    "CORDWOOD_LISTEN_SYSLOG": "tcp://127.0.0.1:0,udp://127.0.0.1:0",
    "CORDWOOD_LISTEN_SYSLOG_STREAM": STREAM,
    "CORDWOOD_LISTEN_FLUENT": "tcp://127.0.0.1:0",
    "CORDWOOD_INGEST_STREAM_MAP": f"web.*={STREAM}",
}
STOP_SECONDS = 30
pack = msgspec.msgpack.encode


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    running = start_service(tmp_path_factory.mktemp("listeners") / "data", env=LISTENER_SETTINGS)
    yield running
    if running.process.poll() is None:
        running.stop()
    running.client.close()


def stored_rows(service: Service, pattern: str) -> list[dict[str, Any]]:
    sql = f"select event_message as message, timestamp, metadata from `{STREAM}` where event_message like '{pattern}'"
    result_rows: list[dict[str, Any]] = service.client.post("/api/query", json={"sql": sql}).json()["result"]
    return result_rows


def messages(service: Service, pattern: str) -> list[str]:
    return sorted(row["message"] for row in stored_rows(service, pattern))


@contextmanager
def rsyslog(action: str, tmp_path: Path) -> Iterator[int]:
    """Run Debian's rsyslogd with an action from the guide. Yield its UDP port."""
    program = require_program("rsyslogd", "rsyslog")
    port = free_port()
    listener = f'module(load="imudp")\ninput(type="imudp" address="127.0.0.1" port="{port}")\n'
    configuration = tmp_path / "rsyslog.conf"
    configuration.write_text(f'global(workDirectory="{tmp_path}")\n{listener}{action}')
    with run_program([program, "-n", "-f", str(configuration), "-i", str(tmp_path / "pid")], tmp_path):
        yield port


@contextmanager
def syslog_ng(service: Service, tmp_path: Path) -> Iterator[int]:
    """Run Debian's syslog-ng with the guide's destination. Yield its UDP port."""
    program = require_program("syslog-ng", "syslog-ng-core")
    port = free_port()
    destination = guide_fence("syslog-ng.conf").replace("6514", str(port_of(service, "syslog tcp")))
    source = f'source s_src {{ network(transport("udp") ip("127.0.0.1") port({port})); }};'
    configuration = tmp_path / "syslog-ng.conf"
    configuration.write_text(f"@version: current\n{source}\n{destination}")
    files = {"persist-file": "persist", "pidfile": "pid", "control": "control"}
    options = [f"--{option}={tmp_path / name}" for option, name in files.items()]
    with run_program([program, "--foreground", f"--cfgfile={configuration}", "--no-caps", *options], tmp_path):
        yield port


@contextmanager
def run_program(command: list[str], folder: Path) -> Iterator[None]:
    with (folder / "sender.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(STOP_SECONDS)


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def log_until_stored(service: Service, port: int, tag: str, message: str, *options: str) -> dict[str, Any]:
    """Log the message repeatedly until it is stored, because the forwarding program may not listen yet."""
    logger = [require_program("logger", "bsdutils"), "--server", "127.0.0.1", "--udp", "--port", str(port), "-t", tag]

    def has_arrived() -> bool:
        subprocess.run([*logger, *options, message], check=True)
        time.sleep(0.2)
        return bool(messages(service, f"%{message}"))

    until(has_arrived)
    return stored_rows(service, f"%{message}")[0]


def test_rsyslog_and_logger_send_to_the_listeners(service: Service, tmp_path: Path) -> None:
    logger = [require_program("logger", "bsdutils"), "--server", "127.0.0.1"]
    tcp, udp = str(port_of(service, "syslog tcp")), str(port_of(service, "syslog udp"))
    subprocess.run([*logger, "--tcp", "--port", tcp, "--octet-count", "-t", "app", "logger-counted"], check=True)
    subprocess.run([*logger, "--tcp", "--port", tcp, "--rfc3164", "-t", "app", "logger-line"], check=True)
    subprocess.run([*logger, "--udp", "--port", udp, "-t", "app", "logger-datagram"], check=True)
    until(lambda: len(messages(service, "logger-%")) == 3)
    action = guide_fence("rsyslog sends to a listener").replace("6514", tcp)
    options = ["--rfc5424", "-p", "local3.err", "--sd-id", "origin@1", "--sd-param", 'ip="10.0.0.1"']
    with rsyslog(action, tmp_path) as port:
        row = log_until_stored(service, port, "backup", "rsyslog-caf\u00e9", *options)
    (metadata,) = row["metadata"]
    assert (metadata["appname"], metadata["level"], metadata["facility"]) == ("backup", "error", "local3")
    assert {"id": "origin@1", "ip": "10.0.0.1"} in metadata["sd"]


def test_rsyslog_sends_elasticsearch_bulk_bodies(service: Service, tmp_path: Path) -> None:
    """Run Debian's omelasticsearch, the Elasticsearch output of rsyslog, with the guide's configuration."""
    require_rsyslog_module("omelasticsearch", "rsyslog-elasticsearch")
    port_of_service = str(urlsplit(service.url).port)
    action = guide_fence("rsyslog.conf, with Debian").replace("4000", port_of_service).replace("\u2026", PRIVATE)
    action = action.replace("http://localhost", "http://127.0.0.1").replace('"nginx"', f'"{STREAM}"')
    with rsyslog(action, tmp_path) as port:
        row = log_until_stored(service, port, "backup", "omelasticsearch", "--rfc3164", "-p", "local3.err")
    (metadata,) = row["metadata"]
    assert (metadata["program"], metadata["severity"]) == ("backup", "err")


def test_syslog_ng_sends_to_the_listener(service: Service, tmp_path: Path) -> None:
    with syslog_ng(service, tmp_path) as port:
        row = log_until_stored(service, port, "backup", "syslog-ng", "--rfc3164", "-p", "local3.err")
    (metadata,) = row["metadata"]
    assert (metadata["appname"], metadata["level"], metadata["facility"]) == ("backup", "error", "local3")


def test_fluent_logger_sends_events_with_their_times(service: Service) -> None:
    before = time.time()
    sender = fluent_sender.FluentSender(
        "web.api", "127.0.0.1", port_of(service, "fluent tcp"), nanosecond_precision=True
    )
    for number in range(50):
        assert sender.emit("requests", {"message": f"fluent-{number}", "status": 200, "ms": 1.5})
    sender.close()
    until(lambda: len(messages(service, "fluent-%")) == 50)
    (row,) = stored_rows(service, "fluent-7")
    assert row["metadata"] == [{"status": 200, "ms": 1.5, "tag": "web.api.requests"}]
    assert before <= row["timestamp"] / 1e6 <= time.time()


def test_journal_upload_sends_entries(service: Service, tmp_path: Path) -> None:
    program = require_program("systemd-journal-upload", "systemd-journal-remote")
    entries = tmp_path / "entries"
    entries.write_bytes(
        b"".join(
            b"__CURSOR=c%d\n__REALTIME_TIMESTAMP=%d\nMESSAGE=journal-%d\n\n" % (n, 1_760_000_000_000_000 + n, n)
            for n in range(500)
        )
    )
    url = service.url.replace("http://", f"http://cordwood:{PRIVATE}@") + f"/journald/{STREAM}"
    for _ in range(2):
        subprocess.run([program, f"--url={url}", str(entries)], check=True, timeout=60)
        assert len(messages(service, "journal-%")) == 500


def test_acknowledged_chunks_survive_a_kill_without_duplicates(service: Service, start: Start) -> None:
    """Send chunks until the process is killed, and send all of them again after a restart."""
    acknowledged = 0
    with socket.create_connection(("127.0.0.1", port_of(service, "fluent tcp")), timeout=30) as sender:
        for number in range(20):
            sender.sendall(chunk(number))
            if number < 10:
                assert msgspec.msgpack.decode(sender.recv(1000)) == {"ack": f"chunk-{number}"}
                acknowledged += 1
        service.kill()
    restarted = start(data_dir=service.data_dir, env=LISTENER_SETTINGS)
    messages_after_restart = messages(restarted, "kill-%")
    assert len(messages_after_restart) == len(set(messages_after_restart))
    assert set(messages_after_restart) >= {
        f"kill-{number}-{place}" for number in range(acknowledged) for place in range(40)
    }
    with socket.create_connection(("127.0.0.1", port_of(restarted, "fluent tcp")), timeout=30) as sender:
        for number in range(20):
            sender.sendall(chunk(number))
            assert msgspec.msgpack.decode(sender.recv(1000)) == {"ack": f"chunk-{number}"}
    assert messages(restarted, "kill-%") == sorted(
        f"kill-{number}-{place}" for number in range(20) for place in range(40)
    )
    assert 'cordwood_listener_total{listener="fluent tcp://' in restarted.client.get("/metrics").text
    assert restarted.stop() == 0


def chunk(number: int) -> bytes:
    entries = b"".join(pack([1_760_000_000, {"message": f"kill-{number}-{place}"}]) for place in range(40))
    return pack(["web.log", entries, {"chunk": f"chunk-{number}", "size": 40}])
