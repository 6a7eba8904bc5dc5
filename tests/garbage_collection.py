"""Short garbage collections during a long test run."""

import gc


def exempt_earlier_objects() -> None:
    """Exempt the existing objects of pytest and of earlier tests from garbage collection, as the service does at its
    start.

    Otherwise a full collection, which visits all tests and their reports, takes more than a second of CPU time. If a
    compilation runs meanwhile, this time counts against its limit.
    """
    gc.collect()
    gc.freeze()
