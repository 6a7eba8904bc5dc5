"""What clients of Elasticsearch ask before they send: version, licence, health, nodes, templates and policies.

Templates, policies and pipelines exist under any name, so that clients do not install theirs: a stream needs none.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

# Beats and Logstash refuse versions that are much older than their own.
VERSION: Final = "8.19.0"
_NAME: Final = "cordwood"

CLUSTER: Final[Mapping[str, object]] = {
    "name": _NAME,
    "cluster_name": _NAME,
    "cluster_uuid": "Y29yZHdvb2QtY29yZHdvbw",
    "version": {
        "number": VERSION,
        "build_flavor": "default",
        "build_type": "docker",
        "build_snapshot": False,
        "minimum_wire_compatibility_version": "7.17.0",
        "minimum_index_compatibility_version": "7.0.0",
    },
    "tagline": "You Know, for Search",
}

_LICENSE: Final = {"uid": _NAME, "type": "basic", "mode": "basic", "status": "active"}
_OFF: Final = {"available": False, "enabled": False}
_HEALTH: Final = {
    "cluster_name": _NAME,
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


def _named(entry: Callable[[str], object]) -> Callable[[str], object]:
    """Return the answer to a request for one or for all: there is one under every name."""
    return lambda name: {name: entry(name)} if name else {}


def _listed(key: str, entry: Callable[[str], object]) -> Callable[[str], object]:
    return lambda name: {key: [{"name": name, key.removesuffix("s"): entry(name)}] if name else []}


# By the first two steps of a path, or by the first; the rest of the path is the name.
_ANSWERS: Final[Mapping[str, Callable[[str], object]]] = {
    "_license": lambda _: {"license": {**_LICENSE, "issued_to": _NAME, "issuer": _NAME}},
    "_xpack/license": lambda _: {"license": {**_LICENSE, "issued_to": _NAME, "issuer": _NAME}},
    "_xpack": lambda _: {"license": _LICENSE, "features": {"ilm": _OFF, "security": {**_OFF, "available": True}}},
    "_cluster/health": lambda _: _HEALTH,
    "_ilm/policy": _named(lambda _: {"version": 1, "policy": {"phases": {}}}),
    "_template": _named(lambda name: {"order": 0, "index_patterns": [f"{name}*"], "settings": {}}),
    "_index_template": _listed("index_templates", lambda name: {"index_patterns": [f"{name}*"], "composed_of": []}),
    "_component_template": _listed("component_templates", lambda _: {"template": {}}),
    "_ingest/pipeline": _named(lambda _: {"description": "Ignored: streams have transforms.", "processors": []}),
    "_cat/templates": lambda name: f"{name} [{name}*] 0\n" if name else "",
    "_cat/health": lambda _: f"0 00:00:00 {_NAME} green 1 1 1 1 0 0 0 0 - 100.0%\n",
    "_cat/indices": lambda _: "",
}
_NODES: Final = "_nodes"
# What clients may put. It has no effect.
_PUT: Final = ("_ilm/policy", "_template", "_index_template", "_component_template")

# The first steps of all paths, for the routing table.
ROOTS: Final = tuple(sorted({path.partition("/")[0] for path in (*_ANSWERS, _NODES)}))


def checked(path: str, host: str) -> object:
    """Return the answer to a GET of this path: an object for JSON, a text, or None if nothing is there.

    `host` is the address that the client used, which is that of the only node.
    """
    steps = path.split("/")
    if steps[0] == _NODES:
        return _nodes(host)
    for length in (2, 1):
        answer = _ANSWERS.get("/".join(steps[:length]))
        if answer is not None:
            return answer("/".join(steps[length:]))
    return None


def may_be_put(path: str) -> bool:
    return path.startswith(tuple(f"{known}/" for known in _PUT))


def _nodes(host: str) -> object:
    address = host if re.search(r":\d{1,5}\Z", host) else f"{host}:80"
    http = {"bound_address": [address], "publish_address": address}
    return {
        "_nodes": {"total": 1, "successful": 1, "failed": 0},
        "cluster_name": _NAME,
        "nodes": {_NAME: {"name": _NAME, "version": VERSION, "roles": ["data", "ingest"], "http": http}},
    }
