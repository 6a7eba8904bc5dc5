"""The service with constant retention sweeps and checkpoints and checked lock order, for tests that kill it."""

from types import ModuleType

from cordwood.__main__ import main
from cordwood.app import service
from cordwood.engines.duckdb.storage import retention, session
from cordwood.engines.duckdb.storage.locks import checked_order


def replace(module: ModuleType, name: str, value: float) -> None:
    """Replace a constant; KeyError if the module has none of this name, so that no test runs a service at leisure."""
    before = vars(module)[name]
    vars(module)[name] = type(before)(value)


replace(service, "_SWEEP_SECONDS", 0.1)
replace(session, "_LOG_BYTES", 1)
replace(retention, "ROW_GROUP_ROWS", 1)

if __name__ == "__main__":
    with checked_order():
        main()
