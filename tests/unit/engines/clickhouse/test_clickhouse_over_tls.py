"""A ClickHouse server behind TLS whose authority is nobody's but the user's own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cordwood.engines.clickhouse.clickhouse_engine import ClickHouse, Options
from cordwood.engines.clickhouse.session import Session
from cordwood.errors import BadSetting, EngineUnreachable
from cordwood.model.event import Batch
from tests.certificates import Authority
from tests.clickhouse_server import ClickHouseServer, serving
from tests.unit.engines.clickhouse.asking import EDGE, NOW_US, answered, event

pytestmark = pytest.mark.usefixtures("written_by_hand")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def server(address: str, authority: Authority) -> Iterator[ClickHouseServer]:
    with serving(address, authority.signs()) as server:
        yield server


def one(address: str) -> object:
    session = Session(address)
    try:
        return session.rows("SELECT 1")[0][0]
    finally:
        session.close()


def test_events_go_and_come_when_its_authority_is_named(
    server: ClickHouseServer, authority: Authority, tmp_path: Path
) -> None:
    options = Options(pending_folder=tmp_path / "pending")
    engine = ClickHouse(f"{server.address()}?secure=1&ca_cert={authority.file}", options)
    engine.prepare([EDGE])
    engine.append([Batch("edge.logs", [event("1")], NOW_US)])
    assert answered(engine, "SELECT id FROM `edge.logs`") == [("1",)]
    engine.close()


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
def test_whoever_wants_to_need_not_know_it(server: ClickHouseServer) -> None:
    assert one(f"{server.address()}?secure=1&verify=0") == 1


def test_an_unknown_authority_stops_the_start_and_says_what_to_set(server: ClickHouseServer, tmp_path: Path) -> None:
    engine = ClickHouse(f"{server.address()}?secure=1", Options(pending_folder=tmp_path / "pending"))
    with pytest.raises(EngineUnreachable, match="certificate is not trusted: unable to get local issuer") as told:
        engine.prepare([EDGE])
    assert "ca_cert=" in (told.value.hint or "")
    engine.close()


def test_a_certificate_of_another_host_is_taken_under_that_hosts_name(address: str, authority: Authority) -> None:
    with serving(address, authority.signs(name="events.example", address="192.0.2.7")) as server:
        trusting = f"{server.address()}?secure=1&ca_cert={authority.file}"
        with pytest.raises(EngineUnreachable, match=r"not valid for '127\.0\.0\.1'"):
            one(trusting)
        assert one(f"{trusting}&server_host_name=events.example") == 1


def test_a_certificate_lets_its_holder_in(address: str, authority: Authority) -> None:
    own = authority.signs(name="cordwood")
    with serving(address, authority.signs(), knows=authority.file) as server:
        place = f"{server.address('wrong')}?secure=1&ca_cert={authority.file}"
        with pytest.raises(EngineUnreachable, match="does not let us in"):
            one(place)
        assert one(f"{place}&client_cert={own}&client_cert_key={own}") == 1


def test_a_port_without_tls_is_told(address: str) -> None:
    with (
        serving(address) as server,
        pytest.raises(EngineUnreachable, match="does not speak TLS") as told,
    ):
        one(f"{server.address()}?secure=1")
    assert "secure=0" in (told.value.hint or "")


def test_a_port_of_tls_that_is_spoken_to_without_is_told_with_how(server: ClickHouseServer) -> None:
    with pytest.raises(EngineUnreachable) as told:
        one(server.address())
    assert "secure=1" in (told.value.hint or "")


def test_a_file_that_is_none_is_told_before_anybody_is_asked(tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.touch()
    with pytest.raises(BadSetting, match="there is no file"):
        Session(f"clickhouse://host/db?secure=1&ca_cert={tmp_path / 'nowhere.pem'}")
    with pytest.raises(BadSetting, match="holds no certificate"):
        Session(f"clickhouse://host/db?secure=1&ca_cert={empty}")
