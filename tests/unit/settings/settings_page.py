"""Generator of docs/reference/settings.md from the settings; `make docs` writes the page."""

import inspect
import typing
from pathlib import Path

from cordwood.settings.load import SettingField, format_value, section_types, setting_fields

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "settings.md"
PAGE_HEAD = """# Settings

A setting can be made in the settings file, in the environment, or by a flag of the command. The file overrides the defaults, the
environment overrides the file, and flags override both. `cordwood settings` prints the values in use and the source of each, with
secrets masked. An unknown name is an error, which has the most similar name as a hint.

- **File**: `cordwood.toml` in the working folder, or `--config FILE`, or `CORDWOOD_CONFIG`. A section is a table; paths are relative to
  the folder of the file.
- **Environment**: `CORDWOOD_SECTION_FIELD`, as in `CORDWOOD_LIMITS_QUERY_TIME=5s`. An empty variable counts as not set.
- **Sizes** have units (`512MB`, `1.5GiB`, `65536` bytes), and so do **durations** (`30s`, `15m`, `1h30m`, `90d`) and **rates** (`10/s`,
  `600/m`).

```toml
[web]
port = 4000

[limits]
memory = "1GB"
query_time = "10s"
```

Variables of Logflare, the log service that cordwood [can replace](../guide/replace-logflare.md), keep their meaning: `LOGFLARE_PRIVATE_ACCESS_TOKEN` (`keys.private`),
`LOGFLARE_PUBLIC_ACCESS_TOKEN` and its older name `LOGFLARE_API_KEY` (`keys.public`), `PHX_HTTP_PORT` (`web.port`), `PHX_HTTP_IP`
(`web.host`) and `LOGFLARE_LOG_LEVEL` (`web.log_level`). cordwood's own variables override them. All other variables of Logflare are
ignored, with one notice in the log.

This page is generated from the settings: `make docs` writes it.
"""
TABLE_HEAD = ("| setting | default | description |", "|---|---|---|")


def reference_page() -> str:
    rows_without_section = [_row(field) for field in setting_fields().values() if not field.section]
    return "\n".join(
        [
            PAGE_HEAD,
            *TABLE_HEAD,
            *rows_without_section,
            *(line for name in section_types() for line in _section(name)),
            "",
        ]
    )


def _section(name: str) -> list[str]:
    rows = [_row(field) for field in setting_fields().values() if field.section == name]
    return ["", f"## {name}", "", inspect.getdoc(section_types()[name]) or "", "", *TABLE_HEAD, *rows]


def _row(field: SettingField) -> str:
    default = format_value(field, field.default)
    return f"| `{field.name}` | {f'`{default}`' if default else ''} | {field.value_metadata.description}{_choices(field)} |"


def _choices(field: SettingField) -> str:
    kind = typing.get_args(field.type_annotation)[0]
    if typing.get_origin(kind) is typing.Literal:
        return " One of " + ", ".join(f"`{choice}`" for choice in typing.get_args(kind)) + "."
    return ""


if __name__ == "__main__":
    PAGE.write_text(reference_page())
