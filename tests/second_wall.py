"""The check of statements (`engines/isolation.py`) as tests need it: switched off, or watched."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from cordwood.engines.isolation import Isolation


def switch_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every text run: for statements that a test writes by hand, and to try the compiler alone."""
    monkeypatch.setattr(Isolation, "check", lambda *_: None)


@contextmanager
def silent() -> Iterator[None]:
    """Fail where the check refuses a statement meanwhile, whatever became of the refusal."""
    refused: list[str] = []
    refuse: Any = Isolation._refuse

    def noted(self: Isolation, text: str, digest: bytes, breach: str) -> None:
        refused.append(f"{breach}: {text}")
        refuse(self, text, digest, breach)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Isolation, "_refuse", noted)
        try:
            yield
        finally:
            assert refused == []
