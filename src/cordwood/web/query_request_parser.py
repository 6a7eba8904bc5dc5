"""Parse a request for an endpoint: parameters, sandbox query, format and redaction."""

import re
from collections.abc import Collection, Iterable, Mapping
from itertools import islice

import msgspec

from cordwood.access import pinned
from cordwood.errors import BadBody, BadParameter, UnsupportedMedia, closest
from cordwood.model.endpoint import Endpoint
from cordwood.model.json_checks import FORM_MEDIA_TYPE, describe_json_error, is_json_sent_as_form
from cordwood.model.key import Caller
from cordwood.serve.cursors import Cursors
from cordwood.serve.query_request import Format, Language, QueryRequest, SandboxText
from cordwood.web.asgi import Request
from cordwood.web.content_negotiation import chosen_format
from cordwood.web.credentials import account_of, account_of_key
from cordwood.web.options import WebOptions
from cordwood.web.percent_encoding import pairs
from cordwood.web.receiving import read_body

REDACT = b"lf-endpoint-redact-pii"
# RFC 9651 (structured fields) writes booleans as ?1 and ?0.
REDACT_VALUES = {"true": True, "?1": True, "false": False, "?0": False}
SANDBOX_NAMES = ("sql", "lql")
# Names with a meaning of their own, unless the endpoint has a parameter of that name.
FORMAT, CURSOR, PAGE_SIZE = "format", "cursor", "page_size"
_ROWS = re.compile(r"[0-9]{1,9}", re.ASCII)
# The number of ignored names that are reported, and the reported length of each.
_MOST_TOLD = 5
_MOST_LETTERS = 60
_ALWAYS_MEANT = frozenset({"api_key", FORMAT, CURSOR, PAGE_SIZE, *SANDBOX_NAMES})


async def read_ask(
    request: Request,
    endpoint: Endpoint,
    caller: Caller,
    query: Mapping[str, str],
    options: WebOptions,
    cursors: Cursors,
    only_format: Format | None = None,
) -> QueryRequest:
    """Return the request for an endpoint; `only_format` is the format of a route that has no other."""
    meant = {*(parameter.name for parameter in endpoint.parameters), *SANDBOX_NAMES, FORMAT, CURSOR, PAGE_SIZE}
    of_get = SANDBOX_NAMES if endpoint.sandbox else ()
    others: dict[str, None] = {}
    _note_others(query, meant, others)
    texts = {**query, **await texts_in_body(request, query, options, of_get, meant, others)}
    ignored = tuple(name[:_MOST_LETTERS] for name in islice(others, _MOST_TOLD))
    # Undeclared parameters are ignored, and must not be part of the cache key.
    given = {parameter.name: texts[parameter.name] for parameter in endpoint.parameters if parameter.name in texts}
    parameters = pinned(caller, given, endpoint) if caller.pins else given
    _check_required(endpoint, parameters, ignored)
    cursor, page_size = _own_text(CURSOR, texts, endpoint), _own_text(PAGE_SIZE, texts, endpoint)
    query_request = QueryRequest(
        endpoint=endpoint,
        caller=caller,
        format=only_format or chosen_format(request.joined(b"accept"), _own_text(FORMAT, texts, endpoint) or None),
        parameters=parameters,
        sandbox=_sandbox(texts, endpoint),
        redact=redact_asked(request),
        fresh="no-cache" in request.joined(b"cache-control"),
        page_rows=None if not page_size else _page_rows(page_size, endpoint),
        tells_next=True,
        is_paged=cursor is not None or page_size is not None,
        counted_as=account_of(request, caller),
        ignored=ignored,
    )
    if not cursor:
        return query_request
    return msgspec.structs.replace(query_request, position=cursors.decode(cursor, query_request))


def _check_required(endpoint: Endpoint, given: Mapping[str, str], ignored: Collection[str]) -> None:
    """Refuse a request that seems to misspell a required parameter. If none was misspelled, binding refuses it."""
    for parameter in endpoint.parameters:
        if parameter.required and parameter.default is None and parameter.name not in given:
            close = closest(parameter.name, ignored, 0.7)
            if close:
                said = f"The parameter {parameter.name} is required, and {close} was sent."
                raise BadParameter(said, hint=f"Send it as {parameter.name}.")


def ad_hoc_ask(request: Request, endpoint: Endpoint, caller: Caller, texts: Mapping[str, str]) -> QueryRequest:
    """Return the request for an ad hoc query: every parameter in its text may be given."""
    return QueryRequest(
        endpoint=endpoint,
        caller=caller,
        format=chosen_format(request.joined(b"accept"), _own_text(FORMAT, texts, endpoint) or None),
        parameters={one.name: texts[one.name] for one in endpoint.parameters if one.name in texts},
        redact=redact_asked(request),
        fresh=True,
        is_ad_hoc=True,
    )


async def texts_in_body(
    request: Request,
    query: Mapping[str, str],
    options: WebOptions,
    of_get: Collection[str],
    meant: Collection[str] | None = None,
    others: dict[str, None] | None = None,
) -> Mapping[str, str]:
    """Return the parameters in the body: those in `meant`, or all if it is None. Other names are added to `others`.

    The body of a GET may only contain a query that is too long for the URL.
    """
    if request.method != "POST":
        if not request.announces_body() or not of_get or any(name in query for name in of_get):
            return {}
        meant, others = of_get, None
    with options.query_budget.reserve(account_of_key(request, request.facts.get("key", ""))) as reservation:
        return _texts(await read_body(request, options.queries, reservation), request.media_type(), meant, others)


def _texts(
    body: bytes, media_type: str, meant: Collection[str] | None, others: dict[str, None] | None
) -> Mapping[str, str]:
    if not body.strip():
        return {}
    if _is_json(media_type, body):
        return _texts_of_json(body, meant, others)
    if media_type == FORM_MEDIA_TYPE:
        texts = pairs(body, "form")
        _note_others(texts, meant, others)
        return {name: text for name, text in texts.items() if meant is None or name in meant}
    raise UnsupportedMedia(
        f"A body of the type {media_type!r} is not read here." if media_type else "A body needs a Content-Type.",
        hint="Send application/json or application/x-www-form-urlencoded.",
    )


def _is_json(media_type: str, body: bytes) -> bool:
    stated = media_type == "application/json" or media_type.endswith("+json")
    return stated or is_json_sent_as_form(media_type, body)


def _note_others(names: Iterable[str], meant: Collection[str] | None, others: dict[str, None] | None) -> None:
    """Collect the first few names that have no meaning here."""
    if others is not None and meant is not None:
        found = (name for name in names if name not in meant and name not in _ALWAYS_MEANT)
        others.update(dict.fromkeys(islice(found, _MOST_TOLD)))


def _texts_of_json(body: bytes, meant: Collection[str] | None, others: dict[str, None] | None) -> Mapping[str, str]:
    try:
        # Values as raw JSON are not decoded.
        members = msgspec.json.decode(body.decode(), type=dict[str, msgspec.Raw])
    except msgspec.ValidationError:
        raise BadBody("The body is not a JSON object of parameters.") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise BadBody(f"The body is not JSON: {describe_json_error(problem, body)}.") from None
    _note_others(members, meant, others)
    said = {name: bytes(raw) for name, raw in members.items() if meant is None or name in meant}
    return {name: text for name, raw in said.items() if (text := _text(name, raw)) is not None}


def _text(name: str, raw: bytes) -> str | None:
    """Return a member's value as a query string would have it; None for null."""
    if raw[:1] in b"[{":
        raise BadParameter(f"The parameter {name} is a list or an object; it must be one value.")
    if raw == b"null":
        return None
    return str(msgspec.json.decode(raw)) if raw[:1] == b'"' else raw.decode()


def _sandbox(texts: Mapping[str, str], endpoint: Endpoint) -> SandboxText | None:
    sent = [name for name in SANDBOX_NAMES if texts.get(name, "").strip()]
    if not sent:
        return None
    name = sent[0]
    if not endpoint.sandbox:
        raise BadParameter(
            f"{endpoint.name} has no sandbox, and {name}= was sent.",
            hint="Omit it, or ask the owner to enable the sandbox.",
        )
    if len(sent) > 1:
        raise BadParameter("sql= and lql= were sent together.", hint="Send one of them.")
    return SandboxText(Language(name), texts[name])


def _own_text(name: str, texts: Mapping[str, str], endpoint: Endpoint) -> str | None:
    """Return the text of a name of our own; None if the endpoint has a parameter of that name, which has precedence."""
    return None if any(parameter.name == name for parameter in endpoint.parameters) else texts.get(name)


def _page_rows(text: str, endpoint: Endpoint) -> int:
    if not _ROWS.fullmatch(text) or not 1 <= int(text) <= endpoint.max_rows:
        raise BadParameter(
            f"The page_size is {text[:_MOST_LETTERS]!r}.",
            hint=f"Send a number of rows from 1 to {endpoint.max_rows}, the endpoint's max_rows.",
        )
    return int(text)


def redact_asked(request: Request) -> bool | None:
    """Return the value of the redaction header; None if it is absent."""
    if REDACT not in request.headers:
        return None
    # A repeated header is joined and so refused, because one of the values may come from a proxy.
    value = request.joined(REDACT)
    redact = REDACT_VALUES.get(value.strip().lower())
    if redact is None:
        raise BadParameter(f"The header LF-ENDPOINT-REDACT-PII is {value!r}.", hint="It must be true or false.")
    return redact
