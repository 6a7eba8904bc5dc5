"""TOML with line numbers for every value, and suggestions for unknown names."""

import re
import tomllib
from collections.abc import Iterable, Mapping

import msgspec

from cordwood.errors import SetupFault, Span, did_you_mean

_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_TABLE = re.compile(r"\s*\[\[?\s*([^\]]+?)\s*\]\]?\s*(?:#.*)?$")
_ASSIGNMENT = re.compile(r"""\s*((?:"[^"]*"|'[^']*'|[\w-]+)(?:\s*\.\s*(?:"[^"]*"|'[^']*'|[\w-]+))*)\s*=""")
_STEP = re.compile(r"""\s*(?:"([^"]*)"|'([^']*)'|([\w-]+))\s*\.?""")

Path = tuple[str | int, ...]


class Document(msgspec.Struct, frozen=True):
    """A TOML text inside a file: it begins on the line `first_line` of the file."""

    file: str
    text: str
    first_line: int
    fault: type[SetupFault]
    tables: Mapping[str, object] = msgspec.field(default_factory=dict)

    def parsed(self) -> "Document":
        try:
            tables = tomllib.loads(self.text)
        except tomllib.TOMLDecodeError as problem:
            raise self._syntax(str(problem)) from problem
        return Document(self.file, self.text, self.first_line, self.fault, tables)

    def wrong(self, message: str, path: Path = (), hint: str | None = None) -> SetupFault:
        """Return a fault at the line of `path`."""
        found = self.fault(message, hint=hint, span=Span(self.line_of(path), 1, self.file))
        found.path = path
        return found

    def line_of(self, path: Path) -> int:
        """Return the line of a value, or of the nearest enclosing table."""
        lines = _lines(self.text)
        while path and path not in lines:
            path = path[:-1]
        return self.first_line + lines.get(path, 0)

    def check_names(self, table: Mapping[str, object], known: Iterable[str], path: Path = ()) -> None:
        """Raise a fault for the first unknown name, with the nearest known one."""
        names = list(known)
        for name in table:
            if name not in names:
                hint = did_you_mean(name, names) or f"There are: {', '.join(names)}."
                raise self.wrong(f"{name} is no setting here.", (*path, name), hint)

    def _syntax(self, problem: str) -> SetupFault:
        place = _PLACE.search(problem)
        line, column = (int(place[1]), int(place[2])) if place and place[1] else (self.text.count("\n") + 1, 1)
        sentence = problem[: place.start()] if place else problem
        span = Span(self.first_line + line - 1, column, self.file)
        return self.fault(f"The settings are not TOML: {sentence}.", span=span)


def _lines(text: str) -> dict[Path, int]:
    """Return the line, from 0, of every table and assignment. Tables of an array have their index in the path."""
    found: dict[Path, int] = {}
    counts: dict[Path, int] = {}
    table: Path = ()
    for number, line in enumerate(text.splitlines()):
        if header := _TABLE.match(line):
            table = _numbered(_steps(header[1]), counts, is_array=line.lstrip().startswith("[["))
            found.setdefault(table, number)
        elif assignment := _ASSIGNMENT.match(line):
            found.setdefault((*table, *_steps(assignment[1])), number)
    return found


def _steps(text: str) -> Path:
    return tuple(next(step for step in found if step) for found in _STEP.findall(text))


def _numbered(path: Path, counts: dict[Path, int], *, is_array: bool) -> Path:
    """Add the indexes of arrays: the second `[[stream]]` becomes `("stream", 1)`."""
    found: Path = ()
    for step in path[:-1] if is_array else path:
        found = (*found, step)
        if found in counts:
            found = (*found, counts[found])
    if not is_array:
        return found
    found = (*found, path[-1])
    counts[found] = counts.get(found, -1) + 1
    return (*found, counts[found])
