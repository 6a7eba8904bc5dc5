"""The OpenAPI document as an HTML page without scripts and external resources."""

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from hashlib import sha256
from html import escape
from importlib import resources
from shlex import quote
from typing import Any

import msgspec

Node = Mapping[str, Any]


def type_in_words(document: Node, schema: Node) -> str:
    """Return a phrase such as: integer or null; text, one of: a, b; list of event."""
    reference = schema.get("$ref")
    if reference is not None:
        return str(reference).rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(type_in_words(document, one) for one in schema["anyOf"])
    types = schema.get("type", "anything")
    words = " or ".join(_one_type(document, schema, one) for one in ([types] if isinstance(types, str) else types))
    return words + _format_words(schema) + _bounds(schema)


def _one_type(document: Node, schema: Node, name: str) -> str:
    if name == "array" and "items" in schema:
        return f"list of {type_in_words(document, schema['items'])}"
    return {"string": "text", "array": "list", "object": "object"}.get(name, name)


def _format_words(schema: Node) -> str:
    format_ = schema.get("format")
    return "" if format_ in (None, "int64") else f" ({format_})"


def _bounds(schema: Node) -> str:
    told = ""
    if schema.get("enum"):
        told += ", one of: " + ", ".join(str(one) for one in schema["enum"])
    if "minimum" in schema and "maximum" in schema:
        told += f" from {schema['minimum']} to {schema['maximum']}"
    if schema.get("default") is not None:
        told += f", {schema['default']} by default"
    return told


_VERBS = ("get", "post", "put", "patch", "delete")
_KEY = """<p>An address that needs a key takes it in the header <code>X-API-KEY</code>, as
<code>Authorization: Bearer</code>, or as the parameter <code>api_key</code>. Every failure has one body:
<code>error.status</code> is what to write a program by. The same as data: <a href="/api/openapi.json">OpenAPI 3.1</a>.</p>"""


def page_policy() -> bytes:
    """Return a Content-Security-Policy that allows only the page's own style sheet."""
    style = b64encode(sha256(_style().encode()).digest()).decode()
    guards = "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    return f"default-src 'none'; style-src 'sha256-{style}'; {guards}".encode()


def page(document: Node) -> str:
    groups = "".join(_group(document, tag) for tag in document["tags"])
    info = document["info"]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<title>{escape(info['title'])}: addresses</title><style>{_style()}</style></head><body>"
        '<a class="skip" href="#addresses">Skip to the addresses</a>'
        f"<header><h1>{escape(info['title'])}</h1><p>{escape(info['summary'])} "
        f'<span class="quiet">Version {escape(info["version"])}.</span></p>{_KEY}</header>'
        f'<nav aria-label="Addresses"><ul>{"".join(_entries(document))}</ul></nav>'
        f'<main id="addresses">{groups}</main></body></html>'
    )


@cache
def _style() -> str:
    return (resources.files("cordwood.web.describe") / "page.css").read_text(encoding="utf-8")


def _operations(document: Node) -> Iterator[tuple[str, str, Node]]:
    for path, verbs in document["paths"].items():
        for verb in _VERBS:
            if verb in verbs:
                yield path, verb, verbs[verb]


def _entries(document: Node) -> Iterator[str]:
    for tag in document["tags"]:
        for path, verb, operation in _operations(document):
            if tag["name"] in operation["tags"] and (verb == "get" or "get" not in document["paths"][path]):
                yield f'<li><a href="#{operation["operationId"]}"><code>{escape(path)}</code></a> {_summary(path, operation)}</li>'


def _group(document: Node, tag: Node) -> str:
    found = [one for one in _operations(document) if tag["name"] in one[2]["tags"]]
    articles = "".join(_article(document, path, verb, operation) for path, verb, operation in found)
    return f"<section><h2>{escape(tag['name'])}</h2><p>{escape(tag['description'])}</p>{articles}</section>"


def _article(document: Node, path: str, verb: str, operation: Node) -> str:
    parts = [
        f'<h3><span class="verb {verb}">{verb.upper()}</span> <code>{escape(path)}</code></h3>',
        f"<p>{_summary(path, operation)} {escape(operation.get('description', ''))}</p>",
        _parameters(document, operation),
        _body(document, operation),
        _answers(document, operation),
        f"<h4>As a command</h4><pre><code>{escape(_command(document, path, verb, operation))}</code></pre>",
    ]
    return f'<article id="{escape(operation["operationId"])}">{"".join(parts)}</article>'


def _summary(path: str, operation: Node) -> str:
    """Return the summary of an operation, unless it only repeats the endpoint's name in the path."""
    summary = operation["summary"]
    return "" if path.endswith(f"/{summary}") else escape(f"{summary}.")


def _parameters(document: Node, operation: Node) -> str:
    told = [_parameter(document, resolved(document, one)) for one in operation.get("parameters", ())]
    return f"<h4>Parameters</h4><dl>{''.join(told)}</dl>" if told else ""


def _parameter(document: Node, parameter: Node) -> str:
    place = "" if parameter["in"] == "query" else f" in the {parameter['in']}"
    return _member(document, parameter["name"], parameter, required=bool(parameter.get("required")), place=place)


def _member(document: Node, name: str, told: Node, *, required: bool, place: str = "") -> str:
    words = type_in_words(document, told.get("schema", told))
    needed = ", required" if required else ""
    description = escape(told.get("description", ""))
    term = f"<code>{escape(name)}</code> <span class='quiet'>{escape(words)}{place}{needed}</span>"
    return f"<dt>{term}</dt><dd>{description}</dd>"


def _body(document: Node, operation: Node) -> str:
    content = operation.get("requestBody", {}).get("content", {})
    if not content:
        return ""
    forms = ", ".join(f"<code>{escape(form)}</code>" for form in content)
    return f"<h4>Body</h4><p>{forms}</p>{_members(document, next(iter(content.values())).get('schema', {}))}"


def _members(document: Node, schema: Node) -> str:
    found = resolved(document, schema)
    members = found.get("properties", {})
    required = found.get("required", ())
    told = [
        _member(document, name, resolved(document, member), required=name in required)
        for name, member in members.items()
    ]
    return f"<dl>{''.join(told)}</dl>" if told else f"<p>{escape(type_in_words(document, schema))}</p>"


def _answers(document: Node, operation: Node) -> str:
    told = []
    for status, answer in operation["responses"].items():
        found = resolved(document, answer)
        words = f"{escape(found['description'])}{_answered(document, found)}"
        told.append(f"<dt><code>{status}</code></dt><dd>{words}</dd>")
    return f"<h4>Answers</h4><dl>{''.join(told)}</dl>"


def _answered(document: Node, answer: Node) -> str:
    content = answer.get("content", {})
    if not content or "application/problem+json" in content:
        return ""
    forms = ", ".join(f"<code>{escape(form)}</code>" for form in content)
    schema = content.get("application/json", {}).get("schema")
    return f" <span class='quiet'>{forms}</span>{_members(document, _row(document, schema)) if schema else ''}"


def _row(document: Node, schema: Node) -> Node:
    """Return the schema of a row if the schema is a list of rows."""
    found = resolved(document, schema)
    found = resolved(document, found.get("properties", {}).get("result", found))
    found = resolved(document, found.get("items", found))
    return resolved(document, found["anyOf"][0]) if "anyOf" in found else found


def _command(document: Node, path: str, verb: str, operation: Node) -> str:
    parameters = [resolved(document, one) for one in operation.get("parameters", ())]
    values = _values([one for one in parameters if one["in"] == "query"])
    method = ("G" if values else "") if verb == "get" else f" -X {verb.upper()}"
    first = f'curl -sS{method} "$CORDWOOD_URL{_filled(path, parameters)}"'
    return " \\\n  ".join([first, *_key(operation), *_sent(document, operation), *values])


def _values(parameters: Sequence[Node]) -> list[str]:
    """Return the arguments of required parameters, or of those with examples if none is required."""
    needed = [one for one in parameters if one.get("required")] or [one for one in parameters if "example" in one]
    return [f"--data-urlencode {quote(one['name'] + '=' + str(_example(one, one['schema'])))}" for one in needed]


def _filled(path: str, parameters: Sequence[Node]) -> str:
    for one in parameters:
        if "example" in one:
            path = path.replace(f"{{{one['name']}}}", one["example"])
    return path


def _key(operation: Node) -> list[str]:
    is_open = operation.get("security") in ([], [{}])
    return [] if is_open else ['-H "X-API-KEY: $CORDWOOD_KEY"']


def _sent(document: Node, operation: Node) -> list[str]:
    """Return a body with the required members if its schema lists them."""
    content = operation.get("requestBody", {}).get("content", {})
    if "application/json" not in content:
        return ["--data-binary @body"] if content else []
    schema = resolved(document, content["application/json"].get("schema", {}))
    members = schema.get("properties", {})
    required = {name: _example({}, members[name]) for name in schema.get("required", ())}
    body = quote(msgspec.json.encode(required).decode()) if members else "@body.json"
    return ["-H 'Content-Type: application/json'", f"-d {body}"]


def _example(parameter: Node, schema: Node) -> object:
    candidates = [parameter.get("example"), *schema.get("examples", ()), schema.get("default"), *schema.get("enum", ())]
    return next((one for one in candidates if one is not None), "…")


def resolved(document: Node, node: Node) -> Node:
    """Resolve a `$ref`."""
    reference = node.get("$ref")
    if reference is None:
        return node
    found: Node = document
    for step in reference.removeprefix("#/").split("/"):
        found = found[step]
    return found
