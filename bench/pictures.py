"""SVG charts of the measurements: query times by number of stored events, and of all systems by question."""

from collections.abc import Mapping, Sequence
from html import escape
from math import floor, log10

from bench.growth import Growth
from bench.timing import Times

_WIDTH, _HEIGHT, _LEFT, _TOP, _RIGHT, _BOTTOM = 720, 340, 60, 20, 210, 50
_COLOURS = ("#0b6bcb", "#b3541e", "#2f7d4f", "#7a4fb5")
_TEXT_COLOUR = "#777"
# Sizes in the chart of questions, which has a bar for each system and a mark at the goal.
_QUESTIONS_WIDTH, _NAMES_WIDTH, _BAR_HEIGHT, _HEADER_HEIGHT, _FOOTER_HEIGHT = 820, 330, 12, 34, 34


def growth_picture(growth: Growth) -> str:
    """Return a line chart of the median time in milliseconds, by number of stored events."""
    top = max(each.median for times in growth.times.values() for each in times) * 1.1
    steps = len(growth.sizes) - 1
    x_positions = [_LEFT + (_WIDTH - _LEFT - _RIGHT) * place / steps for place in range(steps + 1)]

    def y_of(value: float) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * value / top

    parts = [*_draw_axes(x_positions, growth.sizes, top)]
    for (name, times), colour in zip(growth.times.items(), _COLOURS, strict=False):
        points = " ".join(f"{x:.1f},{y_of(each.median):.1f}" for x, each in zip(x_positions, times, strict=True))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        end = y_of(times[-1].median)
        parts.append(_draw_text(x_positions[-1] + 8, end + 4, f"{name}: {times[-1].median:.1f} ms", colour, "start"))
    return _svg_document("Milliseconds by events stored", _WIDTH, _HEIGHT, parts)


def questions_picture(questions: Mapping[str, Mapping[str, Times]], goals: Mapping[str, float]) -> str:
    """Return a bar chart of the median times on a logarithmic scale, from one millisecond to a power of ten."""
    peers = list(dict.fromkeys(peer for times in questions.values() for peer in times))
    powers = floor(log10(max(each.median for times in questions.values() for each in times.values()))) + 1
    each_height = _BAR_HEIGHT * (len(peers) + 1)
    height = _HEADER_HEIGHT + each_height * len(questions) + _FOOTER_HEIGHT

    def x_of(value: float) -> float:
        return _NAMES_WIDTH + (_QUESTIONS_WIDTH - _NAMES_WIDTH - 50) * log10(max(value, 1.0)) / powers

    parts = [
        _draw_text(_NAMES_WIDTH + 150 * place, 16, peer, _COLOURS[place], "start") for place, peer in enumerate(peers)
    ]
    parts.append(_draw_text(_QUESTIONS_WIDTH - 10, 16, "| goal", _TEXT_COLOUR, "end"))
    for power in range(powers + 1):
        x = x_of(10**power)
        parts.append(
            f'<path d="M{x:.1f} {_HEADER_HEIGHT - 6}V{height - _FOOTER_HEIGHT}" stroke="{_TEXT_COLOUR}" stroke-opacity="0.3"/>'
        )
        parts.append(_draw_text(x, height - _FOOTER_HEIGHT + 16, f"{10**power:,} ms", _TEXT_COLOUR, "middle"))
    for place, (name, times) in enumerate(questions.items()):
        y = _HEADER_HEIGHT + each_height * place
        parts.append(_draw_text(_NAMES_WIDTH - 10, y + each_height / 2, name, _TEXT_COLOUR, "end"))
        for line, peer in enumerate(peers):
            if peer in times:
                parts += _draw_bar(y + _BAR_HEIGHT * line, x_of(times[peer].median), times[peer].median, _COLOURS[line])
        goal = x_of(goals[name])
        parts.append(f'<path d="M{goal:.1f} {y - 2}v{_BAR_HEIGHT + 2}" stroke="{_TEXT_COLOUR}" stroke-width="2"/>')
    return _svg_document("Milliseconds by question", _QUESTIONS_WIDTH, height, parts)


def _draw_bar(y: float, end: float, value: float, colour: str) -> list[str]:
    rectangle = f'<rect x="{_NAMES_WIDTH}" y="{y:.1f}" width="{end - _NAMES_WIDTH:.1f}" height="{_BAR_HEIGHT - 2}" fill="{colour}"/>'
    return [
        rectangle,
        _draw_text(end + 6, y + _BAR_HEIGHT - 2, f"{value:,.0f}" if value >= 100 else f"{value:.1f}", colour, "start"),
    ]


def _svg_document(label: str, width: int, height: int, parts: Sequence[str]) -> str:
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif"'
        f' font-size="12" role="img" aria-label="{label}">\n{body}\n</svg>\n'
    )


def _draw_axes(x_of: Sequence[float], sizes: Sequence[int], top: float) -> list[str]:
    bottom = _HEIGHT - _BOTTOM
    lines = [f'<path d="M{_LEFT} {_TOP}V{bottom}H{_WIDTH - _RIGHT}" fill="none" stroke="{_TEXT_COLOUR}"/>']
    lines += [
        _draw_text(x, bottom + 18, f"{size / 1e6:g} M", _TEXT_COLOUR, "middle")
        for x, size in zip(x_of, sizes, strict=True)
    ]
    for quarter in range(5):
        value = top * quarter / 4
        y = bottom - (bottom - _TOP) * quarter / 4
        lines.append(_draw_text(_LEFT - 8, y + 4, f"{value:.0f}", _TEXT_COLOUR, "end"))
    lines.append(_draw_text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 10, "events stored", _TEXT_COLOUR, "middle"))
    return [*lines, _draw_text(_LEFT - 8, _TOP - 6, "ms", _TEXT_COLOUR, "end")]


def _draw_text(x: float, y: float, text: str, colour: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}">{escape(text)}</text>'
