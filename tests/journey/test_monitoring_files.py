"""The alert rules and the dashboard in deploy: well formed, and of metrics and labels that the service has."""

import json
import re
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped] # it has no types of its own
from prometheus_client.parser import text_string_to_metric_families

from cordwood.observe.metrics import Counter, Histogram, Metrics
from tests.journey.conftest import Service

DEPLOY = Path(__file__).parents[2] / "deploy"
ALERTS, DASHBOARD = DEPLOY / "prometheus" / "alerts.yml", DEPLOY / "grafana" / "cordwood.json"
SERIES = re.compile(r"\b(cordwood_[a-z_]+)(?:\{([^}]*)\})?")
LABEL = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
# Prometheus adds them to each series.
OF_PROMETHEUS = {"job", "instance"}


def expressions() -> list[str]:
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return [
        *(rule["expr"] for group in groups for rule in group["rules"]),
        *(target["expr"] for panel in panels for target in panel["targets"]),
    ]


def exposed(service: Service) -> dict[str, set[str]]:
    """Return the labels of every series: those with samples in the running service, and the counters without."""
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
    labels = exposed(service)
    found = SERIES.findall(expression)
    assert found or "up{" in expression
    for name, matchers in found:
        assert name in labels
        assert set(LABEL.findall(matchers)) <= labels[name] | OF_PROMETHEUS
    for grouped in re.findall(r"\bby \(([^)]*)\)", expression):
        named = {label.strip() for label in grouped.split(",")}
        assert named <= set().union(*(labels[name] for name, _ in found)) | OF_PROMETHEUS


def test_rules_and_panels_have_names_and_places_of_their_own() -> None:
    rules = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules)
    assert all(rule["labels"]["severity"] and rule["annotations"]["summary"] for rule in rules)
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len({(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}) == len(panels)
