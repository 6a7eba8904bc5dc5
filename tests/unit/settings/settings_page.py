"""docs/reference/settings.md, made from the settings themselves: `make docs` writes it."""

import inspect
import typing
from pathlib import Path

from cordwood.settings.fields import Field, fields, sections, show

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "settings.md"
HEAD = """# Settings

Defaults are overruled by the settings file, that by the environment, and that by flags; `cordwood settings` prints what is in
force and where each value came from, secrets masked. A name that is not listed here is refused, with the nearest that is.

- **File**: `cordwood.toml` in the working folder, or `--config FILE`, or `CORDWOOD_CONFIG`. A section is a table; a path is told from
  the file's own folder.
- **Environment**: `CORDWOOD_SECTION_FIELD`, as in `CORDWOOD_LIMITS_QUERY_TIME=5s`. A variable that is set to nothing is not set.
- **Sizes** have units (`512MB`, `1.5GiB`, `65536` bytes), and so have **durations** (`30s`, `15m`, `1h30m`, `90d`) and **rates** (`10/s`,
  `600/m`).

```toml
[web]
port = 4000

[limits]
memory = "1GB"
query_time = "10s"
```

Where cordwood takes the place of a Logflare, these variables keep their meaning: `LOGFLARE_PRIVATE_ACCESS_TOKEN` (`keys.private`),
`LOGFLARE_PUBLIC_ACCESS_TOKEN` and its older name `LOGFLARE_API_KEY` (`keys.public`), `PHX_HTTP_PORT` (`web.port`), `PHX_HTTP_IP`
(`web.host`) and `LOGFLARE_LOG_LEVEL` (`web.log_level`). Variables of our own overrule them. The rest of Logflare's variables is
ignored, with one notice.

This page is made from the settings: `make docs` writes it.
"""
TABLE = ("| setting | default | what it is |", "|---|---|---|")


def page() -> str:
    alone = [_row(field) for field in fields().values() if not field.section]
    return "\n".join([HEAD, *TABLE, *alone, *(line for name in sections() for line in _section(name)), ""])


def _section(name: str) -> list[str]:
    rows = [_row(field) for field in fields().values() if field.section == name]
    return ["", f"## {name}", "", inspect.getdoc(sections()[name]) or "", "", *TABLE, *rows]


def _row(field: Field) -> str:
    default = show(field, field.default)
    return f"| `{field.name}` | {f'`{default}`' if default else ''} | {field.meta.description}{_choices(field)} |"


def _choices(field: Field) -> str:
    kind = typing.get_args(field.annotation)[0]
    if typing.get_origin(kind) is typing.Literal:
        return " One of " + ", ".join(f"`{choice}`" for choice in typing.get_args(kind)) + "."
    return ""


if __name__ == "__main__":
    PAGE.write_text(page())
