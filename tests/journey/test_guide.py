"""Every command of the README and the guide, run in the order of the pages against a real process."""

import argparse
import importlib
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cordwood.cli.commands import COMMANDS
from tests.debian import require_program
from tests.journey.guide_walk import GUIDE, PAGES, ROOT, SHELLS, STEPS, GuidePageRun, Step, programs_until

LINK_PATTERN = re.compile(r"\]\((?!https?:|#)([^)#]+)(#[^)]*)?\)")
HEADING_PATTERN = re.compile(r"^#+ (.+)$", re.MULTILINE)


@pytest.fixture(scope="module")
def run_of_page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], GuidePageRun]]:
    """Return a function that returns the run of a page. It stops the run of the previous page first."""
    runs: dict[str, GuidePageRun] = {}

    def enter(page: str) -> GuidePageRun:
        if page not in runs:
            while runs:
                runs.popitem()[1].stop()
            runs[page] = GuidePageRun(page, tmp_path_factory.mktemp("walk") / Path(page).stem)
        return runs[page]

    yield enter
    for page_run in runs.values():
        page_run.stop()


@pytest.mark.parametrize("step", [step for step in STEPS if step.is_typed], ids=str)
def test_a_step_of_the_guide_succeeds(step: Step, run_of_page: Callable[[str], GuidePageRun]) -> None:
    for program in programs_until(step):
        require_program(program, program)
    output = run_of_page(step.page).run_until(step.number)
    assert '"error"' not in output, output


@pytest.mark.parametrize("step", [step for step in STEPS if step.language in SHELLS and not step.is_typed], ids=str)
def test_fences_that_are_not_run_state_a_reason_and_name_existing_commands(step: Step) -> None:
    assert re.fullmatch(r"not run: \S.{10,}", step.note), "say why: ```sh not run: it needs Docker"
    for line in re.sub(r"\\\n", " ", step.text).splitlines():
        words = shlex.split(line, comments=True)
        while words and re.fullmatch(r"export|[A-Z_]+=.*", words[0]):
            words.pop(0)
        if words[:1] == ["cordwood"]:
            _is_valid_command(words[1:])
        for file in re.findall(r"\b(deploy/\S+)", line):
            assert (ROOT / file).exists()


def _is_valid_command(words: list[str]) -> None:
    """Check that the command line accepts a command with its flags; the parser raises an error otherwise."""
    commands = {name: command for group in COMMANDS.values() for name, command in group.items()}
    module = importlib.import_module(f"cordwood.cli.{commands[words[0]].module_name}")
    parser = argparse.ArgumentParser(exit_on_error=False)
    module.add_arguments(parser)
    parser.parse_args(words[1:])


def test_every_page_of_the_guide_is_run_and_listed_in_its_index() -> None:
    pages = {f"docs/guide/{file.name}" for file in GUIDE.glob("*.md")} - {"docs/guide/README.md"}
    assert pages == set(PAGES) - {"README.md"}


@pytest.mark.parametrize("page", [*PAGES, "docs/guide/README.md"])
def test_every_link_points_to_an_existing_page_and_heading(page: str) -> None:
    text = (ROOT / page).read_text()
    for target, anchor in LINK_PATTERN.findall(text):
        file = (ROOT / page).parent / target
        assert file.exists(), target
        if anchor and file.suffix == ".md":
            slugs = {
                re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
                for title in HEADING_PATTERN.findall(file.read_text())
            }
            assert anchor[1:] in slugs, f"{target}{anchor}"
