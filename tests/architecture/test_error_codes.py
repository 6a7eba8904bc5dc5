"""Check that every error code is documented, and that a test or a page of spec/ causes it."""

import re

import pytest

from cordwood import errors
from cordwood.web.problems import status_of
from tests.architecture.tree import ROOT, texts_under

ERRORS_PAGE = ROOT / "docs" / "reference" / "errors.md"
TROUBLESHOOTING = (ROOT / "docs" / "guide" / "troubleshooting.md").read_text()
TROUBLESHOOTING_SECTIONS = dict(
    re.findall(r"^### `([a-z.-]+)`\n\n(.*?)(?=^##|\Z)", TROUBLESHOOTING, re.MULTILINE | re.DOTALL)
)


def leaf_classes(family: type[errors.Fault] = errors.Fault) -> list[type[errors.Fault]]:
    below = [fault for child in family.__subclasses__() for fault in leaf_classes(child)]
    return [family, *below] if "code" in vars(family) else below


@pytest.mark.parametrize("fault", leaf_classes(), ids=lambda fault: fault.code)
def test_the_code_is_documented_with_its_status(fault: type[errors.Fault]) -> None:
    assert f"| `{fault.code}` | {status_of(fault.__new__(fault))} |" in ERRORS_PAGE.read_text()


@pytest.mark.parametrize("fault", leaf_classes(), ids=lambda fault: fault.code)
def test_some_test_causes_the_fault(fault: type[errors.Fault]) -> None:
    cases = texts_under("tests/unit", "tests/contract", "tests/journey", "tests/property", "spec")
    assert re.search(rf"\b({re.escape(fault.code)}|{fault.__name__})\b", cases)


def test_codes_are_unique() -> None:
    codes = [fault.code for fault in leaf_classes()]
    assert len(codes) == len(set(codes))


def test_the_reference_names_only_existing_codes() -> None:
    families = "request|query|limit|service|engine|setup|bug"
    named = set(re.findall(rf"`((?:{families})\.[a-z-]+)`", ERRORS_PAGE.read_text()))
    assert named <= {fault.code for fault in leaf_classes()}


def test_the_troubleshooting_guide_has_a_section_for_each_code() -> None:
    assert sorted(TROUBLESHOOTING_SECTIONS) == sorted(fault.code for fault in leaf_classes())


@pytest.mark.parametrize("fault", leaf_classes(), ids=lambda fault: fault.code)
def test_a_section_of_the_guide_has_status_cause_and_remedy(fault: type[errors.Fault]) -> None:
    cause, _, cure = TROUBLESHOOTING_SECTIONS[fault.code].partition("**Do:**")
    assert len(cause.split()) >= 4
    assert len(cure.split()) >= 2
    status_match = re.match(r"(\d{3}): ", cause)
    is_served = not fault.code.startswith(("setup.", "service.unreachable", "service.refused"))
    assert (status_match is not None) == is_served
    assert status_match is None or int(status_match[1]) == status_of(fault.__new__(fault))
