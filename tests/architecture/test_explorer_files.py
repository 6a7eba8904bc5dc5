"""Check the explorer's files: size, a leading comment, local imports, and no unsafe JavaScript."""

import gzip
import re
from pathlib import Path

import pytest

from cordwood.web.explorer import remove_comments
from tests.architecture.tree import ROOT

EXPLORER_FOLDER = ROOT / "src" / "cordwood" / "explorer"
# The files that only the page at /docs loads. The explorer does not load them.
DOCS_PAGE_FOLDER = ROOT / "src" / "cordwood" / "web" / "describe" / "docs"
SCRIPTS = sorted([*EXPLORER_FOLDER.glob("*.js"), *DOCS_PAGE_FOLDER.glob("*.js")])
MAX_FILE_LENGTH = 400
# The maximum size of all files of the page together, each compressed with gzip.
MAX_COMPRESSED_BYTES = 120_000
MAX_COMPRESSED_DOCS_BYTES = 12_000
IMPORT_PATTERN = re.compile(r'(?:from |import\()"(\./[\w-]+\.js)"')
# Matches regular expressions, strings and escapes of JavaScript. A backtick inside them does not begin a template.
LITERAL_PATTERN = re.compile(
    r"""(?<=[(=,:?&|!])\s*/(?![/*])(?:\\.|\[(?:\\.|[^\]\\])*\]|[^/\\\n\[])+/|"(?:\\.|[^"\\\n])*"|\\."""
)
# Functions that evaluate text as code or markup, and `localStorage`, which outlives a tab and could leak the key.
FORBIDDEN_PATTERN = re.compile(
    r"\binnerHTML\b|\bouterHTML\b|insertAdjacentHTML|document\.write|\beval\(|new Function|localStorage"
)
# The only module that may use permanent storage. It handles neither rows nor the key.
PERMITTED_STORAGE = {"kept.js": {"localStorage"}}

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
    assert set(FORBIDDEN_PATTERN.findall(script.read_text())) == PERMITTED_STORAGE.get(script.name, set())


@EVERY_SCRIPT
def test_a_script_imports_only_files_of_its_folder(script: Path) -> None:
    named = re.findall(r'^import .*?from "([^"]+)"', script.read_text(), re.MULTILINE | re.DOTALL)
    assert {name for name in named if not name.startswith("./")} == set()
    folders = {EXPLORER_FOLDER, script.parent}
    assert all(any((folder / name).is_file() for folder in folders) for name in named)


def test_every_module_is_imported_by_another() -> None:
    imported = {name.removeprefix("./") for script in SCRIPTS for name in IMPORT_PATTERN.findall(script.read_text())}
    assert {script.name for script in SCRIPTS} - imported == {"main.js", "sign-in.js", "docs.js"}


def test_the_folders_of_explorer_and_docs_page_have_distinct_file_names() -> None:
    names = [file.name for folder in (EXPLORER_FOLDER, DOCS_PAGE_FOLDER) for file in folder.iterdir()]
    assert len(names) == len(set(names))


def test_the_files_of_the_docs_page_alone_are_small() -> None:
    assert sum(map(compressed_bytes, DOCS_PAGE_FOLDER.iterdir())) < MAX_COMPRESSED_DOCS_BYTES


def test_the_whole_page_is_small() -> None:
    assert sum(map(compressed_bytes, EXPLORER_FOLDER.iterdir())) < MAX_COMPRESSED_BYTES


def compressed_bytes(file: Path) -> int:
    """Return the file's bytes, compressed as the service sends them."""
    body = file.read_bytes()
    return len(gzip.compress(remove_comments(body) if file.suffix == ".js" else body))


@EVERY_SCRIPT
def test_no_template_literal_has_a_line_that_looks_like_a_comment(script: Path) -> None:
    text = script.read_text()
    for comment in re.finditer(r"^ *(//|/\*\*)", text, re.MULTILINE):
        code = remove_comments(text[: comment.start()].encode()).decode()
        assert LITERAL_PATTERN.sub("", code).count("`") % 2 == 0, text[comment.start() :][:80]


def test_no_file_names_another_host() -> None:
    texts = {file.name: file.read_text() for folder in (EXPLORER_FOLDER, DOCS_PAGE_FOLDER) for file in folder.iterdir()}
    hosts_by_file = {
        name: re.findall(r"https?://(?!www\.w3\.org/2000/svg)[\w.]+", text) for name, text in texts.items()
    }
    assert {name: hosts for name, hosts in hosts_by_file.items() if hosts} == {}


def test_no_browser_test_polls_with_eval_in_the_page() -> None:
    """Forbid `Page.wait_for_function`, because it polls with eval in the page, which the content security policy
    blocks.

    A test would nevertheless pass if the first evaluation is true, because polling begins only after a false one.
    """
    tests = sorted((ROOT / "tests" / "browser").glob("*.py"))
    assert tests
    assert [test.name for test in tests if ".wait_for_function(" in test.read_text()] == []
