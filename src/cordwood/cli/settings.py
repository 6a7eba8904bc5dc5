"""Print every setting with its current value and the source of the value; of a secret, only whether it is set.

In order of precedence: flags, the environment, cordwood.toml, defaults.

examples:
  cordwood settings
  cordwood settings --changed
  CORDWOOD_LIMITS_QUERY_TIME=5s cordwood settings --format json
"""

import argparse
import json

from cordwood.cli.arguments import (
    add_config_option,
    add_data_dir_option,
    add_definition_files_options,
    load_settings_with_flags,
)
from cordwood.cli.terminal import print_output
from cordwood.settings.load import LoadedSettings, format_value, setting_fields, setting_value


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config_option(parser)
    add_data_dir_option(parser)
    add_definition_files_options(parser)
    parser.add_argument("--changed", action="store_true", help="only those that differ from their default")
    parser.add_argument("--format", choices=("table", "json"), default="table", help="how to print (default: table)")


def run(arguments: argparse.Namespace) -> int:
    loaded = load_settings_with_flags(arguments)
    rows = [row for row in _setting_rows(loaded) if not arguments.changed or row["source"] != "default"]
    print_output(json.dumps(rows, indent=2) if arguments.format == "json" else _format_settings_table(rows))
    return 0


def _setting_rows(loaded: LoadedSettings) -> list[dict[str, str]]:
    return [
        {
            "name": name,
            "value": format_value(field, setting_value(loaded.settings, name)),
            "source": loaded.sources_by_setting.get(name, "default"),
        }
        for name, field in setting_fields().items()
    ]


def _format_settings_table(rows: list[dict[str, str]]) -> str:
    widths = [max((len(row[column]) for row in rows), default=0) for column in ("name", "value")]
    return "\n".join(f"{row['name']:<{widths[0]}}  {row['value']:<{widths[1]}}  {row['source']}" for row in rows)
