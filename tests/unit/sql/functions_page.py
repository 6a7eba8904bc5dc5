"""Generator of docs/reference/functions.md from the permitted functions.

`python -m tests.unit.sql.functions_page` writes the page.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from cordwood.app.checks import COMPILE_TARGET_FACTORIES
from cordwood.errors import QueryUnsupported
from cordwood.sql.compile import compile_standalone_query
from cordwood.sql.permitted_syntax import PERMITTED_FUNCTIONS, UNSUPPORTED_FUNCTIONS
from cordwood.sql.stages import Target
from tests.unit.sql.function_calls import CALLS, query_of

ROOT: Final = Path(__file__).parents[3]
PAGE: Final = ROOT / "docs" / "reference" / "functions.md"
SPEC_FOLDER: Final = ROOT / "spec" / "sql"

PAGE_HEAD: Final = """# Functions

This page lists the functions that a query may call. They have BigQuery's semantics; with the prefix `SAFE.`, a function returns NULL
instead of an error. A function that is not listed is refused (`query.refused`). The columns with the engines' names show which engine
supports a function; the other refuses it (`query.unsupported`). The last column has the page of the specification with examples. The
page is generated from the list of permitted functions: `python -m tests.unit.sql.functions_page`.
"""


def reference_page() -> str:
    targets = {name: make_target() for name, make_target in sorted(COMPILE_TARGET_FACTORIES.items())}
    lines = [
        PAGE_HEAD,
        f"| function | for example | {' | '.join(targets)} | page |",
        f"|---|---|{'---|' * len(targets)}---|",
    ]
    spec_texts = {path: path.read_text().lower() for path in sorted(SPEC_FOLDER.glob("*.md"))}
    lines += [_row(name, targets, spec_texts) for name in sorted(PERMITTED_FUNCTIONS)]
    unknown = ", ".join(f"`{name}`" for name in sorted(UNSUPPORTED_FUNCTIONS))
    return "\n".join([*lines, "", "## Not supported on any engine", "", f"{unknown}, and all `ST_` functions.", ""])


def _row(name: str, targets: Mapping[str, Target], texts: Mapping[Path, str]) -> str:
    example = CALLS[name].replace("|", "\\|")
    support = " | ".join("yes" if is_supported(name, target) else "no" for target in targets.values())
    specification_page = next((path for path, text in texts.items() if f"{name.lower()}(" in text), None)
    specification_link = (
        f"[{specification_page.stem}](../../spec/sql/{specification_page.name})"
        if specification_page is not None
        else ""
    )
    return f"| `{name}` | `{example}` | {support} | {specification_link} |"


def is_supported(name: str, target: Target) -> bool:
    try:
        compile_standalone_query(query_of(name), target)
    except QueryUnsupported:
        return False
    return True


if __name__ == "__main__":
    PAGE.write_text(reference_page())
