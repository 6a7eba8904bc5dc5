"""Arguments that several commands share: flags for settings, and NAME=VALUE pairs."""

import argparse
from pathlib import Path

from cordwood.cli.terminal import print_message
from cordwood.settings.load import LoadedSettings, load_settings

# For each flag that overrides a setting: the attribute of the parsed arguments, and the name of the setting.
_SETTINGS_BY_FLAG = {
    "host": "web.host",
    "port": "web.port",
    "data_dir": "serve.data_dir",
    "endpoints": "serve.endpoints",
    "streams": "serve.streams",
    "memory": "limits.memory",
    "engine": "engine",
}


def add_config_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="settings file (default: cordwood.toml, if it exists)"
    )


def add_data_dir_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data-dir", metavar="DIR", help="folder of events and keys (default: ./cordwood-data)")


def add_definition_files_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--endpoints", metavar="DIR", help="folder of your own endpoint files")
    parser.add_argument("--streams", metavar="FILE", help="your own streams file")


def add_parameters_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-p",
        "--parameter",
        type=parse_name_value,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a parameter; repeatable",
    )


def load_settings_with_flags(arguments: argparse.Namespace) -> LoadedSettings:
    """Load the settings, and print notices about them to standard error.

    Flags override all other sources of settings.
    """
    given = vars(arguments)
    flags = {setting: given[flag] for flag, setting in _SETTINGS_BY_FLAG.items() if given.get(flag) is not None}
    loaded = load_settings(flags, given.get("config"))
    for notice in loaded.notices:
        print_message(notice)
    return loaded


def parse_name_value(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value
