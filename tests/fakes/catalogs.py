"""A catalog in memory. A test can replace its endpoints, as a reload of the files does."""

from collections.abc import Sequence

from cordwood.model.definitions import Alert, Endpoint, Stream


class MemoryCatalog:
    def __init__(self, *endpoints: Endpoint) -> None:
        self._endpoints = list(endpoints)

    def replace(self, *endpoints: Endpoint) -> None:
        self._endpoints = list(endpoints)

    def endpoint(self, name_or_id: str) -> Endpoint | None:
        return next(
            (candidate for candidate in self._endpoints if name_or_id in (candidate.name, str(candidate.id))), None
        )

    def endpoints(self) -> Sequence[Endpoint]:
        return self._endpoints

    def stream(self, name_or_id: str) -> Stream | None:
        return None

    def alerts(self) -> Sequence[Alert]:
        return ()

    def streams(self) -> Sequence[Stream]:
        return []
