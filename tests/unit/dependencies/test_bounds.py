"""Version bounds of dependencies.

Dependencies whose internals are used are bound to tested minor or patch versions.
"""

import re
import tomllib
from itertools import chain

import pytest

from tests.architecture.tree import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
REQUIREMENTS = {
    found[1]: found[2]
    for text in chain(PROJECT["dependencies"], *PROJECT["optional-dependencies"].values())
    if (found := re.match(r"([A-Za-z.\-]+)(?:\[[a-z]+\])?([^;]*)", text))
}
# Dependencies whose internals the code uses. Each has a test module in this folder.
INTERNALS_USED = ("duckdb", "httptools", "msgspec", "sqlglot", "sqlglotc", "uvicorn")


def version_tuple(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))


@pytest.mark.parametrize("name", REQUIREMENTS)
def test_every_dependency_has_a_lower_and_an_upper_bound(name: str) -> None:
    assert re.fullmatch(r">=[0-9.]+,<[0-9.]+", REQUIREMENTS[name])


@pytest.mark.parametrize("name", INTERNALS_USED)
def test_dependencies_with_used_internals_exclude_the_next_minor_version(name: str) -> None:
    lowest, bound = (version_tuple(part.lstrip("<>=")) for part in REQUIREMENTS[name].split(","))
    assert bound <= (lowest[0], lowest[1] + 1, 0)


def test_duckdb_is_bound_to_a_patch_version() -> None:
    assert len(version_tuple(REQUIREMENTS["duckdb"].split("<")[1])) == 3


@pytest.mark.parametrize("name", [name for name in INTERNALS_USED if name != "sqlglotc"])
def test_every_dependency_with_used_internals_has_a_test(name: str) -> None:
    assert (ROOT / "tests" / "unit" / "dependencies" / f"test_{name}.py").exists()


@pytest.mark.parametrize("name", REQUIREMENTS)
def test_locked_versions_are_within_the_bounds(name: str) -> None:
    locks = (ROOT / "requirements" / "run.lock").read_text() + (ROOT / "requirements" / "dev.lock").read_text()
    lowest, bound = (version_tuple(part.lstrip("<>=")) for part in REQUIREMENTS[name].split(","))
    for locked in re.findall(rf"^{re.escape(name).replace('-', '[-_.]')}(?:\[.*\])?==([0-9.]+)", locks, re.MULTILINE):
        assert lowest <= version_tuple(locked) < bound
