"""Check the README's claims about commands, CI and links. Its commands are run by tests/journey/test_guide.py."""

import re
import shlex

from tests.architecture.tree import ROOT

README = (ROOT / "README.md").read_text()
CONSOLE_BLOCK_PATTERN = re.compile(r"^```(?:console|sh)\b[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK_PATTERN = re.compile(r"\]\((?!https?:)([^)#]+)")


def test_the_readme_sets_path_before_it_runs_cordwood() -> None:
    assert README.index('export PATH="$PWD/.venv/bin:$PATH"') < README.index("\ncordwood ")


def test_ci_runs_the_test_commands_of_the_readme() -> None:
    section = README.split("\n## Tests\n")[1].split("\n## ")[0]
    documented = [
        line.split("#")[0].strip()
        for text in CONSOLE_BLOCK_PATTERN.findall(section)
        for line in text.strip().splitlines()
    ]
    runs = [line for line in (ROOT / ".ci" / "run").read_text().splitlines() if line.startswith("exec ")]
    assert [shlex.split(line)[1:3] for line in runs] == [shlex.split(line) for line in documented]


def test_every_make_target_in_the_readme_exists() -> None:
    named = set(re.findall(r"\bmake ([a-z]+)\b", README))
    known = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert named <= known


def test_every_link_of_the_readme_points_to_a_file() -> None:
    assert not [target for target in LINK_PATTERN.findall(README) if not (ROOT / target).exists()]


def test_the_github_workflow_runs_the_command_of_ci() -> None:
    command = re.search(r"exec (make \w+)", (ROOT / ".ci" / "run").read_text())
    assert command is not None
    assert f"run: {command[1]} " in (ROOT / ".github" / "workflows" / "check.yml").read_text()
