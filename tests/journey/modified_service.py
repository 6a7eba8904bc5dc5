"""A program that runs cordwood with changed constants, so that rare situations become frequent.

The first argument names the set of changes. The other arguments are those of `cordwood`.
"""

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from types import ModuleType

from cordwood.__main__ import main
from cordwood.app import service
from cordwood.engines.duckdb.storage import compaction, retention, session
from cordwood.engines.duckdb.storage.locks import enable_lock_order_checks

# Arguments of Python that run a service with constant sweeps and checkpoints, and with a check of the lock order.
CONSTANT_SWEEPS: Sequence[str] = (__file__, "constant-sweeps")
# Arguments of Python that run a service with small blocks, which are compacted at once, so that few events suffice.
SMALL_BLOCKS: Sequence[str] = (__file__, "small-blocks")


def replace_constant(module: ModuleType, name: str, value: float) -> None:
    """Replace a constant by a value of the same type. Raise KeyError if the module has no constant with this name."""
    before = vars(module)[name]
    vars(module)[name] = type(before)(value)


def sweep_constantly() -> AbstractContextManager[None]:
    """Change the constants for `CONSTANT_SWEEPS`, and return the context in which the service runs."""
    replace_constant(service, "_RETENTION_CHECK_INTERVAL_SECONDS", 0.1)
    replace_constant(session, "_MAX_DATABASE_LOG_BYTES", 1)
    replace_constant(retention, "ROW_GROUP_ROWS", 1)
    return enable_lock_order_checks()


def use_small_blocks() -> AbstractContextManager[None]:
    """Change the constants for `SMALL_BLOCKS`, and return the context in which the service runs."""
    for module in (session, compaction):
        replace_constant(module, "ROW_GROUP_ROWS", 2048)
    replace_constant(compaction, "ROW_GROUPS_PER_COMPACTED_RUN", 3)
    replace_constant(compaction, "MIN_UNCOMPACTED_ROW_GROUPS", 2)
    replace_constant(compaction, "_COMPACTION_DELAY_AFTER_FLUSH_SECONDS", 0)
    replace_constant(compaction, "_DUE_WORK_POLL_SECONDS", 0.1)
    return nullcontext()


if __name__ == "__main__":
    changes = {"constant-sweeps": sweep_constantly, "small-blocks": use_small_blocks}
    with changes[sys.argv.pop(1)]():
        main()
