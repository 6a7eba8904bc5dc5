"""The OpenAPI document as an HTML page that is complete without scripts; a script adds forms and code examples."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from shlex import quote
from typing import Any

import msgspec

Node = Mapping[str, Any]


def type_in_words(document: Node, schema: Node) -> str:
    """Describe a type in words, for example: integer or null; text, one of: a, b; list of event."""
    reference = schema.get("$ref")
    if reference is not None:
        return str(reference).rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(type_in_words(document, one) for one in schema["anyOf"])
    types = schema.get("type", "anything")
    words = " or ".join(_one_type(document, schema, one) for one in ([types] if isinstance(types, str) else types))
    return words + _format_in_words(schema) + _bounds(schema)


def _one_type(document: Node, schema: Node, name: str) -> str:
    if name == "array" and "items" in schema:
        return f"list of {type_in_words(document, schema['items'])}"
    return {"string": "text", "array": "list", "object": "object"}.get(name, name)


def _format_in_words(schema: Node) -> str:
    format_ = schema.get("format")
    return "" if format_ in (None, "int64") else f" ({format_})"


def _bounds(schema: Node) -> str:
    phrase = ""
    if schema.get("enum"):
        phrase += ", one of: " + ", ".join(str(one) for one in schema["enum"])
    if "minimum" in schema and "maximum" in schema:
        phrase += f" from {schema['minimum']} to {schema['maximum']}"
    if schema.get("default") is not None:
        phrase += f", {schema['default']} by default"
    return phrase


_METHODS = ("get", "post", "put", "patch", "delete")
# The pages of the explorer, to which the header links like the explorer's own header.
_EXPLORER_PAGES = ("explore", "endpoints", "alerts", "streams", "service")
_KEY_PARAGRAPH = """An operation that needs a key takes it in the header <code>X-API-KEY</code>, as
<code>Authorization: Bearer</code>, or as the parameter <code>api_key</code>. Every error has one body:
<code>error.status</code> is the code to write programs by."""


def page(document: Node, file_address: Callable[[str], str]) -> str:
    """Return the HTML page. `file_address` returns the relative URL of a file of the explorer or of this page."""
    groups = "".join(_group(document, tag) for tag in document["tags"])
    return (
        f'<!doctype html><html lang="en"><head>{_head(file_address)}</head><body>'
        '<a class="skip" href="#operations">Skip to the operations</a>'
        f'{_header(file_address)}<div class="page api">{_navigation(document)}'
        f'<main id="operations" tabindex="-1">{_introduction(document["info"])}{groups}</main></div>'
        '<div id="told" class="told" role="status" aria-live="polite"></div></body></html>'
    )


def _head(file_address: Callable[[str], str]) -> str:
    styles = "".join(f'<link rel="stylesheet" href="{file_address(name)}">' for name in ("style.css", "docs.css"))
    return (
        '<meta charset="utf-8"><title>API · cordwood</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        '<meta name="theme-color" content="#faf8f5" media="(prefers-color-scheme: light)">'
        '<meta name="theme-color" content="#171512" media="(prefers-color-scheme: dark)">'
        f'<link rel="icon" href="{file_address("mark.svg")}" type="image/svg+xml">{styles}'
        f'<script type="module" src="{file_address("docs.js")}"></script>'
    )


def _header(file_address: Callable[[str], str]) -> str:
    """Return the header of the explorer: links to its pages and to this one, and an element for the key."""
    tabs = "".join(f'<a href="./#{name}">{name.capitalize()}</a>' for name in _EXPLORER_PAGES)
    return (
        '<header class="top"><a class="brand" href="./#explore" aria-label="cordwood: explore">'
        f'<img src="{file_address("mark.svg")}" alt="" width="22" height="22"><span>cordwood</span></a>'
        f'<nav class="tabs" aria-label="Pages">{tabs}<a href="docs" aria-current="page">API</a></nav>'
        '<div class="top-end"><div id="account"></div></div></header>'
    )


def _introduction(info: Node) -> str:
    version = f'<span class="faint">Version {escape(info["version"])}.</span>'
    return (
        f"<h1>{escape(info['title'])} API</h1><p>{escape(info['summary'])} {version}</p>"
        f'<p class="about">{_KEY_PARAGRAPH} The same as data: <a href="api/openapi.json">OpenAPI 3.1</a>.</p>'
        '<p><a class="button" href="api/client.py" download="cordwood_client.py">Download a client in Python</a></p>'
    )


def operations(document: Node) -> Iterator[tuple[str, str, Node]]:
    for path, verbs in document["paths"].items():
        for verb in _METHODS:
            if verb in verbs:
                yield path, verb, verbs[verb]


def _navigation(document: Node) -> str:
    """Return the list of operations, with a section for each tag. The first section is open."""
    groups = "".join(_entries(document, tag, is_open=number == 0) for number, tag in enumerate(document["tags"]))
    return f'<nav class="operations" aria-label="Operations">{groups}</nav>'


def _entries(document: Node, tag: Node, *, is_open: bool) -> str:
    found = _tagged(document, tag)
    entries = "".join(f"<li>{_entry(verb, operation)}</li>" for _, verb, operation in found)
    count = f'<span class="faint">{len(found)}</span>'
    opened = " open" if is_open else ""
    return f"<details{opened}><summary>{escape(tag['name'])} {count}</summary><ul>{entries}</ul></details>"


def _entry(verb: str, operation: Node) -> str:
    title = operation.get("x-cordwood-endpoint", operation["summary"])
    return f'<a href="#{escape(operation["operationId"])}">{_method_badge(verb)} <span>{escape(title)}</span></a>'


def _method_badge(verb: str) -> str:
    return f'<span class="verb {verb}">{verb.upper()}</span>'


def _tagged(document: Node, tag: Node) -> list[tuple[str, str, Node]]:
    """Return the operations of a tag. Those of single endpoints come first."""
    found = [one for one in operations(document) if tag["name"] in one[2]["tags"]]
    return sorted(found, key=lambda one: "x-cordwood-endpoint" not in one[2])


def _group(document: Node, tag: Node) -> str:
    articles = "".join(_article(document, *found) for found in _tagged(document, tag))
    return f"<section><h2>{escape(tag['name'])}</h2><p>{escape(tag['description'])}</p>{articles}</section>"


def _article(document: Node, path: str, verb: str, operation: Node) -> str:
    command = escape(_command(document, path, verb, operation))
    parts = [
        f"<h3>{_method_badge(verb)} <code>{escape(path)}</code></h3>{_description(operation)}",
        _parameters(document, operation),
        _body(document, operation),
        _answers(document, operation),
        f'<div class="call"><h4>As a command</h4><pre><code>{command}</code></pre></div>',
    ]
    return f'<article class="card operation" id="{escape(operation["operationId"])}">{"".join(parts)}</article>'


def without_summary(operation: Node) -> str:
    """Return the description of an operation without its first sentence if that is the summary."""
    description: str = operation.get("description", "")
    if "x-cordwood-endpoint" not in operation:
        return description
    return description.removeprefix(operation["summary"]).lstrip(". \n")


def _description(operation: Node) -> str:
    """Return the summary and the rest of the description."""
    rest = without_summary(operation)
    lead = f'<p class="lead"><strong>{escape(operation["summary"])}</strong></p>'
    return lead + (f"<p>{escape(rest)}</p>" if rest else "")


def _parameters(document: Node, operation: Node) -> str:
    terms = [_parameter(document, resolved(document, one)) for one in operation.get("parameters", ())]
    return f"<h4>Parameters</h4><dl>{''.join(terms)}</dl>" if terms else ""


def _parameter(document: Node, parameter: Node) -> str:
    location = "" if parameter["in"] == "query" else f" in the {parameter['in']}"
    return _member(document, parameter["name"], parameter, required=bool(parameter.get("required")), location=location)


def _member(document: Node, name: str, member: Node, *, required: bool, location: str = "") -> str:
    words = type_in_words(document, member.get("schema", member))
    needed = ", required" if required else ""
    description = escape(member.get("description", ""))
    term = f"<code>{escape(name)}</code> <span class='faint'>{escape(words)}{location}{needed}</span>"
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
    terms = [
        _member(document, name, resolved(document, member), required=name in required)
        for name, member in members.items()
    ]
    return f"<dl>{''.join(terms)}</dl>" if terms else f"<p>{escape(type_in_words(document, schema))}</p>"


def _answers(document: Node, operation: Node) -> str:
    terms = []
    for status, answer in operation["responses"].items():
        found = resolved(document, answer)
        words = f"{escape(found['description'])}{_answer_words(document, found)}"
        terms.append(f"<dt><code>{status}</code></dt><dd>{words}</dd>")
    return f"<details><summary>Answers</summary><dl>{''.join(terms)}</dl></details>"


def _answer_words(document: Node, answer: Node) -> str:
    content = answer.get("content", {})
    if not content or "application/problem+json" in content:
        return ""
    forms = ", ".join(f"<code>{escape(form)}</code>" for form in content)
    schema = content.get("application/json", {}).get("schema")
    return f" <span class='faint'>{forms}</span>{_members(document, _row(document, schema)) if schema else ''}"


def _row(document: Node, schema: Node) -> Node:
    """Return the schema of a row if the schema describes a list of rows, otherwise the schema itself."""
    found = resolved(document, schema)
    found = resolved(document, found.get("properties", {}).get("result", found))
    found = resolved(document, found.get("items", found))
    return resolved(document, found["anyOf"][0]) if "anyOf" in found else found


def _command(document: Node, path: str, verb: str, operation: Node) -> str:
    parameters = [resolved(document, one) for one in operation.get("parameters", ())]
    values = _values([one for one in parameters if one["in"] == "query"])
    method = ("G" if values else "") if verb == "get" else f" -X {verb.upper()}"
    first = f'curl -sS{method} "$CORDWOOD_URL{_filled(path, parameters)}"'
    return " \\\n  ".join([first, *_key(operation), *_example_body(document, operation), *values])


def _values(parameters: Sequence[Node]) -> list[str]:
    """Return example arguments: for the required parameters or, if none is required, for those with examples."""
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


def _example_body(document: Node, operation: Node) -> list[str]:
    """Return an example body with the required members, if the schema lists its members."""
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
    """Return the node that a `$ref` refers to, or the node itself."""
    reference = node.get("$ref")
    if reference is None:
        return node
    found: Node = document
    for step in reference.removeprefix("#/").split("/"):
        found = found[step]
    return found
