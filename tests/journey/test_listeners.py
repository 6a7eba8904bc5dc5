"""Real senders of syslog, Fluent Forward and the journal against a real process, configured as the guide says."""

import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fluent import sender as fluent_sender

from tests.debian import need
from tests.journey.conftest import PRIVATE, Service, Start, start_service
from tests.journey.test_real_senders import fence
from tests.waiting import until

STREAM = "postgres.logs"
LISTENING = {
    "CORDWOOD_LISTEN_SYSLOG": "tcp://127.0.0.1:0,udp://127.0.0.1:0",
    "CORDWOOD_LISTEN_SYSLOG_STREAM": STREAM,
    "CORDWOOD_LISTEN_FLUENT": "tcp://127.0.0.1:0",
    "CORDWOOD_INGEST_STREAM_MAP": f"web.*={STREAM}",
}
STOP_SECONDS = 30
pack = msgspec.msgpack.encode


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    running = start_service(tmp_path_factory.mktemp("listeners") / "data", env=LISTENING)
    yield running
    if running.process.poll() is None:
        running.stop()
    running.client.close()


def port_of(service: Service, listener: str) -> int:
    """The port that the service says it listens on: `syslog tcp`, `syslog udp` or `fluent tcp`."""
    found = re.search(rf"^Listening for {listener}://127\.0\.0\.1:(\d+)$", service.output.read_text(), re.MULTILINE)
    assert found is not None, service.output.read_text()
    return int(found[1])


def stored(service: Service, pattern: str) -> list[dict[str, Any]]:
    sql = f"select event_message as message, timestamp, metadata from `{STREAM}` where event_message like '{pattern}'"
    found: list[dict[str, Any]] = service.client.post("/api/query", json={"sql": sql}).json()["result"]
    return found


def messages(service: Service, pattern: str) -> list[str]:
    return sorted(row["message"] for row in stored(service, pattern))


@contextmanager
def rsyslog(service: Service, tmp_path: Path) -> Iterator[int]:
    """Debian's rsyslogd with the guide's action, taking lines by UDP; its port."""
    program = need("rsyslogd", "rsyslog")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    action = fence("rsyslog sends to a listener").replace("6514", str(port_of(service, "syslog tcp")))
    taking = f'module(load="imudp")\ninput(type="imudp" address="127.0.0.1" port="{port}")\n'
    configuration = tmp_path / "rsyslog.conf"
    configuration.write_text(f'global(workDirectory="{tmp_path}")\n{taking}{action}')
    command = [program, "-n", "-f", str(configuration), "-i", str(tmp_path / "pid")]
    with (tmp_path / "rsyslog.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield port
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(STOP_SECONDS)


def test_rsyslog_and_logger_send_to_the_listeners(service: Service, tmp_path: Path) -> None:
    logger = [need("logger", "bsdutils"), "--server", "127.0.0.1"]
    tcp, udp = str(port_of(service, "syslog tcp")), str(port_of(service, "syslog udp"))
    subprocess.run([*logger, "--tcp", "--port", tcp, "--octet-count", "-t", "app", "logger-counted"], check=True)
    subprocess.run([*logger, "--tcp", "--port", tcp, "--rfc3164", "-t", "app", "logger-line"], check=True)
    subprocess.run([*logger, "--udp", "--port", udp, "-t", "app", "logger-datagram"], check=True)
    until(lambda: len(messages(service, "logger-%")) == 3)
    with rsyslog(service, tmp_path) as port:
        to = [*logger, "--udp", "--port", str(port), "--rfc5424", "-t", "backup", "-p", "local3.err"]

        def has_arrived() -> bool:
            subprocess.run([*to, "--sd-id", "origin@1", "--sd-param", 'ip="10.0.0.1"', "rsyslog-caf\u00e9"], check=True)
            time.sleep(0.2)
            return bool(messages(service, "rsyslog-%"))

        until(has_arrived)
    row = stored(service, "rsyslog-%")[0]
    assert row["message"] == "rsyslog-caf\u00e9"
    (metadata,) = row["metadata"]
    assert (metadata["appname"], metadata["level"], metadata["facility"]) == ("backup", "error", "local3")
    assert {"id": "origin@1", "ip": "10.0.0.1"} in metadata["sd"]


def test_fluent_logger_sends_events_with_their_times(service: Service) -> None:
    before = time.time()
    sender = fluent_sender.FluentSender(
        "web.api", "127.0.0.1", port_of(service, "fluent tcp"), nanosecond_precision=True
    )
    for number in range(50):
        assert sender.emit("requests", {"message": f"fluent-{number}", "status": 200, "ms": 1.5})
    sender.close()
    until(lambda: len(messages(service, "fluent-%")) == 50)
    (row,) = stored(service, "fluent-7")
    assert row["metadata"] == [{"status": 200, "ms": 1.5, "tag": "web.api.requests"}]
    assert before <= row["timestamp"] / 1e6 <= time.time()


def test_journal_upload_sends_entries(service: Service, tmp_path: Path) -> None:
    program = need("systemd-journal-upload", "systemd-journal-remote")
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


def test_what_was_acknowledged_is_there_after_a_kill_and_once(service: Service, start: Start) -> None:
    """Chunks are sent until the process is killed, and all of them again to the next one."""
    acknowledged = 0
    with socket.create_connection(("127.0.0.1", port_of(service, "fluent tcp")), timeout=30) as sender:
        for number in range(20):
            sender.sendall(chunk(number))
            if number < 10:
                assert msgspec.msgpack.decode(sender.recv(1000)) == {"ack": f"chunk-{number}"}
                acknowledged += 1
        service.kill()
    again = start(data_dir=service.data_dir, env=LISTENING)
    held = messages(again, "kill-%")
    assert len(held) == len(set(held))
    assert set(held) >= {f"kill-{number}-{place}" for number in range(acknowledged) for place in range(40)}
    with socket.create_connection(("127.0.0.1", port_of(again, "fluent tcp")), timeout=30) as sender:
        for number in range(20):
            sender.sendall(chunk(number))
            assert msgspec.msgpack.decode(sender.recv(1000)) == {"ack": f"chunk-{number}"}
    assert messages(again, "kill-%") == sorted(f"kill-{number}-{place}" for number in range(20) for place in range(40))
    assert 'cordwood_listener_total{listener="fluent tcp://' in again.client.get("/metrics").text
    assert again.stop() == 0


def chunk(number: int) -> bytes:
    entries = b"".join(pack([1_760_000_000, {"message": f"kill-{number}-{place}"}]) for place in range(40))
    return pack(["web.log", entries, {"chunk": f"chunk-{number}", "size": 40}])
