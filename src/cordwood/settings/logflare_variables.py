"""Logflare's environment variables: six are read, the others are ignored with a notice."""

from collections.abc import Callable, Mapping

_TAKEN = {
    "LOGFLARE_API_KEY": "keys.public",
    "LOGFLARE_PUBLIC_ACCESS_TOKEN": "keys.public",
    "LOGFLARE_PRIVATE_ACCESS_TOKEN": "keys.private",
    "PHX_HTTP_PORT": "web.port",
    "PHX_HTTP_IP": "web.host",
    "LOGFLARE_LOG_LEVEL": "web.log_level",
}
# Elixir's log levels, with aliases and older spellings.
_LEVELS = {
    **dict.fromkeys(("emergency", "alert", "critical", "error", "none"), "error"),
    **dict.fromkeys(("warning", "warn"), "warning"),
    **dict.fromkeys(("notice", "info"), "info"),
    **dict.fromkeys(("debug", "all"), "debug"),
}
_CERTAIN = ("LOGFLARE_", "PHX_", "POSTGRES_BACKEND_")
# Other programs use such names, too, so alone they do not indicate an environment of Logflare.
_LIKELY = ("DB_", "GOOGLE_PROJECT_", "GOOGLE_DATASET_", "RELEASE_COOKIE")


def taken(environment: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return the variable and value by setting; the newer variable of the public token has precedence."""
    found: dict[str, tuple[str, str]] = {}
    for variable, setting in _TAKEN.items():
        value = environment.get(variable, "").strip()
        meant = _READERS.get(setting, str)(value)
        if meant:
            found[setting] = (variable, meant)
    return found


def ignored(environment: Mapping[str, str]) -> str | None:
    """Return a notice that lists the ignored variables of Logflare; None if there are none."""
    certain = [name for name in environment if name.startswith(_CERTAIN) and name not in _TAKEN]
    if not certain and not any(name in environment for name in _TAKEN):
        return None
    names = sorted(certain + [name for name in environment if name.startswith(_LIKELY)])
    return f"Unsupported variables of Logflare are ignored: {', '.join(names)}." if names else None


def _address(text: str) -> str:
    """Return an address from Logflare's forms: plain, in brackets, or as numbers separated by commas."""
    bare = text.strip("[]{}() ")
    parts = [part.strip() for part in bare.split(",")]
    if len(parts) == 4:
        return ".".join(parts)
    if len(parts) == 8 and all(part.isdigit() for part in parts):
        return ":".join(f"{int(part):x}" for part in parts)
    return bare


def _level(text: str) -> str:
    """Return the log level; empty for an unknown word, which must not prevent the start."""
    return _LEVELS.get(text.lower(), "")


_READERS: Mapping[str, Callable[[str], str]] = {"web.host": _address, "web.log_level": _level}
