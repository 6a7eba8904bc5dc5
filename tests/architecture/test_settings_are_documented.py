"""Every setting stands in the reference, and the reference names none that is gone."""

import re

import msgspec

from cordwood.settings.settings import Settings
from tests.architecture.tree import ROOT

REFERENCE = ROOT / "docs" / "reference" / "settings.md"


def known_settings() -> set[str]:
    names = set()
    for section in msgspec.structs.fields(Settings):
        if isinstance(section.type, type) and issubclass(section.type, msgspec.Struct):
            names |= {f"{section.name}.{field.name}" for field in msgspec.structs.fields(section.type)}
        else:
            names.add(section.name)
    return names


def test_every_setting_is_documented_and_no_other() -> None:
    documented = set(re.findall(r"^\| `([a-z_.]+)` \|", REFERENCE.read_text(), re.MULTILINE))
    assert documented == known_settings()
