"""Access to the conformance cases and to the code that compares answers. Both are in a folder beside the project."""

import importlib.util
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

Case = Mapping[str, Any]

CASES_FOLDER = Path(__file__).resolve().parents[3] / "shared" / "conformance"


def has_cases() -> bool:
    return (CASES_FOLDER / "cases.jsonl").exists()


@cache
def read_cases() -> Sequence[Case]:
    with (CASES_FOLDER / "cases.jsonl").open() as lines:
        return [json.loads(line) for line in lines]


@cache
def load_comparison() -> Any:
    """Load the module that decides whether an answer to a case is right."""
    spec = importlib.util.spec_from_file_location("conformance_compare", CASES_FOLDER / "compare.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
