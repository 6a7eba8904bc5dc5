"""Complete the metadata of the wheel: a long description whose links work outside the repository, and project URLs.

The address of the repository comes from the environment of the release (docs/releasing.md), because mirrors and forks
build the same files. Without it, the long description has no links to files, instead of broken ones.
"""

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_VARIABLE = "CORDWOOD_REPOSITORY_URL"
_PICTURE = re.compile(r"<picture>.*?</picture>\n*", re.DOTALL)
_FILE = r"(?!https?:|#)(?P<file>[^)\"]+)"
_LINK = re.compile(rf"\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\({_FILE}\)")
_SOURCE = re.compile(rf'(?P<name>src|srcset)="{_FILE}"')


def long_description(readme: str, repository: str | None, version: str) -> str:
    """Return the README with absolute links to the files of this version, or with plain text in place of links."""
    if repository is None:
        return _LINK.sub(r"\g<text>", _PICTURE.sub("", readme))
    linked = _LINK.sub(rf"[\g<text>]({repository}/blob/v{version}/\g<file>)", readme)
    return _SOURCE.sub(rf'\g<name>="{repository}/raw/v{version}/\g<file>"', linked)


def project_urls(repository: str) -> dict[str, str]:
    """Return the addresses that a package index shows beside the description."""
    return {
        "Source": repository,
        "Documentation": f"{repository}/blob/main/docs/guide/README.md",
        "Changelog": f"{repository}/blob/main/CHANGELOG.md",
        "Issues": f"{repository}/issues",
        "Security": f"{repository}/blob/main/SECURITY.md",
    }


class MetadataHook(MetadataHookInterface):
    """Set `readme` and `urls`, which pyproject.toml declares dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        repository = os.environ.get(_VARIABLE, "").rstrip("/") or None
        version = re.search(r'__version__ = "([^"]+)"', Path(self.root, "src/cordwood/__init__.py").read_text())
        text = Path(self.root, "README.md").read_text()
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": long_description(text, repository, version[1] if version else "main"),
        }
        metadata["urls"] = project_urls(repository) if repository else {}
