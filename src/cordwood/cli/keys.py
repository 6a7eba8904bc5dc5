"""Create, list, revoke and rotate keys: on a running service, or on its data folder.

A new key is printed once, to standard output; its id, scopes and restrictions are printed to standard error.

scopes (several may be given):
  private                    everything, also keys       public, ingest             send events to any stream
  query                      query any endpoint          ingest:source:NAME         send events to one stream
  query:endpoint:NAME        query one endpoint

examples:
  cordwood keys create --scope query --endpoint logs.all --pin project=acme --expires 90d --note "dashboard"
  cordwood keys create --scope ingest:source:postgres.logs --pin project=acme --rate 10/s
  KEY=$(cordwood keys create --scope query --redact always)
  KEY=$(cordwood keys create --for-agent --endpoint logs.all --pin project=acme)
  cordwood keys list
  cordwood keys rotate 3 --grace 10m
  cordwood keys revoke 3 --url https://logs.example.com --key "$PRIVATE_KEY"
"""

import argparse
import json
import re
from collections.abc import Mapping, Sequence
from urllib.parse import quote

from cordwood.cli.arguments import parse_name_value
from cordwood.cli.client import ServiceClient, add_service_and_folder_options, open_service_client
from cordwood.cli.tables import format_table
from cordwood.cli.terminal import print_message, print_output
from cordwood.errors import RefusedByService

_KEYS_PATH = "/api/access-tokens"
_LISTED_FIELDS = ("id", "note", "scopes", "pins", "expires", "rate", "redact", "last use")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    create = actions.add_parser("create", help="create a key and print it once", allow_abbrev=False)
    create.add_argument("--scope", action="append", default=[], metavar="SCOPE", help="a scope, see below; repeatable")
    create.add_argument(
        "--for-agent",
        action="store_true",
        help="for an AI agent: the scope is query and answers are redacted, unless other options say otherwise",
    )
    create.add_argument(
        "--endpoint",
        action="append",
        default=[],
        metavar="NAME",
        help="restrict the scope query to this endpoint; repeatable",
    )
    create.add_argument(
        "--pin",
        type=parse_name_value,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="pin a parameter to a value; repeatable",
    )
    create.add_argument("--expires", metavar="DURATION", help="lifetime, for example 90d (default: unlimited)")
    create.add_argument("--rate", metavar="RATE", help="rate limit of requests, for example 10/s")
    create.add_argument(
        "--redact",
        choices=("always", "never"),
        help="redact personal data in every answer (default: never, for an agent always)",
    )
    create.add_argument("--note", default="", help="a description")
    listing = actions.add_parser(
        "list", help="list keys with their scopes and restrictions, without the secrets", allow_abbrev=False
    )
    listing.add_argument("--format", choices=("table", "json"), default="table", help="how to print (default: table)")
    revoke = actions.add_parser("revoke", help="revoke a key at once", allow_abbrev=False)
    revoke.add_argument("id", metavar="ID", help="id of the key")
    rotate = actions.add_parser(
        "rotate",
        help="create a key with the scopes and restrictions of an old one, and revoke the old one",
        allow_abbrev=False,
    )
    rotate.add_argument("id", metavar="ID", help="id of the key")
    rotate.add_argument(
        "--grace", metavar="DURATION", help="how long the old key stays valid (default: it is revoked at once)"
    )
    for action in (create, listing, revoke, rotate):
        add_service_and_folder_options(action)


def run(arguments: argparse.Namespace) -> int:
    act = {"create": _create_key, "list": _list_keys, "revoke": _revoke_key, "rotate": _rotate_key}[arguments.action]
    with open_service_client(arguments, may_open_folder=arguments.action == "create") as service:
        act(service, arguments)
    return 0


def _create_key(service: ServiceClient, arguments: argparse.Namespace) -> None:
    for_agent: bool = arguments.for_agent
    scopes = arguments.scope or (["query"] if for_agent else [])
    if not scopes:
        raise RefusedByService("A key needs a scope.", hint="Give --scope, or --for-agent.")
    redact = arguments.redact or ("always" if for_agent else "never")
    terms = {
        "scopes": _parse_scopes(scopes, arguments.endpoint),
        "description": arguments.note or ("agent" if for_agent else ""),
        "pins": dict(arguments.pin),
        "expires_in": arguments.expires,
        "rate": arguments.rate,
        "redact": None if redact == "never" else redact,
    }
    _print_new_key(_send_request(service, "POST", _KEYS_PATH, terms))
    if for_agent:
        print_message(
            "Give it to the agent's program as CORDWOOD_KEY of `cordwood mcp`, or as Authorization: Bearer of /mcp."
        )


def _parse_scopes(texts: Sequence[str], endpoints: Sequence[str]) -> list[str]:
    """Combine `--scope query --endpoint logs.all` into the scope query:endpoint:logs.all."""
    scopes = [scope for text in texts for scope in re.split("[ ,]+", text) if scope]
    if not endpoints:
        return scopes
    return [scope for scope in scopes if scope != "query"] + [f"query:endpoint:{name}" for name in endpoints]


def _rotate_key(service: ServiceClient, arguments: argparse.Namespace) -> None:
    _print_new_key(
        _send_request(
            service, "POST", f"{_KEYS_PATH}/{quote(arguments.id, safe='')}/rotate", {"grace": arguments.grace}
        )
    )
    print_message(f"Key {arguments.id} ends {'after ' + arguments.grace if arguments.grace else 'now'}.")


def _revoke_key(service: ServiceClient, arguments: argparse.Namespace) -> None:
    _send_request(service, "DELETE", f"{_KEYS_PATH}/{quote(arguments.id, safe='')}")
    print_message(f"Key {arguments.id} is revoked.")


def _list_keys(service: ServiceClient, arguments: argparse.Namespace) -> None:
    keys = [_key_row(key) for key in service.send("GET", _KEYS_PATH).raise_for_error().json()]
    if arguments.format == "json":
        print_output(json.dumps(keys, indent=2))
    else:
        print_output(
            format_table([{name: _cell_value(key[name]) for name in _LISTED_FIELDS} for key in keys])
            if keys
            else "no keys"
        )


def _send_request(
    service: ServiceClient, method: str, path: str, body: Mapping[str, object] | None = None
) -> Mapping[str, object]:
    encoded = json.dumps(body).encode() if body is not None else b""
    answer = service.send(method, path, encoded, {"Content-Type": "application/json"}).raise_for_error()
    created: Mapping[str, object] = answer.json() if answer.body else {}
    return created


def _print_new_key(created: Mapping[str, object]) -> None:
    print_output(str(created["token"]))
    terms = {
        name: value
        for name, value in _key_row(created).items()
        if name not in ("id", "created") and value not in ("", {}, None, False)
    }
    print_message(
        f"Key {created['id']}: " + ", ".join(f"{name} {_cell_value(value)}" for name, value in terms.items()) + "."
    )
    warnings = created.get("warnings")
    for warning in warnings if isinstance(warnings, list) else []:
        print_message(f"Warning: {warning}")


def _key_row(key: Mapping[str, object]) -> dict[str, object]:
    return {
        "id": key["id"],
        "note": key["description"],
        "scopes": key["scopes"],
        "pins": key["pins"],
        "expires": key["expires_at"],
        "rate": key["rate"],
        "redact": key["redact"],
        "last use": key["last_used_at"],
        "created": key["inserted_at"],
    }


def _cell_value(value: object) -> object:
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={pin}" for name, pin in value.items())
    return {True: "always", False: ""}.get(value, value) if isinstance(value, bool) else value
