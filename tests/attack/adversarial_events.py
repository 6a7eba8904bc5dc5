"""Events with unusual keys and values, as JSON texts. `json.dumps` could not produce all of these texts.

`crafted_events` yields a fixed list of events. `random_events` combines unusual keys and values at random, by a seed.
`events_of_other_types` replaces values of ordinary events with values of other types.
"""

import copy
import json
import random
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

# JSON texts of single values that a parser or an engine may handle wrongly.
SCALARS: Final = (
    *("null", "true", "false", "0", "-0", "-0.0", "1", "1e999", "-1e999", "1e-999", "5e-324", "1.7976931348623157e308"),
    *("9" * 300, "-" + "9" * 300, "0." + "3" * 300, "1E+400", "18446744073709551615", "18446744073709551616"),
    *("-9223372036854775808", "-9223372036854775809", "123456789012345678901234567890.5", "1.0", "1e2"),
    *('""', r'"\u0000"', r'"a\u0000b"', r'"\ud800"', r'"\udc00\ud800"', r'"\ud83d\ude00"', r'"\ufeff"', r'"\u2028\u2029"'),
    *('"\u202e\u0645\u0631\u062d\u0628\u0627"', '"\u0130\u00df\ufb01e\u0301"', '"\ufdd0\uffff"', '"\u007f\u0085"'),
    *('"\'"', r'"\""', r'"\\"', '"`"', '"$1"', '"{0}"', '"@p"', '"--"', '"/*"', '"%s"', '"?"', '"null"', '"NaN"'),
    *('"Infinity"', '"2024-02-30"', '"1e400"', '"[]"', '"{}"', '"{"', r'"{\"a\":"', f'"{"x" * 20_000}"'),
)  # fmt: skip
CONTAINERS: Final = (
    *("[]", "{}", "[[]]", "[{}]", '[[[]],{},{"a":[]}]', "[null]", "[null,null]", '[1,"a",null,{"b":[]},[2],true,1.5]'),
    *("[1,2.5]", '[1,"1"]', "[[1],[2]]", '[{"a":1},{"a":"x"},{"a":{}},{"a":[]},{"b":1}]', '[{"a":1},2]', "[1e999]"),
    *('{"":{"":""}}', '{"a":1,"a":"2"}', '{"a":{"a":{"a":[{"a":1}]}}}', '{"key":1,"value":2}', '{"A":1,"a":[2]}'),
    *("[" * 60 + "]" * 60, '{"d":' * 60 + "1" + "}" * 60, '[{"d":' * 40 + "1" + "}]" * 40, "[" * 700 + "]" * 700),
    json.dumps(list(range(2000))),
    json.dumps([{f"k{index}": index} for index in range(120)]),
)  # fmt: skip
# JSON texts of keys that a parser or an engine may handle wrongly.
KEYS: Final = (
    *('""', '"."', '".."', '"a."', '".a"', '"a.b"', '"$"', '"$.a"', '"[0]"', '"[*]"', '"*"', '"\'"', r'"\""', r'"\\"', '"`"'),
    *(r'"\u0000"', r'"a\u0000"', r'"\ud800"', r'"\ud800\ud800"', r'"\n"', '" "', '" a"', '"a "', r'"\ufeff"', '"\u202e\u05d0"'),
    *('"id"', '"timestamp"', '"event_message"', '"metadata"', '"ingested_at"', '"timestamp_inferred"', '"extras"', '"rowid"'),
    *('"value"', '"element"', '"key"', '"count"', '"select"', '"SELECT"', '"unnest"', '"json"', '"struct"', '"variant"'),
    *('"A"', '"a"', '"É"', '"é"', '"\u0130"', '"i\u0307"', '"ß"', '"SS"', '"e\u0301"', '"0"', '"1"', '"-1"', '"1e5"', '"true"'),
    *('"null"', '"_part"', '"size0"', '"a.size0"', '"a.null"', '"a`:String"', '"%2E"', '"a%2Eb"', '"__proto__"', '"cordwood:x"'),
    *('"user-agent"', '"user_agent"', '"_user_agent"', '"User-Agent"', '"\U0001f600"', '"@n"', '"$1"', '"{0}"', '"a:b"', '"a,b"'),
    *(f'"{"k" * 300}"', f'"{"k" * 3000}"', f'"{"é" * 200}"', '"case"', '"default"', '"now()"', '"list_transform"', '"toString"'),
)  # fmt: skip
TIMES: Final = (
    *("null", "true", "0", "-1", "-0.0", "0.5", "1", "99999999999", "1e17", "9223372036854775807", "1e300", "1e999", "1e-999"),
    *("-62135596800000001", "253402300800000000", "[]", "{}", "[1]", '{"seconds":1}', '""', '"now"', '"NaN"', '"1e999"', r'"\u0000"'),
    *('"1969-12-31T23:59:59Z"', '"1677-01-01"', '"0001-01-01T00:00:00Z"', '"0000-01-01"', '"0001-01-01T00:00:00+14:00"'),
    *('"9999-12-31T23:59:59.999999Z"', '"9999-12-31T23:59:59-12:00"', '"10000-01-01"', '"2262-04-12"', '"2300-01-01"'),
    *('"2024-02-30"', '"2024-12-31T23:59:60Z"', '"\u0662\u0660\u0662\u0664-01-01"', r'"\ud800"', f'"{"9" * 300}"', "9" * 300),
)  # fmt: skip
_KEY_FRAGMENTS: Final = (
    "",
    "a",
    ".",
    "\\",
    '"',
    "'",
    "`",
    "\x00",
    "\ud800",
    "\U0001f600",
    "é",
    "İ",
    "\u202e",
    "$",
    "%",
    "[",
    " ",
)


def crafted_events(project: str) -> Iterator[str]:
    """Yield events that have each unusual key and value at the top level, in the metadata, or in a nested value."""
    values = (*SCALARS, *CONTAINERS)
    yield from (event(project, {'"v"': value}) for value in values)
    yield from (event(project, {key: "1"}) for key in KEYS)
    yield event(project, dict.fromkeys(KEYS, "1"))
    yield event(project, dict.fromkeys(KEYS, '{"x":[1]}'))
    yield event(project, {'"in"': _object(dict.fromkeys(KEYS, '"t"'))})
    yield event(project, {'"in"': _array(_object({key: _object({key: "[null]"})}) for key in KEYS)})
    yield event(project, {'"all"': _array(values)})
    yield event(project, {f'"v{at}"': f"[{value}]" for at, value in enumerate(values)})
    extras = {key: "[1]" for key in KEYS if key not in _EVENT_FIELDS}
    yield event(project, {}, extras)
    yield event(project, {}, {f'"w{at}"': value for at, value in enumerate(values)})
    for at, value in enumerate(values):
        yield event(project, {}, {'"event_message"': value})
        yield event(project, {}, {'"id"': value})
        yield f'{{"metadata":{value},"project":{json.dumps(project)},"event_message":"whole {at}"}}'
        if value not in ("null", '""'):
            yield f'{{"project":{value},"metadata":{{"project":{value},"project_ref":{value}}}}}'
    yield from (event(project, {}, {'"timestamp"': value}) for value in TIMES)
    yield from (event(project, {f'"many_{group}_{at}"': str(at) for at in range(400)}) for group in range(6))
    yield from (event(project, {f'"object_{group}_{at}"': '{"x":{}}' for at in range(200)}) for group in range(4))
    yield from values
    yield event(project, {}, {'"timestamp"': "1", '"id"': '"same"'})
    yield event(project, {'"other"': "1"}, {'"timestamp"': "2", '"id"': '"same"'})


_EVENT_FIELDS: Final = ('"id"', '"timestamp"', '"event_message"', '"metadata"')


def event(project: str, metadata: Mapping[str, str], other_fields: Mapping[str, str] | None = None) -> str:
    """Return an event in which the keys and values, also those of `other_fields`, are given as JSON texts.

    Each field that may state an event's project has the given project.
    """
    top_level_fields = {'"project"': json.dumps(project), '"project_ref"': json.dumps(project)}
    fields = {
        '"project"': top_level_fields['"project"'],
        '"metadata"': _object({**metadata, **top_level_fields}),
        **(other_fields or {}),
    }
    return _object(fields)


def _object(members: Mapping[str, str]) -> str:
    return "{" + ",".join(f"{key}:{value}" for key, value in members.items()) + "}"


def _array(values: Iterable[str]) -> str:
    return f"[{','.join(values)}]"


def random_events(seed: str, project: str, count: int) -> Iterator[str]:
    rng = random.Random(seed)
    for _ in range(count):
        metadata = {_key(rng): _value(rng, 4) for _ in range(rng.randrange(1, 12))}
        other_fields: dict[str, str] = {}
        for name, values in (('"timestamp"', TIMES), ('"id"', SCALARS), ('"event_message"', SCALARS)):
            if rng.random() < 0.2:
                other_fields[name] = rng.choice(values)
        if rng.random() < 0.3:
            other_fields |= {_key(rng): _value(rng, 3) for _ in range(rng.randrange(4))}
        other_fields.pop('"project"', None)
        yield event(project, metadata, other_fields)


def _key(rng: random.Random) -> str:
    if rng.random() < 0.6:
        return rng.choice(KEYS)
    return json.dumps("".join(rng.choice(_KEY_FRAGMENTS) for _ in range(rng.randrange(6))))


def _value(rng: random.Random, depth: int) -> str:
    chance = rng.random()
    if chance < 0.5 or not depth:
        return (
            rng.choice(SCALARS)
            if chance < 0.4
            else json.dumps("".join(rng.choices(_KEY_FRAGMENTS, k=rng.randrange(9))))
        )
    if chance < 0.6:
        return rng.choice(CONTAINERS)
    if chance < 0.8:
        return _array(_value(rng, depth - 1) for _ in range(rng.randrange(5)))
    return _object({_key(rng): _value(rng, depth - 1) for _ in range(rng.randrange(5))})


# Values of other types, with which `events_of_other_types` replaces the values of ordinary events.
REPLACEMENT_VALUES: Final[tuple[Any, ...]] = (
    *("poison", 41, 1.5, True, None, {}, [], {"poison": {"deep": [1]}}, [{"poison": 1}, "x", [2], None], [[1], ["y"]], ["z"]),
    *([{"poison": "p"}], [7, 8], {"poison": 3}, ""),
)  # fmt: skip


def events_of_other_types(events: Iterable[Mapping[str, Any]], project: str) -> Iterator[str]:
    """Yield each ordinary event once for each value of REPLACEMENT_VALUES, with values in its metadata replaced by it.

    For one of these values, which changes from event to event, the values at all paths are replaced; for each other
    one, the value at a single path.
    """
    for number, ordinary in enumerate(events):
        paths = list(_paths(ordinary.get("metadata"), ()))
        for turn, kind in enumerate(REPLACEMENT_VALUES):
            if not paths:
                break
            changed = json.loads(json.dumps(ordinary["metadata"]))
            for path in (
                paths if turn == number % len(REPLACEMENT_VALUES) else [paths[(number * 7 + turn * 3) % len(paths)]]
            ):
                _put(changed, path, copy.deepcopy(kind))
            yield _with_metadata(project, ordinary, changed)


def _with_metadata(project: str, ordinary: Mapping[str, Any], metadata: dict[str, Any]) -> str:
    metadata |= dict.fromkeys(("project", "project_ref"), project)
    written = json.dumps(metadata).replace("default", project)
    return _object(
        {'"timestamp"': json.dumps(ordinary.get("timestamp")), '"project"': json.dumps(project), '"metadata"': written}
    )


def _paths(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (*path, key)
            yield from _paths(inner, (*path, key))


def _put(tree: Any, path: tuple[str, ...], value: Any) -> None:
    """Set the value at a path, unless an earlier replacement has removed the object that contains the last key."""
    for key in path[:-1]:
        tree = tree.get(key) if isinstance(tree, dict) else None
    if isinstance(tree, dict):
        tree[path[-1]] = value
