"""The explorer's modules obey house rules of their own: small, said in a sentence, and nothing that a strict policy forbids."""

import gzip
import re
from pathlib import Path

import pytest

from tests.architecture.tree import ROOT

FOLDER = ROOT / "src" / "cordwood" / "explorer"
SCRIPTS = sorted(FOLDER.glob("*.js"))
LONGEST_FILE = 400
# All files of the page together, compressed one by one as they are sent.
MOST_BYTES = 120_000
IMPORT = re.compile(r'from "(\./[\w-]+\.js)"')
# Whatever makes code or markup of text, or keeps the key for longer than a tab lives.
FORBIDDEN = re.compile(
    r"\binnerHTML\b|\bouterHTML\b|insertAdjacentHTML|document\.write|\beval\(|new Function|localStorage"
)
# What outlives a tab is written in one place, which has no rows and no key.
KEEPS = {"kept.js": {"localStorage"}}

EVERY_SCRIPT = pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)


@EVERY_SCRIPT
def test_it_begins_with_a_sentence_on_what_it_is_for(script: Path) -> None:
    assert re.match(r"/\*\* [A-Z].*[.:] \*/\n", script.read_text())


@EVERY_SCRIPT
def test_it_is_small_and_its_lines_are_read_without_scrolling(script: Path) -> None:
    lines = script.read_text().splitlines()
    assert len(lines) <= LONGEST_FILE
    assert not [line for line in lines if len(line) > 120 and not re.search(r"/[a-z]*,?$|\" ?[;,)]*$|`", line)]


@EVERY_SCRIPT
def test_nothing_makes_code_or_markup_of_text(script: Path) -> None:
    assert set(FORBIDDEN.findall(script.read_text())) == KEEPS.get(script.name, set())


@EVERY_SCRIPT
def test_it_imports_only_what_lies_beside_it(script: Path) -> None:
    named = re.findall(r'^import .*?from "([^"]+)"', script.read_text(), re.MULTILINE | re.DOTALL)
    assert {name for name in named if not name.startswith("./")} == set()
    assert all((FOLDER / name).is_file() for name in named)


def test_every_module_is_imported_by_another() -> None:
    imported = {name.removeprefix("./") for script in SCRIPTS for name in IMPORT.findall(script.read_text())}
    assert {script.name for script in SCRIPTS} - imported == {"main.js"}


def test_the_whole_page_is_small() -> None:
    assert sum(len(gzip.compress(file.read_bytes())) for file in FOLDER.iterdir()) < MOST_BYTES


def test_nothing_is_fetched_from_elsewhere() -> None:
    texts = {file.name: file.read_text() for file in FOLDER.iterdir()}
    foreign = {name: re.findall(r"https?://(?!www\.w3\.org/2000/svg)[\w.]+", text) for name, text in texts.items()}
    assert {name: found for name, found in foreign.items() if found} == {}
