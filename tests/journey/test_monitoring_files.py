"""The Prometheus alert rules and the Grafana dashboard in `deploy` use only existing metrics and labels."""

import json
import re
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped] # it has no types of its own
from prometheus_client.parser import text_string_to_metric_families

from cordwood.observe.metrics import Counter, Histogram, Metrics
from tests.journey.conftest import Service

DEPLOY_FOLDER = Path(__file__).parents[2] / "deploy"
ALERTS, DASHBOARD = DEPLOY_FOLDER / "prometheus" / "alerts.yml", DEPLOY_FOLDER / "grafana" / "cordwood.json"
SERIES_PATTERN = re.compile(r"\b(cordwood_[a-z_]+)(?:\{([^}]*)\})?")
LABEL_PATTERN = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
# Labels that Prometheus adds to each series.
PROMETHEUS_LABELS = {"job", "instance"}


def expressions() -> list[str]:
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return [
        *(rule["expr"] for group in groups for rule in group["rules"]),
        *(target["expr"] for panel in panels for target in panel["targets"]),
    ]


def labels_of_series(service: Service) -> dict[str, set[str]]:
    """Return the labels of every series, including those of counters that have no samples yet."""
    labels: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(service.client.get("/metrics").text):
        labels[family.name] = set()
    for family in vars(Metrics("0")).values():
        if isinstance(family, Counter):
            labels[family.name] = set(family._labels)
        elif isinstance(family, Histogram):
            for ending in ("_bucket", "_sum", "_count"):
                labels[family.name + ending] = {*family._labels, "le"}
    return labels


@pytest.mark.parametrize("expression", expressions())
def test_every_series_and_label_of_an_expression_exists(service: Service, expression: str) -> None:
    labels = labels_of_series(service)
    names = SERIES_PATTERN.findall(expression)
    assert names or "up{" in expression
    for name, matchers in names:
        assert name in labels
        assert set(LABEL_PATTERN.findall(matchers)) <= labels[name] | PROMETHEUS_LABELS
    for grouped in re.findall(r"\bby \(([^)]*)\)", expression):
        grouping_labels = {label.strip() for label in grouped.split(",")}
        assert grouping_labels <= set().union(*(labels[name] for name, _ in names)) | PROMETHEUS_LABELS


def test_rules_have_unique_names_and_panels_unique_positions() -> None:
    rules = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules)
    assert all(rule["labels"]["severity"] and rule["annotations"]["summary"] for rule in rules)
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len({(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}) == len(panels)
