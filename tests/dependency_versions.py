"""Requirements files with the lowest or newest versions of our dependencies that pyproject.toml permits.

`python -m tests.dependency_versions lowest|newest FOLDER` writes two files for pip into the folder. requirements.txt
has our dependencies and the modules that the quick tests need. constraints.txt limits all other packages to their
locked versions.
"""

import re
import sys
import tomllib
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).parents[1]
# The packages that the quick tests need, apart from our dependencies.
TEST_PACKAGES = (
    "chdb",
    "hatchling",
    "editables",
    "httpx",
    "hypothesis",
    "pyarrow",
    "pytest",
    "pytest-timeout",
    "pytest-xdist",
)
EXTRAS = ("clickhouse", "jwt")

_REQUIREMENT = re.compile(
    r"(?P<name>[A-Za-z0-9.\-]+)(?P<extra>\[[a-z,]+\])?>=(?P<lowest>[0-9.]+),<[0-9.]+(?P<marker>;.*)?"
)
_LOCKED_VERSION = re.compile(r"^([A-Za-z0-9._-]+)==\S+(?: ;.*?)?(?= \\$)", re.MULTILINE)


def requirements(which: str) -> list[str]:
    """Return our dependencies, either with the lowest version or without a version, so that pip takes the newest."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = chain.from_iterable(project["optional-dependencies"][extra] for extra in EXTRAS)
    return [_stated_requirement(text, which) for text in (*project["dependencies"], *extras)]


def constraints(stated: list[str]) -> list[str]:
    """Return constraints for all other packages, with their locked versions."""
    ours = {_name(text) for text in stated}
    locks = "".join((ROOT / "requirements" / f"{lock}.lock").read_text() for lock in ("build", "dev"))
    return sorted({match[0] for match in _LOCKED_VERSION.finditer(locks) if _name(match[1]) not in ours})


def _stated_requirement(text: str, which: str) -> str:
    match = _REQUIREMENT.fullmatch(text)
    if match is None:
        raise SystemExit(f"This dependency has no lowest version and no bound: {text}")
    if which == "newest":
        return text
    return f"{match['name']}{match['extra'] or ''}=={match['lowest']}{match['marker'] or ''}"


def _name(text: str) -> str:
    return re.split(r"[\[=<>; ]", text, maxsplit=1)[0].lower().replace("_", "-")


def main(which: str, folder: str) -> None:
    """Write both files into the folder."""
    stated = requirements(which)
    Path(folder).mkdir(parents=True, exist_ok=True)
    Path(folder, "requirements.txt").write_text("\n".join([*stated, *TEST_PACKAGES, ""]))
    Path(folder, "constraints.txt").write_text("\n".join([*constraints(stated), ""]))


if __name__ == "__main__":
    main(*sys.argv[1:])
