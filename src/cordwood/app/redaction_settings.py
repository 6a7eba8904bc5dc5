"""The redaction rules in the settings."""

import re

from cordwood.engines.engine import Engine
from cordwood.errors import BadSetting
from cordwood.folder import DataFolder
from cordwood.model.redaction import Detector, NamedPattern, RedactionRules
from cordwood.settings.settings import Settings

_KEY_FILE = "redaction.key"


def redaction_rules(settings: Settings) -> RedactionRules:
    """Return the rules; raise BadSetting for an unknown detector and for a pattern without a name."""
    detectors = tuple(_detector(name.strip()) for name in settings.redaction.detectors.split(",") if name.strip())
    lines = (line.strip() for line in settings.redaction.patterns.splitlines())
    return RedactionRules(detectors, tuple(_pattern(line) for line in lines if line))


def checked_rules(settings: Settings, engine: Engine) -> RedactionRules:
    """Return the rules; raise BadSetting for a pattern that the engine rejects or that matches an empty text."""
    rules = redaction_rules(settings)
    for named in rules.patterns:
        problem = engine.is_regex(named.pattern)
        if problem is not None or _matches_empty_text(named.pattern):
            raise BadSetting(
                f"redaction.patterns: {named.name}: {problem or 'it matches even an empty text'}.",
                hint="Patterns are regular expressions as RE2 reads them.",
            )
    return rules


def _matches_empty_text(pattern: str) -> bool:
    try:
        return re.search(pattern, "") is not None
    except re.error:
        return False


def redaction_key(settings: Settings, folder: DataFolder) -> str:
    return settings.redaction.key or folder.secret(_KEY_FILE)


def _detector(name: str) -> Detector:
    try:
        return Detector(name)
    except ValueError:
        raise BadSetting(
            f"redaction.detectors: {name!r} is no detector.", hint=f"There are: {', '.join(Detector)}."
        ) from None


def _pattern(line: str) -> NamedPattern:
    name, equals, pattern = (part.strip() for part in line.partition("="))
    if not (name and equals and pattern):
        raise BadSetting(f"redaction.patterns: {line!r} is not a name, an equals sign and a pattern.")
    return NamedPattern(name, pattern)
