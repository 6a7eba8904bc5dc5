"""Deployment in place of Logflare: image, compose file, systemd unit, and the clients of Logflare."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml  # type: ignore[import-untyped] # it has no types of its own

from cordwood.settings.settings import Settings
from tests.debian import require_program

ROOT = Path(__file__).parents[2]
DEPLOY_FOLDER = ROOT / "deploy"
CLIENTS_FOLDER = ROOT.parent / "shared" / "clients"
TOKENS = {"LOGFLARE_PRIVATE_ACCESS_TOKEN": "the-private-token", "LOGFLARE_PUBLIC_ACCESS_TOKEN": "the-public-token"}
PRIVATE = {"x-api-key": TOKENS["LOGFLARE_PRIVATE_ACCESS_TOKEN"]}
PUBLIC = {"x-api-key": TOKENS["LOGFLARE_PUBLIC_ACCESS_TOKEN"]}

# The image's working folder, where the Supabase CLI expects the launcher and writes its script.
LAUNCHER_FOLDER = "/opt/app/rel/logflare/bin"
# Scripts that the Supabase CLI runs in the container, instead of the image's default command.
CLI_SCRIPTS = {
    "plain": """cat <<'EOF' > run.sh && sh run.sh
./logflare eval Logflare.Release.migrate
./logflare start --sname logflare
EOF
""",
    "in the background": """cat <<'EOF' > run.sh && exec sh run.sh
./logflare eval Logflare.Release.migrate || exit $?
./logflare start --sname logflare &
pid=$!
trap 'kill -TERM "$pid"' TERM
wait "$pid"
EOF
""",
}

# Environment variables for Logflare, which remain if only the image of a deployment is replaced.
LOGFLARE_VARIABLES = {
    "LOGFLARE_NODE_HOST": "127.0.0.1",
    "LOGFLARE_SINGLE_TENANT": "true",
    "LOGFLARE_SUPABASE_MODE": "true",
    "LOGFLARE_MIN_CLUSTER_SIZE": "1",
    "LOGFLARE_FEATURE_FLAG_OVERRIDE": "multibackend=true",
    "DB_USERNAME": "supabase_admin",
    "DB_DATABASE": "_supabase",
    "DB_HOSTNAME": "db",
    "DB_PORT": "5432",
    "DB_PASSWORD": "not-for-the-log",
    "DB_SCHEMA": "_analytics",
    "POSTGRES_BACKEND_URL": "postgresql://supabase_admin:not-for-the-log@db:5432/_supabase",
    "POSTGRES_BACKEND_SCHEMA": "_analytics",
}

# Queries whose answers differ from the recorded ones, because cordwood derives a URL for events that have none.
QUERIES_BY_DERIVED_URL = {
    "base_api_counts_daily",
    "base_api_counts_hourly",
    "base_logs_all",
    "flow_postgrest_vector",
    "lf_basic",
    "single_edge_logs_k02",
}


def image_instructions() -> str:
    return (DEPLOY_FOLDER / "Dockerfile").read_text()


def image_variables() -> dict[str, str]:
    return dict(re.findall(r"^ENV (\w+)=(\S+)$", image_instructions().split("\nFROM ")[-1], re.MULTILINE))


def compose_service() -> dict[str, Any]:
    """Return the compose file's only service, whose name dashboards and shippers use as its host name."""
    services: dict[str, dict[str, Any]] = yaml.safe_load((DEPLOY_FOLDER / "compose.yaml").read_text())["services"]
    assert list(services) == ["analytics"]
    return services["analytics"]


def compose_variables() -> dict[str, str]:
    """Return the service's environment. Tokens are substituted, as Compose does from the file `.env`."""
    variables = compose_service()["environment"]
    return {
        name: re.sub(r"\$\{(\w+)(?::\?[^}]*)?\}", lambda match: TOKENS[match[1]], variables[name]) for name in variables
    }


def health_check(port: int) -> list[str]:
    kind, *words = compose_service()["healthcheck"]["test"]
    assert kind == "CMD"
    return [word.replace(":4000/", f":{port}/") for word in words]


@dataclass
class Deployment:
    url: str
    port: int
    folder: Path
    output: Path


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """Run the image's command with the variables of the image and of Compose, and with none of this machine's
    variables.
    """
    folder, port = tmp_path_factory.mktemp("stand"), free_port()
    for name in ("home", "tmp", "cwd"):
        (folder / name).mkdir()
    variables = {
        **image_variables(),
        **LOGFLARE_VARIABLES,
        **compose_variables(),
        "PATH": os.environ["PATH"],
        "HOME": str(folder / "home"),
        "TMPDIR": str(folder / "tmp"),
        "CORDWOOD_SERVE_DATA_DIR": str(folder / "data"),
        "CORDWOOD_WEB_HOST": "127.0.0.1",
        "PHX_HTTP_PORT": str(port),
    }
    words = [
        word
        for line in re.findall(r"^(?:ENTRYPOINT|CMD) \[(.*)\]$", image_instructions(), re.MULTILINE)
        for word in line.split(", ")
    ]
    assert words == ['"cordwood"', '"serve"']
    output = folder / "output"
    with output.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "cordwood", "serve"], env=variables, cwd=folder / "cwd", stdout=out, stderr=out
        )
    deployment = Deployment(f"http://127.0.0.1:{port}", port, folder, output)
    try:
        wait_until_healthy(deployment, process)
        yield deployment
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def wait_until_healthy(deployment: Deployment, process: "subprocess.Popen[bytes]") -> None:
    for _ in range(600):
        assert process.poll() is None, deployment.output.read_text()
        try:
            if httpx.get(f"{deployment.url}/health").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.05)
    raise AssertionError(deployment.output.read_text())


def test_the_health_check_of_the_compose_file_passes(deployment: Deployment) -> None:
    require_program("curl", "curl")
    checked = subprocess.run(health_check(deployment.port), capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    assert '"status":"ok"' in checked.stdout


def test_the_health_check_of_the_image_follows_the_port(deployment: Deployment) -> None:
    require_program("curl", "curl")
    command = re.search(r"^  CMD (curl .*)$", image_instructions(), re.MULTILINE)
    assert command is not None
    environment = {"PATH": os.environ["PATH"], "PHX_HTTP_PORT": str(deployment.port)}
    assert subprocess.run(["sh", "-c", command[1]], env=environment, check=False).returncode == 0
    wrong = {**environment, "CORDWOOD_WEB_PORT": str(free_port())}
    assert subprocess.run(["sh", "-c", command[1]], env=wrong, check=False, capture_output=True).returncode != 0


def test_unknown_variables_are_logged_once_without_secrets(deployment: Deployment) -> None:
    output_text = deployment.output.read_text()
    assert output_text.count("are ignored: ") == 1
    assert "POSTGRES_BACKEND_URL" in output_text
    assert not [secret for secret in ("not-for-the-log", *TOKENS.values()) if secret in output_text]


def test_events_of_shippers_are_in_the_answers_to_dashboards(deployment: Deployment) -> None:
    now = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
    edge = {
        "project": "shipped",
        "appname": "kong",
        "event_message": "GET /rest/v1/todos 200",
        "timestamp": f"{now}.123456789Z",
        "metadata": {"request": {"method": "GET", "path": "/rest/v1/todos"}, "response": {"status_code": 200}},
    }
    sent = httpx.post(f"{deployment.url}/api/logs?source_name=cloudflare.logs.prod", json=[edge], headers=PUBLIC)
    assert sent.status_code == 200, sent.text
    dashboard = {**PRIVATE, "Content-Type": "application/json", "Accept": "application/json"}
    parameters = {
        "project": "shipped",
        "project_tier": "PRO",
        "iso_timestamp_start": "",
        "iso_timestamp_end": "",
        "sql": "select id, timestamp, event_message, request.path from edge_logs cross join unnest(metadata) as m"
        " cross join unnest(m.request) as request limit 100",
    }
    rows = httpx.get(f"{deployment.url}/api/endpoints/query/logs.all", params=parameters, headers=dashboard).json()[
        "result"
    ]
    assert [row["path"] for row in rows] == ["/rest/v1/todos"]
    assert len(str(rows[0]["timestamp"])) == 16
    home = {"project": "shipped", "interval": "1hr"}
    counts = httpx.get(f"{deployment.url}/api/endpoints/query/usage.api-counts", params=home, headers=dashboard).json()
    assert sum(row["total_rest_requests"] for row in counts["result"]) == 1


def test_events_with_the_project_in_their_metadata_are_found(deployment: Deployment) -> None:
    realtime = {"event_message": "joined", "metadata": {"project": "moved", "level": "info"}}
    function = {"event_message": "booted", "metadata": {"project_ref": "moved", "event_type": "Boot"}}
    for stream, event in (("realtime.logs.prod", realtime), ("deno-relay-logs", function)):
        sent = httpx.post(f"{deployment.url}/api/logs?source_name={stream}", json=[event], headers=PUBLIC)
        assert sent.status_code == 200, sent.text
    for name, message in (("realtime_logs", "joined"), ("function_edge_logs", "booted")):
        parameters = {"project": "moved", "sql": f"select event_message from {name}"}
        answer = httpx.get(f"{deployment.url}/api/endpoints/query/logs.all", params=parameters, headers=PRIVATE)
        assert answer.json() == {"result": [{"event_message": message}]}


def test_a_long_request_line_and_a_bearer_token_are_accepted(deployment: Deployment) -> None:
    conditions = " or ".join(f"event_message like '%{'needle' * 4}{number}%'" for number in range(180))
    parameters = {"project": "shipped", "sql": f"select count(*) as count from edge_logs where {conditions}"}
    bearer = {"Authorization": f"Bearer {TOKENS['LOGFLARE_PRIVATE_ACCESS_TOKEN']}"}
    answer = httpx.get(f"{deployment.url}/api/endpoints/query/logs.all", params=parameters, headers=bearer)
    assert len(str(answer.request.url)) > 10_000
    assert answer.json() == {"result": [{"count": 0}]}


def test_an_error_has_the_form_that_dashboards_read(deployment: Deployment) -> None:
    parameters = {"project": "shipped", "sql": "select nothing from edge_logs"}
    answer = httpx.get(f"{deployment.url}/api/endpoints/query/logs.all", params=parameters, headers=PRIVATE)
    assert answer.status_code == 400
    assert "nothing" in answer.json()["error"]["message"]
    assert "result" not in answer.json()


def test_a_foreign_data_wrapper_reads_rows_and_404(deployment: Deployment) -> None:
    """Query as a foreign data wrapper of Postgres does.

    The wrapper sends a request without SQL. It expects an object with a list of objects, or status 404.
    """
    address = f"{deployment.url}/api/endpoints/query/usage.api-counts?project=shipped&interval=hourly"
    rows = httpx.get(address, headers=PRIVATE).json()["result"]
    assert all(isinstance(row["total_rest_requests"], int) for row in rows)
    assert httpx.get(f"{deployment.url}/api/endpoints/query/nobody", headers=PRIVATE).status_code == 404


def test_the_public_token_may_send_but_not_read(deployment: Deployment) -> None:
    address = f"{deployment.url}/api/endpoints/query/logs.all?project=default"
    assert httpx.get(address, headers=PRIVATE).status_code == 200
    assert httpx.get(address, headers=PUBLIC).status_code == 403
    assert httpx.get(address, headers={"x-api-key": "guessed"}).status_code == 401


@pytest.mark.skipif(
    not CLIENTS_FOLDER.exists(), reason="the recorded queries of real clients are not beside the project"
)
def test_the_recorded_queries_of_the_real_clients_are_answered_as_recorded(
    deployment: Deployment, tmp_path: Path
) -> None:
    results = tmp_path / "results.jsonl"
    key = TOKENS["LOGFLARE_PRIVATE_ACCESS_TOKEN"]
    command = [sys.executable, str(CLIENTS_FOLDER / "run.py"), "--base", deployment.url, "--key", key]
    result = subprocess.run(
        [*command, "--wait", "0", "--ids", "opaque", "--out", str(results)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    verdicts = [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]
    assert len(verdicts) > 100, result.stderr
    assert {verdict["id"] for verdict in verdicts if verdict["verdict"] != "pass"} == QUERIES_BY_DERIVED_URL


def test_no_file_is_written_outside_the_volume(deployment: Deployment) -> None:
    assert not [path for name in ("home", "tmp", "cwd") for path in (deployment.folder / name).rglob("*")]


def test_the_image_has_an_unprivileged_user_and_a_data_volume() -> None:
    last = image_instructions().split("\nFROM ")[-1]
    assert re.search(r"^USER cordwood$", last, re.MULTILINE)
    assert re.search(rf"^VOLUME {image_variables()['CORDWOOD_SERVE_DATA_DIR']}$", last, re.MULTILINE)
    assert re.search(r"^EXPOSE 4000$", last, re.MULTILINE)


def test_files_that_the_image_copies_exist_and_are_not_ignored() -> None:
    ignored = (DEPLOY_FOLDER / "Dockerfile.dockerignore").read_text().split()
    lines = re.findall(r"^COPY (?!--from)(?:--chmod=\d+ )?(.*) \S+$", image_instructions(), re.MULTILINE)
    copied = [word for line in lines for word in line.split()]
    assert copied
    for name in copied:
        assert (ROOT / name).exists()
        assert {f"!{name}", f"!{name.split('/')[0]}"} & set(ignored)


def test_the_image_has_two_stages_and_a_minimal_second_one() -> None:
    bases = re.findall(r"^FROM (\S+)(?: AS (\w+))?$", image_instructions(), re.MULTILINE)
    assert [base for base, _ in bases] == ["python:3.11-slim", "python:3.11-slim"]
    last = image_instructions().split("\nFROM ")[-1]
    assert re.findall(r"^COPY (.*)$", last, re.MULTILINE) == [
        "--from=build /opt/cordwood /opt/cordwood",
        f"--chmod=0755 deploy/logflare {LAUNCHER_FOLDER}/logflare",
    ]
    assert "pip " not in last
    for line in re.findall(r"apt-get install [^\n]*", image_instructions()):
        assert "--no-install-recommends" in line
    assert image_instructions().count("apt-get install") == image_instructions().count("rm -rf /var/lib/apt/lists/*")
    assert not re.search(r"^ADD ", image_instructions(), re.MULTILINE)
    assert "--require-hashes" in image_instructions()


def test_the_image_has_curl_for_its_health_check() -> None:
    last = image_instructions().split("\nFROM ")[-1]
    assert re.search(r"install --yes --no-install-recommends curl\b", last)
    assert re.search(r"^HEALTHCHECK .*\\\n  CMD curl ", last, re.MULTILINE)


def test_the_image_switches_the_user_last_and_contains_no_secret() -> None:
    words = re.findall(r"^([A-Z]+) ", image_instructions().split("\nFROM ")[-1], re.MULTILINE)
    assert words.index("USER") > max(place for place, word in enumerate(words) if word in ("RUN", "COPY"))
    assert words.count("USER") == 1
    assert not re.search(r"^(ENV|ARG) \w*(TOKEN|SECRET|PASSWORD|KEY)", image_instructions(), re.MULTILINE)


def test_the_compose_file_grants_minimal_privileges() -> None:
    service = compose_service()
    assert service["read_only"] is True
    assert service["tmpfs"] == ["/tmp"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "privileged" not in service
    assert service["ports"] == ["4000:4000"]
    assert [volume.split(":")[1] for volume in service["volumes"]] == [image_variables()["CORDWOOD_SERVE_DATA_DIR"]]


def test_stop_timeouts_exceed_the_drain_time() -> None:
    drain_seconds = Settings().web.drain_time
    assert float(compose_service()["stop_grace_period"].removesuffix("s")) > drain_seconds
    unit = (DEPLOY_FOLDER / "cordwood.service").read_text()
    stop = re.search(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE)
    assert stop is not None
    assert int(stop[1]) > drain_seconds


def test_the_systemd_unit_is_unprivileged_and_writes_only_its_own_folder() -> None:
    unit = (DEPLOY_FOLDER / "cordwood.service").read_text()
    settings = dict(re.findall(r"^(\w+)=(.*)$", unit, re.MULTILINE))
    assert (settings["DynamicUser"], settings["ProtectSystem"], settings["NoNewPrivileges"]) == ("yes", "strict", "yes")
    assert settings["StateDirectory"] == "cordwood"
    assert "CORDWOOD_SERVE_DATA_DIR=%S/cordwood" in unit
    assert settings["ExecStart"].endswith("/bin/cordwood serve")


@pytest.mark.parametrize("script", CLI_SCRIPTS.values(), ids=CLI_SCRIPTS.keys())
def test_the_image_started_by_the_supabase_cli_accepts_events_of_containers(script: str, tmp_path: Path) -> None:
    port, folder = free_port(), tmp_path / "bin"
    folder.mkdir()
    shutil.copy(DEPLOY_FOLDER / "logflare", folder / "logflare")
    variables = {
        **image_variables(),
        **LOGFLARE_VARIABLES,
        **TOKENS,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "CORDWOOD_SERVE_DATA_DIR": str(tmp_path / "data"),
        "CORDWOOD_WEB_HOST": "127.0.0.1",
        "PHX_HTTP_PORT": str(port),
    }
    deployment = Deployment(f"http://127.0.0.1:{port}", port, tmp_path, tmp_path / "output")
    with deployment.output.open("wb") as out:
        process = subprocess.Popen(
            ["sh", "-c", script], env=variables, cwd=folder, stdout=out, stderr=out, start_new_session=True
        )
    try:
        wait_until_healthy(deployment, process)
        assert "no database to migrate" in deployment.output.read_text()
        assert httpx.head(f"{deployment.url}/health").status_code == 200
        # This event has the form of Vector's source docker_logs.
        event = {
            "container_name": "supabase_db_demo",
            "host": "vector",
            "image": "postgres:15",
            "label": {"com.supabase.cli.project": "demo"},
            "message": "database system is ready to accept connections",
            "source_type": "docker_logs",
            "stream": "stderr",
            "timestamp": "2026-01-01T00:00:00.123456789Z",
        }
        sent = httpx.post(f"{deployment.url}/api/logs?source_name=docker.logs.local", json=[event], headers=PUBLIC)
        assert (sent.status_code, sent.json()["accepted"]) == (200, 1), sent.text
        parameters = {"sql": "select event_message, container_name from `docker.logs.local`"}
        rows = httpx.get(f"{deployment.url}/api/query", params=parameters, headers=PRIVATE).json()["result"]
        assert rows == [{"event_message": event["message"], "container_name": "supabase_db_demo"}]
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(30)


def test_the_launcher_refuses_unknown_commands(tmp_path: Path) -> None:
    for words in ([], ["eval", "System.halt"], ["remote"]):
        result = subprocess.run(
            ["sh", str(DEPLOY_FOLDER / "logflare"), *words], cwd=tmp_path, capture_output=True, check=False
        )
        assert result.returncode == 64
        assert result.stderr


def test_the_working_folder_of_the_image_is_that_of_the_cli() -> None:
    last = image_instructions().split("\nFROM ")[-1]
    assert re.search(rf"^WORKDIR {LAUNCHER_FOLDER}$", last, re.MULTILINE)
    assert f"install --directory --owner cordwood --group cordwood --mode 0755 {LAUNCHER_FOLDER}\n" in last
    assert os.access(DEPLOY_FOLDER / "logflare", os.X_OK)
