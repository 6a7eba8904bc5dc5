"""Schema and LQL translation for editors of sandbox queries."""

from typing import Any

from cordwood.access import may_manage, require_query
from cordwood.errors import BadParameter
from cordwood.model.endpoint import Endpoint
from cordwood.model.key import Caller
from cordwood.sql.sub_query_schema import SubQuery, SubQueryColumn
from cordwood.web.asgi import Request, Response
from cordwood.web.catalog_lookup import existing_endpoint
from cordwood.web.credentials import account_of, presented
from cordwood.web.lifecycle import Services
from cordwood.web.percent_encoding import pairs
from cordwood.web.responses import no_store_json


async def show_scope(request: Request, services: Services, address: str) -> Response:
    """Return the sub-queries of an endpoint, and whether the key is private, with its pins. A key pinned to a project sees the paths of its events alone."""
    endpoint, caller, _ = _asked(request, services, address)
    sub_queries = await services.answers.sub_queries(endpoint, caller, account_of(request, caller))
    key = {"private": may_manage(caller), "pins": dict(caller.pins)}
    told = [_sub_query(one) for one in sub_queries]
    return no_store_json({"endpoint": endpoint.name, "sub_queries": told, "key": key})


async def show_sql(request: Request, services: Services, address: str) -> Response:
    """Return the SQL of an LQL query, which is compiled but not run."""
    endpoint, caller, query = _asked(request, services, address)
    lql = query.get("lql", "").strip()
    if not lql:
        raise BadParameter("The parameter lql is missing.", hint="It is the query whose SQL is wanted.")
    sql = await services.answers.sql_of(endpoint, caller, query["lql"], account_of(request, caller))
    return no_store_json({"sql": sql})


def _asked(request: Request, services: Services, address: str) -> tuple[Endpoint, Caller, dict[str, str]]:
    query = pairs(request.query_string, "query string")
    found = services.catalog.endpoint(address)
    caller = services.access.visitor(presented(request, query), found, address)
    request.facts["key"] = caller.key_id
    require_query(caller, found)
    found = found or existing_endpoint(services, address)
    services.answers.admit(caller, account_of(request, caller))
    if not found.sandbox:
        raise BadParameter(f"{found.name} takes no query of your own.")
    return found, caller, query


def _sub_query(one: SubQuery) -> dict[str, Any]:
    return {"name": one.name, "columns": [_column(column) for column in one.columns]}


def _column(one: SubQueryColumn) -> dict[str, Any]:
    fields = [{"path": list(path), "kinds": sorted(kinds)} for path, kinds in one.fields.items() if path]
    return {"name": one.name, "type": one.kind, "fields": fields}
