"""A ClickHouse server behind TLS with a private certificate authority."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cordwood.engines.clickhouse.clickhouse_engine import ClickHouseEngine, ClickHouseOptions
from cordwood.engines.clickhouse.session import Session
from cordwood.errors import BadSetting, EngineUnreachable
from cordwood.model.event import ReceivedEventBatch
from tests.certificates import Authority
from tests.clickhouse_server import ClickHouseServer, serve_clickhouse
from tests.unit.engines.clickhouse.direct_queries import EDGE_STREAM, NOW_US, answer_rows, event

pytestmark = pytest.mark.usefixtures("without_isolation_check")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def server(address: str, authority: Authority) -> Iterator[ClickHouseServer]:
    with serve_clickhouse(address, authority.sign_certificate()) as server:
        yield server


def select_one(address: str) -> object:
    session = Session(address)
    try:
        return session.fetch_rows("SELECT 1")[0][0]
    finally:
        session.close()


def test_events_are_stored_and_read_with_ca_cert(
    server: ClickHouseServer, authority: Authority, tmp_path: Path
) -> None:
    options = ClickHouseOptions(pending_folder=tmp_path / "pending")
    engine = ClickHouseEngine(f"{server.address()}?secure=1&ca_cert={authority.file}", options)
    engine.create_stream_tables([EDGE_STREAM])
    engine.append([ReceivedEventBatch("edge.logs", [event("1")], NOW_US)])
    assert answer_rows(engine, "SELECT id FROM `edge.logs`") == [("1",)]
    engine.close()


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
def test_verification_can_be_switched_off(server: ClickHouseServer) -> None:
    assert select_one(f"{server.address()}?secure=1&verify=0") == 1


def test_an_unknown_authority_is_an_error_that_names_the_option(server: ClickHouseServer, tmp_path: Path) -> None:
    engine = ClickHouseEngine(f"{server.address()}?secure=1", ClickHouseOptions(pending_folder=tmp_path / "pending"))
    with pytest.raises(EngineUnreachable, match="certificate is not trusted: unable to get local issuer") as raised:
        engine.create_stream_tables([EDGE_STREAM])
    assert "ca_cert=" in (raised.value.hint or "")
    engine.close()


def test_a_certificate_of_another_host_needs_server_host_name(address: str, authority: Authority) -> None:
    with serve_clickhouse(address, authority.sign_certificate(name="events.example", address="192.0.2.7")) as server:
        trusting = f"{server.address()}?secure=1&ca_cert={authority.file}"
        with pytest.raises(EngineUnreachable, match=r"not valid for '127\.0\.0\.1'"):
            select_one(trusting)
        assert select_one(f"{trusting}&server_host_name=events.example") == 1


def test_a_client_certificate_authenticates(address: str, authority: Authority) -> None:
    own = authority.sign_certificate(name="cordwood")
    with serve_clickhouse(address, authority.sign_certificate(), client_authority=authority.file) as server:
        place = f"{server.address('wrong')}?secure=1&ca_cert={authority.file}"
        with pytest.raises(EngineUnreachable, match="refuses the service's login"):
            select_one(place)
        assert select_one(f"{place}&client_cert={own}&client_cert_key={own}") == 1


def test_a_port_without_tls_is_reported(address: str) -> None:
    with (
        serve_clickhouse(address) as server,
        pytest.raises(EngineUnreachable, match="does not speak TLS") as raised,
    ):
        select_one(f"{server.address()}?secure=1")
    assert "secure=0" in (raised.value.hint or "")


def test_plain_http_to_a_tls_port_is_reported_with_the_option(server: ClickHouseServer) -> None:
    with pytest.raises(EngineUnreachable) as raised:
        select_one(server.address())
    assert "secure=1" in (raised.value.hint or "")


def test_a_missing_or_empty_certificate_file_is_reported_before_connecting(tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.touch()
    with pytest.raises(BadSetting, match="there is no file"):
        Session(f"clickhouse://host/db?secure=1&ca_cert={tmp_path / 'nowhere.pem'}")
    with pytest.raises(BadSetting, match="has no readable certificate"):
        Session(f"clickhouse://host/db?secure=1&ca_cert={empty}")
