"""Unmodified clients of other services: events that were acknowledged to them survive a kill -9."""

import gzip
import json
import subprocess
import sys
from urllib.parse import urlsplit

import httpx
import pytest
from elasticsearch import ApiError, Elasticsearch, helpers
from opensearchpy import OpenSearch, TransportError
from opensearchpy import helpers as opensearch_helpers

from tests.journey.conftest import PUBLIC, Service, Start

STREAM = "postgres.logs"
# A program like the one in the guide, with the key as the token.
DATADOG_SENDER = """
import sys
from datadog_api_client import ApiClient, Configuration
from datadog_api_client.exceptions import ForbiddenException
from datadog_api_client.v2.api.logs_api import LogsApi
from datadog_api_client.v2.model.content_encoding import ContentEncoding
from datadog_api_client.v2.model.http_log import HTTPLog
from datadog_api_client.v2.model.http_log_item import HTTPLogItem
host, key = sys.argv[1:]
items = HTTPLog([HTTPLogItem(message=f"of the client {n}", service="nginx", ddtags="env:test") for n in range(3)])
with ApiClient(Configuration(host=host, api_key={"apiKeyAuth": key})) as client:
    LogsApi(client).submit_log(items, content_encoding=ContentEncoding.GZIP)
with ApiClient(Configuration(host=host, api_key={"apiKeyAuth": "wrong"})) as client:
    try:
        LogsApi(client).submit_log(items)
    except ForbiddenException:
        print("forbidden")
"""
SPLUNK_SENDER = """
import logging, sys
from splunk_handler import SplunkHandler
host, port, token = sys.argv[1:]
handler = SplunkHandler(host=host, port=port, token=token, index="nginx", protocol="http", verify=False, sourcetype="app", flush_interval=0.1)
logger = logging.getLogger("sender")
logger.addHandler(handler)
for number in range(20):
    logger.warning("of the handler %s", number)
handler.shutdown()
"""


@pytest.fixture
def service(start: Start) -> Service:
    return start(env={"CORDWOOD_INGEST_STREAM_MAP": f"nginx*={STREAM}"})


def messages(service: Service) -> set[str]:
    recent = service.client.get(f"/api/sources/{STREAM}/recent", params={"limit": 100}).json()
    return {event["event_message"] for event in recent}


def test_acknowledged_events_survive_a_kill(service: Service, start: Start) -> None:
    acknowledged = {
        *_through_elasticsearch(service),
        *_through_opensearch(service),
        *_through_splunk(service),
        *_through_datadog(service),
        *_through_datadog_client(service),
    }
    service.kill()
    restarted = start(data_dir=service.data_dir)
    assert messages(restarted) == acknowledged
    assert len(acknowledged) == 66


def _through_elasticsearch(service: Service) -> list[str]:
    """Send with both forms of the key, with and without the path prefix. A repeated document is a conflict."""
    actions = [
        {"_op_type": "create", "_index": "nginx-1", "_id": f"{number}", "message": f"of elasticsearch {number}"}
        for number in range(20)
    ]
    with Elasticsearch(service.url, basic_auth=("cordwood", PUBLIC)) as client:
        assert client.info()["tagline"] == "You Know, for Search"
        assert helpers.bulk(client, actions, chunk_size=7) == (20, [])
        repeated_results = list(helpers.streaming_bulk(client, actions[:2], raise_on_error=False))
        assert [(stored, result["create"]["status"]) for stored, result in repeated_results] == [
            (False, 409),
            (False, 409),
        ]
        action = {"_index": "unknown", "message": "never stored"}
        with pytest.raises(helpers.BulkIndexError):
            helpers.bulk(client, [action])
    with Elasticsearch(f"{service.url}/elastic", api_key=("cordwood", PUBLIC)) as client:
        assert client.cluster.health()["status"] == "green"
        assert client.indices.exists_index_template(name="nginx")
        assert client.license.get()["license"]["status"] == "active"
        assert helpers.bulk(client, [{"_index": "nginx", "message": "of the prefix"}]) == (1, [])
    with Elasticsearch(service.url, basic_auth=("cordwood", "wrong")) as client, pytest.raises(ApiError) as refused:
        client.info()
    assert refused.value.status_code == 401
    return [*(f"of elasticsearch {number}" for number in range(20)), "of the prefix"]


def _through_opensearch(service: Service) -> list[str]:
    """Send with the bulk helper of OpenSearch's client."""
    actions = [{"_op_type": "index", "_index": "nginx", "message": f"of opensearch {number}"} for number in range(20)]
    with OpenSearch(f"{service.url}/elastic", http_auth=("cordwood", PUBLIC)) as client:
        assert client.ping()
        assert opensearch_helpers.bulk(client, actions) == (20, [])
    with OpenSearch(service.url, http_auth=("cordwood", "wrong")) as client:
        with pytest.raises(TransportError) as refused:
            opensearch_helpers.bulk(client, actions)
        assert refused.value.status_code == 401
    return [f"of opensearch {number}" for number in range(20)]


def _through_splunk(service: Service) -> list[str]:
    """Send with Splunk's logging handler, in a new process because the handler sends at exit."""
    address = urlsplit(service.url)
    command = [sys.executable, "-c", SPLUNK_SENDER, str(address.hostname), str(address.port), PUBLIC]
    subprocess.run(command, check=True, timeout=60)
    return [f"of the handler {number}" for number in range(20)]


def _through_datadog(service: Service) -> list[str]:
    """Send the requests that the Datadog agent sends: a connection test, then a compressed batch."""
    headers = {"DD-API-KEY": PUBLIC, "Content-Type": "application/json", "DD-PROTOCOL": "agent-json"}
    events = [
        {
            "message": f"of the agent {number}",
            "status": "info",
            "timestamp": 1700000000123,
            "hostname": "h1",
            "service": "nginx",
            "ddsource": "nginx",
            "ddtags": "filename:access.log,dirname:/var/log",
        }
        for number in range(2)
    ]
    body = gzip.compress(json.dumps(events).encode())
    with httpx.Client(base_url=service.url, headers=headers) as agent:
        assert agent.post("/api/v2/logs", content=b"{}").status_code == 202
        assert agent.post("/api/v2/logs", content=body, headers={"Content-Encoding": "gzip"}).status_code == 202
    return [f"of the agent {number}" for number in range(2)]


def _through_datadog_client(service: Service) -> list[str]:
    """Send with Datadog's Python client, in a new process because the client has no type annotations."""
    command = [sys.executable, "-c", DATADOG_SENDER, service.url, PUBLIC]
    done = subprocess.run(command, check=True, timeout=60, stdout=subprocess.PIPE, text=True)
    assert done.stdout == "forbidden\n"
    return [f"of the client {number}" for number in range(3)]
