"""The table of commands, and how one of them is run. A command's module is loaded when it is called for."""

import argparse
import gc
import importlib
import sys
import time
from collections.abc import Mapping, Sequence
from types import ModuleType

import msgspec

import cordwood
from cordwood.cli.terminal import note, say
from cordwood.errors import Fault, did_you_mean

# When the process began, near enough: what takes long to load is loaded after this line.
STARTED = time.monotonic()

# Exit codes: 1 for what failed, 2 for what was not understood, 130 for Ctrl-C (as shells have it).
FAILED, MISUSED, INTERRUPTED = 1, 2, 130


class Command(msgspec.Struct, frozen=True):
    """A command's module in this package, and what the overview says of it."""

    module: str
    summary: str


COMMANDS: Mapping[str, Mapping[str, Command]] = {
    "Run the service": {
        "serve": Command("serve", "serve endpoints and take events over HTTP"),
        "reload": Command("reload", "have a running service read its endpoint and stream files again"),
        "healthcheck": Command("healthcheck", "exit 0 when a service is ready, 1 when it is not"),
        "doctor": Command("doctor", "look for what keeps a service from working, and say what to do"),
        "engine": Command("engine", "make the tables of an engine on another machine"),
        "settings": Command("settings", "print every setting in force and where it came from"),
    },
    "Ask and fill": {
        "query": Command("query", "run an endpoint and print its rows"),
        "import": Command("import_events", "send a file of events to a stream"),
        "migrate": Command("migrate", "copy the events that Logflare stored in PostgreSQL"),
        "export": Command("export_events", "write a stream's events to a Parquet file"),
        "backup": Command("backup", "copy everything that is stored, while the service goes on"),
        "restore": Command("restore", "make a data folder of a backup"),
        "quarantine": Command("quarantine", "list, show and replay events that were set aside"),
        "keys": Command("keys", "create, list, revoke and rotate keys"),
    },
    "Write endpoints": {
        "test": Command("test", "run the tests that stand beside endpoint files"),
        "check": Command("check", "compile endpoint and stream files without a service"),
        "compile": Command("compile", "print the SQL that an engine is given"),
    },
}


def run(arguments: Sequence[str]) -> int:
    """Run the command that the arguments name and return its exit code."""
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        say(overview())
        return 0 if arguments else MISUSED
    if arguments[0] in ("-V", "--version"):
        say(f"cordwood {cordwood.__version__}")
        return 0
    command = _all().get(arguments[0])
    if command is None:
        note(_unknown(arguments[0]))
        return MISUSED
    return _run(arguments[0], command, arguments[1:])


def overview() -> str:
    """What `cordwood --help` prints, without loading any command."""
    lines = ["cordwood serves saved, parameterised SQL over log streams by HTTP.", ""]
    for group, commands in COMMANDS.items():
        lines += [f"{group}:", *(f"  {name:<13}{command.summary}" for name, command in commands.items()), ""]
    return "\n".join([*lines, "Try it:  cordwood serve --demo", "More:    cordwood COMMAND --help"])


def parser(name: str) -> argparse.ArgumentParser:
    """The argument parser of a command, its help made from the module's docstring."""
    return _parser(name, _module(_all()[name]))


def _run(name: str, command: Command, arguments: Sequence[str]) -> int:
    try:
        module = _loaded(command)
        code: int = module.run(_parser(name, module).parse_args(arguments))
    except Fault as fault:
        note(f"cordwood {name}: {fault.told()}")
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output, `head` for one, has seen enough.
        sys.stderr.close()
        return FAILED
    finally:
        gc.unfreeze()
    return code


def _all() -> dict[str, Command]:
    return {name: command for group in COMMANDS.values() for name, command in group.items()}


def _module(command: Command) -> ModuleType:
    return importlib.import_module(f"cordwood.cli.{command.module}")


def _loaded(command: Command) -> ModuleType:
    """What is loaded stays until the end: to look for garbage in it before is a fifth of the time to begin."""
    gc.disable()
    try:
        return _module(command)
    finally:
        gc.freeze()
        gc.enable()


def _parser(name: str, module: ModuleType) -> argparse.ArgumentParser:
    description, _, examples = (module.__doc__ or "").partition("\n\n")
    made = argparse.ArgumentParser(
        prog=f"cordwood {name}",
        description=description,
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    module.add_arguments(made)
    return made


def _unknown(name: str) -> str:
    hint = did_you_mean(name, _all()) or "`cordwood --help` lists the commands."
    return f"cordwood: {name} is no command. {hint}"
