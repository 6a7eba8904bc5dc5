"""The variables of Logflare, whose place a cordwood takes: five keep their meaning, the rest are left alone."""

from collections.abc import Mapping

_TAKEN = {
    "LOGFLARE_API_KEY": "keys.public",
    "LOGFLARE_PUBLIC_ACCESS_TOKEN": "keys.public",
    "LOGFLARE_PRIVATE_ACCESS_TOKEN": "keys.private",
    "PHX_HTTP_PORT": "web.port",
    "PHX_HTTP_IP": "web.host",
}
_CERTAIN = ("LOGFLARE_", "PHX_", "POSTGRES_BACKEND_")
# Others use such names too, so alone they are no sign of a Logflare's environment.
_LIKELY = ("DB_", "GOOGLE_PROJECT_", "GOOGLE_DATASET_")


def taken(environment: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Setting -> (variable, value); the public token's newer variable wins over its older one."""
    found: dict[str, tuple[str, str]] = {}
    for variable, setting in _TAKEN.items():
        value = environment.get(variable, "").strip()
        if value:
            found[setting] = (variable, _address(value) if setting == "web.host" else value)
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
