"""The service with small row groups that are compacted at once, for tests of compacted blocks with few events."""

from types import ModuleType

from cordwood.__main__ import main
from cordwood.engines.duckdb.storage import compaction, session


def replace(module: ModuleType, name: str, value: float) -> None:
    """Replace a constant; KeyError if the module has none of this name."""
    before = vars(module)[name]
    vars(module)[name] = type(before)(value)


for module in (session, compaction):
    replace(module, "ROW_GROUP_ROWS", 2048)
replace(compaction, "RUN_GROUPS", 3)
replace(compaction, "UNCOMPACTED_GROUPS", 2)
replace(compaction, "_QUIET_SECONDS", 0)
replace(compaction, "_POLL_SECONDS", 0.1)

if __name__ == "__main__":
    main()
