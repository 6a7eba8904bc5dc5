"""An answer's journey: find, compile, bind, look up, run, keep."""

from collections.abc import Callable

from cordwood.cache.cache import AnswerCache
from cordwood.catalog.catalog import Catalog
from cordwood.engines.engine import Engine
from cordwood.observe.observer import Observer
from cordwood.serve.ask import Ask
from cordwood.serve.limits import ServeLimits


class Answers:
    """Answers asks; `clock_us` gives microseconds since 1970 and is the only clock the journey reads."""

    def __init__(
        self,
        catalog: Catalog,
        engine: Engine,
        cache: AnswerCache,
        observer: Observer,
        limits: ServeLimits,
        clock_us: Callable[[], int],
    ) -> None:
        self._catalog = catalog

    async def answer(self, ask: Ask) -> object:
        raise NotImplementedError

    async def warm(self) -> None:
        """Re-ask what is asked often, until cancelled: the door starts this task beside the server."""

    async def close(self) -> None:
        """Let what is under way finish; called after the last request."""
