"""Check that decisions have one structure and are in the index, and that links and module paths in the docs exist."""

import re
from pathlib import Path

import pytest

from tests.architecture.tree import ROOT, SOURCE, tracked_files

DECISIONS = ROOT / "docs" / "decisions"
REQUIRED_SECTIONS = ["Status", "Context", "Decision", "Consequences"]
DECISION_PAGES = sorted(path for path in tracked_files() if path.parent == DECISIONS and path.name != "README.md")
DOCUMENTS = [
    path
    for path in tracked_files()
    if path.suffix == ".md" and (path.parent == ROOT or path.is_relative_to(ROOT / "docs"))
]
# Patterns of code in Markdown. Links inside code are examples, so they are not checked.
FENCE_PATTERN = re.compile(r"^(`{3,}).*?^\1$", re.MULTILINE | re.DOTALL)
CODE_PATTERN = re.compile(rf"{FENCE_PATTERN.pattern}|`[^`\n]*`", re.MULTILINE | re.DOTALL)
LINK_PATTERN = re.compile(r"\]\((?!https?:|mailto:)([^)\s#]*)(?:#([^)\s]+))?\)")
MODULE_PATH_PATTERN = re.compile(r"`((?:[\w*]+/)+[\w*]+\.py)`")

EVERY_PAGE = pytest.mark.parametrize("page", DECISION_PAGES, ids=lambda page: page.name)


@EVERY_PAGE
def test_a_decision_has_a_numbered_title_and_the_four_parts_in_order(page: Path) -> None:
    lines = page.read_text().splitlines()
    assert lines[0].startswith(f"# {int(page.name[:4])}. ")
    assert [line[3:] for line in lines if line.startswith("## ")] == REQUIRED_SECTIONS


@EVERY_PAGE
def test_a_status_is_known_and_names_the_superseding_decision(page: Path) -> None:
    status = page.read_text().split("\n## Status\n")[1].split("\n## ")[0].strip()
    assert re.match(r"(Accepted|Superseded by|Partly superseded by|Rejected)\b", status)
    assert not re.match(r"(?:Partly s|S)uperseded by(?! \[\d+\])", status)


def test_numbers_of_decisions_are_used_once() -> None:
    numbers = [page.name[:4] for page in DECISION_PAGES]
    assert len(set(numbers)) == len(numbers)


def test_the_index_lists_every_decision_once() -> None:
    listed = re.findall(r"^- \[\d+\. [^\]]+\]\(([\w-]+\.md)\)", (DECISIONS / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == [page.name for page in DECISION_PAGES]


def test_modules_that_a_decision_names_by_path_exist() -> None:
    named = {(page.name, name) for page in DECISION_PAGES for name in MODULE_PATH_PATTERN.findall(page.read_text())}
    folders = (ROOT, SOURCE)
    assert not [path for path in sorted(named) if not any(any(folder.glob(path[1])) for folder in folders)]


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_between_documents_point_to_an_existing_file_and_heading(page: Path) -> None:
    targets = [
        (page.parent / file if file else page, anchor)
        for file, anchor in LINK_PATTERN.findall(text_without_markup(page))
    ]
    assert not [str(file) for file, _ in targets if not file.exists()]
    assert not [f"{file.name}#{anchor}" for file, anchor in targets if anchor and anchor not in anchors(file)]


def text_without_markup(page: Path) -> str:
    return CODE_PATTERN.sub("", page.read_text())


def anchors(page: Path) -> set[str]:
    """Return the anchors of headings as GitHub makes them: lower case, no punctuation, hyphens for spaces."""
    headings = re.findall(r"^#+ (.*)$", FENCE_PATTERN.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}
