"""Test reports, as text and as JUnit XML."""

from collections.abc import Sequence
from xml.etree import ElementTree as ET

from cordwood.trials.runner import Trial


def line_of(trial: Trial) -> str:
    """Return one line for a passed case; of a failed one also its differences."""
    verdict = "ok    " if trial.passed else "FAILED"
    head = f"{verdict} {trial.page.file}:{trial.case.line} {trial.case.title} ({trial.seconds * 1000:.0f} ms)"
    return "\n".join([head, *(f"       {line}" for line in trial.differences)])


def summary(trials: Sequence[Trial], seconds: float) -> str:
    failed = sum(not trial.passed for trial in trials)
    counts = f"{len(trials) - failed} passed" + (f", {failed} failed" if failed else "")
    return f"{counts} in {seconds:.2f} s. (-: expected, +: answered)" if failed else f"{counts} in {seconds:.2f} s."


def junit(trials: Sequence[Trial], seconds: float) -> str:
    """Return JUnit XML: one suite for each page."""
    root = ET.Element("testsuites", {"name": "cordwood", "time": f"{seconds:.3f}", **_counts(trials)})
    for file in dict.fromkeys(trial.page.file for trial in trials):
        file_trials = [trial for trial in trials if trial.page.file == file]
        time = sum(trial.seconds for trial in file_trials)
        attributes = {"name": file, "time": f"{time:.3f}", "errors": "0", **_counts(file_trials)}
        suite = ET.SubElement(root, "testsuite", attributes)
        for trial in file_trials:
            _add_case(suite, trial)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _add_case(suite: ET.Element, trial: Trial) -> None:
    attributes = {"classname": trial.page.file, "name": trial.case.title, "time": f"{trial.seconds:.3f}"}
    location = {"file": trial.page.file, "line": str(trial.case.line)}
    case = ET.SubElement(suite, "testcase", {**attributes, **location})
    if not trial.passed:
        failure = ET.SubElement(case, "failure", message="The answer differs.")
        failure.text = "\n".join(trial.differences)


def _counts(trials: Sequence[Trial]) -> dict[str, str]:
    return {"tests": str(len(trials)), "failures": str(sum(not trial.passed for trial in trials))}
