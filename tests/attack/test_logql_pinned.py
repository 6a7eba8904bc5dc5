"""A request to Loki's read API with a pinned key never reads the events of another project."""

import json
from collections.abc import Iterator
from urllib.parse import urlencode

import pytest

from cordwood.app.in_process import InProcessApp
from tests.attack.test_pinned_queries import FOREIGN_TEXT, STREAMS, open_with_two_projects, pinned_key
from tests.unit.logql.test_random_logql import QueryGenerator

SELECTORS = (
    "{}",
    '{source_name=~".+"}',
    '{project="other"}',
    '{project=~"other|default"}',
    '{project!="default"}',
    f'{{mark="{FOREIGN_TEXT}"}}',
    f'{{}} | mark="{FOREIGN_TEXT}"',
    f'{{}} |= "{FOREIGN_TEXT}"',
    '{source_name="edge_logs"} | project=~".*"',
    # Selectors with names of other tables, and with names that contain quotes and backslashes.
    '{source_name="cloudflare.logs.prod"}',
    '{source_name="edge_logs\\" or 1=1 --"}',
    "{source_name=~`.*'; select .*`}",
    '{} | json | logfmt | event_message!=""',
)
METRIC_QUERIES = (
    "count_over_time(%s [1h])",
    "sum by (mark, project, request_path, event_message) (count_over_time(%s [1h]))",
    "topk(5, sum by (mark) (bytes_over_time(%s [1h])))",
    "max by (mark) (max_over_time(%s | unwrap mark [1h]))",
)
LIST_PATHS = ("series", "index/stats", "index/volume", "index/volume_range", "detected_labels", "detected_fields")
LABELS = ("project", "mark", "request_path", "source_name", "service_name", "id", "event_message", "metadata")


@pytest.fixture(scope="module", params=["duckdb", "clickhouse"])
def app(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessApp]:
    with open_with_two_projects(request.param, tmp_path_factory.mktemp("logql")) as app:
        yield app


@pytest.fixture(scope="module")
def key(app: InProcessApp) -> str:
    return pinned_key(app)


def ask(app: InProcessApp, key: str, path: str, **parameters: str) -> tuple[int, str]:
    query = urlencode({name.replace("match", "match[]"): text for name, text in parameters.items()})
    status, _, body = app.send("GET", f"/loki/api/v1/{path}?{query}", b"", {"x-api-key": key})
    return status, body.decode()


def assert_no_other_project(status: int, body: str) -> None:
    assert status in (200, 400, 403), body
    if status == 200:
        assert FOREIGN_TEXT not in body
        assert '"other"' not in body


@pytest.mark.parametrize("selector", SELECTORS)
def test_no_selector_reaches_another_project(app: InProcessApp, key: str, selector: str) -> None:
    assert_no_other_project(*ask(app, key, "query_range", query=selector, limit="1000"))
    assert_no_other_project(*ask(app, key, "query", query=f"sum by (mark, project) (count_over_time({selector} [1h]))"))


@pytest.mark.parametrize("metric", METRIC_QUERIES)
def test_no_metric_query_reaches_another_project(app: InProcessApp, key: str, metric: str) -> None:
    assert_no_other_project(*ask(app, key, "query", query=metric % "{}"))
    assert_no_other_project(*ask(app, key, "query_range", query=metric % '{project=~".+"}', step="600"))


@pytest.mark.parametrize(
    "path",
    [*LIST_PATHS, *(f"{kind}/{label}/values" for kind in ("label", "detected_field") for label in LABELS)],
)
def test_no_list_of_labels_or_series_reaches_another_project(app: InProcessApp, key: str, path: str) -> None:
    assert_no_other_project(*ask(app, key, path, query="{}", match="{}", targetLabels="mark,project"))


@pytest.mark.parametrize("seed", range(100, 103))
def test_no_random_query_reaches_another_project(app: InProcessApp, key: str, seed: int) -> None:
    grammar = QueryGenerator(seed)
    for _ in range(4):
        assert_no_other_project(*ask(app, key, "query_range", query=grammar.log_query()))
        assert_no_other_project(*ask(app, key, "query", query=grammar.metric()))


def test_the_projects_own_events_are_read(app: InProcessApp, key: str) -> None:
    status, body = ask(app, key, "query_range", query="{}", limit="1000")
    assert status == 200
    assert body.count('"ours"') >= len(STREAMS)
    assert json.loads(ask(app, key, "index/stats", query="{}")[1])["entries"] == len(STREAMS)
