"""Every ingest protocol in the same situations, with the answers that each protocol defines.

Syslog has neither acknowledgements nor keys. It is tested in tests/unit/listeners.
"""

import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from tests.journey import protocols
from tests.journey.conftest import PUBLIC, Service, Start, start_service
from tests.journey.protocols import (
    LISTENER_SETTINGS,
    PROTOCOLS,
    STREAM,
    VALID_MESSAGES,
    Answer,
    Outcome,
    Protocol,
    basic_credentials,
    elasticsearch_bulk,
    fluent,
    port_of,
)
from tests.small_disks import mount_small_disk
from tests.waiting import until

PROTOCOLS_WITH_KEYS = [protocol for protocol in PROTOCOLS if protocol.name != "fluent"]
# Protocols whose bodies are limited in size. Uploads of journald are endless: each entry is stored as it arrives.
PROTOCOLS_WITH_BODIES = [protocol for protocol in PROTOCOLS if protocol.name != "journald"]
SECONDS_UNTIL_THE_KILL = 3.0


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    running = start_service(tmp_path_factory.mktemp("protocols") / "data", env=LISTENER_SETTINGS)
    yield running
    if running.process.poll() is None:
        running.stop()


def stored_counts(service: Service, prefix: str) -> Counter[str]:
    """Return the number of stored events by message, for messages that begin with `prefix`."""
    sql = (
        f"select event_message as m, count(*) as n from `{STREAM}`"
        f" where starts_with(event_message, '{prefix}') group by m"
    )
    answer = service.client.post("/api/query", json={"sql": sql})
    assert answer.status_code == 200, answer.text
    assert "cordwood-truncated" not in answer.headers
    return Counter({row["m"]: row["n"] for row in answer.json()["result"]})


def count_stored(service: Service, prefix: str) -> int:
    sql = f"select count(*) as n from `{STREAM}` where starts_with(event_message, '{prefix}')"
    answer = service.client.post("/api/query", json={"sql": sql})
    assert answer.status_code == 200, answer.text
    return int(answer.json()["result"][0]["n"])


def count_quarantined(service: Service) -> int:
    series = f'cordwood_ingest_events_total{{stream="{STREAM}",outcome="quarantined"}} '
    lines = service.client.get("/metrics").text.splitlines()
    return sum(int(line.removeprefix(series)) for line in lines if line.startswith(series))


def stored_valid_messages(service: Service) -> Counter[str]:
    return sum((stored_counts(service, message) for message in VALID_MESSAGES), Counter())


def name_of(protocol: Protocol) -> str:
    return protocol.name


@pytest.mark.parametrize("protocol", PROTOCOLS_WITH_KEYS, ids=name_of)
def test_a_wrong_key_is_refused_permanently_and_stores_nothing(service: Service, protocol: Protocol) -> None:
    answer = protocol.send(service, protocol.encode([f"{protocol.name} with a wrong key"]), "wrong")
    assert answer.outcome is Outcome.REFUSED, answer
    assert not stored_counts(service, f"{protocol.name} with")


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=name_of)
def test_a_body_of_almost_the_maximum_size_is_stored_while_others_are_served(
    service: Service, protocol: Protocol
) -> None:
    mark = f"{protocol.name} {uuid4().hex}"
    number = protocol.max_body_bytes // 1200
    body = protocol.encode([f"{mark} {os.urandom(500).hex()}" for _ in range(number)])
    assert protocol.max_body_bytes * 0.5 < len(body) < protocol.max_body_bytes
    answers: list[Answer] = []
    sending = threading.Thread(target=lambda: answers.append(protocol.send(service, body, PUBLIC)))
    sending.start()
    served = 0
    while sending.is_alive() or not served:
        assert service.send(STREAM, [{"event_message": "beside it"}]).status_code == 200
        served += 1
    sending.join()
    assert answers[0].outcome is Outcome.STORED, answers
    assert count_stored(service, mark) == number


@pytest.mark.parametrize("protocol", PROTOCOLS_WITH_BODIES, ids=name_of)
def test_a_body_that_is_too_large_is_not_acknowledged_and_stores_nothing(service: Service, protocol: Protocol) -> None:
    mark = f"{protocol.name} {uuid4().hex}"
    body = protocol.encode([f"{mark} {os.urandom(500).hex()}" for _ in range(2 * protocol.max_body_bytes // 1000)])
    answer = protocol.send(service, body, PUBLIC)
    # The Forward protocol has no negative answer, so the listener closes the connection.
    assert answer.outcome is (Outcome.RETRY if protocol.name == "fluent" else Outcome.REFUSED), answer
    assert count_stored(service, mark) == 0


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=name_of)
def test_a_malformed_item_is_quarantined_and_a_truncated_body_is_refused(service: Service, protocol: Protocol) -> None:
    before, quarantined_before = stored_valid_messages(service), count_quarantined(service)
    answer = protocol.send(service, protocol.broken, PUBLIC)
    added, quarantined = stored_valid_messages(service) - before, count_quarantined(service) - quarantined_before
    if protocol.is_read_whole:
        assert answer.outcome is Outcome.REFUSED, answer
        assert not added
        assert quarantined == 0
    else:
        # Elasticsearch's answer has a status for each item, and a sender does not repeat items with these statuses.
        assert answer.outcome is (Outcome.REFUSED if protocol.name == "elasticsearch" else Outcome.STORED), answer
        assert added == Counter(VALID_MESSAGES)
        # In raw text, no line is malformed: each line is an event.
        assert quarantined == (0 if protocol.name == "splunk raw" else 1)


def test_acknowledged_events_of_every_protocol_survive_a_kill(start: Start) -> None:
    service = start(env=LISTENER_SETTINGS)
    acknowledged: list[str] = []

    def send_until_killed(protocol: Protocol) -> None:
        for number in count():
            messages = [f"{protocol.name} {number} {place}" for place in range(3)]
            if protocol.send(service, protocol.encode(messages), PUBLIC).outcome is not Outcome.STORED:
                return
            acknowledged.extend(messages)

    senders = [threading.Thread(target=send_until_killed, args=(protocol,)) for protocol in PROTOCOLS]
    for sender in senders:
        sender.start()
    time.sleep(SECONDS_UNTIL_THE_KILL)
    service.kill()
    for sender in senders:
        sender.join()
    restarted = start(data_dir=service.data_dir, env=LISTENER_SETTINGS)
    for protocol in PROTOCOLS:
        expected = {message for message in acknowledged if message.startswith(f"{protocol.name} ")}
        counts = stored_counts(restarted, f"{protocol.name} ")
        assert expected, protocol.name
        assert expected <= set(counts), protocol.name
        assert set(counts.values()) == {1}, protocol.name


@pytest.mark.torture
def test_every_protocol_asks_for_a_retry_while_the_disk_is_full(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mount_small_disk(tmp_path / "disk", "48m") as disk:
        filler = disk / "filler"
        filler.write_bytes(b"x" * 24_000_000)
        service = start(data_dir=disk / "data", env=LISTENER_SETTINGS)
        stored_until_full = {PROTOCOLS[0].name: send_until_refused(service, PROTOCOLS[0])}
        assert stored_until_full[PROTOCOLS[0].name] > 0
        for protocol in PROTOCOLS[1:]:
            with monkeypatch.context() as patched:
                if protocol.name == "journald":
                    # While the disk is full, the upload gets no answer, so the sender's timeout is short.
                    patched.setattr(protocols, "TIMEOUT_SECONDS", 3.0)
                stored_until_full[protocol.name] = send_until_refused(service, protocol, filler)
        assert service.query("logs.all", project="any").status_code == 200
        filler.unlink()
        until(lambda: service.send(STREAM, [{"event_message": "there is room"}]).is_success, 60)
        for protocol in PROTOCOLS:
            answer = protocol.send(service, protocol.encode([f"{protocol.name} again"]), PUBLIC)
            assert answer.outcome is Outcome.STORED, (protocol.name, answer)
            assert stored_counts(service, f"{protocol.name} again") == {f"{protocol.name} again": 1}
            assert count_stored(service, f"{protocol.name} filler") >= stored_until_full[protocol.name]
        assert service.stop() == 0


def fill_disk(filler: Path) -> None:
    """Fill the rest of the disk. Each flush of the service frees some space again."""
    with suppress(OSError), filler.open("ab", buffering=0) as file:
        while file.write(b"x" * 100_000):
            pass


def send_until_refused(service: Service, protocol: Protocol, filler: Path | None = None) -> int:
    """Send large events until the service asks to retry. Return the number of stored events."""
    for number in range(300):
        if filler:
            fill_disk(filler)
        answer = protocol.send(
            service, protocol.encode([f"{protocol.name} filler {os.urandom(200_000).hex()}"]), PUBLIC
        )
        if answer.outcome is not Outcome.STORED:
            assert answer.outcome is Outcome.RETRY, (protocol.name, answer)
            return number
    pytest.fail("the disk is never full")


def test_senders_that_read_answers_late_do_not_block_others(service: Service) -> None:
    """Send bulk bodies and Forward chunks without reading their answers.

    The answer to a bulk body has a hundred bytes for each item.
    """
    mark, bodies, chunks = uuid4().hex, 20, 1000
    body = elasticsearch_bulk([f"{mark} bulk"] * 1000)
    head = (
        f"POST /{STREAM}/_bulk HTTP/1.1\r\nHost: x\r\nAuthorization: {basic_credentials(PUBLIC)}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    address = urlsplit(service.url)
    with (
        connect_with_small_buffer(str(address.hostname), address.port or 80) as bulk,
        connect_with_small_buffer("127.0.0.1", port_of(service, "fluent tcp")) as forward,
    ):
        sending = [
            start_sending(bulk, (head.encode() + body) * bodies),
            start_sending(forward, b"".join(fluent([f"{mark} chunk"]) for _ in range(chunks))),
        ]
        for _ in range(20):
            assert service.send(STREAM, [{"event_message": "beside it"}]).status_code == 200
            time.sleep(0.05)
        read_until(forward, b"ack", chunks)
        read_until(bulk, b'"took"', bodies)
        for thread in sending:
            thread.join()
    assert stored_counts(service, mark) == {f"{mark} bulk": 1000 * bodies, f"{mark} chunk": chunks}


def connect_with_small_buffer(host: str, port: int) -> socket.socket:
    """Connect with a small receive buffer."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(60)
    connection.connect((host, port))
    return connection


def start_sending(connection: socket.socket, data: bytes) -> threading.Thread:
    thread = threading.Thread(target=connection.sendall, args=(data,), daemon=True)
    thread.start()
    return thread


def read_until(connection: socket.socket, word: bytes, times: int) -> None:
    answers = b""
    while answers.count(word) < times:
        part = connection.recv(2**16)
        assert part, "the connection ended before the last answer"
        answers += part
