"""Load settings from defaults < TOML file < environment < flags, with the source of each value.

Six environment variables of Logflare are read as well. A notice lists the others, which are ignored.
"""

import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec

from cordwood.errors import BadSetting, did_you_mean
from cordwood.settings.fields import fields, read, sections
from cordwood.settings.settings import Settings

CONFIG_FILE = "cordwood.toml"
_PREFIX = "CORDWOOD_"
# Variables that are not settings: the settings file, and the service for client commands.
_OTHER_VARIABLES = {"CORDWOOD_CONFIG", "CORDWOOD_URL", "CORDWOOD_KEY"}
# Kubernetes sets such variables in every pod if a service is called "cordwood".
_SERVICE_LINK = re.compile(r"CORDWOOD_(SERVICE_(HOST|PORT(_\w+)?)|PORT(_\d+_(TCP|UDP)(_\w+)?)?)")

_LOGFLARE_VARIABLES = {
    "LOGFLARE_API_KEY": "keys.public",
    "LOGFLARE_PUBLIC_ACCESS_TOKEN": "keys.public",
    "LOGFLARE_PRIVATE_ACCESS_TOKEN": "keys.private",
    "PHX_HTTP_PORT": "web.port",
    "PHX_HTTP_IP": "web.host",
    "LOGFLARE_LOG_LEVEL": "web.log_level",
}
# The log levels of Elixir, with aliases and older spellings.
_ELIXIR_LEVELS = {
    **dict.fromkeys(("emergency", "alert", "critical", "error", "none"), "error"),
    **dict.fromkeys(("warning", "warn"), "warning"),
    **dict.fromkeys(("notice", "info"), "info"),
    **dict.fromkeys(("debug", "all"), "debug"),
}
_LOGFLARE_PREFIXES = ("LOGFLARE_", "PHX_", "POSTGRES_BACKEND_")
# Other programs use these prefixes too, so they alone do not indicate an environment of Logflare.
_SHARED_PREFIXES = ("DB_", "GOOGLE_PROJECT_", "GOOGLE_DATASET_", "RELEASE_COOKIE")


class SourcedText(msgspec.Struct, frozen=True):
    """The text of a setting, and its source."""

    written: object
    origin: str


class Loaded(msgspec.Struct, frozen=True):
    """The settings in force. `origins` has the source of every setting that is not a default."""

    settings: Settings
    origins: Mapping[str, str]
    notices: tuple[str, ...] = ()


def load(
    flags: Mapping[str, object] | None = None,
    config: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Loaded:
    """Load all sources. `flags` are by dotted name; a flag that was not given is None."""
    env = os.environ if environment is None else environment
    given = {
        **_from_file(_config_file(config, env)),
        **_from_logflare(env),
        **_from_environment(env),
        **{name: SourcedText(value, "a flag") for name, value in (flags or {}).items() if value is not None},
    }
    values = {name: read(fields()[name], one.written, one.origin) for name, one in given.items()}
    settings = _settings(values)
    notices = (_ignored_of_logflare(env), _equal_keys_notice(settings))
    return Loaded(
        settings=settings,
        origins={name: one.origin for name, one in given.items()},
        notices=tuple(notice for notice in notices if notice),
    )


def value_of(settings: Settings, name: str) -> object:
    """Return the value of a setting by its dotted name."""
    found: object = settings
    for step in name.split("."):
        found = getattr(found, step)
    return found


def client_defaults(environment: Mapping[str, str] | None = None) -> tuple[str | None, str | None]:
    """Return the default URL and key of client commands from the environment."""
    env = os.environ if environment is None else environment
    return env.get("CORDWOOD_URL") or None, env.get("CORDWOOD_KEY") or None


def _settings(values: Mapping[str, object]) -> Settings:
    made: dict[str, object] = {name: value for name, value in values.items() if "." not in name}
    for section, struct in sections().items():
        prefix = f"{section}."
        made[section] = struct(
            **{name.removeprefix(prefix): v for name, v in values.items() if name.startswith(prefix)}
        )
    return _with_memory_ceiling(msgspec.structs.replace(Settings(), **made))


def _equal_keys_notice(settings: Settings) -> str | None:
    keys = settings.keys
    if not keys.private or keys.private != keys.public:
        return None
    return "keys.private and keys.public are the same key: whoever sends events with it may read and manage everything."


def _with_memory_ceiling(settings: Settings) -> Settings:
    """Set the memory ceiling from the machine's memory if none is configured."""
    limits = msgspec.structs.replace(settings.limits, memory=settings.limits.ceiling)
    return msgspec.structs.replace(settings, limits=limits)


def _config_file(config: Path | None, env: Mapping[str, str]) -> Path | None:
    named = config or (Path(env["CORDWOOD_CONFIG"]) if env.get("CORDWOOD_CONFIG") else None)
    if named is not None and not named.is_file():
        raise BadSetting(f"The settings file {named} does not exist.")
    usual = Path(CONFIG_FILE)
    # The default file is read whenever it exists, and it is an error if it cannot be read.
    return named or (usual if usual.exists() or usual.is_symlink() else None)


def _from_file(file: Path | None) -> dict[str, SourcedText]:
    if file is None:
        return {}
    try:
        tables = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise BadSetting(f"{file}: {problem}") from problem
    return {
        name: SourcedText(_relative_to_file(file.parent, name, value), str(file))
        for name, value in _settings_in(tables, str(file))
    }


def _settings_in(tables: Mapping[str, object], origin: str) -> Iterator[tuple[str, object]]:
    for top, value in tables.items():
        if isinstance(value, dict) and top not in fields():
            if top not in sections():
                raise _unknown_name_fault(f"[{top}]", top, sections(), origin)
            yield from ((_checked(f"{top}.{key}", origin), one) for key, one in value.items())
        elif top in sections():
            raise BadSetting(f"{top} in {origin} is a section, not a setting.", hint=f"Write [{top}] as a table.")
        else:
            yield _checked(top, origin), value


def _checked(name: str, origin: str) -> str:
    if name not in fields():
        raise _unknown_name_fault(name, name, fields(), origin)
    return name


def _relative_to_file(folder: Path, name: str, value: object) -> object:
    """Resolve a path relative to the folder of the settings file."""
    return str(folder / value) if fields()[name].is_path and isinstance(value, str) and value else value


def _from_logflare(env: Mapping[str, str]) -> dict[str, SourcedText]:
    return {
        name: SourcedText(value, f"environment {variable}")
        for name, (variable, value) in _values_of_logflare(env).items()
    }


def _values_of_logflare(environment: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return variable and value for each setting. The newer variable of the public token takes precedence."""
    found: dict[str, tuple[str, str]] = {}
    for variable, setting in _LOGFLARE_VARIABLES.items():
        value = environment.get(variable, "").strip()
        meant = _LOGFLARE_READERS.get(setting, str)(value)
        if meant:
            found[setting] = (variable, meant)
    return found


def _ignored_of_logflare(environment: Mapping[str, str]) -> str | None:
    """Return a notice that lists the ignored variables of Logflare, or None if there are none."""
    certain = [name for name in environment if name.startswith(_LOGFLARE_PREFIXES) and name not in _LOGFLARE_VARIABLES]
    if not certain and not any(name in environment for name in _LOGFLARE_VARIABLES):
        return None
    names = sorted(certain + [name for name in environment if name.startswith(_SHARED_PREFIXES)])
    return f"Unsupported variables of Logflare are ignored: {', '.join(names)}." if names else None


def _logflare_address(text: str) -> str:
    """Return the address in any of Logflare's notations: plain, in brackets, or numbers separated by commas."""
    bare = text.strip("[]{}() ")
    parts = [part.strip() for part in bare.split(",")]
    if len(parts) == 4:
        return ".".join(parts)
    if len(parts) == 8 and all(part.isdigit() for part in parts):
        return ":".join(f"{int(part):x}" for part in parts)
    return bare


def _elixir_level(text: str) -> str:
    """Return the log level, or an empty text for an unknown word, which must not prevent the start."""
    return _ELIXIR_LEVELS.get(text.lower(), "")


_LOGFLARE_READERS: Mapping[str, Callable[[str], str]] = {"web.host": _logflare_address, "web.log_level": _elixir_level}


def _from_environment(env: Mapping[str, str]) -> dict[str, SourcedText]:
    known = {field.variable: field.name for field in fields().values()}
    found: dict[str, SourcedText] = {}
    for variable, value in env.items():
        if not variable.startswith(_PREFIX) or variable in _OTHER_VARIABLES or _SERVICE_LINK.fullmatch(variable):
            continue
        if variable not in known:
            raise _unknown_name_fault(variable, variable, known, "the environment")
        if value != "":
            found[known[variable]] = SourcedText(value, f"environment {variable}")
    return found


def _unknown_name_fault(shown: str, name: str, names: Mapping[str, object], origin: str) -> BadSetting:
    hint = did_you_mean(name, names) or "`cordwood settings` lists every setting."
    return BadSetting(f"{shown} in {origin} is no setting.", hint=hint)
