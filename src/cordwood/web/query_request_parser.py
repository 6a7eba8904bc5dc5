"""Parse a request for an endpoint: parameters, sandbox query, format, redaction and page."""

import re
from collections.abc import Collection, Iterable, Mapping
from itertools import islice

import msgspec

from cordwood.access import apply_pinned_parameters
from cordwood.errors import BadBody, BadParameter, UnsupportedMediaType, find_closest_name
from cordwood.model.definitions import Endpoint
from cordwood.model.json_checks import FORM_MEDIA_TYPE, describe_json_error, is_json_sent_as_form
from cordwood.model.key import Caller
from cordwood.serve.paging import CursorCodec
from cordwood.serve.query_request import AnswerFormat, QueryLanguage, QueryRequest, SandboxQuery
from cordwood.web.asgi import Request, parse_urlencoded
from cordwood.web.credentials import account_of_caller, account_of_key
from cordwood.web.encode import choose_format
from cordwood.web.request_body import read_body
from cordwood.web.services import WebOptions

REDACT_HEADER = b"lf-endpoint-redact-pii"
# The accepted values of the header LF-ENDPOINT-REDACT-PII. In structured fields (RFC 9651), booleans are written as ?1
# and ?0.
REDACT_HEADER_VALUES = {"true": True, "?1": True, "false": False, "?0": False}
SANDBOX_PARAMETER_NAMES = ("sql", "lql")
# Parameters with a special meaning. They lose it if the endpoint declares a parameter of the same name.
FORMAT, CURSOR, PAGE_SIZE = "format", "cursor", "page_size"
_ROW_COUNT_REGEX = re.compile(r"[0-9]{1,9}", re.ASCII)
# The maximum number of ignored parameters whose names are reported to the caller, and the maximum length of each name
# in the report.
_MAX_REPORTED_NAMES = 5
_MAX_REPORTED_NAME_LENGTH = 60
_RESERVED_PARAMETER_NAMES = frozenset({"api_key", FORMAT, CURSOR, PAGE_SIZE, *SANDBOX_PARAMETER_NAMES})


async def parse_endpoint_request(
    request: Request,
    endpoint: Endpoint,
    caller: Caller,
    query: Mapping[str, str],
    options: WebOptions,
    cursors: CursorCodec,
    only_format: AnswerFormat | None = None,
) -> QueryRequest:
    """Parse a request for an endpoint. If its route has only one answer format, this is `only_format`."""
    known_names = {
        *(parameter.name for parameter in endpoint.parameters),
        *SANDBOX_PARAMETER_NAMES,
        FORMAT,
        CURSOR,
        PAGE_SIZE,
    }
    names_in_get_body = SANDBOX_PARAMETER_NAMES if endpoint.accepts_sandbox_queries else ()
    unknown_names: dict[str, None] = {}
    _collect_unknown_names(query, known_names, unknown_names)
    texts = {
        **query,
        **await read_body_parameters(request, query, options, names_in_get_body, known_names, unknown_names),
    }
    ignored = tuple(name[:_MAX_REPORTED_NAME_LENGTH] for name in islice(unknown_names, _MAX_REPORTED_NAMES))
    # Leave out undeclared parameters. They are ignored, so they must not be a part of the cache key either.
    given = {parameter.name: texts[parameter.name] for parameter in endpoint.parameters if parameter.name in texts}
    parameters = apply_pinned_parameters(caller, given, endpoint) if caller.pins else given
    _refuse_misspelled_required_parameters(endpoint, parameters, ignored)
    cursor, page_size = (
        _reserved_parameter_value(CURSOR, texts, endpoint),
        _reserved_parameter_value(PAGE_SIZE, texts, endpoint),
    )
    query_request = QueryRequest(
        endpoint=endpoint,
        caller=caller,
        format=only_format
        or choose_format(request.joined_header(b"accept"), _reserved_parameter_value(FORMAT, texts, endpoint) or None),
        parameters=parameters,
        sandbox=_read_sandbox_query(texts, endpoint),
        is_redaction_requested=read_redact_header(request),
        bypasses_cache="no-cache" in request.joined_header(b"cache-control"),
        page_size=None if not page_size else _parse_page_size(page_size, endpoint),
        returns_next_cursor=True,
        is_paging_requested=cursor is not None or page_size is not None,
        anonymous_account=account_of_caller(request, caller),
        ignored_parameters=ignored,
    )
    if not cursor:
        return query_request
    return msgspec.structs.replace(query_request, position=cursors.decode(cursor, query_request))


def _refuse_misspelled_required_parameters(
    endpoint: Endpoint, sent: Mapping[str, str], ignored: Collection[str]
) -> None:
    """Raise BadParameter if a required parameter is missing, and an ignored one seems to be a misspelling of it.

    If a required parameter is missing for another reason, the request is refused later, when values are bound to the
    statement.
    """
    for parameter in endpoint.parameters:
        if parameter.required and parameter.default is None and parameter.name not in sent:
            close = find_closest_name(parameter.name, ignored, 0.7)
            if close:
                said = f"The parameter {parameter.name} is required, and {close} was sent."
                raise BadParameter(said, hint=f"Send it as {parameter.name}.")


def parse_ad_hoc_request(
    request: Request, endpoint: Endpoint, caller: Caller, texts: Mapping[str, str]
) -> QueryRequest:
    """Return the query request for an ad hoc query, with the sent values of the parameters in the query's text."""
    return QueryRequest(
        endpoint=endpoint,
        caller=caller,
        format=choose_format(
            request.joined_header(b"accept"), _reserved_parameter_value(FORMAT, texts, endpoint) or None
        ),
        parameters={one.name: texts[one.name] for one in endpoint.parameters if one.name in texts},
        is_redaction_requested=read_redact_header(request),
        bypasses_cache=True,
        is_ad_hoc=True,
    )


async def read_body_parameters(
    request: Request,
    query: Mapping[str, str],
    options: WebOptions,
    names_in_get_body: Collection[str],
    known_names: Collection[str] | None = None,
    unknown_names: dict[str, None] | None = None,
) -> Mapping[str, str]:
    """Return the parameters in the body whose names are in `known_names`, or all parameters if that is None.

    The first few other names are added to `unknown_names`. A GET may have a body too, for a query that is too long for
    a URL. From such a body, only the parameters in `names_in_get_body` are read, and only if the query string has none
    of them.
    """
    if request.method != "POST":
        if not request.has_body() or not names_in_get_body or any(name in query for name in names_in_get_body):
            return {}
        known_names, unknown_names = names_in_get_body, None
    with options.query_body_budget.open_reservation(
        account_of_key(request, request.log_fields.get("key", ""))
    ) as reservation:
        return _parse_body_parameters(
            await read_body(request, options.query_body_bounds, reservation),
            request.media_type(),
            known_names,
            unknown_names,
        )


def _parse_body_parameters(
    body: bytes, media_type: str, known_names: Collection[str] | None, unknown_names: dict[str, None] | None
) -> Mapping[str, str]:
    if not body.strip():
        return {}
    if _is_json(media_type, body):
        return _parse_json_parameters(body, known_names, unknown_names)
    if media_type == FORM_MEDIA_TYPE:
        texts = parse_urlencoded(body, "form")
        _collect_unknown_names(texts, known_names, unknown_names)
        return {name: text for name, text in texts.items() if known_names is None or name in known_names}
    raise UnsupportedMediaType(
        f"A body of the type {media_type!r} is not read here." if media_type else "A body needs a Content-Type.",
        hint="Send application/json or application/x-www-form-urlencoded.",
    )


def _is_json(media_type: str, body: bytes) -> bool:
    stated = media_type == "application/json" or media_type.endswith("+json")
    return stated or is_json_sent_as_form(media_type, body)


def _collect_unknown_names(
    names: Iterable[str], known_names: Collection[str] | None, unknown_names: dict[str, None] | None
) -> None:
    """Add those names to `unknown_names` that are neither known nor reserved, but only the first few."""
    if unknown_names is not None and known_names is not None:
        found = (name for name in names if name not in known_names and name not in _RESERVED_PARAMETER_NAMES)
        unknown_names.update(dict.fromkeys(islice(found, _MAX_REPORTED_NAMES)))


def _parse_json_parameters(
    body: bytes, known_names: Collection[str] | None, unknown_names: dict[str, None] | None
) -> Mapping[str, str]:
    try:
        # Do not decode the values here: members with unknown names are dropped undecoded.
        members = msgspec.json.decode(body.decode(), type=dict[str, msgspec.Raw])
    except msgspec.ValidationError:
        raise BadBody("The body is not a JSON object of parameters.") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise BadBody(f"The body is not JSON: {describe_json_error(problem, body)}.") from None
    _collect_unknown_names(members, known_names, unknown_names)
    said = {name: bytes(raw) for name, raw in members.items() if known_names is None or name in known_names}
    return {name: text for name, raw in said.items() if (text := _member_text(name, raw)) is not None}


def _member_text(name: str, raw: bytes) -> str | None:
    """Return the value of a JSON member as the text that a query string would have, or None for null."""
    if raw[:1] in b"[{":
        raise BadParameter(f"The parameter {name} is a list or an object; it must be one value.")
    if raw == b"null":
        return None
    return str(msgspec.json.decode(raw)) if raw[:1] == b'"' else raw.decode()


def _read_sandbox_query(texts: Mapping[str, str], endpoint: Endpoint) -> SandboxQuery | None:
    sent = [name for name in SANDBOX_PARAMETER_NAMES if texts.get(name, "").strip()]
    if not sent:
        return None
    name = sent[0]
    if not endpoint.accepts_sandbox_queries:
        raise BadParameter(
            f"{endpoint.name} has no sandbox, and {name}= was sent.",
            hint="Omit it, or ask the owner to enable the sandbox.",
        )
    if len(sent) > 1:
        raise BadParameter("sql= and lql= were sent together.", hint="Send one of them.")
    return SandboxQuery(QueryLanguage(name), texts[name])


def _reserved_parameter_value(name: str, texts: Mapping[str, str], endpoint: Endpoint) -> str | None:
    """Return the value of a parameter with a special meaning.

    Return None if the endpoint declares a parameter of the same name, because this takes the special meaning away.
    """
    return None if any(parameter.name == name for parameter in endpoint.parameters) else texts.get(name)


def _parse_page_size(text: str, endpoint: Endpoint) -> int:
    if not _ROW_COUNT_REGEX.fullmatch(text) or not 1 <= int(text) <= endpoint.max_rows:
        raise BadParameter(
            f"The page_size is {text[:_MAX_REPORTED_NAME_LENGTH]!r}.",
            hint=f"Send a number of rows from 1 to {endpoint.max_rows}, the endpoint's max_rows.",
        )
    return int(text)


def read_redact_header(request: Request) -> bool | None:
    """Return the value of the header that turns redaction on or off, or None if it was not sent."""
    if REDACT_HEADER not in request.headers:
        return None
    # Join the values of a repeated header. The joined text is not an accepted value, so the header is refused below:
    # one of the values might come from a proxy.
    value = request.joined_header(REDACT_HEADER)
    redact = REDACT_HEADER_VALUES.get(value.strip().lower())
    if redact is None:
        raise BadParameter(f"The header LF-ENDPOINT-REDACT-PII is {value!r}.", hint="It must be true or false.")
    return redact
