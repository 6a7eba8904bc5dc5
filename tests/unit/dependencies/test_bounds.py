"""A version of a dependency that no test has run on is not installed: what we use is more than what they promise."""

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
# Those of whose inner parts something here depends: each has a test beside this one.
INSIDE = ("duckdb", "httptools", "msgspec", "sqlglot", "sqlglotc", "uvicorn")


def version(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))


@pytest.mark.parametrize("name", REQUIREMENTS)
def test_every_dependency_has_a_lowest_version_and_a_bound(name: str) -> None:
    assert re.fullmatch(r">=[0-9.]+,<[0-9.]+", REQUIREMENTS[name])


@pytest.mark.parametrize("name", INSIDE)
def test_where_inner_parts_are_used_the_next_minor_version_waits_for_a_test(name: str) -> None:
    lowest, bound = (version(part.lstrip("<>=")) for part in REQUIREMENTS[name].split(","))
    assert bound <= (lowest[0], lowest[1] + 1, 0)


def test_an_engine_whose_patches_change_what_it_parses_waits_for_each_of_them() -> None:
    assert len(version(REQUIREMENTS["duckdb"].split("<")[1])) == 3


@pytest.mark.parametrize("name", [name for name in INSIDE if name != "sqlglotc"])
def test_what_is_used_of_their_inner_parts_has_a_test(name: str) -> None:
    assert (ROOT / "tests" / "unit" / "dependencies" / f"test_{name}.py").exists()


@pytest.mark.parametrize("name", REQUIREMENTS)
def test_what_the_lock_installs_is_allowed(name: str) -> None:
    locks = (ROOT / "requirements" / "run.lock").read_text() + (ROOT / "requirements" / "dev.lock").read_text()
    lowest, bound = (version(part.lstrip("<>=")) for part in REQUIREMENTS[name].split(","))
    for locked in re.findall(rf"^{re.escape(name).replace('-', '[-_.]')}(?:\[.*\])?==([0-9.]+)", locks, re.MULTILINE):
        assert lowest <= version(locked) < bound
