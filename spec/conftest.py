"""Collect the Markdown pages of spec/ as tests.

Each case runs on every engine. Its fences with expected results are compared one by one.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.garbage_collection import exempt_earlier_objects
from tests.isolation_check import forbid_isolation_refusals
from tests.spec_runner.answers import RESULT_WRITERS, actual_result, result_text
from tests.spec_runner.page import Case, Fence, read_cases, rewrite
from tests.spec_runner.world import ENGINES, CaseEngines, EngineKind

ENGINES_KEY = pytest.StashKey[CaseEngines]()
# Fences that describe a case; all others are expected results.
INPUT_FENCES = {"sql", "lql", "sandbox", "stream", "params", "redact", "zone", "clock", "gap", "instead"}
BLESSED_FENCES = pytest.StashKey[dict[Path, dict[int, tuple[Fence, str]]]]()
GAP_WORDS = {"notimpl", "notyet", "never"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--bless",
        action="store_true",
        help="rewrite the expected fences of spec/ from the current results",
    )


def pytest_sessionstart(session: pytest.Session) -> None:
    session.config.stash[BLESSED_FENCES] = {}


def pytest_sessionfinish(session: pytest.Session) -> None:
    for path, fences in session.config.stash[BLESSED_FENCES].items():
        rewrite(path, fences.values())
    if ENGINES_KEY in session.config.stash:
        session.config.stash[ENGINES_KEY].close()


def pytest_collect_file(parent: pytest.Collector, file_path: Path) -> pytest.Collector | None:
    if file_path.suffix == ".md" and file_path.name != "README.md":
        return Page.from_parent(parent, path=file_path)
    return None


class Page(pytest.File):
    def setup(self) -> None:
        exempt_earlier_objects()

    def collect(self) -> Iterable[pytest.Item]:
        for case in read_cases(self.path):
            unknown_kinds = {fence.kind for fence in case.fences} - INPUT_FENCES - RESULT_WRITERS.keys()
            if unknown_kinds:
                raise self.CollectError(
                    f"{self.path}:{case.line}: there is no fence {', '.join(sorted(unknown_kinds))}"
                )
            for kind in ENGINES:
                if any(_applies_to(fence, kind) for fence in case.fences):
                    yield CaseItem.from_parent(self, name=f"{case.title} [{kind.name}]", case=case, kind=kind)


class MismatchError(AssertionError):
    """The actual result of a case differs from its page."""


class CaseItem(pytest.Item):
    """A case on one engine.

    If the page states a gap, the case must fail. Once the case succeeds, the gap must be removed from the page.
    """

    def __init__(self, *, case: Case, kind: EngineKind, **options: Any) -> None:
        super().__init__(**options)
        self.case, self.kind = case, kind

    def runtest(self) -> None:
        """Run the case. Fail if the isolation check refuses any statement, even where the page expects an error."""
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
            raise MismatchError(f"the case works now, so remove the gap from the page: {gap}")

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, self.case.line, self.name

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        return str(excinfo.value) if excinfo.errisinstance(MismatchError) else super().repr_failure(excinfo, style)

    def _check(self, *, blesses: bool) -> None:
        engine = self._engines().of(self.kind, self.case)
        for fence in self.case.fences:
            if _applies_to(fence, self.kind):
                actual = result_text(self.case, engine, fence)
                if actual != fence.text:
                    self._report_difference(fence, actual, blesses=blesses)

    def _check_instead(self) -> None:
        """Compare the actual result at a gap, which is rows or a refusal, with the page's `instead` fence."""
        fences = [fence for fence in self.case.fences_of("instead") if self.kind.name in fence.options]
        if len(fences) != 1:
            raise MismatchError(f"a gap needs exactly one fence with the actual result: ```instead {self.kind.name}")
        actual = actual_result(self.case, self._engines().of(self.kind, self.case))
        if actual != fences[0].text:
            self._report_difference(fences[0], actual, blesses=True)

    def _report_difference(self, fence: Fence, actual: str, *, blesses: bool) -> None:
        if not (blesses and self.config.getoption("--bless")):
            raise MismatchError(f"{fence.kind}\n--- expected\n{fence.text}\n--- actual\n{actual}")
        self.config.stash[BLESSED_FENCES].setdefault(self.path, {})[fence.start] = (fence, actual)

    def _engines(self) -> CaseEngines:
        stash = self.config.stash
        if ENGINES_KEY not in stash:
            factory: pytest.TempPathFactory = self.config._tmp_path_factory  # type: ignore[attr-defined] # items have no fixtures
            stash[ENGINES_KEY] = CaseEngines(factory.mktemp("spec"))
        return stash[ENGINES_KEY]


def _applies_to(fence: Fence, kind: EngineKind) -> bool:
    """Return whether the fence has an expected result of this engine. A fence named after an engine is only for that
    engine.
    """
    if fence.kind not in RESULT_WRITERS:
        return False
    return fence.kind == kind.name or fence.kind not in {other.name for other in ENGINES} | {"clickhouse"}


def _gap(case: Case, kind: EngineKind) -> str | None:
    for line in _gap_lines(case):
        engine, word, reason = line.split(maxsplit=2)
        if word.rstrip(":") not in GAP_WORDS:
            raise ValueError(f"{word} is not one of {GAP_WORDS}")
        if engine == kind.name:
            return f"{word} {reason}"
    return None


def _gap_lines(case: Case) -> Iterator[str]:
    for fence in case.fences_of("gap"):
        yield from fence.text.splitlines()
