"""`python -m cordwood` and the `cordwood` command."""

import sys

from cordwood.cli import commands


def main() -> None:
    sys.exit(commands.run(sys.argv[1:]))


if __name__ == "__main__":
    main()
