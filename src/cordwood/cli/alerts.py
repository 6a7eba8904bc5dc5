"""List alerts and their history, preview and silence alerts, and test the targets to which they are sent.

The key must be private, and must have neither pins nor the restriction that its answers are always redacted.

examples:
  cordwood alerts list
  cordwood alerts history --alert errors.now --limit 20
  cordwood alerts preview errors.now
  cordwood alerts silence errors.now --for 2h --label database=orders --comment 'migration'
  cordwood alerts silence --until 2026-01-01T06:00:00Z
  cordwood alerts silences
  cordwood alerts unsilence 8f6e0b9c3f0e4a0f9b572f6f5f4f7a10
  cordwood alerts test-target on-call --url https://logs.example.com --key "$PRIVATE_KEY"
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from cordwood.cli.arguments import parse_name_value
from cordwood.cli.client import ServiceClient, add_service_and_folder_options, open_service_client
from cordwood.cli.tables import format_table
from cordwood.cli.terminal import print_message, print_output, printable_text

_ALERTS_PATH: Final = "/api/alerts"
_ALERT_STATES_FIRING_FIRST: Final = ("firing", "pending", "inactive")
_NO_ALERTS_MESSAGE: Final = (
    "There are no alerts. One is the [alert] table of an endpoint file, or a .alert.toml file beside it."
)

JsonObject = Mapping[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="list alerts with their states, firing first", allow_abbrev=False)
    history = actions.add_parser(
        "history", help="list changes of state and sent messages, newest first", allow_abbrev=False
    )
    history.add_argument("--alert", metavar="NAME", help="only this alert")
    history.add_argument(
        "--limit", type=int, default=100, metavar="N", help="the most items to list, up to 1000 (default: 100)"
    )
    preview = actions.add_parser("preview", help="evaluate an alert now, without sending anything", allow_abbrev=False)
    preview.add_argument("name", metavar="NAME", help="name or UUID of the alert")
    silence = actions.add_parser(
        "silence", help="send no messages of an alert, or of all, for a time", allow_abbrev=False
    )
    silence.add_argument("name", nargs="?", metavar="NAME", help="the alert (default: all alerts)")
    ends = silence.add_mutually_exclusive_group(required=True)
    ends.add_argument("--for", dest="lasts", metavar="2h", help="for how long")
    ends.add_argument("--until", metavar="TIME", help="until when, in ISO 8601 (UTC without a zone)")
    silence.add_argument(
        "--label",
        type=parse_name_value,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="only groups with this value",
    )
    silence.add_argument("--comment", default="", metavar="TEXT", help="the reason, for other readers")
    silences = actions.add_parser("silences", help="list silences", allow_abbrev=False)
    unsilence = actions.add_parser("unsilence", help="end a silence", allow_abbrev=False)
    unsilence.add_argument("id", metavar="ID", help="id of the silence")
    test = actions.add_parser("test-target", help="send a test message to a target", allow_abbrev=False)
    test.add_argument("name", metavar="NAME", help="name of the target")
    for action in (listing, history, preview, silences):
        action.add_argument(
            "--format", choices=("table", "json"), default="table", help="how to print (default: table)"
        )
    for action in (listing, history, preview, silence, silences, unsilence, test):
        add_service_and_folder_options(action)


def run(arguments: argparse.Namespace) -> int:
    act = {
        "list": _list_alerts,
        "history": _list_history,
        "preview": _preview_alert,
        "silence": _create_silence,
        "silences": _list_silences,
        "unsilence": _end_silence,
        "test-target": _send_test_notification,
    }[arguments.action]
    with open_service_client(arguments) as service:
        return act(service, arguments)


def _list_alerts(service: ServiceClient, arguments: argparse.Namespace) -> int:
    answer = service.send("GET", _ALERTS_PATH).raise_for_error().json()
    if arguments.format == "json":
        return _print_json(answer)
    rows = [row for alert in answer["alerts"] for row in _rows_of_alert(alert)]
    print_output(
        format_table(sorted(rows, key=lambda row: _ALERT_STATES_FIRING_FIRST.index(row["state"])))
        if rows
        else _NO_ALERTS_MESSAGE
    )
    for alert in answer["alerts"]:
        _print_health(alert)
    for one in answer["targets"]:
        if one.get("failures"):
            reason = f"{one['failures']} failures in a row, {one['queued']} waiting: {one['error']}"
            print_message(printable_text(f"target {one['name']}: {reason}"))
    return 0


def _rows_of_alert(alert: JsonObject) -> list[dict[str, Any]]:
    return [
        {
            "state": one["state"],
            "severity": alert["severity"],
            "alert": alert["name"],
            "since": _time_without_fraction(one.get("since")),
            "text": one.get("text", ""),
            "value": one.get("value"),
            "silenced": "yes" if one.get("silenced") else "",
        }
        for one in alert["instances"] or [{"state": "inactive"}]
    ]


def _print_health(alert: JsonObject) -> None:
    if alert.get("error"):
        hint = f" {alert['hint']}" if alert.get("hint") else ""
        print_message(printable_text(f"{alert['name']} cannot be evaluated: {alert['error']}{hint}"))
    more = alert["firing"] + alert["pending"] - len(alert["instances"])
    if more > 0:
        print_message(printable_text(f"{alert['name']}: {more:,} more groups fire or are pending"))
    if alert.get("notice"):
        print_message(printable_text(f"{alert['name']}: {alert['notice']}"))


def _list_history(service: ServiceClient, arguments: argparse.Namespace) -> int:
    of_alert = f"&alert={quote(arguments.alert, safe='')}" if arguments.alert else ""
    path = f"{_ALERTS_PATH}/history?limit={arguments.limit}{of_alert}"
    items: Sequence[JsonObject] = service.send("GET", path).raise_for_error().json()["history"]
    if arguments.format == "json":
        return _print_json(items)
    print_output(format_table([_history_row(item) for item in items]) if items else "nothing has happened")
    return 0


def _history_row(item: JsonObject) -> dict[str, Any]:
    receiver = f"{item['target']} ({item.get('count', 0)})" if item.get("target") else ""
    return {
        "at": _time_without_fraction(item["at"]),
        "alert": item["alert"],
        "what": item["kind"],
        "value": item.get("value"),
        "target": receiver,
        "text": item.get("reason") or item.get("text", ""),
    }


def _preview_alert(service: ServiceClient, arguments: argparse.Namespace) -> int:
    answer = service.send("GET", f"{_ALERTS_PATH}/{quote(arguments.name, safe='')}/preview").raise_for_error().json()
    if arguments.format == "json":
        return _print_json(answer)
    rows = [
        {
            "severity": one["severity"],
            "labels": _labels_text(one["labels"]),
            "text": one["text"],
            "value": one["value"],
        }
        for one in answer["firing"]
    ]
    print_output(format_table(rows) if rows else f"the condition holds for none of {answer['groups']} groups")
    if answer["notice"]:
        print_message(printable_text(answer["notice"]))
    return 0


def _create_silence(service: ServiceClient, arguments: argparse.Namespace) -> int:
    fields = {
        "alert": arguments.name,
        "labels": dict(arguments.label),
        "for": arguments.lasts,
        "until": arguments.until,
        "comment": arguments.comment,
    }
    body = json.dumps({name: value for name, value in fields.items() if value}).encode()
    headers = {"Content-Type": "application/json"}
    answer = service.send("POST", f"{_ALERTS_PATH}/silences", body, headers).raise_for_error().json()
    print_output(f"{answer['alert'] or 'all alerts'}: silenced until {_time_without_fraction(answer['ends_at'])}")
    print_output(f"end it earlier with: cordwood alerts unsilence {answer['id']}")
    return 0


def _list_silences(service: ServiceClient, arguments: argparse.Namespace) -> int:
    silences = service.send("GET", f"{_ALERTS_PATH}/silences").raise_for_error().json()["silences"]
    if arguments.format == "json":
        return _print_json(silences)
    rows = [
        {
            "id": one["id"],
            "alert": one["alert"] or "all alerts",
            "labels": _labels_text(one["labels"]),
            "ends": _time_without_fraction(one["ends_at"]),
            "comment": one["comment"],
        }
        for one in silences
    ]
    print_output(format_table(rows) if rows else "nothing is silenced")
    return 0


def _end_silence(service: ServiceClient, arguments: argparse.Namespace) -> int:
    service.send("DELETE", f"{_ALERTS_PATH}/silences/{quote(arguments.id, safe='')}").raise_for_error()
    print_output("the silence has ended")
    return 0


def _send_test_notification(service: ServiceClient, arguments: argparse.Namespace) -> int:
    answer = (
        service.send("POST", f"{_ALERTS_PATH}/targets/{quote(arguments.name, safe='')}/test").raise_for_error().json()
    )
    if answer["sent"]:
        print_output(f"a test was sent to {arguments.name}")
        return 0
    print_message(printable_text(f"nothing was sent to {arguments.name}: {answer['reason']}"))
    return 1


def _labels_text(labels: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in labels.items())


def _time_without_fraction(text: str | None) -> str:
    """Return a time as text, without the fraction of its second."""
    return f"{text[:19]}Z" if text else ""


def _print_json(answer: object) -> int:
    # json.dumps escapes control characters. Senders of events can put such characters into the texts, and a terminal
    # would interpret them as commands.
    print_output(json.dumps(answer, indent=2))
    return 0
