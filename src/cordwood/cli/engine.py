"""Create or update the tables of the streams in ClickHouse: `cordwood engine prepare`.

Running a statement twice has the same effect as running it once. With --dry-run the statements are printed and not sent
to the server, so that somebody else can run them. Tables are replicated and distributed if `clickhouse.cluster` is set.

examples:
  CORDWOOD_ENGINE=clickhouse://user:password@host:8443/logs?secure=1 cordwood engine prepare
  CORDWOOD_CLICKHOUSE_CLUSTER=logs cordwood engine prepare --engine clickhouse://host/logs --dry-run
"""

import argparse

from cordwood.app.checks import catalog_sources_of, read_and_check_definitions, uses_clickhouse
from cordwood.app.compose import address_without_credentials, import_clickhouse_module
from cordwood.cli.arguments import add_config_option, add_definition_files_options, load_settings_with_flags
from cordwood.cli.terminal import print_output
from cordwood.errors import BadSetting


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=["prepare"], help="prepare: create the tables that the streams need")
    parser.add_argument(
        "--engine", metavar="ADDRESS", help="a clickhouse:// or chdb:// address (same as CORDWOOD_ENGINE)"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the statements, run none")
    add_definition_files_options(parser)
    add_config_option(parser)


def run(arguments: argparse.Namespace) -> int:
    settings = load_settings_with_flags(arguments).settings
    if not uses_clickhouse(settings):
        hint = "Set CORDWOOD_ENGINE, or give --engine, to a clickhouse:// or chdb:// address."
        raise BadSetting(f"engine: {settings.engine!r} needs no preparation: it creates its own tables.", hint=hint)
    streams = read_and_check_definitions(catalog_sources_of(settings)).streams
    clickhouse = import_clickhouse_module()
    statements = clickhouse.ddl_statements(settings, streams)
    if arguments.dry_run:
        print_output(";\n\n".join(statements) + ";")
        return 0
    clickhouse.run_ddl_statements(settings, streams)
    print_output(f"{len(streams)} streams are prepared at {address_without_credentials(settings.engine)}.")
    return 0
