"""SQL over whole streams with a private key: run a query, or list its parameters."""

import time
from collections.abc import Mapping

from cordwood.errors import BadParameter, Forbidden
from cordwood.ingest.quarantine import QUARANTINE
from cordwood.model.endpoint import Endpoint
from cordwood.model.key import Caller
from cordwood.web.answer_rendering import render_answer
from cordwood.web.asgi import Request, Response
from cordwood.web.credentials import private_caller
from cordwood.web.lifecycle import Services
from cordwood.web.options import WebOptions
from cordwood.web.query_request_parser import ad_hoc_ask, texts_in_body
from cordwood.web.receiving import while_connected
from cordwood.web.responses import no_store_json

# The names under which Logflare's clients send the text: `sql` is in the backend's dialect, `bq_sql` in BigQuery's.
TEXT_NAMES = ("sql", "bq_sql")
_OTHER_DIALECTS = ("ch_sql", "pg_sql")


async def answer_ad_hoc(request: Request, services: Services, options: WebOptions) -> Response:
    began = time.perf_counter()
    caller, endpoint, texts = await _read(request, services, options)
    query_request = ad_hoc_ask(request, endpoint, caller, texts)
    answer = await while_connected(request, services.answers.answer(query_request, request.id))
    return await render_answer(request, query_request, answer, began)


async def parse_ad_hoc(request: Request, services: Services, options: WebOptions) -> Response:
    """Return the parameters of a query. `expanded_query` is the text itself, since it cannot refer to saved queries."""
    _, endpoint, _ = await _read(request, services, options)
    names = [parameter.name for parameter in endpoint.parameters]
    return no_store_json({"result": {"parameters": names, "expanded_query": endpoint.sql}})


async def _read(
    request: Request, services: Services, options: WebOptions
) -> tuple[Caller, Endpoint, Mapping[str, str]]:
    caller, query = private_caller(request, services)
    if caller.pins:
        pins = ", ".join(f"{name} = {value!r}" for name, value in caller.pins.items())
        raise Forbidden(
            f"This key is pinned to {pins}, and an ad hoc query reads whole streams.",
            hint="Query an endpoint that has a parameter of that name.",
        )
    texts = {**query, **await texts_in_body(request, query, options, TEXT_NAMES)}
    streams = [QUARANTINE.name, *(stream.name for stream in services.catalog.streams())]
    endpoint = await services.answers.ad_hoc(_text(texts), streams, caller.key_id)
    request.facts["endpoint"] = endpoint.name
    return caller, endpoint, texts


def _text(texts: Mapping[str, str]) -> str:
    _check_backend(texts.get("backend_id"))
    sent = [name for name in TEXT_NAMES if texts.get(name, "").strip()]
    if len(sent) > 1:
        raise BadParameter("sql= and bq_sql= were sent together.", hint="Send one of them.")
    if sent:
        return texts[sent[0]]
    other = next((name for name in _OTHER_DIALECTS if name in texts), None)
    if other is not None:
        raise BadParameter(
            f"{other}= is not read here.", hint="Write the query in BigQuery's dialect and send it as sql=."
        )
    empty = next((name for name in TEXT_NAMES if name in texts), None)
    raise BadParameter(
        "No query was sent." if empty is None else f"{empty}= was sent empty.",
        hint="Send a query in BigQuery's dialect as sql= or bq_sql=.",
    )


def _check_backend(backend_id: str | None) -> None:
    if backend_id is not None and not backend_id.isdecimal():
        raise BadParameter("Invalid backend_id: must be an integer.")
    if backend_id is not None:
        raise BadParameter("Backend not found.", hint="There is only one engine: omit backend_id.")
