"""Rules for the explorer's files: size, a leading comment, local imports, and no unsafe JavaScript."""

import gzip
import re
from pathlib import Path

import pytest

from cordwood.web.explorer import without_comments
from tests.architecture.tree import ROOT

FOLDER = ROOT / "src" / "cordwood" / "explorer"
# The files that only the page at /docs loads, not the explorer.
DOCS = ROOT / "src" / "cordwood" / "web" / "describe" / "docs"
SCRIPTS = sorted([*FOLDER.glob("*.js"), *DOCS.glob("*.js")])
MAX_FILE_LENGTH = 400
# The maximum size of all files of the page together, each compressed with gzip.
MAX_BYTES = 120_000
MAX_BYTES_OF_DOCS = 12_000
IMPORT = re.compile(r'(?:from |import\()"(\./[\w-]+\.js)"')
# Matches regular expressions, strings and escapes, because a backtick inside them is not a delimiter.
LITERALS = re.compile(
    r"""(?<=[(=,:?&|!])\s*/(?![/*])(?:\\.|\[(?:\\.|[^\]\\])*\]|[^/\\\n\[])+/|"(?:\\.|[^"\\\n])*"|\\."""
)
# Functions that evaluate text as code or markup, and storage that outlives a tab and could leak the key.
FORBIDDEN = re.compile(
    r"\binnerHTML\b|\bouterHTML\b|insertAdjacentHTML|document\.write|\beval\(|new Function|localStorage"
)
# The only module that may use permanent storage. It handles neither rows nor the key.
EXCEPTIONS = {"kept.js": {"localStorage"}}

EVERY_SCRIPT = pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)


@EVERY_SCRIPT
def test_a_script_begins_with_a_comment_on_its_purpose(script: Path) -> None:
    assert re.match(r"/\*\* [A-Z].*[.:] \*/\n", script.read_text())


@EVERY_SCRIPT
def test_a_script_has_few_and_short_lines(script: Path) -> None:
    lines = script.read_text().splitlines()
    assert len(lines) <= MAX_FILE_LENGTH
    assert not [line for line in lines if len(line) > 120 and not re.search(r"/[a-z]*,?$|\" ?[;,)]*$|`", line)]


@EVERY_SCRIPT
def test_no_script_evaluates_text_as_code_or_markup(script: Path) -> None:
    assert set(FORBIDDEN.findall(script.read_text())) == EXCEPTIONS.get(script.name, set())


@EVERY_SCRIPT
def test_a_script_imports_only_files_of_its_folder(script: Path) -> None:
    named = re.findall(r'^import .*?from "([^"]+)"', script.read_text(), re.MULTILINE | re.DOTALL)
    assert {name for name in named if not name.startswith("./")} == set()
    folders = {FOLDER, script.parent}
    assert all(any((folder / name).is_file() for folder in folders) for name in named)


def test_every_module_is_imported_by_another() -> None:
    imported = {name.removeprefix("./") for script in SCRIPTS for name in IMPORT.findall(script.read_text())}
    assert {script.name for script in SCRIPTS} - imported == {"main.js", "sign-in.js", "docs.js"}


def test_both_folders_are_served_as_one() -> None:
    names = [file.name for folder in (FOLDER, DOCS) for file in folder.iterdir()]
    assert len(names) == len(set(names))


def test_the_files_of_the_docs_page_alone_are_small() -> None:
    assert sum(map(sent_bytes, DOCS.iterdir())) < MAX_BYTES_OF_DOCS


def test_the_whole_page_is_small() -> None:
    assert sum(map(sent_bytes, FOLDER.iterdir())) < MAX_BYTES


def sent_bytes(file: Path) -> int:
    """Return the compressed bytes of a file as it is sent."""
    body = file.read_bytes()
    return len(gzip.compress(without_comments(body) if file.suffix == ".js" else body))


@EVERY_SCRIPT
def test_no_template_literal_has_a_line_that_would_be_removed_as_a_comment(script: Path) -> None:
    text = script.read_text()
    for comment in re.finditer(r"^ *(//|/\*\*)", text, re.MULTILINE):
        code = without_comments(text[: comment.start()].encode()).decode()
        assert LITERALS.sub("", code).count("`") % 2 == 0, text[comment.start() :][:80]


def test_no_file_names_another_host() -> None:
    texts = {file.name: file.read_text() for folder in (FOLDER, DOCS) for file in folder.iterdir()}
    foreign = {name: re.findall(r"https?://(?!www\.w3\.org/2000/svg)[\w.]+", text) for name, text in texts.items()}
    assert {name: found for name, found in foreign.items() if found} == {}


def test_no_browser_test_polls_with_eval_in_the_page() -> None:
    """The content security policy blocks it, but only when the first evaluation is not yet true."""
    tests = sorted((ROOT / "tests" / "browser").glob("*.py"))
    assert tests
    assert [test.name for test in tests if ".wait_for_function(" in test.read_text()] == []
