"""Map the labels of events (an index, a Loki label, a service, a tag) to streams, by the rules in the settings."""

from collections.abc import Callable, Sequence

import msgspec

from cordwood.errors import BadSetting, UnknownStream
from cordwood.ingest.parsed_body import StreamLabels

WILDCARD = "*"
_LABEL_EXCERPT_LENGTH = 60


class StreamRule(msgspec.Struct, frozen=True):
    """A pattern for labels, and the stream of matching events.

    `literal_parts` are the parts of the pattern between its wildcards.
    """

    literal_parts: tuple[str, ...]
    stream: str

    def matches(self, label: str) -> bool:
        first, *rest = self.literal_parts
        if not rest:
            return label == first
        *middle, last = rest
        if not label.startswith(first) or len(label) < len(first) + len(last) or not label.endswith(last):
            return False
        at, end = len(first), len(label) - len(last)
        for piece in middle:
            found = label.find(piece, at, end)
            if found < 0:
                return False
            at = found + len(piece)
        return True


class StreamMapping(msgspec.Struct, frozen=True):
    """The rules that map labels to streams.

    The first matching rule applies. If no rule matches, the events go to a stream whose name is one of the labels. If
    there is no such stream, they go to `default_stream`.
    """

    rules: tuple[StreamRule, ...] = ()
    default_stream: str | None = None

    def stream_name_for_labels(self, labels: StreamLabels, is_stream: Callable[[str], bool]) -> str:
        """Return the name of the stream for events with these labels; raise UnknownStream if there is none."""
        mapped = next((rule.stream for rule in self.rules if any(map(rule.matches, labels))), None)
        name = mapped or next(filter(is_stream, labels), None) or self.default_stream
        if name is None:
            raise _unmapped_labels_fault(labels)
        return name


def read_stream_mapping(rules: str, default: str) -> StreamMapping:
    """Parse the settings of the mapping.

    `rules` has entries `pattern=stream` separated by commas. `default` is the name of the default stream, or empty.
    """
    entries = [entry.strip() for entry in rules.split(",")]
    return StreamMapping(tuple(_parse_rule(entry) for entry in entries if entry), default or None)


def format_labels(labels: Sequence[str]) -> str:
    """Return the labels as they appear in an error message, each cut to a readable length."""
    cut = [label if len(label) <= _LABEL_EXCERPT_LENGTH else label[:_LABEL_EXCERPT_LENGTH] + "…" for label in labels]
    return " or ".join(map(repr, cut))


def _parse_rule(entry: str) -> StreamRule:
    pattern, mark, stream = (part.strip() for part in entry.rpartition("="))
    if not (pattern and mark and stream):
        raise BadSetting(
            f"ingest.stream_map: {entry!r} is not of the form pattern=stream.",
            hint='For example "nginx-*=edge.logs": * stands for any text.',
        )
    return StreamRule(tuple(pattern.split(WILDCARD)), stream)


def _unmapped_labels_fault(labels: StreamLabels) -> UnknownStream:
    if not labels:
        return UnknownStream(
            "The events do not say which stream they are for.",
            hint="Add ?source_name= with the name of a stream, or set ingest.default_stream.",
        )
    return UnknownStream(
        f"No stream is configured for {format_labels(labels)}.",
        hint="Add an entry to ingest.stream_map, set ingest.default_stream, or name a stream so.",
    )
