"""A picture of how times grow: lines over a logarithmic axis of events stored, as SVG, drawn by hand."""

from collections.abc import Sequence

from bench.growth import Growth

_WIDTH, _HEIGHT, _LEFT, _TOP, _RIGHT, _BOTTOM = 720, 340, 60, 20, 210, 50
_COLOURS = ("#0b6bcb", "#b3541e", "#2f7d4f", "#7a4fb5")
_INK = "#777"


def growth_picture(growth: Growth) -> str:
    top = max(each.median for times in growth.times.values() for each in times) * 1.1
    steps = len(growth.sizes) - 1
    across = [_LEFT + (_WIDTH - _LEFT - _RIGHT) * place / steps for place in range(steps + 1)]

    def down(value: float) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * value / top

    parts = [*_axes(across, growth.sizes, top)]
    for (name, times), colour in zip(growth.times.items(), _COLOURS, strict=False):
        points = " ".join(f"{x:.1f},{down(each.median):.1f}" for x, each in zip(across, times, strict=True))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        end = down(times[-1].median)
        parts.append(_text(across[-1] + 8, end + 4, f"{name}: {times[-1].median:.1f} ms", colour, "start"))
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif"'
        f' font-size="12" role="img" aria-label="Milliseconds by events stored">\n{body}\n</svg>\n'
    )


def _axes(across: Sequence[float], sizes: Sequence[int], top: float) -> list[str]:
    bottom = _HEIGHT - _BOTTOM
    lines = [f'<path d="M{_LEFT} {_TOP}V{bottom}H{_WIDTH - _RIGHT}" fill="none" stroke="{_INK}"/>']
    lines += [_text(x, bottom + 18, f"{size / 1e6:g} M", _INK, "middle") for x, size in zip(across, sizes, strict=True)]
    for quarter in range(5):
        value = top * quarter / 4
        y = bottom - (bottom - _TOP) * quarter / 4
        lines.append(_text(_LEFT - 8, y + 4, f"{value:.0f}", _INK, "end"))
    lines.append(_text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 10, "events stored", _INK, "middle"))
    return [*lines, _text(_LEFT - 8, _TOP - 6, "ms", _INK, "end")]


def _text(x: float, y: float, text: str, colour: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}">{text}</text>'
