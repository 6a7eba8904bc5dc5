"""The client that can be downloaded: linters and type checkers accept it, and it works with the service."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.architecture.tree import ROOT
from tests.journey.conftest import PRIVATE, PUBLIC, Service, Start, create_key

CLIENT_PATH = "/api/client.py"


@pytest.fixture(scope="module")
def client_file(service: Service, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of the client, as downloaded with a private key."""
    answer = service.client.get(CLIENT_PATH)
    assert answer.status_code == 200, answer.text
    path = tmp_path_factory.mktemp("client") / "cordwood_client.py"
    path.write_bytes(answer.content)
    return path


@pytest.fixture(scope="module")
def client_module(client_file: Path) -> ModuleType:
    return import_file(client_file)


def import_file(client_file: Path) -> ModuleType:
    """Import the generated client file as a Python module, as a user's program does."""
    spec = importlib.util.spec_from_file_location(client_file.stem, client_file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def client(service: Service, client_module: ModuleType) -> Any:
    return client_module.Client(service.url, PRIVATE)


def test_the_client_is_a_download_that_does_not_change(service: Service, client_file: Path) -> None:
    answer = service.client.get(CLIENT_PATH)
    assert answer.headers["content-type"] == "text/x-python; charset=utf-8"
    assert answer.headers["content-disposition"] == 'attachment; filename="cordwood_client.py"'
    assert answer.content == client_file.read_bytes()


@pytest.mark.parametrize(
    "command",
    [
        ("mypy", "--strict", "--no-incremental", "--python-version", "3.11"),
        # These rules are ignored because the file is not in a package, and the API determines its method and parameter
        # names.
        (
            "ruff",
            "check",
            "--no-cache",
            "--extend-ignore",
            "INP001,D401,N803",
            "--config",
            str(ROOT / "pyproject.toml"),
        ),
        ("ruff", "format", "--check", "--no-cache", "--config", str(ROOT / "pyproject.toml")),
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_linters_and_type_checkers_find_nothing(client_file: Path, command: tuple[str, ...]) -> None:
    run = subprocess.run(
        [sys.executable, "-m", *command, client_file.name],
        cwd=client_file.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_every_operation_has_a_method(service: Service, client: Any) -> None:
    paths = service.client.get("/api/openapi.json").json()["paths"]
    operations = [operation for verbs in paths.values() for operation in verbs.values()]
    own = [operation["operationId"] for operation in operations if "x-cordwood-endpoint" not in operation]
    shipped = [
        f"{verb}_{name}" for verb in ("query", "post") for name in ("logs_all", "logs_all_otel", "usage_api_counts")
    ]
    assert all(callable(getattr(client, name, None)) for name in (*own, *shipped))


def test_events_are_sent_and_queried(client: Any) -> None:
    event = {"event_message": "é 😀", "project": "client", "metadata": {"request": {"path": "/a"}}}
    assert client.send_events(body=[event], source_name="cloudflare.logs.prod")["accepted"] == 1
    line = b'{"event_message": "line", "project": "client"}\n'
    receipt = client.send_events(body=line, content_type="application/x-ndjson", source_name="cloudflare.logs.prod")
    assert receipt["accepted"] == 1
    sql = "select event_message from edge_logs where event_message like '%😀' or event_message = 'line' order by 1"
    rows = [{"event_message": "line"}, {"event_message": "é 😀"}]
    assert client.query_logs_all(project="client", sql=sql).rows == rows
    assert client.post_logs_all(project="client", sql=sql).rows == rows
    answer = client.query_logs_all(project="client", sql=sql, format_="csv")
    assert answer.text.splitlines() == ["event_message", "line", "é 😀"]
    page = client.query_logs_all(project="client", sql=sql, page_size=1)
    assert page.rows == rows[:1]
    assert client.query_logs_all(project="client", sql=sql, page_size=1, cursor=page.next_cursor).rows == rows[1:]


def test_definitions_with_names_that_need_encoding_are_created_and_deleted(client: Any) -> None:
    source = client.create_source(body={"name": "a b/ü?"})
    assert client.show_source(name_or_id="a b/ü?")["token"] == source["token"]
    assert client.delete_source(name_or_id="a b/ü?") is None
    assert client.livez() is not None
    assert "cordwood_build_info" in client.metrics()


def test_errors_are_exceptions_with_code_hint_and_place(
    client_module: ModuleType, client: Any, service: Service
) -> None:
    with pytest.raises(client_module.CordwoodError) as refused:
        client.query_logs_all(project="client", sql="select\n nothing_such from edge_logs")
    error = refused.value
    assert (error.status, error.code, error.line) == (400, "query.unknown-name", 2)
    assert error.column
    assert error.hint
    assert error.code in str(error)
    with pytest.raises(client_module.CordwoodError) as refused:
        client_module.Client(service.url, "wrong").list_endpoints()
    assert (refused.value.status, refused.value.code) == (401, "request.bad-key")
    with pytest.raises(client_module.NotReachedError) as unreachable:
        client_module.Client("http://127.0.0.1:1", PRIVATE).list_endpoints()
    assert unreachable.value.code == "client.not-reached"
    with pytest.raises(ValueError, match="not the URL of a service"):
        client_module.Client("file:///etc/passwd")


def test_a_query_is_followed(client: Any) -> None:
    rows = client.follow(name_or_id="logs.all", project="followed", since="1h")
    event = {"event_message": "followed", "project": "followed"}
    client.send_events(body=[event], source_name="cloudflare.logs.prod")
    assert next(rows)["event_message"] == "followed"
    rows.close()


HOSTILE_NAMES = (
    'x""" + __import__(\'os\').abort() + """',
    "'); raise SystemExit #",
    "class",
    "a.b",
    "a-b",
    "{name} %s \\N{BELL}",
    "été 😀",
)


def test_names_that_look_like_code_become_method_names(start: Start, tmp_path: Path) -> None:
    folder = tmp_path / "queries"
    folder.mkdir()
    for number, name in enumerate(HOSTILE_NAMES):
        text = json.dumps(name, ensure_ascii=False)
        settings = f"name = {text}\ndescription = {text}\nmax_rows = 1\n[parameters.from]\ndescription = {text}"
        (folder / f"{number}.sql").write_text(f"/*\n{settings}\n*/\nselect @from as told\n")
    running = start("--endpoints", str(folder))
    client_file = tmp_path / "hostile_client.py"
    client_file.write_bytes(running.client.get(CLIENT_PATH).content)
    client = import_file(client_file).Client(running.url, PRIVATE)
    paths = running.client.get("/api/openapi.json").json()["paths"]
    for name in HOSTILE_NAMES:
        id_ = paths[f"/api/endpoints/query/{quote(name, safe='')}"]["get"]["operationId"]
        method = getattr(client, id_[: -len("_12345678")].strip("_"), None) or getattr(client, id_)
        assert method(from_=name).rows == [{"told": name}]


def test_a_key_sees_only_its_own_endpoints(service: Service) -> None:
    endpoint_key = create_key(service, "query:endpoint:logs.all")
    text = httpx.get(service.url + CLIENT_PATH, headers={"X-API-KEY": endpoint_key}).text
    assert "def query_logs_all(" in text
    assert "usage" not in text.partition("class Client")[2].replace("usage_error", "")
    sender = httpx.get(service.url + CLIENT_PATH, headers={"X-API-KEY": PUBLIC}).text
    assert "def query_logs_all(" not in sender
    assert "def send_events(" in sender


def test_without_a_key_the_client_has_the_public_operations(service: Service) -> None:
    text = httpx.get(service.url + CLIENT_PATH).text
    assert "def query_usage_api_counts(" in text
    assert PRIVATE not in text
