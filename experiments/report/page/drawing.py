"""Small SVG charts of two shares: axes with units, points with intervals and a description in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 360, 300
LEFT, RIGHT, TOP, BOTTOM = 52, 24, 12, 46


@dataclass(frozen=True)
class ChartPoint:
    """A point in shares (0 to 1), with its intervals if any."""

    x: float
    y: float
    kind: str  # a CSS class, for colour; also a key of SHAPES
    description: str  # the tooltip, also read by screen readers
    x_ci: tuple[float, float] | None = None
    y_ci: tuple[float, float] | None = None


def share_chart(
    x_label: str, y_label: str, points: Sequence[ChartPoint], *, diagonal: bool = False, live: str = ""
) -> str:
    """Return a chart of one share over another.

    Args:
        diagonal: draw the line of equal shares, as in a calibration chart.
        live: the name of one more point, which the page's script moves.
    """
    ticks = "".join(_tick(share) for share in (0, 0.25, 0.5, 0.75, 1))
    line = f'<path class="diagonal" d="M{x_of(0)} {y_of(0)}L{x_of(1)} {y_of(1)}"/>' if diagonal else ""
    moving = (
        f'<g class="live" data-live="{escape(live)}" style="display:none" tabindex="0" role="img">'
        '<path d="M0 -9L9 0L0 9L-9 0Z"/></g>'
        if live
        else ""
    )
    middle_x, middle_y = (LEFT + WIDTH - RIGHT) / 2, (TOP + HEIGHT - BOTTOM) / 2
    label = escape(f"{y_label} over {x_label}; {len(points)} points", quote=True)
    return (
        f'<svg class="plane" viewBox="0 0 {WIDTH} {HEIGHT}" role="group" aria-label="{label}">'
        f'<path class="axis" d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}"/>{ticks}{line}'
        f'<text x="{middle_x}" y="{HEIGHT - 8}" text-anchor="middle">{escape(x_label)}</text>'
        f'<text transform="translate(12 {middle_y}) rotate(-90)" text-anchor="middle">{escape(y_label)}</text>'
        f"{''.join(map(_point, points))}{moving}</svg>"
    )


def x_of(share: float) -> float:
    """Return the x coordinate of a share."""
    return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)


def y_of(share: float) -> float:
    """Return the y coordinate of a share."""
    return round(HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM), 1)


def _tick(share: float) -> str:
    across = f'x="{x_of(share)}" y="{HEIGHT - BOTTOM + 14}" text-anchor="middle"'
    upwards = f'x="{LEFT - 5}" y="{y_of(share) + 4}" text-anchor="end"'
    return "".join(f'<text class="tick" {place}>{share:.0%}</text>' for place in (across, upwards))


def _point(point: ChartPoint) -> str:
    bars = ""
    if point.x_ci:
        bars += f'<path class="bar" d="M{x_of(point.x_ci[0])} {y_of(point.y)}H{x_of(point.x_ci[1])}"/>'
    if point.y_ci:
        bars += f'<path class="bar" d="M{x_of(point.x)} {y_of(point.y_ci[0])}V{y_of(point.y_ci[1])}"/>'
    place = f"translate({x_of(point.x)} {y_of(point.y)})"
    words = escape(point.description, quote=True)
    described = f'tabindex="0" role="img" aria-label="{words}" data-tip="{words}"'
    shape = SHAPES[point.kind]
    return f'<g class="{point.kind}" {described}>{bars}<path class="dot" transform="{place}" d="{shape}"/></g>'


SHAPES = {
    "two_dials": "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0Z",
    "one_dial": "M-4 -4H4V4H-4Z",
    "system_lines": "M-2 -6H2V-2H6V2H2V6H-2V2H-6V-2H-2Z",
    "before": "M0 -7L6 5H-6Z",
    "after": "M0 7L6 -5H-6Z",
}
