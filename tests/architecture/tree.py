"""The tracked files of the project and the syntax trees of its modules, for the architecture tests."""

import ast
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "cordwood"
IGNORED = {".git", ".venv", "node_modules", "dist", "__pycache__"}


@dataclass(frozen=True)
class Module:
    path: Path
    text: str
    tree: ast.Module

    @property
    def name(self) -> str:
        return self.path.relative_to(SOURCE).as_posix()

    @property
    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node


@cache
def modules() -> tuple[Module, ...]:
    paths = [path for path in tracked_files() if path.suffix == ".py" and path.is_relative_to(SOURCE)]
    return tuple(Module(path, text := path.read_text(), ast.parse(text)) for path in paths)


@cache
def tracked_files() -> tuple[Path, ...]:
    """Return the files that git tracks. Without git, as in an unpacked archive, return all files."""
    if shutil.which("git") and (ROOT / ".git").exists():
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True)
        paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    else:
        paths = [path for path in ROOT.rglob("*") if not IGNORED & set(path.parts)]
    return tuple(sorted(path for path in paths if path.is_file()))


@cache
def texts_under(*folders: str) -> str:
    """Return the concatenated text of all files in the folders."""
    roots = [ROOT / folder for folder in folders]
    paths = [path for path in tracked_files() if any(path.is_relative_to(root) for root in roots)]
    return "\n".join(path.read_text(errors="replace") for path in paths)
