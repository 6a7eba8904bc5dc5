"""Log internal errors of the compiler, each place in the code once."""

import traceback
from hashlib import sha256

from cordwood.errors import CompilerBroke
from cordwood.observe.observation import Broke
from cordwood.observe.observer import Observer

# The number of distinct places that are logged.
MOST = 1000


class Stumbles:
    """Logs compiler errors by exception type and source line, so that a repeated query does not flood the log."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._told: set[str] = set()

    def tell(self, fault: CompilerBroke) -> None:
        """Log the error and add an incident id to the hint.

        The log has neither the query nor the message, which may quote it.
        """
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
