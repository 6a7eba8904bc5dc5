"""The guide's example endpoint and its tests."""

import re
from pathlib import Path

from cordwood.cli.commands import run_command_line

GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "endpoints.md"


def test_the_example_of_the_guide_passes_its_tests(tmp_path: Path) -> None:
    text = GUIDE.read_text()
    sql = re.findall(r"^```sql save [^\n]*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)[0]
    page = re.findall(r"^````markdown save [^\n]*\n(.*?)^````$", text, re.MULTILINE | re.DOTALL)[0]
    (tmp_path / "slow.requests.sql").write_text(sql)
    (tmp_path / "slow.requests.test.md").write_text(page)
    assert run_command_line(["check", str(tmp_path)]) == 0
    assert run_command_line(["test", str(tmp_path)]) == 0
