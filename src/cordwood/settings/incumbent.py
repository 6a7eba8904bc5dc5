"""The variables of Logflare, whose place a cordwood takes: six keep their meaning, the rest are left alone."""

from collections.abc import Callable, Mapping

_TAKEN = {
    "LOGFLARE_API_KEY": "keys.public",
    "LOGFLARE_PUBLIC_ACCESS_TOKEN": "keys.public",
    "LOGFLARE_PRIVATE_ACCESS_TOKEN": "keys.private",
    "PHX_HTTP_PORT": "web.port",
    "PHX_HTTP_IP": "web.host",
    "LOGFLARE_LOG_LEVEL": "web.log_level",
}
# Its levels are Elixir's: eight, two more words, and older spellings.
_LEVELS = {
    **dict.fromkeys(("emergency", "alert", "critical", "error", "none"), "error"),
    **dict.fromkeys(("warning", "warn"), "warning"),
    **dict.fromkeys(("notice", "info"), "info"),
    **dict.fromkeys(("debug", "all"), "debug"),
}
_CERTAIN = ("LOGFLARE_", "PHX_", "POSTGRES_BACKEND_")
# Others use such names too, so alone they are no sign of a Logflare's environment.
_LIKELY = ("DB_", "GOOGLE_PROJECT_", "GOOGLE_DATASET_", "RELEASE_COOKIE")


def taken(environment: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Setting -> (variable, value); the public token's newer variable wins over its older one."""
    found: dict[str, tuple[str, str]] = {}
    for variable, setting in _TAKEN.items():
        value = environment.get(variable, "").strip()
        meant = _READERS.get(setting, str)(value)
        if meant:
            found[setting] = (variable, meant)
    return found


def ignored(environment: Mapping[str, str]) -> str | None:
    """One notice that names every variable of Logflare's that means nothing here."""
    certain = [name for name in environment if name.startswith(_CERTAIN) and name not in _TAKEN]
    if not certain and not any(name in environment for name in _TAKEN):
        return None
    names = sorted(certain + [name for name in environment if name.startswith(_LIKELY)])
    return f"Variables of Logflare that mean nothing here are ignored: {', '.join(names)}." if names else None


def _address(text: str) -> str:
    """An address as Logflare takes it: plain, in brackets, or as numbers with commas between them."""
    bare = text.strip("[]{}() ")
    parts = [part.strip() for part in bare.split(",")]
    if len(parts) == 4:
        return ".".join(parts)
    if len(parts) == 8 and all(part.isdigit() for part in parts):
        return ":".join(f"{int(part):x}" for part in parts)
    return bare


def _level(text: str) -> str:
    """Nothing for a word that is no level: the variables of another service are no reason not to start."""
    return _LEVELS.get(text.lower(), "")


_READERS: Mapping[str, Callable[[str], str]] = {"web.host": _address, "web.log_level": _level}
