"""Print a completion script for a shell, which completes commands, their actions and their options.

examples:
  source <(cordwood completion bash)                  in ~/.bashrc
  source <(cordwood completion zsh)                   in ~/.zshrc, after compinit
  cordwood completion fish | source                   in ~/.config/fish/config.fish
"""

import argparse

from cordwood.cli import commands
from cordwood.cli.terminal import print_output

_BASH_SCRIPT_TEMPLATE = """_cordwood() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" command="${{COMP_WORDS[1]}}"
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "{names}" -- "$current"))
    return
  fi
  case "$command" in
{cases}
  esac
}}
complete -o default -F _cordwood cordwood"""
_BASH_CASE_TEMPLATE = '    {name}) COMPREPLY=($(compgen -W "{options}" -- "$current")) ;;'
_ZSH_SCRIPT_TEMPLATE = """_cordwood() {{
  if (( CURRENT == 2 )); then
    local -a names=(
{names}
    )
    _describe command names
    return
  fi
  case "$words[2]" in
{cases}
  esac
  _files
}}
compdef _cordwood cordwood"""
_ZSH_CASE_TEMPLATE = "    {name}) compadd -- {options} ;;"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell to complete in")


def run(arguments: argparse.Namespace) -> int:
    print_output({"bash": _bash_script, "zsh": _zsh_script, "fish": _fish_script}[arguments.shell]())
    return 0


def _bash_script() -> str:
    cases = [
        _BASH_CASE_TEMPLATE.format(name=name, options=" ".join(_completion_words(name)))
        for name in _summaries_by_command()
    ]
    return _BASH_SCRIPT_TEMPLATE.format(names=" ".join(_summaries_by_command()), cases="\n".join(cases))


def _zsh_script() -> str:
    names = [f"      '{name}:{summary.replace(chr(39), '')}'" for name, summary in _summaries_by_command().items()]
    cases = [
        _ZSH_CASE_TEMPLATE.format(name=name, options=" ".join(_completion_words(name)))
        for name in _summaries_by_command()
        if _completion_words(name)
    ]
    return _ZSH_SCRIPT_TEMPLATE.format(names="\n".join(names), cases="\n".join(cases))


def _fish_script() -> str:
    lines = []
    for name, summary in _summaries_by_command().items():
        description = summary.replace("'", "")
        lines.append(f"complete -c cordwood -n __fish_use_subcommand -a {name} -d '{description}'")
        condition = f"'__fish_seen_subcommand_from {name}'"
        for word in _completion_words(name):
            option = f"-l {word[2:]}" if word.startswith("--") else f"-s {word[1:]}" if word[0] == "-" else f"-a {word}"
            lines.append(f"complete -c cordwood -n {condition} {option}")
    return "\n".join(lines)


def _summaries_by_command() -> dict[str, str]:
    """Return the one-line summary of each command, by the command's name."""
    return {name: command.summary for group in commands.COMMANDS.values() for name, command in group.items()}


def _completion_words(name: str) -> list[str]:
    """Return the words that may follow a command: its options, its actions, and the options of its actions."""
    words: dict[str, None] = {}
    parsers = [commands.parser_of_command(name)]
    while parsers:
        for action in parsers.pop()._actions:  # noqa: SLF001 - argparse has no list of them
            words |= dict.fromkeys(action.option_strings)
            choices = action.choices if isinstance(action.choices, dict) else {}
            words |= dict.fromkeys(choices)
            parsers += [choice for choice in choices.values() if isinstance(choice, argparse.ArgumentParser)]
    return list(words)
