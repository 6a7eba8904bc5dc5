"""docs/reference/settings.md, made from the settings themselves: `python -m tests.architecture.settings_page` writes it."""

from cordwood.settings.fields import Field, fields, sections, show
from tests.architecture.tree import ROOT

PAGE = ROOT / "docs" / "reference" / "settings.md"
HEAD = """# Settings

Defaults, then `cordwood.toml` in the working folder (or `--config FILE`, or `CORDWOOD_CONFIG`), then the environment, then flags:
the later wins. In the file a setting stands in its section (`[limits]`, then `query_time = "30s"`); in the environment
`limits.query_time` is `CORDWOOD_LIMITS_QUERY_TIME`. Sizes have units (`512MB`, `64MiB`), durations too (`30s`, `5m`, `1h30m`), rates
as well (`10/s`). A name that nobody knows is refused with the nearest one.

`cordwood settings` prints what is in force and where each value came from; secrets are only told to be set.

Logflare's variables `LOGFLARE_PRIVATE_ACCESS_TOKEN`, `LOGFLARE_PUBLIC_ACCESS_TOKEN`, `LOGFLARE_API_KEY`, `PHX_HTTP_PORT` and `PHX_HTTP_IP`
keep their meaning; its others are ignored with one notice.

This page is made from the settings: `make docs` writes it.
"""
TABLE = "| setting | default | what it does |\n|---|---|---|"


def page() -> str:
    loose = [field for field in fields().values() if not field.section]
    parts = [HEAD, "\n".join([TABLE, *map(_row, loose)]), ""]
    for name, section in sections().items():
        rows = [_row(field) for field in fields().values() if field.section == name]
        parts += [f"## {name}", "", section.__doc__ or "", "", "\n".join([TABLE, *rows]), ""]
    return "\n".join(parts)


def _row(field: Field) -> str:
    default = show(field, field.default)
    return f"| `{field.name}` | {f'`{default}`' if default else ''} | {field.meta.description} |"


if __name__ == "__main__":
    PAGE.write_text(page())
