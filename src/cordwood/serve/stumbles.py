"""What the compiler broke on, told to the operator's log: each place in our code once."""

import traceback
from hashlib import sha256

from cordwood.errors import CompilerBroke
from cordwood.observe.observation import Broke
from cordwood.observe.observer import Observer

# So many places are told; what comes after as many is no news.
MOST = 1000


class Stumbles:
    """A place is what was raised and where: callers who send the same form again and again fill no log."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._told: set[str] = set()

    def tell(self, fault: CompilerBroke) -> None:
        """Neither the query is told nor what was said of it: both may hold what is nobody's but the author's."""
        cause = fault.__cause__
        if cause is None:
            return
        place = _place(cause)
        incident = f"compiler-{sha256(place.encode()).hexdigest()[:12]}"
        fault.hint = f"Write it in another way, and report the incident {incident}."
        if place not in self._told and len(self._told) < MOST:
            self._told.add(place)
            trace = "".join([*traceback.format_tb(cause.__traceback__), type(cause).__name__])
            self._observer.note(Broke(incident=incident, trace=trace))


def _place(cause: BaseException) -> str:
    frames = traceback.extract_tb(cause.__traceback__)
    last = frames[-1] if frames else None
    return f"{type(cause).__name__} {last.filename}:{last.lineno}" if last else type(cause).__name__
