"""Every code a caller may read is documented, and some test or page of spec/ provokes it."""

import re

import pytest

from cordwood import errors
from cordwood.web.problems import status_of
from tests.architecture.tree import ROOT, texts_under

REFERENCE = ROOT / "docs" / "reference" / "errors.md"


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
