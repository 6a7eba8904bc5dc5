"""Run the cases of test pages, and report the results. The engines use temporary folders or databases."""

import re
import tempfile
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from importlib import resources
from pathlib import Path
from urllib.parse import quote
from uuid import UUID
from xml.etree import ElementTree as ET

import msgspec

from cordwood.app.checks import catalog_sources_of, create_compile_target, read_and_check_definitions, uses_clickhouse
from cordwood.app.compose import import_clickhouse_module
from cordwood.app.event_files import add_missing_id
from cordwood.app.in_process import InProcessApp, open_in_process_app
from cordwood.catalog.catalog import CatalogContents
from cordwood.errors import BadTestPage, Span
from cordwood.file_listing import find_files_below, is_reachable_folder, list_files
from cordwood.settings.settings import CompatSettings, KeySettings, LimitSettings, Settings
from cordwood.trials.test_page import (
    ALERTS,
    CaseCall,
    CaseData,
    CaseOutcome,
    EndpointTestCase,
    TextReplacement,
    apply_replacements,
    case_call,
    case_data,
    compare_outcome,
    outcome_of_alert,
    outcome_of_query,
    read_cases,
)

_TEST_PAGE_SUFFIX = ".test.md"
EMBEDDED_ENGINE = "duckdb"
_SHIPPED_ENDPOINTS_FOLDER = "cordwood/endpoints"


class CasePage(msgspec.Struct, frozen=True):
    """A page of tests. `display_path` is the name of the page in reports, and `path` is its location."""

    display_path: str
    path: Path

    @property
    def endpoint_file(self) -> str:
        return self.display_path.removesuffix(_TEST_PAGE_SUFFIX) + ".sql"

    @property
    def alert_file(self) -> str:
        """The name that the alert file for this page would have. There need not be such a file."""
        return self.display_path.removesuffix(_TEST_PAGE_SUFFIX) + ".toml"


class CaseResult(msgspec.Struct, frozen=True):
    """The result of one case. The case has passed if there are no differences."""

    page: CasePage
    case: EndpointTestCase
    actual_outcome: CaseOutcome
    differences: Sequence[str]
    duration_seconds: float

    @property
    def passed(self) -> bool:
        return not self.differences


def find_pages(folder: Path | None) -> list[CasePage]:
    """Return the pages in a folder and its subfolders. Without a folder, return the pages of the shipped endpoints."""
    if folder is not None:
        if not is_reachable_folder(folder):
            raise BadTestPage(f"The folder {folder} does not exist, or cannot be reached.")
        pages = find_files_below(folder, lambda name: name.endswith(_TEST_PAGE_SUFFIX), _raise_unreadable_folder_fault)
        return [CasePage(str(path), path) for path in pages]
    shipped = Path(str(resources.files("cordwood"))) / "endpoints"
    return [
        CasePage(f"{_SHIPPED_ENDPOINTS_FOLDER}/{path.name}", path) for path in list_files(shipped, _TEST_PAGE_SUFFIX)
    ]


def _raise_unreadable_folder_fault(folder: Path, problem: OSError) -> None:
    raise BadTestPage(f"The folder {folder} cannot be read: {problem.strerror}.") from problem


def run_pages(settings: Settings, pages: Sequence[CasePage], engine: str = EMBEDDED_ENGINE) -> Iterator[CaseResult]:
    """Run all cases of all pages. Within a page, cases with equal data share an engine.

    The cases run on `engine` instead of the engine in the settings, so that tests never touch a real store.
    """
    with ExitStack() as stack:
        isolated = _isolated_settings(settings, engine)
        if uses_clickhouse(isolated):
            address = stack.enter_context(import_clickhouse_module().chdb_address_in_temporary_folder(engine))
            isolated = msgspec.structs.replace(isolated, engine=address)
        contents = read_and_check_definitions(catalog_sources_of(isolated), create_compile_target(isolated))
        for page in pages:
            yield from _run_page(isolated, page, _subject_of_page(page, contents))


class _TestSubject(msgspec.Struct, frozen=True):
    """What a page tests: an endpoint and, if there is one, an alert.

    The alert is defined in the endpoint's file or in a file of its own.
    """

    endpoint_id: UUID
    alert_name: str | None


def _run_page(settings: Settings, page: CasePage, subject: _TestSubject) -> Iterator[CaseResult]:
    # The engines for one page are closed before the engines for the next page are opened.
    with ExitStack() as stack:
        services = _CaseServices(settings, stack)
        for case in read_cases(page.display_path, _read_page(page)):
            yield _run_case(page, case, services, subject)


def update_expected_answers(trials: Sequence[CaseResult]) -> list[CasePage]:
    """Replace the expected answers of failed cases by the actual answers; return the pages that were changed."""
    changed = {trial.page.path: trial.page for trial in trials if not trial.passed}
    for path, page in changed.items():
        replacements = [
            _expected_fence_replacement(trial) for trial in trials if trial.page == page and not trial.passed
        ]
        text = _apply_replacements_keeping_line_ends(_read_page(page, newline=""), replacements)
        path.write_text(text, encoding="utf-8", newline="")
    return list(changed.values())


def _apply_replacements_keeping_line_ends(text: str, replacements: Sequence[TextReplacement]) -> str:
    """Make replacements in a text whose lines may end in CR LF; the offsets are those of the text with LF alone."""
    # For each CR LF, the offset of its LF in the text with LF alone.
    offsets = [match.start() - number for number, match in enumerate(re.finditer("\r\n", text))]
    line_end = "\r\n" if offsets and "\n" not in text[: offsets[0]] else "\n"
    return apply_replacements(
        text,
        [
            TextReplacement(
                start_offset=one.start_offset + bisect_left(offsets, one.start_offset),
                end_offset=one.end_offset + bisect_left(offsets, one.end_offset),
                text=one.text.replace("\n", line_end),
            )
            for one in replacements
        ],
    )


class _CaseServices:
    """The services in which cases run. Cases with equal `CaseData` share a service.

    Each service is opened in a temporary folder when a case first needs it.
    """

    def __init__(self, settings: Settings, stack: ExitStack) -> None:
        self._settings = settings
        self._exit_stack = stack
        self._service_by_case_data: dict[CaseData, InProcessApp] = {}

    def service_for(self, case: EndpointTestCase, data: CaseData) -> InProcessApp:
        if data not in self._service_by_case_data:
            self._service_by_case_data[data] = self._open_service(case, data)
        return self._service_by_case_data[data]

    def _open_service(self, case: EndpointTestCase, data: CaseData) -> InProcessApp:
        folder = self._exit_stack.enter_context(tempfile.TemporaryDirectory(prefix="cordwood-test-"))
        serve = msgspec.structs.replace(self._settings.serve, data_dir=folder)
        settings = msgspec.structs.replace(self._settings, serve=serve)
        settings = self._exit_stack.enter_context(_settings_with_empty_store(settings))
        service = self._exit_stack.enter_context(open_in_process_app(settings, lambda: data.now_us))
        for stream, events in data.events_by_stream:
            _send_events(case, service, stream, events)
        return service


def _settings_with_empty_store(settings: Settings) -> AbstractContextManager[Settings]:
    """Return a context manager that yields the settings for an empty store.

    For ClickHouse, it creates a new database. DuckDB needs nothing, because its folder is new.
    """
    if not uses_clickhouse(settings):
        return nullcontext(settings)
    new_database: AbstractContextManager[Settings] = import_clickhouse_module().settings_with_temporary_database(
        settings
    )
    return new_database


def _isolated_settings(settings: Settings, engine: str) -> Settings:
    """Return the settings with `engine`, and with the defaults of all keys, limits and compatibility settings.

    The user's values of these settings might change the answers.
    """
    return msgspec.structs.replace(
        settings, engine=engine, keys=KeySettings(), limits=LimitSettings(), compat=CompatSettings()
    )


def _subject_of_page(page: CasePage, contents: CatalogContents) -> _TestSubject:
    alert = next((alert for alert in contents.alerts if alert.file == page.alert_file), None)
    for endpoint in contents.endpoints:
        if endpoint.file == page.endpoint_file or (alert is not None and endpoint.name == alert.endpoint_name):
            own = alert or endpoint.alert
            return _TestSubject(endpoint.id, own.name if own is not None else None)
    hint = "A test page is beside its endpoint's file: my.endpoint.sql, my.endpoint.test.md."
    raise BadTestPage(f"There is no endpoint in {page.endpoint_file}.", hint=hint, span=Span(1, 1, page.display_path))


def _read_page(page: CasePage, newline: str | None = None) -> str:
    """Return the text of a page. Unless `newline` is an empty text, all lines end in LF."""
    try:
        with page.path.open(encoding="utf-8", newline=newline) as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as problem:
        raise BadTestPage(f"The page cannot be read: {problem}.", span=Span(1, 1, page.display_path)) from problem


def _run_case(page: CasePage, case: EndpointTestCase, services: _CaseServices, subject: _TestSubject) -> CaseResult:
    call, service = case_call(case), services.service_for(case, case_data(case))
    started_at = time.perf_counter()
    if case.expected_fence is not None and case.expected_fence.kind == ALERTS:
        actual = _preview_alert(case, service, subject)
    else:
        actual = _send_call(service, subject.endpoint_id, call)
    return CaseResult(page, case, actual, compare_outcome(case, actual), time.perf_counter() - started_at)


def _send_call(service: InProcessApp, endpoint_id: UUID, call: CaseCall) -> CaseOutcome:
    headers = {"content-type": "application/json", "accept": "application/json"}
    if call.redact_header is not None:
        headers["lf-endpoint-redact-pii"] = call.redact_header
    body = msgspec.json.encode(call.parameter_texts)
    status, _, answer = service.send("POST", f"/api/endpoints/query/{endpoint_id}", body, headers)
    return outcome_of_query(status, answer)


def _preview_alert(case: EndpointTestCase, service: InProcessApp, subject: _TestSubject) -> CaseOutcome:
    """Evaluate the alert that the page tests, at the time that the case sets."""
    if subject.alert_name is None:
        raise case.fault_at("The endpoint of this page has no alert.", case.expected_fence, "Write an [alert] table.")
    status, _, answer = service.send("GET", f"/api/alerts/{quote(subject.alert_name, safe='')}/preview", b"", {})
    return outcome_of_alert(status, answer)


def _send_events(case: EndpointTestCase, service: InProcessApp, stream: str, events: Sequence[bytes]) -> None:
    """Send the events of a case to the service.

    An event without an id gets an id that is the same in every run, so that answers do not change.
    """
    body = b"\n".join(add_missing_id(number, event) for number, event in enumerate(events))
    headers = {"content-type": "application/x-ndjson"}
    status, _, answer = service.send("POST", f"/api/logs?source_name={quote(stream)}", body, headers)
    response = msgspec.json.decode(answer)
    if status != 200:
        raise case.fault_at(response["error"]["message"], None, response["error"].get("hint"))
    if response["quarantined"]:
        first_reason = response["reasons"][0]
        raise case.fault_at(f"{stream} does not take its event {first_reason['index'] + 1}: {first_reason['reason']}")


def _expected_fence_replacement(trial: CaseResult) -> TextReplacement:
    expected = trial.case.expected_fence
    fence = trial.actual_outcome.fence_text(expected)
    if expected is None:
        return TextReplacement(trial.case.end_offset, trial.case.end_offset, f"\n\n{fence.rstrip()}")
    return TextReplacement(expected.start_offset, expected.end_offset, fence)


def case_report(trial: CaseResult) -> str:
    """Return the report of one case: a line with the result and, if the case failed, the differences."""
    verdict = "ok    " if trial.passed else "FAILED"
    head = f"{verdict} {trial.page.display_path}:{trial.case.line} {trial.case.title} ({trial.duration_seconds * 1000:.0f} ms)"
    return "\n".join([head, *(f"       {line}" for line in trial.differences)])


def results_summary(trials: Sequence[CaseResult], seconds: float) -> str:
    failed = sum(not trial.passed for trial in trials)
    counts = f"{len(trials) - failed} passed" + (f", {failed} failed" if failed else "")
    return f"{counts} in {seconds:.2f} s. (-: expected, +: answered)" if failed else f"{counts} in {seconds:.2f} s."


def junit_xml(trials: Sequence[CaseResult], seconds: float) -> str:
    """Return the results as JUnit XML, with one test suite for each page."""
    root = ET.Element("testsuites", {"name": "cordwood", "time": f"{seconds:.3f}", **_junit_counts(trials)})
    for file in dict.fromkeys(trial.page.display_path for trial in trials):
        file_trials = [trial for trial in trials if trial.page.display_path == file]
        taken = sum(trial.duration_seconds for trial in file_trials)
        attributes = {"name": file, "time": f"{taken:.3f}", "errors": "0", **_junit_counts(file_trials)}
        suite = ET.SubElement(root, "testsuite", attributes)
        for trial in file_trials:
            _add_case(suite, trial)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _add_case(suite: ET.Element, trial: CaseResult) -> None:
    attributes = {
        "classname": trial.page.display_path,
        "name": trial.case.title,
        "time": f"{trial.duration_seconds:.3f}",
    }
    location = {"file": trial.page.display_path, "line": str(trial.case.line)}
    case = ET.SubElement(suite, "testcase", {**attributes, **location})
    if not trial.passed:
        failure = ET.SubElement(case, "failure", message="The answer differs.")
        failure.text = "\n".join(trial.differences)


def _junit_counts(trials: Sequence[CaseResult]) -> dict[str, str]:
    return {"tests": str(len(trials)), "failures": str(sum(not trial.passed for trial in trials))}
