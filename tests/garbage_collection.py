"""Short garbage collections in a long test run."""

import gc


def exempt_earlier_objects() -> None:
    """Exempt the objects of pytest and of earlier tests from garbage collection, as the service does at its start. A
    full collection of all tests and their reports takes more than a second of CPU time, which counts against the time
    limit of a compilation that runs meanwhile.
    """
    gc.collect()
    gc.freeze()
