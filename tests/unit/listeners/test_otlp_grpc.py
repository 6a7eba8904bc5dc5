"""OTLP over gRPC on a real connection: stored events, and the status of each refusal."""

import asyncio
import gzip
import json
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import BadRequest, RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from cordwood.app.in_process import InProcessApp, open_in_process_app
from cordwood.app.service import start_otlp_grpc_listener
from cordwood.errors import BadSetting
from cordwood.listeners.otlp_grpc import MAX_MESSAGE_BYTES, OtlpGrpcServer, start_otlp_grpc_server
from cordwood.settings.settings import (
    DuckDBSettings,
    IngestSettings,
    LimitSettings,
    ListenSettings,
    ServeSettings,
    Settings,
    WebSettings,
)
from tests.certificates import Authority

STREAMS = """
[[stream]]
name = "otel"
[[stream]]
name = "slow"
rate = "1/h"
"""
LOGS_METHOD = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
TRACES_METHOD = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
METRICS_METHOD = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
CALL_SECONDS = 60


@dataclass
class GrpcService:
    """A service in the test process, with a gRPC server."""

    inside: InProcessApp
    port: int

    def run(self, call: Callable[[Any], Awaitable[Any]]) -> Any:
        async def connected() -> Any:
            options = [("grpc.max_send_message_length", -1)]
            async with grpc.aio.insecure_channel(f"127.0.0.1:{self.port}", options) as channel:
                return await call(channel)

        return self.inside.runner.run(connected())

    def call(self, method: str, message: bytes, *, compressed: bool = False, **metadata: str) -> bytes:
        """Return the answer to a call, which has the private key unless `metadata` sets another key."""
        metadata_pairs = {"x-api-key": self.inside.private_key_secret, "x-source": "otel"} | {
            name.replace("_", "-"): value for name, value in metadata.items()
        }
        compression = grpc.Compression.Gzip if compressed else None
        sent = [(name, value) for name, value in metadata_pairs.items() if value]
        answer: bytes = self.run(
            lambda channel: channel.unary_unary(method)(
                message, metadata=sent, compression=compression, timeout=CALL_SECONDS
            )
        )
        return answer

    def messages(self) -> list[str]:
        key = {"x-api-key": self.inside.private_key_secret}
        _, _, body = self.inside.send("GET", "/api/sources/otel/recent?limit=100", b"", key)
        result_rows: list[dict[str, Any]] = json.loads(body)
        return [event["event_message"] for event in result_rows]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GrpcService]:
    folder: Path = tmp_path_factory.mktemp("grpc")
    (folder / "streams.toml").write_text(STREAMS)
    settings = Settings(
        serve=ServeSettings(data_dir=str(folder / "data"), streams=str(folder / "streams.toml")),
        web=WebSettings(log_level="error"),
        limits=LimitSettings(memory=500 * 10**6),
        duckdb=DuckDBSettings(threads=1),
        ingest=IngestSettings(inflated_size=8 * 2**20),
    )
    with open_in_process_app(settings) as inside:

        async def start_server() -> tuple[OtlpGrpcServer, int]:
            server = OtlpGrpcServer(inside.app, 16 * 2**20, 20)
            port = server.listen("127.0.0.1:0")
            await server.start()
            return server, port

        server, port = inside.runner.run(start_server())
        yield GrpcService(inside, port)
        inside.runner.run(server.stop(1))


def log_request(*messages: str, project: str = "") -> bytes:
    request = ExportLogsServiceRequest()
    of_resource = request.resource_logs.add()
    if project:
        of_resource.resource.attributes.add(key="project").value.string_value = project
    records = of_resource.scope_logs.add().log_records
    for message in messages:
        records.add().body.string_value = message
    return bytes(request.SerializeToString())


def test_records_are_stored_and_the_answer_is_empty(site: GrpcService) -> None:
    assert site.call(LOGS_METHOD, log_request("plain")) == b""
    assert site.call(LOGS_METHOD, log_request("in gzip", "x" * 5000), compressed=True) == b""
    assert {"plain", "in gzip"} <= set(site.messages())


def test_spans_are_stored_and_metrics_are_accepted(site: GrpcService) -> None:
    request = ExportTraceServiceRequest()
    request.resource_spans.add().scope_spans.add().spans.add(name="a span")
    assert site.call(TRACES_METHOD, request.SerializeToString()) == b""
    assert "a span" in site.messages()
    assert site.call(METRICS_METHOD, b"") == b""


def test_the_key_may_be_a_bearer_token(site: GrpcService) -> None:
    assert (
        site.call(
            LOGS_METHOD, log_request("bearer"), x_api_key="", authorization=f"Bearer {site.inside.private_key_secret}"
        )
        == b""
    )


def test_quarantined_records_are_a_partial_success(site: GrpcService) -> None:
    answer = site.call(LOGS_METHOD, log_request("x" * (2**20 + 1), "beside a large one"), compressed=True)
    partial = ExportLogsServiceResponse.FromString(answer).partial_success
    assert partial.rejected_log_records == 1
    assert "larger than" in partial.error_message
    assert "beside a large one" in site.messages()


def refusal(
    site: GrpcService, method: str, message: bytes, *, compressed: bool = False, **metadata: str
) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        site.call(method, message, compressed=compressed, **metadata)
    return caught.value


def status_details(error: grpc.aio.AioRpcError) -> Mapping[str, Any]:
    """Check the code and the message of the status. Return its details by type."""
    trailing = dict(error.trailing_metadata())
    rpc_status = Status.FromString(trailing["grpc-status-details-bin"])
    assert (rpc_status.code, rpc_status.message) == (error.code().value[0], error.details())
    details = {}
    for detail in rpc_status.details:
        kind = {"BadRequest": BadRequest, "RetryInfo": RetryInfo}[detail.type_url.rpartition(".")[2]]()
        assert detail.Unpack(kind)
        details[type(kind).__name__] = kind
    if "RetryInfo" in details:
        assert RetryInfo.FromString(trailing["google.rpc.retryinfo-bin"]) == details["RetryInfo"]
    return details


@pytest.mark.parametrize(
    ("metadata", "code", "message"),
    [
        ({"x_api_key": ""}, grpc.StatusCode.UNAUTHENTICATED, "key"),
        ({"x_api_key": "wrong"}, grpc.StatusCode.UNAUTHENTICATED, "not in force"),
        ({"x_source": ""}, grpc.StatusCode.INVALID_ARGUMENT, "which stream"),
        ({"x_source": "nowhere"}, grpc.StatusCode.NOT_FOUND, "no stream 'nowhere'"),
        ({"authorization": "Bearer another"}, grpc.StatusCode.INVALID_ARGUMENT, "Two different keys"),
    ],
)
def test_a_permanent_refusal_has_no_retry_delay(
    site: GrpcService, metadata: dict[str, Any], code: grpc.StatusCode, message: str
) -> None:
    error = refusal(site, LOGS_METHOD, log_request("x"), **metadata)
    assert error.code() is code
    assert message in (error.details() or "")
    assert "RetryInfo" not in status_details(error)


def test_a_message_that_cannot_be_decoded_is_a_bad_request(site: GrpcService) -> None:
    error = refusal(site, LOGS_METHOD, b"\xff" * 9)
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    (violation,) = status_details(error)["BadRequest"].field_violations
    assert "ExportLogsServiceRequest" in violation.description
    assert refusal(site, LOGS_METHOD, gzip.compress(b"x")[:-3]).code() is grpc.StatusCode.INVALID_ARGUMENT


def test_a_stream_above_its_rate_is_refused_with_a_retry_delay(site: GrpcService) -> None:
    assert site.call(LOGS_METHOD, log_request("a", "b"), x_source="slow") == b""
    error = refusal(site, LOGS_METHOD, log_request("c"), x_source="slow")
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert status_details(error)["RetryInfo"].retry_delay.seconds > 60


def test_an_unknown_method_and_another_compression_are_unimplemented(site: GrpcService) -> None:
    assert refusal_code(site, "/opentelemetry.proto.collector.logs.v1.LogsService/Import") == "UNIMPLEMENTED"
    assert refusal_code(site, LOGS_METHOD, grpc.Compression.Deflate) == "UNIMPLEMENTED"


def refusal_code(site: GrpcService, method: str, compression: Any = None) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        site.run(lambda channel: channel.unary_unary(method)(b"x" * 100, compression=compression))
    return str(caught.value.code().name)


def test_a_message_above_the_limit_is_refused_permanently(site: GrpcService) -> None:
    error = refusal(site, LOGS_METHOD, log_request("x" * MAX_MESSAGE_BYTES))
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert not any("retry" in name for name, _ in error.trailing_metadata() or ())


def test_a_compression_bomb_is_refused_at_the_limit_of_bodies(site: GrpcService) -> None:
    error = refusal(site, LOGS_METHOD, b"\0" * (9 * 2**20), compressed=True)
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "inflates to more than" in (error.details() or "")
    assert "RetryInfo" not in status_details(error)


def test_a_caller_without_a_key_is_refused_before_its_message(site: GrpcService) -> None:
    async def without_message(channel: Any) -> grpc.StatusCode:
        call = channel.stream_unary(LOGS_METHOD)()
        return await asyncio.wait_for(call.code(), CALL_SECONDS)

    assert site.run(without_message) is grpc.StatusCode.UNAUTHENTICATED


def test_a_call_without_a_message_ends(site: GrpcService) -> None:
    async def empty(channel: Any) -> grpc.StatusCode:
        call = channel.stream_unary(LOGS_METHOD)(
            metadata=[("x-api-key", site.inside.private_key_secret), ("x-source", "otel")]
        )
        await call.done_writing()
        return await asyncio.wait_for(call.code(), CALL_SECONDS)

    assert site.run(empty) is grpc.StatusCode.CANCELLED


def start_stalled_calls(site: GrpcService, channel: Any, count: int) -> list[Any]:
    """Start calls that send no message, and return them. The fixture's budget has room for four messages."""
    metadata = [("x-api-key", site.inside.private_key_secret), ("x-source", "otel")]
    return [channel.stream_unary(LOGS_METHOD)(metadata=metadata) for _ in range(count)]


def test_stalled_messages_are_limited_by_the_body_budget(site: GrpcService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cordwood.listeners.otlp_grpc.RESERVATION_RETRY_PAUSES_SECONDS", (0.01,))

    async def stall_calls(channel: Any) -> list[grpc.StatusCode]:
        stalled = start_stalled_calls(site, channel, 6)
        codes = [asyncio.ensure_future(call.code()) for call in stalled]
        first = [await code for _, code in zip(range(2), asyncio.as_completed(codes), strict=False)]
        for call in stalled:
            call.cancel()
        await asyncio.wait(codes)
        return first

    assert site.run(stall_calls) == [grpc.StatusCode.RESOURCE_EXHAUSTED] * 2
    assert site.call(LOGS_METHOD, log_request("after the crowd")) == b""


def test_a_message_waits_for_the_body_budget(site: GrpcService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cordwood.listeners.otlp_grpc.RESERVATION_RETRY_PAUSES_SECONDS", (0.01,) * 5000)

    async def stall_calls(channel: Any) -> bytes:
        stalled = start_stalled_calls(site, channel, 4)
        await asyncio.sleep(0.2)
        metadata = [("x-api-key", site.inside.private_key_secret), ("x-source", "otel")]
        call = channel.unary_unary(LOGS_METHOD)(log_request("waits"), metadata=metadata, timeout=CALL_SECONDS)
        await asyncio.sleep(0.1)
        assert not call.done()
        for item in stalled:
            item.cancel()
        answer: bytes = await call
        return answer

    assert site.run(stall_calls) == b""


def test_an_address_in_use_is_reported(site: GrpcService) -> None:
    async def start_another() -> None:
        server = OtlpGrpcServer(site.inside.app, 0, 20)
        try:
            server.listen(f"127.0.0.1:{site.port}")
        finally:
            await server.stop(0)

    with pytest.raises(BadSetting, match="cannot listen"):
        site.inside.runner.run(start_another())


def test_tls_may_require_client_certificates(site: GrpcService, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pem, ca = authority.sign_certificate(), authority.file
    listen = ListenSettings(otlp_grpc="tls://localhost:0", tls_certificate=str(pem), tls_client_ca=str(ca))

    async def exported() -> tuple[bytes, grpc.StatusCode]:
        server = await start_otlp_grpc_server(
            Settings(listen=listen, limits=LimitSettings(memory=500 * 10**6)), site.inside.app
        )
        address = server.listener_names[0].removeprefix("OTLP over gRPC tls://")
        metadata = [("x-api-key", site.inside.private_key_secret), ("x-source", "otel")]
        unknown = grpc.ssl_channel_credentials(ca.read_bytes())
        known = grpc.ssl_channel_credentials(ca.read_bytes(), pem.read_bytes(), pem.read_bytes())
        async with grpc.aio.secure_channel(address, known) as channel:
            answer = await channel.unary_unary(LOGS_METHOD)(
                log_request("over TLS"), metadata=metadata, timeout=CALL_SECONDS
            )
        async with grpc.aio.secure_channel(address, unknown) as channel:
            refused = channel.unary_unary(LOGS_METHOD)(log_request("unknown"), metadata=metadata, timeout=CALL_SECONDS)
            code = await refused.code()
        await server.stop(1)
        return answer, code

    assert site.inside.runner.run(exported()) == (b"", grpc.StatusCode.UNAVAILABLE)
    assert "over TLS" in site.messages()


@pytest.mark.parametrize(
    ("listen", "message"),
    [
        (ListenSettings(otlp_grpc="127.0.0.1:4317"), "is not an address"),
        (ListenSettings(otlp_grpc="tcp://127.0.0.1"), "is not an address"),
        (ListenSettings(otlp_grpc="tcp://127.0.0.1:99999"), "is not an address"),
        (ListenSettings(otlp_grpc="tls://127.0.0.1:0"), "needs a certificate"),
        (ListenSettings(otlp_grpc="tls://127.0.0.1:0", tls_certificate="/nowhere"), "cannot be read"),
        (ListenSettings(otlp_grpc="tls://127.0.0.1:0", tls_certificate=__file__), "cannot listen"),
    ],
)
def test_an_invalid_setting_is_reported(site: GrpcService, listen: ListenSettings, message: str) -> None:
    with pytest.raises(BadSetting, match=message):
        site.inside.runner.run(start_otlp_grpc_server(Settings(listen=listen), site.inside.app))


def test_a_missing_package_is_reported_with_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    monkeypatch.delitem(sys.modules, "cordwood.listeners.otlp_grpc", raising=False)
    settings = Settings(listen=ListenSettings(otlp_grpc="tcp://127.0.0.1:0"))
    with pytest.raises(BadSetting, match="grpcio") as caught:
        asyncio.run(start_otlp_grpc_listener(settings, None))  # type: ignore[arg-type] # it is not used
    assert "cordwood[grpc]" in (caught.value.hint or "")
