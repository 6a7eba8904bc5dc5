"""The entry point of `python -m cordwood` and of the `cordwood` command."""

import sys

# Check the version before importing modules, because an older Python cannot parse their syntax.
if sys.version_info < (3, 11):  # noqa: UP036 - a checkout may be run by any Python
    sys.exit(f"cordwood needs Python 3.11 or newer, and this is {sys.version.split()[0]}.")

from cordwood.cli import commands


def main() -> None:
    sys.exit(commands.run_command_line(sys.argv[1:]))


if __name__ == "__main__":
    main()
