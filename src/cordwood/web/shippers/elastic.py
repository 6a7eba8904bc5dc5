"""Elasticsearch's bulk API, and the requests by which its clients check the cluster before they send documents.

All paths also exist with the prefix `/elastic`, for clients that are configured with a path.
"""

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import msgspec

from cordwood.errors import BadParameter, Fault, MethodNotAllowed, OutOfDisk, PathNotFound
from cordwood.ingest.accept import BodyFormat
from cordwood.ingest.formats.elastic import BulkBody, BulkOperation, read_bulk
from cordwood.ingest.parsed_body import ItemOutcome, ItemState
from cordwood.web.asgi import JSON_MEDIA_TYPE, NO_STORE_HEADER, Header, Request, Response, parse_urlencoded
from cordwood.web.credentials import KeyPlaces, key_of_basic_credentials, key_of_id_key_pair
from cordwood.web.problems import retry_after_headers, status_of
from cordwood.web.route import READ_METHODS, HandlerContext
from cordwood.web.shippers.delivery import DeliveryResult, ShipperProtocol, admit_sender, store_delivery

BULK_METHODS: Final = ("POST", "PUT", "OPTIONS")
_KEY_PLACES: Final = KeyPlaces(
    key_extractors_by_scheme={b"basic": key_of_basic_credentials, b"apikey": key_of_id_key_pair}
)
_CHALLENGE_HEADERS: Final[tuple[Header, ...]] = (
    (b"www-authenticate", b'Basic realm="cordwood", charset="UTF-8"'),
    (b"www-authenticate", b"ApiKey"),
)
# Clients of Elasticsearch refuse to work with a server that does not send this header.
_PRODUCT_HEADER: Final[Header] = (b"x-elastic-product", b"Elasticsearch")
_CLIENT_USER_AGENT_REGEX: Final = re.compile(r"elastic|opensearch|logstash|beat/|fluent|vector/", re.IGNORECASE)
_VENDOR_JSON_REGEX: Final = re.compile(r"application/vnd\.elasticsearch\+json; ?compatible-with=\d")

# Clients retry a request or an item only after the statuses 429, 502, 503 and 504. So the statuses 408 and 507, after
# which a retry may succeed, are replaced.
_RETRYABLE_STATUS_REPLACEMENTS: Final = {408: 503, 507: 429}
_ERROR_TYPES_BY_STATUS: Final[Mapping[int, str]] = {
    400: "illegal_argument_exception",
    401: "security_exception",
    403: "security_exception",
    404: "resource_not_found_exception",
    405: "method_not_allowed_exception",
    413: "content_too_long_exception",
    415: "media_type_header_exception",
    429: "es_rejected_execution_exception",
    503: "unavailable_shards_exception",
}
# The usual size of the result of one item in bytes. The size of a whole answer is estimated from it.
_ESTIMATED_ITEM_RESULT_BYTES: Final = 128
# The maximum number of errors in an answer for which the reason is given. Even a short body can cause a hundred
# thousand errors.
_MAX_ERRORS_WITH_REASON: Final = 1000
_MAX_INDEX_NAME_LENGTH: Final = 255

# The handler of bulk requests, and functions that create its answer.


async def receive_bulk(context: HandlerContext) -> Response:
    """Store the documents of a bulk request, and answer with the result of each document."""
    started = asyncio.get_running_loop().time()
    query = parse_urlencoded(context.request.query_string, "query string")
    if len(context.path_argument) > _MAX_INDEX_NAME_LENGTH:
        raise BadParameter(f"The name of the index is longer than {_MAX_INDEX_NAME_LENGTH} characters.")
    protocol = ShipperProtocol(
        BodyFormat.ELASTIC, _KEY_PLACES, partial(read_bulk, context.path_argument), reports_item_outcomes=True
    )
    delivered = await store_delivery(context, protocol)
    took = round((asyncio.get_running_loop().time() - started) * 1000)
    answer = partial(_bulk_answer, delivered, took, query.get("filter_path", ""))
    size = _ESTIMATED_ITEM_RESULT_BYTES * len(delivered.body.operations)
    return _json_response(context.request, await context.services().intake.run_decoder(size, answer))


def _bulk_answer(delivered: DeliveryResult[BulkBody], took: int, filter_path: str) -> bytes:
    """Encode the answer to a bulk request.

    The result of each item is encoded before the next result is created, so that only encoded results are in memory.
    """
    selected = _FilterPath.parse(filter_path)
    items = bytearray(b"[")
    failures = 0
    for action, result in _item_results(delivered):
        if "error" in result:
            failures += 1
            if failures > _MAX_ERRORS_WITH_REASON:
                result["error"] = {"type": result["error"]["type"]}
        fields = (
            result
            if selected.item_field_names is None
            else {name: result[name] for name in result if name in selected.item_field_names}
        )
        items += b"," if len(items) > 1 else b""
        items += msgspec.json.encode({action: fields})
    items += b"]"
    answer_fields = {"took": took, "errors": failures > 0, "items": msgspec.Raw(items)}
    return msgspec.json.encode(
        answer_fields
        if selected.field_names is None
        else {name: answer_fields[name] for name in answer_fields if name in selected.field_names}
    )


def _item_results(delivered: DeliveryResult[BulkBody]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the action (such as `create`) and the result of each item."""
    outcomes = {place: one for accepted in delivered.outcomes for place, one in accepted.item_outcomes.items()}
    faults = {place: refused.fault for refused in delivered.refused_parts for place in refused.item_positions}
    for place, operation in enumerate(delivered.body.operations):
        yield operation.action, _item_result(operation, outcomes.get(place), faults.get(place))


class _FilterPath(msgspec.Struct, frozen=True):
    """The fields of the answer, and of its items, that the parameter `filter_path` selects. None selects all fields.

    Only names of the answer's fields (`errors`) and of the items' fields (`items.*.status`) are supported. If the
    parameter excludes a field, all fields are selected.
    """

    field_names: frozenset[str] | None = None
    item_field_names: frozenset[str] | None = None

    @classmethod
    def parse(cls, filter_path: str) -> "_FilterPath":
        entries = {entry.strip() for entry in filter_path.split(",")} - {""}
        if not entries or any(entry.startswith("-") for entry in entries):
            return cls()
        fields = frozenset(entry.rpartition(".")[2] for entry in entries if entry.startswith("items."))
        names = frozenset(entry.partition(".")[0] for entry in entries)
        return cls(names, None if "items" in entries or "*" in fields else fields)


def _item_result(operation: BulkOperation, outcome: ItemOutcome | None, fault: Fault | None) -> dict[str, Any]:
    named = {"_index": operation.index, "_id": operation.id or (outcome.id if outcome else None)}
    if operation.refusal_reason:
        return named | _error_result(400, "illegal_argument_exception", operation.refusal_reason)
    if fault is not None:
        return named | _refused_item_result(operation, fault)
    if outcome is None or outcome.state is ItemState.QUARANTINED:
        reason = outcome.reason if outcome else ""
        return named | _error_result(400, "document_parsing_exception", f"{reason} The document is in the quarantine.")
    if outcome.state is ItemState.DUPLICATE and operation.action == "create":
        reason = f"[{outcome.id}]: version conflict, document already exists (current version [1])"
        return named | _error_result(409, "version_conflict_engine_exception", reason)
    if outcome.state is ItemState.STORED:
        return named | {"_version": 1, "result": "created", "status": 201}
    return named | {"_version": 1, "result": "noop", "status": 200}


def _refused_item_result(operation: BulkOperation, fault: Fault) -> dict[str, object]:
    status = _response_status(fault)
    if status == 404:
        return _error_result(
            404, "index_not_found_exception", f"no such index [{operation.index}]: {fault.one_line_text()}"
        )
    return _error_result(status, _error_type(fault, status), fault.one_line_text())


def _error_result(status: int, kind: str, reason: str) -> dict[str, object]:
    return {"status": status, "error": {"type": kind, "reason": reason}}


# Handlers of requests by which clients check the cluster.


def is_elastic_client(request: Request) -> bool:
    """Return whether a client of Elasticsearch, and not a browser, has sent this request for `/`."""
    accepted, agent = request.joined_header(b"accept"), request.joined_header(b"user-agent")
    return "text/html" not in accepted and (
        "vnd.elasticsearch" in accepted or _CLIENT_USER_AGENT_REGEX.search(agent) is not None
    )


async def show_cluster(context: HandlerContext) -> Response:
    """Answer a request for `/` from a client of Elasticsearch with a description of the cluster."""
    admit_sender(context, _KEY_PLACES)
    return _json_response(context.request, msgspec.json.encode(_CLUSTER_INFO))


async def answer_client_check(context: HandlerContext) -> Response:
    """Answer a request by which a client checks or prepares the cluster before it sends documents."""
    admit_sender(context, _KEY_PLACES)
    request, address = context.request, context.path_argument.strip("/")
    if request.method == "PUT":
        if not _is_accepted_put_path(address):
            request.allowed_methods = READ_METHODS
            raise MethodNotAllowed(
                "Clients of Elasticsearch may not put this.", hint="Streams have transforms instead."
            )
        return _json_response(request, b'{"acknowledged":true}')
    answer = _cluster_answer(address, request.header(b"host") or "")
    if answer is None:
        raise PathNotFound(f"There is nothing at {address} for clients of Elasticsearch.")
    if isinstance(answer, str):
        return Response(
            200, [(b"content-type", b"text/plain; charset=UTF-8"), NO_STORE_HEADER, _PRODUCT_HEADER], answer.encode()
        )
    return _json_response(request, msgspec.json.encode(answer))


async def answer_elastic_prefixed_path(context: HandlerContext) -> Response:
    """Answer a request whose path has the prefix `/elastic` as if the path did not have it."""
    address = context.path_argument.strip("/")
    index, _, last = address.rpartition("/")
    if last == "_bulk" and "/" not in index:
        if context.request.method not in BULK_METHODS:
            context.request.allowed_methods = BULK_METHODS
            raise MethodNotAllowed("Bulk requests are sent by POST.")
        return await receive_bulk(msgspec.structs.replace(context, path_argument=index))
    return await answer_client_check(msgspec.structs.replace(context, path_argument=address))


# Functions that create responses.


def render_error(fault: Fault, request: Request) -> Response:
    """Render an error in Elasticsearch's format."""
    status, reason = _response_status(fault), fault.one_line_text()
    cause = {"type": _error_type(fault, status), "reason": reason}
    error_body = {"error": {"root_cause": [cause], **cause}, "status": status}
    more = [*retry_after_headers(fault, status), *(_CHALLENGE_HEADERS if status == 401 else ())]
    return _json_response(request, msgspec.json.encode(error_body), status, *more)


def _response_status(fault: Fault) -> int:
    status = status_of(fault)
    return _RETRYABLE_STATUS_REPLACEMENTS.get(status, status)


def _error_type(fault: Fault, status: int) -> str:
    if isinstance(fault, OutOfDisk):
        return "cluster_block_exception"
    return _ERROR_TYPES_BY_STATUS.get(status, "illegal_argument_exception" if status < 500 else "exception")


def _json_response(request: Request, body: bytes, status: int = 200, *more: Header) -> Response:
    """Return a response with a JSON body. If the client accepts Elasticsearch's own media type, use that."""
    own = _VENDOR_JSON_REGEX.search(request.joined_header(b"accept"))
    media = own[0].encode() if own else JSON_MEDIA_TYPE
    return Response(status, [(b"content-type", media), NO_STORE_HEADER, _PRODUCT_HEADER, *more], body)


# Before clients send documents, they request the version, licence, health, nodes, templates and policies of the
# cluster. The answers below claim that a template, policy or pipeline of any name exists, so that clients do not
# install theirs, which streams do not need.

# Beats and Logstash refuse versions that are much older than their own.
_ELASTIC_VERSION: Final = "8.19.0"
_CLUSTER_NAME: Final = "cordwood"

_CLUSTER_INFO: Final[Mapping[str, object]] = {
    "name": _CLUSTER_NAME,
    "cluster_name": _CLUSTER_NAME,
    "cluster_uuid": "Y29yZHdvb2QtY29yZHdvbw",
    "version": {
        "number": _ELASTIC_VERSION,
        "build_flavor": "default",
        "build_type": "docker",
        "build_snapshot": False,
        "minimum_wire_compatibility_version": "7.17.0",
        "minimum_index_compatibility_version": "7.0.0",
    },
    "tagline": "You Know, for Search",
}

_LICENSE: Final = {"uid": _CLUSTER_NAME, "type": "basic", "mode": "basic", "status": "active"}
_DISABLED_FEATURE: Final = {"available": False, "enabled": False}
_CLUSTER_HEALTH: Final = {
    "cluster_name": _CLUSTER_NAME,
    "status": "green",
    "timed_out": False,
    "number_of_nodes": 1,
    "number_of_data_nodes": 1,
    "active_primary_shards": 1,
    "active_shards": 1,
    "relocating_shards": 0,
    "initializing_shards": 0,
    "unassigned_shards": 0,
    "active_shards_percent_as_number": 100.0,
}


def _create_answer_keyed_by_name(entry: Callable[[str], object]) -> Callable[[str], object]:
    """Return a function that takes a name and returns a body whose only member has this name.

    For an empty name, the body has no members.
    """
    return lambda name: {name: entry(name)} if name else {}


def _create_single_entry_list_answer(key: str, entry: Callable[[str], object]) -> Callable[[str], object]:
    return lambda name: {key: [{"name": name, key.removesuffix("s"): entry(name)}] if name else []}


# The keys are the first one or two segments of a path. The function gets the rest of the path, which is a name or
# empty, and returns the answer.
_CLUSTER_ANSWERS: Final[Mapping[str, Callable[[str], object]]] = {
    "_license": lambda _: {"license": {**_LICENSE, "issued_to": _CLUSTER_NAME, "issuer": _CLUSTER_NAME}},
    "_xpack/license": lambda _: {"license": {**_LICENSE, "issued_to": _CLUSTER_NAME, "issuer": _CLUSTER_NAME}},
    "_xpack": lambda _: {
        "license": _LICENSE,
        "features": {"ilm": _DISABLED_FEATURE, "security": {**_DISABLED_FEATURE, "available": True}},
    },
    "_cluster/health": lambda _: _CLUSTER_HEALTH,
    "_ilm/policy": _create_answer_keyed_by_name(lambda _: {"version": 1, "policy": {"phases": {}}}),
    "_template": _create_answer_keyed_by_name(
        lambda name: {"order": 0, "index_patterns": [f"{name}*"], "settings": {}}
    ),
    "_index_template": _create_single_entry_list_answer(
        "index_templates", lambda name: {"index_patterns": [f"{name}*"], "composed_of": []}
    ),
    "_component_template": _create_single_entry_list_answer("component_templates", lambda _: {"template": {}}),
    "_ingest/pipeline": _create_answer_keyed_by_name(
        lambda _: {"description": "Ignored: streams have transforms.", "processors": []}
    ),
    "_cat/templates": lambda name: f"{name} [{name}*] 0\n" if name else "",
    "_cat/health": lambda _: f"0 00:00:00 {_CLUSTER_NAME} green 1 1 1 1 0 0 0 0 - 100.0%\n",
    "_cat/indices": lambda _: "",
}
_NODES_PATH: Final = "_nodes"
# Below these paths, PUT requests are accepted but have no effect.
_ACCEPTED_PUT_PATHS: Final = ("_ilm/policy", "_template", "_index_template", "_component_template")

# The first segments of all paths, from which the table of routes is made.
ROOT_PATH_SEGMENTS: Final = tuple(sorted({path.partition("/")[0] for path in (*_CLUSTER_ANSWERS, _NODES_PATH)}))


def _cluster_answer(path: str, host: str) -> object:
    """Return the answer to a GET of this path: an object to encode as JSON, a text, or None if the path is unknown.

    `host` is the address that the client used. The answer about the nodes of the cluster says that the only node has
    this address, so that clients keep using it.
    """
    steps = path.split("/")
    if steps[0] == _NODES_PATH:
        return _nodes_answer(host)
    for length in (2, 1):
        answer = _CLUSTER_ANSWERS.get("/".join(steps[:length]))
        if answer is not None:
            return answer("/".join(steps[length:]))
    return None


def _is_accepted_put_path(path: str) -> bool:
    return path.startswith(tuple(f"{known}/" for known in _ACCEPTED_PUT_PATHS))


def _nodes_answer(host: str) -> object:
    address = host if re.search(r":\d{1,5}\Z", host) else f"{host}:80"
    http = {"bound_address": [address], "publish_address": address}
    return {
        "_nodes": {"total": 1, "successful": 1, "failed": 0},
        "cluster_name": _CLUSTER_NAME,
        "nodes": {
            _CLUSTER_NAME: {
                "name": _CLUSTER_NAME,
                "version": _ELASTIC_VERSION,
                "roles": ["data", "ingest"],
                "http": http,
            }
        },
    }
