"""`python -m cordwood` and the `cordwood` command."""

import sys

# Before any import that an older Python cannot read.
if sys.version_info < (3, 11):  # noqa: UP036 - a checkout may be run by any Python
    sys.exit(f"cordwood needs Python 3.11 or newer, and this is {sys.version.split()[0]}.")

from cordwood.cli import commands


def main() -> None:
    sys.exit(commands.run(sys.argv[1:]))


if __name__ == "__main__":
    main()
