"""A service starts at once, owns its folder, reloads on request, and stops without losing or cutting anything."""

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


def reads(service: Service, key: str) -> int:
    """The status a key gets when it queries."""
    return httpx.get(f"{service.url}/api/endpoints/query/logs.all?project=x", headers={"X-API-KEY": key}).status_code


def sends(service: Service, key: str) -> int:
    """The status a key gets when it sends an event."""
    address = f"{service.url}/api/logs?source_name=postgres.logs"
    return httpx.post(address, json={"event_message": "x"}, headers={"X-API-KEY": key}).status_code


@dataclass
class Dribble:
    """A body whose second half is long in coming."""

    first: bytes
    second: bytes
    pause: float
    under_way: threading.Event = field(default_factory=threading.Event)

    def pieces(self) -> Iterator[bytes]:
        yield self.first
        self.under_way.set()
        time.sleep(self.pause)
        yield self.second


def endpoint_text(name: str, sql: str = "select 1 as x") -> str:
    return f'/*\nname = "{name}"\n*/\n{sql}\n'


def test_one_line_says_where_it_listens_where_the_data_is_and_what_is_loaded(start: Start) -> None:
    service = start()
    (line,) = [line for line in service.output.read_text().splitlines() if "listens on" in line]
    assert service.url in line
    assert str(service.data_dir) in line
    assert "endpoints: logs.all, logs.all.otel, usage.api-counts" in line
    assert all(name in line for name in ("cloudflare.logs.prod", "deno-subhosting-events", "pgbouncer.logs.prod"))


def test_it_says_itself_that_it_was_ready_within_a_second_or_so(start: Start) -> None:
    told = start().output.read_text()
    seconds = float(told.rpartition(" s to ready)")[0].rpartition("(")[2])
    assert 0 < seconds < 10


def test_a_term_ends_it_with_exit_code_0(start: Start) -> None:
    assert start().stop() == 0


def test_an_interrupt_ends_it_with_exit_code_0(start: Start) -> None:
    service = start()
    service.process.send_signal(signal.SIGINT)
    assert service.process.wait(30) == 0


def test_what_was_acknowledged_is_there_after_a_stop_and_a_start(start: Start) -> None:
    service = start()
    service.send("cloudflare.logs.prod", [{"event_message": "kept", "project": "default", "metadata": {"a": 1}}])
    service.stop()
    again = start()
    assert [row["event_message"] for row in again.rows("logs.all", project="default")] == ["kept"]


def test_a_request_under_way_is_finished_before_it_stops(start: Start) -> None:
    service = start()
    answers: list[httpx.Response] = []
    body = Dribble(b'[{"event_message": "slow", ', b'"project": "default", "metadata": {}}]', pause=0.6)

    def send() -> None:
        headers = {"Content-Type": "application/json"}
        target = {"source_name": "cloudflare.logs.prod"}
        answers.append(service.client.post("/api/logs", params=target, content=body.pieces(), headers=headers))

    sender = threading.Thread(target=send)
    sender.start()
    assert body.under_way.wait(10)
    time.sleep(0.1)
    service.process.send_signal(signal.SIGTERM)
    time.sleep(0.2)
    refused = httpx.get(f"{service.url}/ready")
    sender.join()
    assert service.process.wait(30) == 0
    assert refused.status_code == 503
    assert answers[0].json()["accepted"] == 1


def test_a_second_signal_ends_it_at_once(start: Start) -> None:
    service = start()
    body = Dribble(b"[", b"]", pause=5)

    def send() -> None:
        with pytest.raises(httpx.TransportError):
            service.client.post("/api/logs", params={"source_name": "postgres.logs"}, content=body.pieces())

    sender = threading.Thread(target=send)
    sender.start()
    assert body.under_way.wait(10)
    time.sleep(0.1)
    service.process.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    assert service.process.poll() is None
    service.process.send_signal(signal.SIGTERM)
    assert service.process.wait(2) == 128 + signal.SIGTERM
    sender.join()


def test_a_second_process_on_the_same_folder_is_refused_and_the_first_goes_on(start: Start) -> None:
    service = start()
    second = cordwood("serve", "--port", "0", "--data-dir", str(service.data_dir))
    assert second.returncode == 1
    assert f"in use by process {service.process.pid} at {service.url}" in second.stderr
    assert service.query("logs.all", project="x").status_code == 200


def test_an_address_that_is_taken_is_refused_with_a_way_out(start: Start, tmp_path: Path) -> None:
    port = start().url.rpartition(":")[2]
    second = cordwood("serve", "--port", port, "--data-dir", str(tmp_path / "other"))
    assert second.returncode == 1
    assert f"The service cannot listen on 127.0.0.1, port {port}" in second.stderr
    assert "--port" in second.stderr


def test_a_folder_left_by_a_killed_process_is_taken_up_at_once(start: Start) -> None:
    service = start()
    service.send("cloudflare.logs.prod", [{"event_message": "kept", "project": "default", "metadata": {}}])
    service.kill()
    assert len(start().rows("logs.all", project="default")) == 1


def test_it_listens_on_the_newer_kind_of_address_too(start: Start) -> None:
    service = start("--host", "::1")
    assert service.url.startswith("http://[::1]:")
    assert service.query("logs.all", project="x").status_code == 200


def test_without_keys_given_one_of_each_is_made_and_shown_once(tmp_path: Path) -> None:
    none = {"CORDWOOD_KEYS_PRIVATE": "", "CORDWOOD_KEYS_PUBLIC": ""}
    first = start_service(tmp_path / "data", env=none)
    private, public = re.findall(r"(?:private|public) +(cw_\S+)", first.output.read_text())
    assert reads(first, private) == 200
    assert reads(first, public) == 403
    assert sends(first, public) == 200
    first.stop()
    assert not any(private.encode() in file.read_bytes() for file in first.data_dir.rglob("*") if file.is_file())
    again = start_service(tmp_path / "data", env=none)
    assert "cw_" not in again.output.read_text()
    assert reads(again, private) == 200
    again.stop()


def test_keys_may_come_from_files(start: Start, tmp_path: Path) -> None:
    (tmp_path / "private.key").write_text("from-a-file\n")
    service = start(env={"CORDWOOD_KEYS_PRIVATE": "", "CORDWOOD_KEYS_PRIVATE_FILE": str(tmp_path / "private.key")})
    assert reads(service, "from-a-file") == 200


def test_the_variables_of_logflare_open_the_service(start: Start) -> None:
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
    assert reads(service, "theirs") == 200
    assert reads(service, "theirs-public") == 403
    told = service.output.read_text()
    assert told.count("are ignored") == 1
    assert "LOGFLARE_SINGLE_TENANT" in told
    assert "theirs" not in told


def test_a_reload_takes_up_new_files_and_streams(start: Start, tmp_path: Path) -> None:
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


def test_a_hangup_signal_reloads_too(start: Start, tmp_path: Path) -> None:
    (tmp_path / "mine.sql").write_text(endpoint_text("mine"))
    service = start("--endpoints", str(tmp_path))
    (tmp_path / "mine.sql").write_text(endpoint_text("mine", "select 2 as x"))
    service.process.send_signal(signal.SIGHUP)
    deadline = time.monotonic() + 10
    while service.rows("mine") != [{"x": 2}] and time.monotonic() < deadline:
        time.sleep(0.05)
    assert service.rows("mine") == [{"x": 2}]


def test_a_terminal_that_is_closed_stops_what_was_started_in_it(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "cordwood", "serve", "--port", "0", "--data-dir", str(tmp_path / "data")]
    pid, terminal = pty.fork()
    if pid == 0:
        # Whoever runs the tests may have made SIGHUP ignored, and children inherit that.
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        os.execv(sys.executable, command)
    told = b""
    while b"listens on" not in told:
        told += os.read(terminal, 4096)
    os.close(terminal)
    watch = threading.Timer(30, os.kill, (pid, signal.SIGKILL))
    watch.start()
    _, status = os.waitpid(pid, 0)
    watch.cancel()
    assert os.waitstatus_to_exitcode(status) == 0


def test_a_service_goes_on_where_nobody_can_read_what_it_says(tmp_path: Path) -> None:
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


def test_a_broken_change_keeps_the_old_version_serving_and_says_so(start: Start, tmp_path: Path) -> None:
    (tmp_path / "mine.sql").write_text(endpoint_text("mine"))
    service = start("--endpoints", str(tmp_path))
    (tmp_path / "mine.sql").write_text(endpoint_text("mine", "select 1 as\n  from where"))
    (tmp_path / "new.sql").write_text(endpoint_text("new"))
    reloaded = cordwood("reload", "--data-dir", str(service.data_dir))
    assert reloaded.returncode == 1
    assert "all stays as it was" in reloaded.stderr
    assert f"{tmp_path / 'mine.sql'}:5:" in reloaded.stderr
    assert service.rows("mine") == [{"x": 1}]
    assert service.query("new").status_code == 404
    log = [json.loads(line) for line in service.output.read_text().splitlines() if line.startswith("{")]
    assert any(line["event"] == "notice" and "mine.sql:5:" in line["message"] for line in log)


def test_there_is_nothing_to_reload_without_a_service(tmp_path: Path) -> None:
    reloaded = cordwood("reload", "--data-dir", str(tmp_path))
    assert reloaded.returncode == 1
    assert "no service owns" in reloaded.stderr


def test_every_broken_file_stops_the_start_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_text(endpoint_text("a", "select 1 as\n  from where"))
    (tmp_path / "b.sql").write_text(endpoint_text("b", "select @nobody as x"))
    (tmp_path / "c.sql").write_text('/*\nname = "c"\nmax_row = 5\n*/ select 1')
    (tmp_path / "d.sql").write_text(endpoint_text("d", "select * from `no.such.stream`"))
    refused = cordwood("serve", "--port", "0", "--data-dir", str(tmp_path / "data"), "--endpoints", str(tmp_path))
    assert refused.returncode == 1
    assert "a.sql:5:" in refused.stderr
    assert "b.sql:4:8" in refused.stderr
    assert "nobody" in refused.stderr
    assert "c.sql:3:1: max_row is no setting here. Did you mean max_rows?" in refused.stderr
    assert "d.sql:4:15" in refused.stderr
    assert "listens on" not in refused.stdout


def test_an_unknown_setting_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "cordwood.toml").write_text("[web]\nprot = 4000\n")
    refused = cordwood("serve", "--config", str(tmp_path / "cordwood.toml"), "--data-dir", str(tmp_path / "data"))
    assert refused.returncode == 1
    assert "web.prot" in refused.stderr
    assert "Did you mean web.port?" in refused.stderr


def test_the_data_folder_is_for_its_user_alone(start: Start) -> None:
    service = start()
    assert stat.S_IMODE(service.data_dir.stat().st_mode) == 0o700


def test_what_is_made_in_a_folder_that_others_may_look_into_is_closed_to_them(start: Start, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o755)
    service = start()
    service.send("postgres.logs", [{"event_message": "private"}])
    made = [file for file in service.data_dir.rglob("*") if file.is_file()]
    assert (service.data_dir / "events.duckdb") in made
    assert [file.name for file in made if stat.S_IMODE(file.stat().st_mode) & 0o077] == []
