"""Render the OpenAPI document as an HTML page.

The page is complete without scripts. A script adds forms to send requests, and code examples.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from shlex import quote
from typing import Any

import msgspec

DocumentNode = Mapping[str, Any]


def describe_type(document: DocumentNode, schema: DocumentNode) -> str:
    """Describe a JSON Schema in words, for example: integer or null; text, one of: a, b; list of event."""
    reference = schema.get("$ref")
    if reference is not None:
        return str(reference).rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(describe_type(document, one) for one in schema["anyOf"])
    types = schema.get("type", "anything")
    words = " or ".join(
        _describe_single_type(document, schema, one) for one in ([types] if isinstance(types, str) else types)
    )
    return words + _describe_format(schema) + _describe_bounds(schema)


def _describe_single_type(document: DocumentNode, schema: DocumentNode, name: str) -> str:
    if name == "array" and "items" in schema:
        return f"list of {describe_type(document, schema['items'])}"
    return {"string": "text", "array": "list", "object": "object"}.get(name, name)


def _describe_format(schema: DocumentNode) -> str:
    format_ = schema.get("format")
    return "" if format_ in (None, "int64") else f" ({format_})"


def _describe_bounds(schema: DocumentNode) -> str:
    phrase = ""
    if schema.get("enum"):
        phrase += ", one of: " + ", ".join(str(one) for one in schema["enum"])
    if "minimum" in schema and "maximum" in schema:
        phrase += f" from {schema['minimum']} to {schema['maximum']}"
    if schema.get("default") is not None:
        phrase += f", {schema['default']} by default"
    return phrase


_HTTP_METHODS = ("get", "post", "put", "patch", "delete")
# The pages of the explorer, to which the header of this page links as the explorer's own header does.
_EXPLORER_PAGES = ("explore", "endpoints", "alerts", "streams", "service")
_API_KEY_PARAGRAPH_HTML = """An operation that needs a key takes it in the header <code>X-API-KEY</code>, as
<code>Authorization: Bearer</code>, or as the parameter <code>api_key</code>. Every error has one body:
<code>error.status</code> is the code to write programs by."""


def page_html(document: DocumentNode, file_address: Callable[[str], str]) -> str:
    """Return the HTML page. `file_address` returns the relative URL of a static file, such as a script, by its name."""
    groups = "".join(_tag_section_html(document, tag) for tag in document["tags"])
    return (
        f'<!doctype html><html lang="en"><head>{_head_html(file_address)}</head><body>'
        '<a class="skip" href="#operations">Skip to the operations</a>'
        f'{_header_html(file_address)}<div class="page api">{_navigation_html(document)}'
        f'<main id="operations" tabindex="-1">{_introduction_html(document["info"])}{groups}</main></div>'
        '<div id="told" class="told" role="status" aria-live="polite"></div></body></html>'
    )


def _head_html(file_address: Callable[[str], str]) -> str:
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


def _header_html(file_address: Callable[[str], str]) -> str:
    """Return the header of the page, the same as the explorer's: links to all pages, and a place for the key."""
    tabs = "".join(f'<a href="./#{name}">{name.capitalize()}</a>' for name in _EXPLORER_PAGES)
    return (
        '<header class="top"><a class="brand" href="./#explore" aria-label="cordwood: explore">'
        f'<img src="{file_address("mark.svg")}" alt="" width="22" height="22"><span>cordwood</span></a>'
        f'<nav class="tabs" aria-label="Pages">{tabs}<a href="docs" aria-current="page">API</a></nav>'
        '<div class="top-end"><div id="account"></div></div></header>'
    )


def _introduction_html(info: DocumentNode) -> str:
    version = f'<span class="faint">Version {escape(info["version"])}.</span>'
    return (
        f"<h1>{escape(info['title'])} API</h1><p>{escape(info['summary'])} {version}</p>"
        f'<p class="about">{_API_KEY_PARAGRAPH_HTML} The same as data: <a href="api/openapi.json">OpenAPI 3.1</a>.</p>'
        '<p><a class="button" href="api/client.py" download="cordwood_client.py">Download a client in Python</a></p>'
    )


def iterate_operations(document: DocumentNode) -> Iterator[tuple[str, str, DocumentNode]]:
    for path, verbs in document["paths"].items():
        for verb in _HTTP_METHODS:
            if verb in verbs:
                yield path, verb, verbs[verb]


def _navigation_html(document: DocumentNode) -> str:
    """Return the list of operations as HTML, with a section for each tag. Only the first section is expanded."""
    groups = "".join(
        _tag_navigation_html(document, tag, is_open=number == 0) for number, tag in enumerate(document["tags"])
    )
    return f'<nav class="operations" aria-label="Operations">{groups}</nav>'


def _tag_navigation_html(document: DocumentNode, tag: DocumentNode, *, is_open: bool) -> str:
    found = _operations_with_tag(document, tag)
    entries = "".join(f"<li>{_operation_link_html(verb, operation)}</li>" for _, verb, operation in found)
    count = f'<span class="faint">{len(found)}</span>'
    opened = " open" if is_open else ""
    return f"<details{opened}><summary>{escape(tag['name'])} {count}</summary><ul>{entries}</ul></details>"


def _operation_link_html(verb: str, operation: DocumentNode) -> str:
    title = operation.get("x-cordwood-endpoint", operation["summary"])
    return f'<a href="#{escape(operation["operationId"])}">{_method_badge_html(verb)} <span>{escape(title)}</span></a>'


def _method_badge_html(verb: str) -> str:
    return f'<span class="verb {verb}">{verb.upper()}</span>'


def _operations_with_tag(document: DocumentNode, tag: DocumentNode) -> list[tuple[str, str, DocumentNode]]:
    """Return the operations with the given tag. Those that belong to one endpoint come first."""
    found = [one for one in iterate_operations(document) if tag["name"] in one[2]["tags"]]
    return sorted(found, key=lambda one: "x-cordwood-endpoint" not in one[2])


def _tag_section_html(document: DocumentNode, tag: DocumentNode) -> str:
    articles = "".join(_operation_html(document, *found) for found in _operations_with_tag(document, tag))
    return f"<section><h2>{escape(tag['name'])}</h2><p>{escape(tag['description'])}</p>{articles}</section>"


def _operation_html(document: DocumentNode, path: str, verb: str, operation: DocumentNode) -> str:
    command = escape(_curl_command(document, path, verb, operation))
    parts = [
        f"<h3>{_method_badge_html(verb)} <code>{escape(path)}</code></h3>{_description_html(operation)}",
        _parameters_html(document, operation),
        _body_html(document, operation),
        _answers_html(document, operation),
        f'<div class="call"><h4>As a command</h4><pre><code>{command}</code></pre></div>',
    ]
    return f'<article class="card operation" id="{escape(operation["operationId"])}">{"".join(parts)}</article>'


def description_without_summary(operation: DocumentNode) -> str:
    """Return the description of an operation. If it begins with the summary, leave out the summary."""
    description: str = operation.get("description", "")
    if "x-cordwood-endpoint" not in operation:
        return description
    return description.removeprefix(operation["summary"]).lstrip(". \n")


def _description_html(operation: DocumentNode) -> str:
    """Return the summary of an operation, and its description without the summary, as HTML."""
    rest = description_without_summary(operation)
    lead = f'<p class="lead"><strong>{escape(operation["summary"])}</strong></p>'
    return lead + (f"<p>{escape(rest)}</p>" if rest else "")


def _parameters_html(document: DocumentNode, operation: DocumentNode) -> str:
    terms = [_parameter_html(document, resolve_reference(document, one)) for one in operation.get("parameters", ())]
    return f"<h4>Parameters</h4><dl>{''.join(terms)}</dl>" if terms else ""


def _parameter_html(document: DocumentNode, parameter: DocumentNode) -> str:
    location = "" if parameter["in"] == "query" else f" in the {parameter['in']}"
    return _member_html(
        document, parameter["name"], parameter, required=bool(parameter.get("required")), location=location
    )


def _member_html(document: DocumentNode, name: str, member: DocumentNode, *, required: bool, location: str = "") -> str:
    words = describe_type(document, member.get("schema", member))
    needed = ", required" if required else ""
    description = escape(member.get("description", ""))
    term = f"<code>{escape(name)}</code> <span class='faint'>{escape(words)}{location}{needed}</span>"
    return f"<dt>{term}</dt><dd>{description}</dd>"


def _body_html(document: DocumentNode, operation: DocumentNode) -> str:
    content = operation.get("requestBody", {}).get("content", {})
    if not content:
        return ""
    forms = ", ".join(f"<code>{escape(form)}</code>" for form in content)
    return f"<h4>Body</h4><p>{forms}</p>{_members_html(document, next(iter(content.values())).get('schema', {}))}"


def _members_html(document: DocumentNode, schema: DocumentNode) -> str:
    found = resolve_reference(document, schema)
    members = found.get("properties", {})
    required = found.get("required", ())
    terms = [
        _member_html(document, name, resolve_reference(document, member), required=name in required)
        for name, member in members.items()
    ]
    return f"<dl>{''.join(terms)}</dl>" if terms else f"<p>{escape(describe_type(document, schema))}</p>"


def _answers_html(document: DocumentNode, operation: DocumentNode) -> str:
    terms = []
    for status, answer in operation["responses"].items():
        found = resolve_reference(document, answer)
        words = f"{escape(found['description'])}{_answer_content_html(document, found)}"
        terms.append(f"<dt><code>{status}</code></dt><dd>{words}</dd>")
    return f"<details><summary>Answers</summary><dl>{''.join(terms)}</dl></details>"


def _answer_content_html(document: DocumentNode, answer: DocumentNode) -> str:
    content = answer.get("content", {})
    if not content or "application/problem+json" in content:
        return ""
    forms = ", ".join(f"<code>{escape(form)}</code>" for form in content)
    schema = content.get("application/json", {}).get("schema")
    return (
        f" <span class='faint'>{forms}</span>{_members_html(document, _row_schema(document, schema)) if schema else ''}"
    )


def _row_schema(document: DocumentNode, schema: DocumentNode) -> DocumentNode:
    """Return the schema of a single row if `schema` describes an answer with rows; otherwise return `schema`."""
    found = resolve_reference(document, schema)
    found = resolve_reference(document, found.get("properties", {}).get("result", found))
    found = resolve_reference(document, found.get("items", found))
    return resolve_reference(document, found["anyOf"][0]) if "anyOf" in found else found


def _curl_command(document: DocumentNode, path: str, verb: str, operation: DocumentNode) -> str:
    parameters = [resolve_reference(document, one) for one in operation.get("parameters", ())]
    values = _curl_example_arguments([one for one in parameters if one["in"] == "query"])
    method = ("G" if values else "") if verb == "get" else f" -X {verb.upper()}"
    first = f'curl -sS{method} "$CORDWOOD_URL{_example_path(path, parameters)}"'
    return " \\\n  ".join([first, *_curl_key_arguments(operation), *_curl_body_arguments(document, operation), *values])


def _curl_example_arguments(parameters: Sequence[DocumentNode]) -> list[str]:
    """Return arguments of the curl command with example values.

    There are arguments for the required parameters. If no parameter is required, there are arguments for those that
    have an example.
    """
    needed = [one for one in parameters if one.get("required")] or [one for one in parameters if "example" in one]
    return [f"--data-urlencode {quote(one['name'] + '=' + str(_example_value(one, one['schema'])))}" for one in needed]


def _example_path(path: str, parameters: Sequence[DocumentNode]) -> str:
    for one in parameters:
        if "example" in one:
            path = path.replace(f"{{{one['name']}}}", one["example"])
    return path


def _curl_key_arguments(operation: DocumentNode) -> list[str]:
    is_open = operation.get("security") in ([], [{}])
    return [] if is_open else ['-H "X-API-KEY: $CORDWOOD_KEY"']


def _curl_body_arguments(document: DocumentNode, operation: DocumentNode) -> list[str]:
    """Return the arguments of the curl command for the body.

    If the schema lists members, the body is an example with the required members.
    """
    content = operation.get("requestBody", {}).get("content", {})
    if "application/json" not in content:
        return ["--data-binary @body"] if content else []
    schema = resolve_reference(document, content["application/json"].get("schema", {}))
    members = schema.get("properties", {})
    required = {name: _example_value({}, members[name]) for name in schema.get("required", ())}
    body = quote(msgspec.json.encode(required).decode()) if members else "@body.json"
    return ["-H 'Content-Type: application/json'", f"-d {body}"]


def _example_value(parameter: DocumentNode, schema: DocumentNode) -> object:
    candidates = [parameter.get("example"), *schema.get("examples", ()), schema.get("default"), *schema.get("enum", ())]
    return next((one for one in candidates if one is not None), "…")


def resolve_reference(document: DocumentNode, node: DocumentNode) -> DocumentNode:
    """If the node of the document has a `$ref`, return the node to which it refers, else the node itself."""
    reference = node.get("$ref")
    if reference is None:
        return node
    found: DocumentNode = document
    for step in reference.removeprefix("#/").split("/"):
        found = found[step]
    return found
