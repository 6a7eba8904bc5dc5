"""Every route, one screen."""

from cordwood.observe.observer import Observer
from cordwood.web.asgi import Application, Receive, Scope, Send
from cordwood.web.options import WebOptions
from cordwood.web.standing import Standing


def application(standing: Standing, observer: Observer, options: WebOptions) -> Application:
    """The ASGI application: answers 503 until `standing` is opened with its rooms."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise NotImplementedError

    return app
