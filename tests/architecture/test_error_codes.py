"""Every code a caller may read is documented, and some test or page of spec/ provokes it."""

import re

import pytest

from cordwood import errors
from cordwood.web.problems import status_of
from tests.architecture.tree import ROOT, texts_under

REFERENCE = ROOT / "docs" / "reference" / "errors.md"
TROUBLES = (ROOT / "docs" / "guide" / "troubleshooting.md").read_text()
TOLD = dict(re.findall(r"^### `([a-z.-]+)`\n\n(.*?)(?=^##|\Z)", TROUBLES, re.MULTILINE | re.DOTALL))


def leaves(family: type[errors.Fault] = errors.Fault) -> list[type[errors.Fault]]:
    below = [fault for child in family.__subclasses__() for fault in leaves(child)]
    return [family, *below] if "code" in vars(family) else below


@pytest.mark.parametrize("fault", leaves(), ids=lambda fault: fault.code)
def test_the_code_is_documented_with_its_status(fault: type[errors.Fault]) -> None:
    assert f"| `{fault.code}` | {status_of(fault.__new__(fault))} |" in REFERENCE.read_text()


@pytest.mark.parametrize("fault", leaves(), ids=lambda fault: fault.code)
def test_some_case_provokes_it(fault: type[errors.Fault]) -> None:
    cases = texts_under("tests/unit", "tests/contract", "tests/journey", "tests/property", "spec")
    assert re.search(rf"\b({re.escape(fault.code)}|{fault.__name__})\b", cases)


def test_no_code_belongs_to_two_faults() -> None:
    codes = [fault.code for fault in leaves()]
    assert len(codes) == len(set(codes))


def test_the_reference_names_no_code_that_is_gone() -> None:
    families = "request|query|limit|service|engine|setup|bug"
    named = set(re.findall(rf"`((?:{families})\.[a-z-]+)`", REFERENCE.read_text()))
    assert named <= {fault.code for fault in leaves()}


def test_the_guide_tells_of_every_code_and_of_no_other() -> None:
    assert sorted(TOLD) == sorted(fault.code for fault in leaves())


@pytest.mark.parametrize("fault", leaves(), ids=lambda fault: fault.code)
def test_the_guide_has_the_status_the_cause_and_what_to_do(fault: type[errors.Fault]) -> None:
    cause, _, cure = TOLD[fault.code].partition("**Do:**")
    assert len(cause.split()) >= 4
    assert len(cure.split()) >= 2
    stated = re.match(r"(\d{3}): ", cause)
    is_served = not fault.code.startswith(("setup.", "service.unreachable", "service.refused"))
    assert (stated is not None) == is_served
    assert stated is None or int(stated[1]) == status_of(fault.__new__(fault))
