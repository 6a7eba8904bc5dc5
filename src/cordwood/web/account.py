"""Logflare-compatible account, backend and rule routes: one account, one store, no routing rules."""

from typing import Final

from cordwood.errors import NotOffered
from cordwood.web.asgi import Request, Response
from cordwood.web.credentials import private_caller
from cordwood.web.lifecycle import Services
from cordwood.web.responses import no_store_json

# The user object that Logflare returns. There is one account, and nothing is limited by a plan.
_ACCOUNT: Final = {
    "name": "default",
    "email": None,
    "email_preferred": None,
    "company": None,
    "phone": None,
    "image": None,
    "provider": None,
    "admin": True,
    "api_quota": None,
    "bigquery_project_id": None,
    "bigquery_dataset_id": None,
    "bigquery_dataset_location": None,
}
_HINTS: Final = {
    "backends": "All streams are stored by the engine in the setting `engine`; have the sender send events elsewhere as well.",
    "rules": "Send an event to every stream that should have it; filter on reading with an endpoint.",
}


async def show_account(request: Request, services: Services) -> Response:
    private_caller(request, services)
    return no_store_json(_ACCOUNT)


async def backends(request: Request, services: Services) -> Response:
    return _none_of(request, services, "backends")


async def rules(request: Request, services: Services) -> Response:
    return _none_of(request, services, "rules")


def _none_of(request: Request, services: Services, what: str) -> Response:
    """Return an empty list; raise NotOffered for a request to create one."""
    private_caller(request, services)
    if request.method == "POST":
        raise NotOffered(f"cordwood has no {what}, so none can be created.", hint=_HINTS[what])
    return no_store_json([])
