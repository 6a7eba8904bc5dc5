"""List, show and replay quarantined items: events that could not be stored, each with its reason.

First correct the pin, policy or limit because of which an item was refused, then replay the item: it is decoded again
by the current rules, with its original time of receipt. The item stays in the list, marked as replayed. Its event is
stored once, however often it is replayed. A truncated item cannot be replayed.

examples:
  cordwood quarantine list --stream postgres.logs
  cordwood quarantine show 8f6e0b9c-3f0e-4a0f-9b57-2f6f5f4f7a10
  cordwood quarantine replay 8f6e0b9c-3f0e-4a0f-9b57-2f6f5f4f7a10
  cordwood quarantine replay --all --stream postgres.logs --url https://logs.example.com --key "$PRIVATE_KEY"
"""

import argparse
import json
from collections.abc import Iterator, Mapping
from urllib.parse import quote

from cordwood.cli.client import ServiceClient, add_service_and_folder_options, open_service_client
from cordwood.cli.tables import format_table
from cordwood.cli.terminal import print_message, print_output
from cordwood.errors import RefusedByService

_QUARANTINE_PATH = "/api/quarantine"
_MAX_FETCHED_ITEMS = 1000
_LISTED_FIELDS = ("id", "timestamp", "stream", "reason", "is_cut", "replayed_at", "beginning")

QuarantineItem = Mapping[str, object]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="list quarantined items, newest first", allow_abbrev=False)
    listing.add_argument("--stream", metavar="NAME", help="only items sent to this stream")
    listing.add_argument(
        "--limit", type=int, default=100, metavar="N", help="the most items to list, up to 1000 (default: 100)"
    )
    listing.add_argument("--format", choices=("table", "json"), default="table", help="how to print (default: table)")
    show = actions.add_parser("show", help="print the text of an item as it was sent", allow_abbrev=False)
    show.add_argument("id", metavar="ID", help="id of the item")
    show.add_argument("--format", choices=("text", "json"), default="text", help="how to print (default: text)")
    replay = actions.add_parser("replay", help="decode and store items again", allow_abbrev=False)
    replay.add_argument("id", metavar="ID", nargs="*", help="ids of the items")
    replay.add_argument("--all", action="store_true", help="the newest 1000 items that were not replayed yet")
    replay.add_argument("--stream", metavar="NAME", help="with --all: only items sent to this stream")
    for action in (listing, show, replay):
        add_service_and_folder_options(action)


def run(arguments: argparse.Namespace) -> int:
    act = {"list": _list_items, "show": _show_item, "replay": _replay_items}[arguments.action]
    with open_service_client(arguments) as service:
        return act(service, arguments)


def _list_items(service: ServiceClient, arguments: argparse.Namespace) -> int:
    items = _fetch_items(service, arguments.stream, arguments.limit)
    if arguments.format == "json":
        print_output(json.dumps(items, indent=2))
    else:
        print_output(
            format_table([{name: item[name] for name in _LISTED_FIELDS} for item in items])
            if items
            else "nothing is quarantined"
        )
    return 0


def _show_item(service: ServiceClient, arguments: argparse.Namespace) -> int:
    item = service.send("GET", _item_path(arguments.id)).raise_for_error().json()
    if arguments.format == "json":
        print_output(json.dumps(item, indent=2))
        return 0
    print_message(f"{item['stream']}, {item['timestamp']}: {item['reason']}")
    print_output(str(item["text"]))
    return 0


def _replay_items(service: ServiceClient, arguments: argparse.Namespace) -> int:
    sums, refused = {"accepted": 0, "duplicates": 0}, 0
    for item_id in _selected_ids(service, arguments):
        try:
            outcome = service.send("POST", f"{_item_path(item_id)}/replay").raise_for_error().json()
        except RefusedByService as refusal:
            refused += 1
            print_message(f"{item_id}: {refusal.message}")
            continue
        sums = {name: count + int(outcome[name]) for name, count in sums.items()}
    print_output(f"{sums['accepted']} stored, {sums['duplicates']} duplicates, {refused} refused")
    return 1 if refused else 0


def _selected_ids(service: ServiceClient, arguments: argparse.Namespace) -> Iterator[str]:
    if bool(arguments.id) == arguments.all:
        raise RefusedByService("Neither ids nor --all were given.", hint="Give ids, or --all.")
    yield from arguments.id
    if arguments.all:
        items = _fetch_items(service, arguments.stream, _MAX_FETCHED_ITEMS)
        yield from (str(item["id"]) for item in items if item["replayed_at"] is None)


def _fetch_items(service: ServiceClient, stream: str | None, limit: int) -> list[QuarantineItem]:
    named = f"&stream={quote(stream, safe='')}" if stream else ""
    items: list[QuarantineItem] = (
        service.send("GET", f"{_QUARANTINE_PATH}?limit={limit}{named}").raise_for_error().json()
    )
    return items


def _item_path(item_id: str) -> str:
    return f"{_QUARANTINE_PATH}/{quote(item_id, safe='')}"
