"""cordwood as it is, but that it sweeps, frees space and writes its log all the time: for tests that kill it meanwhile."""

from cordwood.__main__ import main
from cordwood.app import service
from cordwood.engines.duckdb.storage import retention, session

vars(service)["SWEEP_SECONDS"] = 0.1
vars(session)["_LOG_BYTES"] = 1
vars(retention)["ROW_GROUP_ROWS"] = 1

if __name__ == "__main__":
    main()
