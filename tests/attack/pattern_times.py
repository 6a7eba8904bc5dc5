"""The regular expressions of the program, hostile texts for each, and the processor time of matching them."""

import ast
import importlib
import pkgutil
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from re import _constants as op
from re import _parser as sre_parser
from typing import Any

import cordwood
from tests.architecture.tree import modules

# Packages whose patterns are applied only to texts of the person who operates the service.
OPERATORS_PACKAGES = ("cli", "trials")
# Methods that try a pattern at one position only. All others try it at each position of the text.
ANCHORED_METHODS = {"match", "fullmatch"}
METHODS = ANCHORED_METHODS | {"search", "findall", "finditer", "split", "sub", "subn"}


@dataclass(frozen=True)
class AppliedPattern:
    """A pattern of the program, and how the program applies it."""

    place: str
    compiled: "re.Pattern[Any]"
    methods: frozenset[str]

    def apply_all(self, text: str) -> None:
        given: Any = text if isinstance(self.compiled.pattern, str) else text.encode()
        for method in sorted(self.methods):
            if method in ANCHORED_METHODS:
                getattr(self.compiled, method)(given)
            else:
                for _ in self.compiled.finditer(given):
                    pass


def program_patterns() -> list[AppliedPattern]:
    """Return the patterns of all modules, except those in the packages for operators."""
    found = [*_module_level_patterns(_methods_by_pattern_name()), *_inline_patterns()]
    return [pattern for pattern in found if pattern.place.split("/")[0] not in OPERATORS_PACKAGES]


def _module_level_patterns(methods: Mapping[tuple[str, str], set[str]]) -> Iterator[AppliedPattern]:
    seen: set[int] = set()
    for listed in pkgutil.walk_packages(cordwood.__path__, "cordwood."):
        if listed.name.endswith("__main__"):
            continue
        module = importlib.import_module(listed.name)
        place = listed.name.removeprefix("cordwood.").replace(".", "/")
        for name, value in vars(module).items():
            for compiled in _patterns_in(value):
                if id(compiled) not in seen:
                    seen.add(id(compiled))
                    found = methods.get((place, name)) or methods.get(("", name)) or {"search"}
                    yield AppliedPattern(f"{place}:{name}", compiled, frozenset(found))


def _patterns_in(value: object) -> Iterator["re.Pattern[Any]"]:
    """Yield the patterns in a value of a module: a pattern, or a collection of patterns."""
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, tuple | list | set | frozenset):
        for item in value:
            yield from _patterns_in(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _patterns_in(key)
            yield from _patterns_in(item)


def _methods_by_pattern_name() -> dict[tuple[str, str], set[str]]:
    """Return the methods, such as `match`, that each module calls on each name, and that any module calls on it.

    The key of the former has the module's path, the key of the latter an empty text.
    """
    found: dict[tuple[str, str], set[str]] = {}
    for module in modules():
        place = module.name.removesuffix(".py").removesuffix("/__init__")
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Attribute) and node.attr in METHODS:
                for part in ast.walk(node.value):
                    name = part.attr if isinstance(part, ast.Attribute) else getattr(part, "id", "")
                    found.setdefault((place, name), set()).add(node.attr)
                    found.setdefault(("", name), set()).add(node.attr)
    return found


def _inline_patterns() -> Iterator[AppliedPattern]:
    """Yield the patterns that are written as constants in calls of functions of `re`."""
    for module in modules():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
                method, pattern = node.func.attr, node.args[0]
                is_call_of_re = getattr(node.func.value, "id", "") == "re" and method in METHODS
                if is_call_of_re and isinstance(pattern, ast.Constant):
                    place = f"{module.name.removesuffix('.py')}:{node.lineno}"
                    yield AppliedPattern(place, re.compile(pattern.value), frozenset({method}))


def hostile_units(compiled: "re.Pattern[Any]") -> list[tuple[str, str]]:
    """Return pairs of a prefix and a unit. The unit, repeated after the prefix, may make matching slow.

    For each repetition in the pattern, the prefix is a text that reaches it, and the unit is a text that it matches.
    """
    pattern = compiled.pattern
    text = pattern if isinstance(pattern, str) else pattern.decode("latin-1")
    parsed = sre_parser.parse(text, compiled.flags & ~re.UNICODE)
    found = dict.fromkeys(_units_in_sequence(parsed, ""))
    prefixes = dict.fromkeys(prefix for prefix, _ in found)
    characters = dict.fromkeys(_characters_in(parsed))
    return list(
        found
        | dict.fromkeys((prefix, character) for prefix in prefixes for character in characters)
        | dict.fromkeys((prefix, unit) for prefix in ("", '"') for unit in (*characters, *_COMMON_UNITS))
    )


# Units that are hostile to many patterns: quotes, escapes, digits, blanks and separators, without an end.
_COMMON_UNITS = (
    *('"', "'", "`", '\\"', "\\", "\\\\", '"a', "a", "1", "1.", "1a", "a1", "a ", " ", "\n", "\t ", "a.", "a=", '="'),
    *(
        "=",
        ":",
        "a:",
        ",",
        "a,",
        "-",
        "/",
        "//",
        "/*",
        "--",
        "{",
        "{{",
        "{a",
        "(",
        "[",
        "<",
        "%",
        "%25",
        "@",
        "a@",
        "_",
    ),
)


def _characters_in(parsed: Any) -> Iterator[str]:
    """Yield characters that parts of the pattern match: all that it names, and one of each range or category."""
    for code, argument in parsed:
        match code:
            case op.LITERAL:
                yield chr(argument)
            case op.IN:
                yield from (_class_sample([item]) for item in argument if item[0] is not op.NEGATE)
            case op.MAX_REPEAT | op.MIN_REPEAT | op.POSSESSIVE_REPEAT:
                yield from _characters_in(argument[2])
            case op.SUBPATTERN:
                yield from _characters_in(argument[-1])
            case op.ATOMIC_GROUP:
                yield from _characters_in(argument)
            case op.BRANCH:
                for branch in argument[1]:
                    yield from _characters_in(branch)


def _units_in_sequence(parsed: Any, prefix: str) -> Iterator[tuple[str, str]]:
    for code, argument in parsed:
        match code:
            case op.MAX_REPEAT | op.MIN_REPEAT | op.POSSESSIVE_REPEAT:
                unit = _shortest_match(argument[2]) or "a"
                yield prefix, unit
                yield "", prefix + unit
                yield "", unit
                yield from _units_in_sequence(argument[2], prefix)
            case op.SUBPATTERN:
                yield from _units_in_sequence(argument[-1], prefix)
            case op.ATOMIC_GROUP:
                yield from _units_in_sequence(argument, prefix)
            case op.ASSERT | op.ASSERT_NOT:
                yield from _units_in_sequence(argument[1], prefix)
            case op.BRANCH:
                for branch in argument[1]:
                    yield from _units_in_sequence(branch, prefix)
        prefix += _shortest_match([(code, argument)])
    if prefix:
        yield "", prefix


def _shortest_match(parsed: Any) -> str:
    return "".join(_SAMPLE_BY_CODE.get(code, lambda _: "")(argument) for code, argument in parsed)


def _class_sample(items: Any) -> str:
    """Return a character that a class such as `[^"a-z]` matches."""
    is_negated = items[0][0] is op.NEGATE
    written = [chr(item[1]) if item[0] is op.LITERAL else chr(item[1][0]) for item in items if item[0] in _CHARACTERS]
    candidates = (*"a1 _.-:%", "\\", '"', "é") if is_negated else (*written, *"a1 _.-")
    return next((each for each in candidates if any(_is_in(item, each) for item in items) != is_negated), "a")


_CHARACTERS = (op.LITERAL, op.RANGE)
_CLASS_TESTS: dict[object, Callable[[str], bool]] = {
    op.CATEGORY_DIGIT: str.isdigit,
    op.CATEGORY_SPACE: str.isspace,
    op.CATEGORY_WORD: lambda each: each.isalnum() or each == "_",
    op.CATEGORY_NOT_DIGIT: lambda each: not each.isdigit(),
    op.CATEGORY_NOT_SPACE: lambda each: not each.isspace(),
    op.CATEGORY_NOT_WORD: lambda each: not (each.isalnum() or each == "_"),
}


def _is_in(item: Any, character: str) -> bool:
    code, argument = item
    if code is op.LITERAL:
        return ord(character) == int(argument)
    if code is op.RANGE:
        return int(argument[0]) <= ord(character) <= int(argument[1])
    return code is op.CATEGORY and _CLASS_TESTS[argument](character)


_SAMPLE_BY_CODE: dict[object, Callable[[Any], str]] = {
    op.LITERAL: chr,
    op.NOT_LITERAL: lambda code: "b" if chr(code) == "a" else "a",
    op.ANY: lambda _: "a",
    op.IN: _class_sample,
    op.MAX_REPEAT: lambda repeat: _shortest_match(repeat[2]) * int(repeat[0]),
    op.MIN_REPEAT: lambda repeat: _shortest_match(repeat[2]) * int(repeat[0]),
    op.POSSESSIVE_REPEAT: lambda repeat: _shortest_match(repeat[2]) * int(repeat[0]),
    op.SUBPATTERN: lambda group: _shortest_match(group[-1]),
    op.ATOMIC_GROUP: _shortest_match,
    op.BRANCH: lambda branches: _shortest_match(branches[1][0]),
}

# The lengths of the texts with which a slow text is searched for. The first ones are for patterns whose time grows with
# a high power of the length.
LENGTHS = (60, 250, 1_000, 4_000)
# A linear matcher needs less time than this for a text of 4,000 characters on a usual machine, a quadratic one more. On
# a slow machine, more texts are measured precisely; the result is the same.
QUICK_SECONDS = 0.002
# Four times the length takes four times as long if the time is linear, and sixteen times as long if it is quadratic.
LENGTH_RATIO, MAX_TIME_RATIO = 4, 9.0


def slow_texts(apply: Callable[[str], object], units: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield descriptions of the texts for which the time of `apply` grows faster than the text."""
    for prefix, unit in units:
        for length in LENGTHS:
            # Few patterns match NUL and a line end, so that a match of the whole text fails at its end.
            text, longer_text = (
                f"{prefix}{unit * (size // len(unit))}\x00\n" for size in (length, LENGTH_RATIO * length)
            )
            if _cpu_seconds(apply, text) > QUICK_SECONDS:
                short = min(_cpu_seconds(apply, text) for _ in range(3))
                long = min(_cpu_seconds(apply, longer_text) for _ in range(2))
                if long > MAX_TIME_RATIO * short:
                    yield f"{prefix!r} + {unit!r} * n: {short * 1000:.1f} ms, and {long * 1000:.1f} ms for 4 n"
                break


def time_ratio(short: Callable[[], object], long: Callable[[], object]) -> float:
    """Return how many times as much processor time `long` takes as `short`; compare it with `MAX_TIME_RATIO`.

    `long` has to do `LENGTH_RATIO` times as much work as `short`.
    """
    seconds = [min(_cpu_seconds(lambda _: call(), "") for _ in range(3)) for call in (short, long)]  # noqa: B023 - it is called at once
    return seconds[1] / seconds[0]


def _cpu_seconds(apply: Callable[[str], object], text: str) -> float:
    start = time.thread_time()
    apply(text)
    return time.thread_time() - start
