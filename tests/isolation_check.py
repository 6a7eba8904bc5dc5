"""Functions with which tests disable or observe the isolation check of statements (`engines/isolation.py`)."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from cordwood.engines.isolation import IsolationCheck


def disable_isolation_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable the isolation check, to run handwritten statements or to test the compiler alone."""
    monkeypatch.setattr(IsolationCheck, "check_statement", lambda *_: None)


@contextmanager
def forbid_isolation_refusals() -> Iterator[None]:
    """Fail if the isolation check refuses any statement during the block, even if the block handles the refusal."""
    refused: list[str] = []
    refuse: Any = IsolationCheck._log_and_refuse

    def recorded(self: IsolationCheck, text: str, digest: bytes, breach: str) -> None:
        refused.append(f"{breach}: {text}")
        refuse(self, text, digest, breach)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(IsolationCheck, "_log_and_refuse", recorded)
        try:
            yield
        finally:
            assert refused == []
