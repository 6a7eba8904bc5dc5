"""Load settings from defaults, a TOML file, the environment and flags. Later sources override earlier ones.

The source of each value is recorded. Six environment variables of Logflare are read as well. If there are other
variables of Logflare, a notice lists them, because they are ignored.
"""

import math
import os
import re
import tomllib
import typing
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from cordwood.errors import BadSetting, did_you_mean
from cordwood.settings.quantities import (
    format_duration,
    format_rate,
    format_size,
    parse_duration,
    parse_rate,
    parse_size,
)
from cordwood.settings.settings import Settings, SettingsSection

_PARSERS_BY_UNIT = {"size": parse_size, "duration": parse_duration, "rate": parse_rate}
_FORMATTERS_BY_UNIT = {"size": format_size, "duration": format_duration, "rate": format_rate}
_OUT_OF_BOUNDS_MESSAGE_PATTERN = re.compile(r"Expected `\w+` (>=|<=|>|<) (-?[\d.]+)")
_WORDS_BY_COMPARISON_SIGN = {">=": "at least", "<=": "at most", ">": "more than", "<": "less than"}
_WRONG_TYPE_MESSAGE_PATTERN = re.compile(r"Expected `(\w+)`, got `\w+`")
_PHRASE_BY_TYPE_NAME = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "a text"}
_INVALID_CHOICE_MESSAGE_PREFIX = "Invalid enum value"


class SettingField(msgspec.Struct, frozen=True):
    """The definition of a setting. `section` is empty for a setting that is not in a section."""

    section: str
    key: str
    type_annotation: Any
    default: object
    value_metadata: msgspec.Meta

    @property
    def name(self) -> str:
        return f"{self.section}.{self.key}" if self.section else self.key

    @property
    def environment_variable(self) -> str:
        return f"CORDWOOD_{self.name.replace('.', '_').upper()}"

    @property
    def extra_metadata(self) -> Mapping[str, object]:
        return self.value_metadata.extra or {}

    @property
    def is_secret(self) -> bool:
        return bool(self.extra_metadata.get("secret"))

    @property
    def is_path(self) -> bool:
        return bool(self.extra_metadata.get("path"))


@cache
def setting_fields() -> Mapping[str, SettingField]:
    """Return every setting by its dotted name, in the order in which the structs define the settings."""
    found: dict[str, SettingField] = {}
    for key, annotation in typing.get_type_hints(Settings, include_extras=True).items():
        if isinstance(annotation, type) and issubclass(annotation, SettingsSection):
            found |= _setting_fields_of_struct(key, annotation)
    return _setting_fields_of_struct("", Settings) | found


def _setting_fields_of_struct(section: str, struct: type[msgspec.Struct]) -> dict[str, SettingField]:
    hints = typing.get_type_hints(struct, include_extras=True)
    defaults = {field.name: field.default for field in msgspec.structs.fields(struct)}
    made = [
        SettingField(section, key, hint, defaults[key], hint.__metadata__[0])
        for key, hint in hints.items()
        if typing.get_origin(hint) is typing.Annotated
    ]
    return {field.name: field for field in made}


def section_types() -> Mapping[str, type[SettingsSection]]:
    """Return the struct of each section, by the name of the section."""
    hints = typing.get_type_hints(Settings)
    return {key: hint for key, hint in hints.items() if isinstance(hint, type) and issubclass(hint, SettingsSection)}


def _parse_setting_value(field: SettingField, raw: object, origin: str) -> object:
    """Parse the value of a setting; raise BadSetting if it is invalid. The message names the problem and the source."""
    try:
        return _convert_setting_value(field, raw)
    except (ValueError, msgspec.ValidationError) as problem:
        shown = "what was given" if field.is_secret else repr(raw)
        raise BadSetting(
            f"{field.name}: {shown} cannot be used: {_describe_requirement(field, problem)} (from {origin})."
        ) from problem


def _describe_requirement(field: SettingField, problem: Exception) -> str:
    """Describe for an error message which values a setting may have; a limit is written in the setting's unit."""
    bound = _OUT_OF_BOUNDS_MESSAGE_PATTERN.fullmatch(str(problem))
    if bound is None:
        return _describe_type_or_choice_requirement(field, str(problem))
    unit = field.extra_metadata.get("unit")
    shown = _FORMATTERS_BY_UNIT[unit](int(bound[2])) if unit == "size" and isinstance(unit, str) else bound[2]
    return f"it must be {_WORDS_BY_COMPARISON_SIGN[bound[1]]} {shown}"


def _describe_type_or_choice_requirement(field: SettingField, problem: str) -> str:
    kind = _WRONG_TYPE_MESSAGE_PATTERN.fullmatch(problem)
    if kind is not None:
        return f"it must be {_PHRASE_BY_TYPE_NAME.get(kind[1], kind[1])}"
    choices = typing.get_args(typing.get_args(field.type_annotation)[0])
    if choices and problem.startswith(_INVALID_CHOICE_MESSAGE_PREFIX):
        return f"it must be one of {', '.join(map(str, choices))}"
    return problem


def _convert_setting_value(field: SettingField, raw: object) -> object:
    if raw == "" and field.default is None:
        return None
    written = _join_list_or_table(field, raw)
    unit = field.extra_metadata.get("unit")
    value = _PARSERS_BY_UNIT[unit](str(written)) if isinstance(unit, str) else written
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("it is not finite")
    return msgspec.convert(value, field.type_annotation, strict=False)


def _join_list_or_table(field: SettingField, raw: object) -> str | float:
    """Join a list or table of the settings file into one text, in the form that an environment variable would have.

    Return a single value unchanged.
    """
    if isinstance(raw, list) and field.extra_metadata.get("form") == "list":
        return ",".join(map(str, raw))
    if isinstance(raw, dict) and field.extra_metadata.get("form") == "table":
        return "\n".join(f"{key} = {value}" for key, value in raw.items())
    if isinstance(raw, (str, int, float)):
        return raw
    raise ValueError("expected a single value")


def format_value(field: SettingField, value: object) -> str:
    """Format a value in the form that the parser accepts. For a secret, tell only whether it is set."""
    if field.is_secret:
        return "(set, not shown)" if value else ""
    unit = field.extra_metadata.get("unit")
    if value is None:
        return ""
    if isinstance(unit, str):
        return _FORMATTERS_BY_UNIT[unit](typing.cast(Any, value))
    return _hide_url_password(str(value))


def _hide_url_password(text: str) -> str:
    scheme, mark, rest = text.partition("://")
    user, at, host = rest.rpartition("@")
    if not (mark and at and ":" in user):
        return text
    return f"{scheme}://{user.partition(':')[0]}:…@{host}"


CONFIG_FILE_NAME = "cordwood.toml"
_ENVIRONMENT_VARIABLE_PREFIX = "CORDWOOD_"
# Variables that begin with CORDWOOD_ but are not settings: the path of the settings file, and the URL and key for
# client commands.
_NON_SETTING_VARIABLES = {"CORDWOOD_CONFIG", "CORDWOOD_URL", "CORDWOOD_KEY"}
# Ignore variables of this form: Kubernetes sets them in every pod if a service is called "cordwood".
_KUBERNETES_SERVICE_VARIABLE_PATTERN = re.compile(r"CORDWOOD_(SERVICE_(HOST|PORT(_\w+)?)|PORT(_\d+_(TCP|UDP)(_\w+)?)?)")

_SETTINGS_BY_LOGFLARE_VARIABLE = {
    "LOGFLARE_API_KEY": "keys.public",
    "LOGFLARE_PUBLIC_ACCESS_TOKEN": "keys.public",
    "LOGFLARE_PRIVATE_ACCESS_TOKEN": "keys.private",
    "PHX_HTTP_PORT": "web.port",
    "PHX_HTTP_IP": "web.host",
    "LOGFLARE_LOG_LEVEL": "web.log_level",
}
# Cordwood's log level for each log level of Elixir, including aliases and older spellings. Logflare is written in
# Elixir.
_LOG_LEVELS_BY_ELIXIR_LEVEL = {
    **dict.fromkeys(("emergency", "alert", "critical", "error", "none"), "error"),
    **dict.fromkeys(("warning", "warn"), "warning"),
    **dict.fromkeys(("notice", "info"), "info"),
    **dict.fromkeys(("debug", "all"), "debug"),
}
_LOGFLARE_VARIABLE_PREFIXES = ("LOGFLARE_", "PHX_", "POSTGRES_BACKEND_")
# Other programs use variables with these prefixes, too. Therefore, the notice lists such variables only if other
# variables show that Logflare is configured.
_AMBIGUOUS_LOGFLARE_VARIABLE_PREFIXES = ("DB_", "GOOGLE_PROJECT_", "GOOGLE_DATASET_", "RELEASE_COOKIE")


class SourcedValue(msgspec.Struct, frozen=True):
    """The value of a setting before it is parsed, and the source that it comes from."""

    value: object
    source: str


class LoadedSettings(msgspec.Struct, frozen=True):
    """The settings in force, with the source of each setting for which a value was given."""

    settings: Settings
    sources_by_setting: Mapping[str, str]
    notices: tuple[str, ...] = ()


def load_settings(
    flags: Mapping[str, object] | None = None,
    config: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> LoadedSettings:
    """Load the settings from all sources.

    `flags` maps the dotted names of settings to the values of command-line flags, or to None for flags that were not
    given.
    """
    env = os.environ if environment is None else environment
    given = {
        **_read_config_file(_find_config_file(config, env)),
        **_read_logflare_variables(env),
        **_read_environment(env),
        **{name: SourcedValue(value, "a flag") for name, value in (flags or {}).items() if value is not None},
    }
    values = {name: _parse_setting_value(setting_fields()[name], one.value, one.source) for name, one in given.items()}
    settings = _make_settings(values)
    notices = (_ignored_variables_notice(env), _equal_keys_notice(settings))
    return LoadedSettings(
        settings=settings,
        sources_by_setting={name: one.source for name, one in given.items()},
        notices=tuple(notice for notice in notices if notice),
    )


def setting_value(settings: Settings, name: str) -> object:
    """Return the value of a setting by its dotted name."""
    found: object = settings
    for step in name.split("."):
        found = getattr(found, step)
    return found


def client_default_url_and_key(environment: Mapping[str, str] | None = None) -> tuple[str | None, str | None]:
    """Return the URL and key that client commands use by default, from environment variables.

    White space around them is removed. It often comes from the file from which a variable was set.
    """
    env = os.environ if environment is None else environment
    return env.get("CORDWOOD_URL", "").strip() or None, env.get("CORDWOOD_KEY", "").strip() or None


def _make_settings(values: Mapping[str, object]) -> Settings:
    made: dict[str, object] = {name: value for name, value in values.items() if "." not in name}
    for section, struct in section_types().items():
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
    """Return the settings with a memory ceiling. By default, it depends on the memory that this process may use."""
    limits = msgspec.structs.replace(settings.limits, memory=settings.limits.memory_ceiling)
    return msgspec.structs.replace(settings, limits=limits)


def _find_config_file(config: Path | None, env: Mapping[str, str]) -> Path | None:
    named = config or (Path(env["CORDWOOD_CONFIG"]) if env.get("CORDWOOD_CONFIG") else None)
    if named is not None and not named.is_file():
        raise BadSetting(f"The settings file {named} does not exist.")
    usual = Path(CONFIG_FILE_NAME)
    # Read the default file whenever it exists. If it is a broken link or cannot be read, that is an error, so that
    # settings are not silently ignored.
    return named or (usual if usual.exists() or usual.is_symlink() else None)


def _read_config_file(file: Path | None) -> dict[str, SourcedValue]:
    if file is None:
        return {}
    try:
        # Some editors begin a file with a byte order mark, which TOML does not permit.
        tables = tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as problem:
        raise BadSetting(f"{file}: {problem}") from problem
    return {
        name: SourcedValue(_resolve_path_setting(file.parent, name, value), str(file))
        for name, value in _iterate_settings(tables, str(file))
    }


def _iterate_settings(tables: Mapping[str, object], origin: str) -> Iterator[tuple[str, object]]:
    for top, value in tables.items():
        if isinstance(value, dict) and top not in setting_fields():
            if top not in section_types():
                raise _unknown_setting_fault(f"[{top}]", top, section_types(), origin)
            yield from ((_require_known_name(f"{top}.{key}", origin), one) for key, one in value.items())
        elif top in section_types():
            raise BadSetting(f"{top} in {origin} is a section, not a setting.", hint=f"Write [{top}] as a table.")
        else:
            yield _require_known_name(top, origin), value


def _require_known_name(name: str, origin: str) -> str:
    if name not in setting_fields():
        raise _unknown_setting_fault(name, name, setting_fields(), origin)
    return name


def _resolve_path_setting(folder: Path, name: str, value: object) -> object:
    """If the setting is a path, resolve it relative to the folder of the settings file; else return it unchanged."""
    return str(folder / value) if setting_fields()[name].is_path and isinstance(value, str) and value else value


def _read_logflare_variables(env: Mapping[str, str]) -> dict[str, SourcedValue]:
    return {
        name: SourcedValue(value, f"environment {variable}")
        for name, (variable, value) in _find_logflare_values(env).items()
    }


def _find_logflare_values(environment: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return the settings that variables of Logflare set, each with the variable's name and the value.

    Two variables of Logflare set the public key. If both are set, the one with the newer name takes precedence.
    """
    found: dict[str, tuple[str, str]] = {}
    for variable, setting in _SETTINGS_BY_LOGFLARE_VARIABLE.items():
        value = environment.get(variable, "").strip()
        meant = _LOGFLARE_CONVERTERS_BY_SETTING.get(setting, str)(value)
        if meant:
            found[setting] = (variable, meant)
    return found


def _ignored_variables_notice(environment: Mapping[str, str]) -> str | None:
    """Return a notice that lists the variables of Logflare that are ignored, or None if there are none."""
    certain = [
        name
        for name in environment
        if name.startswith(_LOGFLARE_VARIABLE_PREFIXES) and name not in _SETTINGS_BY_LOGFLARE_VARIABLE
    ]
    if not certain and not any(name in environment for name in _SETTINGS_BY_LOGFLARE_VARIABLE):
        return None
    names = sorted(certain + [name for name in environment if name.startswith(_AMBIGUOUS_LOGFLARE_VARIABLE_PREFIXES)])
    return f"Unsupported variables of Logflare are ignored: {', '.join(names)}." if names else None


def _convert_logflare_address(text: str) -> str:
    """Convert an IP address from one of Logflare's notations: plain, in brackets, or numbers separated by commas."""
    bare = text.strip("[]{}() ")
    parts = [part.strip() for part in bare.split(",")]
    if len(parts) == 4:
        return ".".join(parts)
    if len(parts) == 8 and all(part.isdigit() for part in parts):
        return ":".join(f"{int(part):x}" for part in parts)
    return bare


def _convert_elixir_level(text: str) -> str:
    """Convert a log level of Elixir to one of cordwood.

    An unknown level becomes an empty text, which sets nothing, so that it does not prevent the start.
    """
    return _LOG_LEVELS_BY_ELIXIR_LEVEL.get(text.lower(), "")


_LOGFLARE_CONVERTERS_BY_SETTING: Mapping[str, Callable[[str], str]] = {
    "web.host": _convert_logflare_address,
    "web.log_level": _convert_elixir_level,
}


def _read_environment(env: Mapping[str, str]) -> dict[str, SourcedValue]:
    known = {field.environment_variable: field.name for field in setting_fields().values()}
    found: dict[str, SourcedValue] = {}
    for variable, value in env.items():
        if (
            not variable.startswith(_ENVIRONMENT_VARIABLE_PREFIX)
            or variable in _NON_SETTING_VARIABLES
            or _KUBERNETES_SERVICE_VARIABLE_PATTERN.fullmatch(variable)
        ):
            continue
        if variable not in known:
            raise _unknown_setting_fault(variable, variable, known, "the environment")
        if value != "":
            found[known[variable]] = SourcedValue(value, f"environment {variable}")
    return found


def _unknown_setting_fault(shown: str, name: str, names: Mapping[str, object], origin: str) -> BadSetting:
    hint = did_you_mean(name, names) or "`cordwood settings` lists every setting."
    return BadSetting(f"{shown} in {origin} is not a setting.", hint=hint)
