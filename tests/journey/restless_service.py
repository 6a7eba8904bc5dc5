"""The service with constant retention sweeps and checkpoints and checked lock order, for tests that kill it."""

from cordwood.__main__ import main
from cordwood.app import service
from cordwood.engines.duckdb.storage import retention, session
from cordwood.engines.duckdb.storage.lock_order import checked_order

vars(service)["SWEEP_SECONDS"] = 0.1
vars(session)["_LOG_BYTES"] = 1
vars(retention)["ROW_GROUP_ROWS"] = 1

if __name__ == "__main__":
    with checked_order():
        main()
