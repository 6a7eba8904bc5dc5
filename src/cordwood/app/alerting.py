"""Wiring of alerts: the check of definitions, the targets in the settings, and the service that evaluates and sends."""

import importlib
from collections.abc import Callable, Collection, Mapping
from functools import partial
from types import ModuleType
from typing import Any, Final, cast

from cordwood.alerts.definition_check import check_alert
from cordwood.alerts.sender import SendLimits
from cordwood.alerts.service import AlertOptions, Alerts, TargetFacts
from cordwood.catalog.alert_table import fault_of_alert
from cordwood.catalog.catalog import Catalog
from cordwood.catalog.files import CheckAlert
from cordwood.errors import did_you_mean
from cordwood.folder import DataFolder
from cordwood.model.alert import Alert
from cordwood.model.endpoint import Endpoint
from cordwood.observe.observation import Note
from cordwood.serve.answer import Answers
from cordwood.settings.settings import Settings
from cordwood.sql.stages import Target
from cordwood.web.content_negotiation import JSON

# Alertmanager drops an alert that is not sent again in time.
_ALERTMANAGER_REPEAT_SECONDS: Final = 60.0
_TARGETS_HINT: Final = "Targets are named in the setting alerts.targets."


def alert_check(target: Target, targets: Collection[str] | None) -> CheckAlert:
    """Return the check of an alert. If `targets` is None, the names of targets are not checked."""

    def check(alert: Alert, endpoint: Endpoint) -> None:
        check_alert(alert, endpoint, target)
        if targets is None:
            return
        for name in alert.send_to:
            if name not in targets:
                hint = did_you_mean(name, targets) or _TARGETS_HINT
                raise fault_of_alert(alert, f"send_to names {name}, which is not a target.", hint)

    return check


def alert_targets(settings: Settings) -> Mapping[str, TargetFacts]:
    """Return the targets in the settings. Without any, no module for sending is imported."""
    if not settings.alerts.targets:
        return {}
    deliverer: Any = _deliverer_module().Deliverer.of(settings.alerts)
    return {
        target.name: TargetFacts(
            target.name,
            str(target.kind),
            target.host,
            _ALERTMANAGER_REPEAT_SECONDS if target.kind == "alertmanager" else None,
            target.max_changes,
            cast("Callable[..., None]", partial(deliverer.deliver, target)),
        )
        for target in deliverer.targets.values()
    }


def open_alerts(
    settings: Settings,
    folder: DataFolder,
    catalog: Catalog,
    answers: Answers,
    targets: Mapping[str, TargetFacts],
    clock_us: Callable[[], int],
    note: Note,
) -> Alerts:
    """Create the alerts, and open their store if there are any; raise DataFolderUnusable if it is damaged."""
    options = AlertOptions(
        file=folder.alerts_file,
        targets=targets,
        limits=SendLimits(settings.alerts.send_rate, settings.alerts.retry_time),
        external_url=settings.alerts.external_url,
        rows_format=JSON,
    )
    alerts = Alerts(catalog, answers, options, clock_us, note)
    if alerts.is_needed():
        alerts.open()
    return alerts


def _deliverer_module() -> ModuleType:
    return importlib.import_module("cordwood.alerts.delivery.deliverer")
