"""What the README says of the project holds; its commands are typed by tests/journey/test_guide.py."""

import re
import shlex

from tests.architecture.tree import ROOT

README = (ROOT / "README.md").read_text()
BLOCK = re.compile(r"^```(?:console|sh)\b[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")


def test_the_command_is_found_where_make_puts_it() -> None:
    assert README.index('export PATH="$PWD/.venv/bin:$PATH"') < README.index("\ncordwood ")


def test_ci_runs_what_the_readme_says_the_tests_are() -> None:
    section = README.split("\n## Tests\n")[1].split("\n## ")[0]
    told = [line.split("#")[0].strip() for text in BLOCK.findall(section) for line in text.strip().splitlines()]
    runs = [line for line in (ROOT / ".ci" / "run").read_text().splitlines() if line.startswith("exec ")]
    assert [shlex.split(line)[1:3] for line in runs] == [shlex.split(line) for line in told]


def test_every_verb_that_the_readme_names_is_a_verb_of_make() -> None:
    named = set(re.findall(r"\bmake ([a-z]+)\b", README))
    known = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert named <= known


def test_every_link_of_the_readme_leads_somewhere() -> None:
    assert not [target for target in LINK.findall(README) if not (ROOT / target).exists()]


def test_the_forge_runs_the_command_that_ci_runs() -> None:
    command = re.search(r"exec (make \w+)", (ROOT / ".ci" / "run").read_text())
    assert command is not None
    assert f"run: {command[1]} " in (ROOT / ".github" / "workflows" / "check.yml").read_text()
