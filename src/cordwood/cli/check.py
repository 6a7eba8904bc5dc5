"""Compile endpoint, alert and streams files without a service, and report every error with its position.

Exits with 0 if all files can be served, otherwise with 1. Use it in a build, in a commit hook, or before `cordwood
reload`.

examples:
  cordwood check
  cordwood check ./queries
  cordwood check ./queries --streams streams.toml --format json
"""

import argparse
import json

from cordwood.app.checks import catalog_sources_of, create_compile_target, read_and_check_definitions
from cordwood.catalog.catalog import CatalogContents
from cordwood.cli.arguments import add_config_option, add_definition_files_options, load_settings_with_flags
from cordwood.cli.terminal import print_message, print_output
from cordwood.errors import BrokenDefinitionFiles


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", nargs="?", metavar="DIR", help="folder of endpoint files (same as --endpoints)")
    add_definition_files_options(parser)
    add_config_option(parser)
    parser.add_argument("--format", choices=("table", "json"), default="table", help="how to print (default: table)")


def run(arguments: argparse.Namespace) -> int:
    arguments.endpoints = arguments.folder or arguments.endpoints
    settings = load_settings_with_flags(arguments).settings
    try:
        contents = read_and_check_definitions(catalog_sources_of(settings), create_compile_target(settings))
    except BrokenDefinitionFiles as broken:
        for fault in broken.faults:
            print_message(fault.one_line_text())
        print_message(f"{len(broken.faults)} broken." if len(broken.faults) > 1 else "1 broken.")
        return 1
    print_output(
        json.dumps(_contents_json(contents), indent=2)
        if arguments.format == "json"
        else _format_contents_table(contents)
    )
    return 0


def _contents_json(contents: CatalogContents) -> dict[str, list[dict[str, str]]]:
    return {
        "endpoints": [{"name": one.name, "id": str(one.id), "file": one.file} for one in contents.endpoints],
        "streams": [{"name": one.name, "id": str(one.id)} for one in contents.streams],
        "alerts": [{"name": one.name, "id": str(one.id), "file": one.file} for one in contents.alerts],
    }


def _format_contents_table(contents: CatalogContents) -> str:
    named = [("endpoint", one.name, one.id) for one in contents.endpoints]
    named += [("stream", one.name, one.id) for one in contents.streams]
    named += [("alert", one.name, one.id) for one in contents.alerts]
    width = max(len(name) for _, name, _ in named)
    return "\n".join([*(f"{kind:<9} {name:<{width}}  {uuid}" for kind, name, uuid in named), "All can be served."])
