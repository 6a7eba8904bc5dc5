"""Life cycle of `cordwood serve`: start, lock of the data folder, reload, and graceful stop."""

import json
import os
import pty
import re
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from tests.journey.conftest import Service, Start, start_service
from tests.waiting import until


def cordwood(*arguments: str, **env: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "cordwood", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, **env}, check=False)


def query_status(service: Service, key: str) -> int:
    """Send a query with the key, and return the status."""
    return httpx.get(f"{service.url}/api/endpoints/query/logs.all?project=x", headers={"X-API-KEY": key}).status_code


def ingest_status(service: Service, key: str) -> int:
    """Send an event with the key, and return the status."""
    address = f"{service.url}/api/logs?source_name=postgres.logs"
    return httpx.post(address, json={"event_message": "x"}, headers={"X-API-KEY": key}).status_code


@dataclass
class SlowBody:
    """A request body in two halves. The second is sent once `may_continue` is set, or after 20 seconds."""

    first: bytes
    second: bytes
    has_begun: threading.Event = field(default_factory=threading.Event)
    may_continue: threading.Event = field(default_factory=threading.Event)

    def chunks(self) -> Iterator[bytes]:
        yield self.first
        self.has_begun.set()
        self.may_continue.wait(20)
        yield self.second


def endpoint_text(name: str, sql: str = "select 1 as x") -> str:
    return f'/*\nname = "{name}"\n*/\n{sql}\n'


def test_the_start_prints_address_data_folder_endpoints_and_streams(start: Start) -> None:
    service = start()
    (line,) = [line for line in service.output.read_text().splitlines() if "listens on" in line]
    assert service.url in line
    assert str(service.data_dir) in line
    assert "endpoints: logs.all, logs.all.otel, usage.api-counts" in line
    assert all(name in line for name in ("cloudflare.logs.prod", "deno-subhosting-events", "pgbouncer.logs.prod"))


def test_the_start_prints_the_seconds_until_it_was_ready(start: Start) -> None:
    printed = start().output.read_text()
    seconds = float(printed.rpartition(" s to ready)")[0].rpartition("(")[2])
    assert 0 < seconds < 10


def test_sigterm_stops_the_service_with_exit_code_0(start: Start) -> None:
    assert start().stop() == 0


def test_sigint_stops_the_service_with_exit_code_0(start: Start) -> None:
    service = start()
    service.process.send_signal(signal.SIGINT)
    assert service.process.wait(30) == 0


def test_acknowledged_events_survive_a_restart(start: Start) -> None:
    service = start()
    service.send("cloudflare.logs.prod", [{"event_message": "kept", "project": "default", "metadata": {"a": 1}}])
    service.stop()
    restarted = start()
    assert [row["event_message"] for row in restarted.rows("logs.all", project="default")] == ["kept"]


def test_a_request_in_progress_is_finished_before_the_stop(start: Start) -> None:
    service = start()
    answers: list[httpx.Response] = []
    body = SlowBody(b'[{"event_message": "slow", ', b'"project": "default", "metadata": {}}]')

    def send() -> None:
        headers = {"Content-Type": "application/json"}
        target = {"source_name": "cloudflare.logs.prod"}
        answers.append(service.client.post("/api/logs", params=target, content=body.chunks(), headers=headers))

    sender = threading.Thread(target=send)
    sender.start()
    assert body.has_begun.wait(10)
    time.sleep(0.1)
    service.process.send_signal(signal.SIGTERM)
    until(lambda: httpx.get(f"{service.url}/ready").status_code == 503)
    body.may_continue.set()
    sender.join()
    assert service.process.wait(30) == 0
    assert answers[0].json()["accepted"] == 1


def test_a_second_signal_stops_the_service_at_once(start: Start) -> None:
    service = start()
    body = SlowBody(b"[", b"]")

    def send() -> None:
        with pytest.raises(httpx.TransportError):
            service.client.post("/api/logs", params={"source_name": "postgres.logs"}, content=body.chunks())

    sender = threading.Thread(target=send)
    sender.start()
    assert body.has_begun.wait(10)
    time.sleep(0.1)
    service.process.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    assert service.process.poll() is None
    service.process.send_signal(signal.SIGTERM)
    assert service.process.wait(10) == 128 + signal.SIGTERM
    body.may_continue.set()
    sender.join()


def test_a_second_process_on_the_same_folder_is_refused(start: Start) -> None:
    service = start()
    second = cordwood("serve", "--port", "0", "--data-dir", str(service.data_dir))
    assert second.returncode == 1
    assert f"in use by process {service.process.pid} at {service.url}" in second.stderr
    assert service.query("logs.all", project="x").status_code == 200


def test_a_port_in_use_is_reported_with_the_option_to_change(start: Start, tmp_path: Path) -> None:
    port = start().url.rpartition(":")[2]
    result = cordwood("serve", "--port", port, "--data-dir", str(tmp_path / "other"))
    assert result.returncode == 1
    assert f"The service cannot listen on 127.0.0.1, port {port}" in result.stderr
    assert "--port" in result.stderr


def test_a_folder_of_a_killed_process_can_be_opened_at_once(start: Start) -> None:
    service = start()
    service.send("cloudflare.logs.prod", [{"event_message": "kept", "project": "default", "metadata": {}}])
    service.kill()
    assert len(start().rows("logs.all", project="default")) == 1


def test_the_service_listens_on_ipv6(start: Start) -> None:
    service = start("--host", "::1")
    assert service.url.startswith("http://[::1]:")
    assert service.query("logs.all", project="x").status_code == 200


def test_without_keys_in_the_settings_a_pair_is_created_and_printed_once(tmp_path: Path) -> None:
    printed_keys = {"CORDWOOD_KEYS_PRIVATE": "", "CORDWOOD_KEYS_PUBLIC": ""}
    first = start_service(tmp_path / "data", env=printed_keys)
    private, public = re.findall(r"(?:private|public) +(cw_\S+)", first.output.read_text())
    assert query_status(first, private) == 200
    assert query_status(first, public) == 403
    assert ingest_status(first, public) == 200
    first.stop()
    assert not any(private.encode() in file.read_bytes() for file in first.data_dir.rglob("*") if file.is_file())
    restarted = start_service(tmp_path / "data", env=printed_keys)
    assert "cw_" not in restarted.output.read_text()
    assert query_status(restarted, private) == 200
    restarted.stop()


def test_keys_may_be_read_from_files(start: Start, tmp_path: Path) -> None:
    (tmp_path / "private.key").write_text("from-a-file\n")
    service = start(env={"CORDWOOD_KEYS_PRIVATE": "", "CORDWOOD_KEYS_PRIVATE_FILE": str(tmp_path / "private.key")})
    assert query_status(service, "from-a-file") == 200


def test_keys_are_read_from_logflare_s_variables(start: Start) -> None:
    service = start(
        env={
            "CORDWOOD_KEYS_PRIVATE": "",
            "CORDWOOD_KEYS_PUBLIC": "",
            "LOGFLARE_PRIVATE_ACCESS_TOKEN": "theirs",
            "LOGFLARE_API_KEY": "theirs-public",
            "LOGFLARE_SINGLE_TENANT": "true",
            "DB_HOSTNAME": "db",
        }
    )
    assert query_status(service, "theirs") == 200
    assert query_status(service, "theirs-public") == 403
    printed = service.output.read_text()
    assert printed.count("are ignored") == 1
    assert "LOGFLARE_SINGLE_TENANT" in printed
    assert "theirs" not in printed


def test_a_reload_adds_new_endpoints_and_streams(start: Start, tmp_path: Path) -> None:
    queries, streams = tmp_path / "queries", tmp_path / "streams.toml"
    queries.mkdir()
    streams.write_text("")
    service = start("--endpoints", str(queries), "--streams", str(streams))
    assert service.query("mine").status_code == 404
    (queries / "mine.sql").write_text(endpoint_text("mine", "select event_message from `my.stream`"))
    streams.write_text('[[stream]]\nname = "my.stream"\n')
    reloaded = cordwood("reload", "--data-dir", str(service.data_dir))
    assert (reloaded.returncode, reloaded.stdout.strip()) == (0, "Reloaded: 4 endpoints, 10 streams.")
    assert service.send("my.stream", [{"event_message": "hello"}]).status_code == 200
    assert service.rows("mine") == [{"event_message": "hello"}]


def test_sighup_reloads_the_files(start: Start, tmp_path: Path) -> None:
    (tmp_path / "mine.sql").write_text(endpoint_text("mine"))
    service = start("--endpoints", str(tmp_path))
    (tmp_path / "mine.sql").write_text(endpoint_text("mine", "select 2 as x"))
    service.process.send_signal(signal.SIGHUP)
    deadline = time.monotonic() + 10
    while service.rows("mine") != [{"x": 2}] and time.monotonic() < deadline:
        time.sleep(0.05)
    assert service.rows("mine") == [{"x": 2}]


def test_closing_the_terminal_stops_the_service(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "cordwood", "serve", "--port", "0", "--data-dir", str(tmp_path / "data")]
    pid, terminal = pty.fork()
    if pid == 0:
        # The service is started with the default handler of SIGHUP, because the tests may run with SIGHUP ignored.
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        os.execv(sys.executable, command)
    printed = b""
    while b"listens on" not in printed:
        printed += os.read(terminal, 4096)
    os.close(terminal)
    watch = threading.Timer(30, os.kill, (pid, signal.SIGKILL))
    watch.start()
    _, status = os.waitpid(pid, 0)
    watch.cancel()
    assert os.waitstatus_to_exitcode(status) == 0


def test_a_service_runs_if_its_output_cannot_be_written(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    command = [sys.executable, "-m", "cordwood", "serve", "--port", "0", "--data-dir", str(data_dir)]
    with Path("/dev/full").open("wb") as full:
        process = subprocess.Popen(command, stdout=full, stderr=subprocess.DEVNULL)
    owner: list[dict[str, str]] = []

    def is_ready() -> bool:
        with suppress(OSError, ValueError, httpx.TransportError):
            owner[:] = [json.loads((data_dir / "cordwood.lock").read_text())]
            return httpx.get(f"{owner[0]['url']}/readyz").status_code == 200
        return False

    until(is_ready)
    time.sleep(0.3)
    assert is_ready()
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0


def test_an_invalid_file_at_a_reload_keeps_the_old_version(start: Start, tmp_path: Path) -> None:
    (tmp_path / "mine.sql").write_text(endpoint_text("mine"))
    service = start("--endpoints", str(tmp_path))
    (tmp_path / "mine.sql").write_text(endpoint_text("mine", "select 1 as\n  from where"))
    (tmp_path / "new.sql").write_text(endpoint_text("new"))
    reloaded = cordwood("reload", "--data-dir", str(service.data_dir))
    assert reloaded.returncode == 1
    assert "the old configuration stays in force" in reloaded.stderr
    assert f"{tmp_path / 'mine.sql'}:5:" in reloaded.stderr
    assert service.rows("mine") == [{"x": 1}]
    assert service.query("new").status_code == 404
    log = [json.loads(line) for line in service.output.read_text().splitlines() if line.startswith("{")]
    assert any(line["event"] == "notice" and "mine.sql:5:" in line["message"] for line in log)


def test_a_reload_without_a_service_is_an_error(tmp_path: Path) -> None:
    reloaded = cordwood("reload", "--data-dir", str(tmp_path))
    assert reloaded.returncode == 1
    assert "no service owns" in reloaded.stderr


def test_invalid_files_stop_the_start_with_their_positions(tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_text(endpoint_text("a", "select 1 as\n  from where"))
    (tmp_path / "b.sql").write_text(endpoint_text("b", "select @nobody as x"))
    (tmp_path / "c.sql").write_text('/*\nname = "c"\nmax_row = 5\n*/ select 1')
    (tmp_path / "d.sql").write_text(endpoint_text("d", "select * from `no.such.stream`"))
    refused = cordwood("serve", "--port", "0", "--data-dir", str(tmp_path / "data"), "--endpoints", str(tmp_path))
    assert refused.returncode == 1
    assert "a.sql:5:" in refused.stderr
    assert "b.sql:4:8" in refused.stderr
    assert "nobody" in refused.stderr
    assert "c.sql:3:1: max_row is not a setting here. Did you mean max_rows?" in refused.stderr
    assert "d.sql:4:15" in refused.stderr
    assert "listens on" not in refused.stdout


def test_an_unknown_setting_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "cordwood.toml").write_text("[web]\nprot = 4000\n")
    refused = cordwood("serve", "--config", str(tmp_path / "cordwood.toml"), "--data-dir", str(tmp_path / "data"))
    assert refused.returncode == 1
    assert "web.prot" in refused.stderr
    assert "Did you mean web.port?" in refused.stderr


def test_the_data_folder_is_accessible_only_to_its_user(start: Start) -> None:
    service = start()
    assert stat.S_IMODE(service.data_dir.stat().st_mode) == 0o700


def test_files_in_a_readable_data_folder_are_accessible_only_to_their_user(start: Start, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o755)
    service = start()
    service.send("postgres.logs", [{"event_message": "private"}])
    files = [file for file in service.data_dir.rglob("*") if file.is_file()]
    assert (service.data_dir / "events.duckdb") in files
    assert [file.name for file in files if stat.S_IMODE(file.stat().st_mode) & 0o077] == []
