"""A catalog in memory whose endpoints a test can replace, as a reload does."""

from collections.abc import Sequence

from cordwood.model.definitions import Alert, Endpoint, Stream


class HeldCatalog:
    def __init__(self, *endpoints: Endpoint) -> None:
        self._endpoints = list(endpoints)

    def replace(self, *endpoints: Endpoint) -> None:
        self._endpoints = list(endpoints)

    def endpoint(self, name_or_id: str) -> Endpoint | None:
        return next((one for one in self._endpoints if name_or_id in (one.name, str(one.id))), None)

    def endpoints(self) -> Sequence[Endpoint]:
        return self._endpoints

    def stream(self, name_or_id: str) -> Stream | None:
        return None

    def alerts(self) -> Sequence[Alert]:
        return ()

    def streams(self) -> Sequence[Stream]:
        return []
