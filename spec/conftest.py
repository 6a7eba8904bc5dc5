"""Collects the Markdown pages of spec/ as tests: every case on every engine, its expected fences one by one."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.garbage_collection import exempt_earlier_objects
from tests.isolation_check import forbid_isolation_refusals
from tests.spec_runner.answers import ANSWERS, actual_result, answered
from tests.spec_runner.page import Case, Fence, read_cases, rewrite
from tests.spec_runner.world import ENGINES, EngineKind, Worlds

WORLDS = pytest.StashKey[Worlds]()
BLESSED = pytest.StashKey[dict[Path, dict[int, tuple[Fence, str]]]]()
GAP_WORDS = {"notimpl", "notyet", "never"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--bless", action="store_true", help="rewrite the expected fences of spec/ from what happens")


def pytest_sessionstart(session: pytest.Session) -> None:
    session.config.stash[BLESSED] = {}


def pytest_sessionfinish(session: pytest.Session) -> None:
    for path, fences in session.config.stash[BLESSED].items():
        rewrite(path, fences.values())
    if WORLDS in session.config.stash:
        session.config.stash[WORLDS].close()


def pytest_collect_file(parent: pytest.Collector, file_path: Path) -> pytest.Collector | None:
    if file_path.suffix == ".md" and file_path.name != "README.md":
        return Page.from_parent(parent, path=file_path)
    return None


class Page(pytest.File):
    def setup(self) -> None:
        exempt_earlier_objects()

    def collect(self) -> Iterable[pytest.Item]:
        for case in read_cases(self.path):
            for kind in ENGINES:
                if any(_concerns(fence, kind) for fence in case.fences):
                    yield CaseItem.from_parent(self, name=f"{case.title} [{kind.name}]", case=case, kind=kind)


class MismatchError(AssertionError):
    """What the page expects is not what happens."""


class CaseItem(pytest.Item):
    """A case on one engine. A gap that the page states must be there: when it closes, the word must go."""

    def __init__(self, *, case: Case, kind: EngineKind, **rest: Any) -> None:
        super().__init__(**rest)
        self.case, self.kind = case, kind

    def runtest(self) -> None:
        """No statement is one that the check by the engine's own parser refuses, whatever the page expects."""
        with forbid_isolation_refusals():
            self._run()

    def _run(self) -> None:
        gap = _gap(self.case, self.kind)
        try:
            self._check(blesses=gap is None)
        except Exception:
            if gap is None:
                raise
            self._check_instead()
            pytest.xfail(gap)
        if gap is not None:
            raise MismatchError(f"the gap has closed, its word must go: {gap}")

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, self.case.line, self.name

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        return str(excinfo.value) if excinfo.errisinstance(MismatchError) else super().repr_failure(excinfo, style)

    def _check(self, *, blesses: bool) -> None:
        world = self._worlds().of(self.kind, self.case)
        for fence in self.case.fences:
            if _concerns(fence, self.kind):
                actual = answered(self.case, world, fence)
                if actual != fence.text:
                    self._differs(fence, actual, blesses=blesses)

    def _check_instead(self) -> None:
        """What happens at a gap is stated too: other rows, or a refusal."""
        fences = [fence for fence in self.case.all("instead") if self.kind.name in fence.notes]
        if len(fences) != 1:
            raise MismatchError(f"a gap wants one fence that says what happens: ```instead {self.kind.name}")
        actual = actual_result(self.case, self._worlds().of(self.kind, self.case))
        if actual != fences[0].text:
            self._differs(fences[0], actual, blesses=True)

    def _differs(self, fence: Fence, actual: str, *, blesses: bool) -> None:
        if not (blesses and self.config.getoption("--bless")):
            raise MismatchError(f"{fence.kind}\n--- expected\n{fence.text}\n--- actual\n{actual}")
        self.config.stash[BLESSED].setdefault(self.path, {})[fence.start] = (fence, actual)

    def _worlds(self) -> Worlds:
        stash = self.config.stash
        if WORLDS not in stash:
            factory: pytest.TempPathFactory = self.config._tmp_path_factory  # type: ignore[attr-defined] # items have no fixtures
            stash[WORLDS] = Worlds(factory.mktemp("spec"))
        return stash[WORLDS]


def _concerns(fence: Fence, kind: EngineKind) -> bool:
    """Whether the fence is expected of this engine: a text in an engine's own words is asked of it alone."""
    if fence.kind not in ANSWERS:
        return False
    return fence.kind == kind.name or fence.kind not in {other.name for other in ENGINES} | {"clickhouse"}


def _gap(case: Case, kind: EngineKind) -> str | None:
    for line in _gap_lines(case):
        engine, word, reason = line.split(maxsplit=2)
        if word.rstrip(":") not in GAP_WORDS:
            raise ValueError(f"{word} is none of {GAP_WORDS}")
        if engine == kind.name:
            return f"{word} {reason}"
    return None


def _gap_lines(case: Case) -> Iterator[str]:
    for fence in case.all("gap"):
        yield from fence.text.splitlines()
