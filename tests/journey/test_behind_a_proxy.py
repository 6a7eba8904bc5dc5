"""The guide's configurations of nginx and Caddy, used unchanged except for addresses, certificates and folders."""

import ssl
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import httpx
import pytest

from tests.certificates import Authority
from tests.debian import require_program
from tests.journey.conftest import PRIVATE, Service, start_service
from tests.journey.guide_walk import free_port, steps_of
from tests.journey.test_otlp_grpc import (
    CALL_METADATA,
    EXPORT_METHOD,
    LISTENER_SETTINGS,
    log_request,
    messages,
    printed_grpc_address,
)
from tests.waiting import until

GUIDE_FILES = {step.saved_as: step.text for step in steps_of("docs/guide/behind-a-proxy.md") if step.saved_as}
QUERY_PATH = "/api/endpoints/query/logs.all"

NGINX_CONFIGURATION = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/cordwood.conf;
    include {folder}/otlp.conf;
}}
"""
CADDY_CONFIGURATION = """
{{
    admin off
    grace_period 1s
    http_port {plain}
    https_port {secure}
    default_bind 127.0.0.1
    skip_install_trust
    storage file_system {folder}/storage
}}
import {folder}/cordwood.Caddyfile
import {folder}/otlp.Caddyfile
"""


@dataclass
class Proxy:
    """A running proxy, with its addresses and its access log."""

    folder: Path
    service: Service
    authority: Authority
    plain: int = field(default_factory=free_port)
    secure: int = field(default_factory=free_port)
    grpc: int = field(default_factory=free_port)

    def __post_init__(self) -> None:
        trusted = ssl.create_default_context(cafile=str(self.authority.file))
        self.client = httpx.Client(
            base_url=f"https://localhost:{self.secure}", verify=trusted, headers={"X-API-KEY": PRIVATE}, timeout=60
        )

    @property
    def access_log(self) -> Path:
        return self.folder / "access.log"

    def is_ready(self) -> bool:
        with suppress(httpx.TransportError):
            return self.client.get("/health").status_code == 200
        return False


def replace_addresses(text: str, values: Mapping[str, str]) -> str:
    for written, other in values.items():
        assert written in text, written
        text = text.replace(written, other)
    return text


def nginx_command(proxy: Proxy) -> list[str]:
    program = require_program("nginx", "nginx")
    certificate = str(proxy.authority.sign_certificate())
    files = {
        "/etc/letsencrypt/live/logs.example.com/fullchain.pem": certificate,
        "/etc/letsencrypt/live/logs.example.com/privkey.pem": certificate,
    }
    upstream = proxy.service.url.removeprefix("http://")
    own = replace_addresses(
        GUIDE_FILES["nginx/cordwood.conf"],
        {
            **files,
            "127.0.0.1:4000;": f"{upstream};",
            "    listen [::]:80;\n": "",
            "    listen [::]:443 ssl http2;\n": "",
            "listen 80;": f"listen 127.0.0.1:{proxy.plain};",
            "listen 443 ssl http2;": f"listen 127.0.0.1:{proxy.secure} ssl http2;",
            "/var/log/nginx/cordwood.log": str(proxy.access_log),
        },
    )
    otlp = replace_addresses(
        GUIDE_FILES["nginx/otlp.conf"],
        {
            **files,
            "listen 4317 ssl http2;": f"listen 127.0.0.1:{proxy.grpc} ssl http2;",
            "grpc://127.0.0.1:4327": f"grpc://{printed_grpc_address(proxy.service)}",
        },
    )
    (proxy.folder / "cordwood.conf").write_text(own)
    (proxy.folder / "otlp.conf").write_text(otlp)
    (proxy.folder / "nginx.conf").write_text(NGINX_CONFIGURATION.format(folder=proxy.folder))
    return [program, "-e", str(proxy.folder / "error.log"), "-c", str(proxy.folder / "nginx.conf")]


def caddy_command(proxy: Proxy) -> list[str]:
    program = require_program("caddy", "caddy")
    certificate = f"\ttls {proxy.authority.sign_certificate()} {proxy.authority.sign_certificate()}\n"
    own = replace_addresses(
        GUIDE_FILES["caddy/Caddyfile"],
        {
            "logs.example.com {\n": "localhost {\n" + certificate,
            "reverse_proxy 127.0.0.1:4000": f"reverse_proxy {proxy.service.url.removeprefix('http://')}",
            "/var/log/caddy/cordwood.log": str(proxy.access_log),
        },
    )
    otlp = replace_addresses(
        GUIDE_FILES["caddy/otlp.Caddyfile"],
        {
            "logs.example.com:4317 {\n": f"localhost:{proxy.grpc} {{\n" + certificate,
            "h2c://127.0.0.1:4327": f"h2c://{printed_grpc_address(proxy.service)}",
        },
    )
    (proxy.folder / "cordwood.Caddyfile").write_text(own)
    (proxy.folder / "otlp.Caddyfile").write_text(otlp)
    main = proxy.folder / "Caddyfile"
    main.write_text(CADDY_CONFIGURATION.format(folder=proxy.folder, plain=proxy.plain, secure=proxy.secure))
    return [program, "run", "--config", str(main), "--adapter", "caddyfile"]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    running = start_service(tmp_path_factory.mktemp("behind") / "data", env=LISTENER_SETTINGS)
    yield running
    running.stop()


@pytest.fixture(scope="module", params=[nginx_command, caddy_command], ids=["nginx", "caddy"])
def proxy(
    request: pytest.FixtureRequest, service: Service, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Proxy]:
    folder = tmp_path_factory.mktemp("proxy")
    configured: Callable[[Proxy], list[str]] = request.param
    started_proxy = Proxy(folder, service, Authority(folder))
    command = configured(started_proxy)
    with (folder / "said.log").open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env={"HOME": str(folder), "PATH": "/usr/bin:/bin"})
    try:
        until(lambda: process.poll() is not None or started_proxy.is_ready(), 60)
        assert process.poll() is None, (folder / "said.log").read_text()
        yield started_proxy
    finally:
        started_proxy.client.close()
        # After the tests, the proxy is killed, because a graceful stop might wait for connections that are kept alive.
        process.kill()
        process.wait(30)


def send_events(proxy: Proxy, *events: Mapping[str, object]) -> httpx.Response:
    return proxy.client.post("/api/logs?source_name=postgres.logs", json=list(events))


def test_plain_http_is_redirected_to_https(proxy: Proxy) -> None:
    answer = httpx.get(f"http://localhost:{proxy.plain}/docs?a=1")
    assert answer.status_code == 308
    assert answer.headers["location"].startswith("https://localhost")
    assert answer.headers["location"].endswith("/docs?a=1")


def test_the_explorer_queries_and_events_pass_the_proxy(proxy: Proxy) -> None:
    assert "<title>cordwood</title>" in proxy.client.get("/", headers={"Accept": "text/html"}).text
    assert send_events(proxy, {"id": "one", "project": "through", "event_message": "hello"}).status_code == 200
    answer = proxy.client.get(
        QUERY_PATH, params={"project": "through", "sql": "select event_message as m from postgres_logs"}
    )
    assert answer.json()["result"] == [{"m": "hello"}]


def test_rows_of_a_followed_query_are_not_buffered(proxy: Proxy) -> None:
    parameters = {"project": "followed", "lql": "f:postgres_logs"}
    with proxy.client.stream("GET", "/api/endpoints/tail/logs.all", params=parameters) as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        lines = answer.iter_lines()
        next(lines)
        send_events(proxy, {"project": "followed", "event_message": "as it is stored"})
        assert next(line for line in lines if "as it is stored" in line).startswith("data: ")


def test_large_bodies_pass_and_the_service_refuses_those_that_are_too_large(proxy: Proxy) -> None:
    large_events = [{"project": "large", "event_message": "x" * 60_000} for _ in range(50)]
    assert send_events(proxy, *large_events).json()["accepted"] == 50
    too_large = proxy.client.post(
        "/api/logs?source_name=postgres.logs", content=b" " * (17 << 20), headers={"Content-Type": "application/json"}
    )
    assert (too_large.status_code, too_large.json()["error"]["status"]) == (413, "request.too-large")


def test_a_query_of_forty_kilobytes_fits_into_a_url(proxy: Proxy) -> None:
    sql = f"select 1 as one from postgres_logs /* {'x' * 40_000} */ limit 1"
    assert proxy.client.get(QUERY_PATH, params={"project": "through", "sql": sql}).status_code == 200


def test_keys_and_queries_of_addresses_are_not_in_the_access_log(proxy: Proxy) -> None:
    answer = httpx.get(
        f"https://localhost:{proxy.secure}{QUERY_PATH}",
        params={"api_key": PRIVATE, "project": "a-secret-project"},
        verify=ssl.create_default_context(cafile=str(proxy.authority.file)),
    )
    assert answer.status_code == 200
    until(lambda: QUERY_PATH in proxy.access_log.read_text())
    logged = proxy.access_log.read_text()
    assert [secret for secret in (PRIVATE, "a-secret-project", "api_key") if secret in logged] == []


def test_metrics_are_available_on_this_machine_only(proxy: Proxy) -> None:
    assert proxy.client.get("/metrics").status_code == 403
    assert httpx.get(f"{proxy.service.url}/metrics").status_code == 200


def test_otlp_over_grpc_passes_the_proxy(proxy: Proxy, request: pytest.FixtureRequest) -> None:
    text = f"through {request.node.name}"
    trusted = grpc.ssl_channel_credentials(proxy.authority.file.read_bytes())
    with grpc.secure_channel(f"localhost:{proxy.grpc}", trusted) as channel:
        channel.unary_unary(EXPORT_METHOD)(
            log_request(text, text), metadata=CALL_METADATA, timeout=30, wait_for_ready=True
        )
    assert text in messages(proxy.service)


def test_headers_that_claim_a_client_address_are_ignored(proxy: Proxy) -> None:
    """Check that headers that claim a client address have no effect, because the service does not read them."""
    claims = {"X-Forwarded-For": "not an address, 10.0.0.1", "X-Forwarded-Proto": "ftp", "Forwarded": "for=;;;"}
    answer = proxy.client.get(QUERY_PATH, params={"project": "through"}, headers=claims)
    assert answer.status_code == 200
