"""Small SVG charts: axes with units, points with intervals, told in words beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 360, 300
LEFT, RIGHT, TOP, BOTTOM = 52, 24, 12, 46


@dataclass(frozen=True)
class Mark:
    """A point in shares (0 to 1), with intervals where it has them."""

    x: float
    y: float
    kind: str  # a class of the style sheet, which gives colour and shape
    told: str
    x_ci: tuple[float, float] | None = None
    y_ci: tuple[float, float] | None = None


def plane(x_label: str, y_label: str, marks: Sequence[Mark], *, diagonal: bool = False, live: str = "") -> str:
    """Return a chart of two shares.

    Args:
        diagonal: draw where both are equal, as on a calibration curve.
        live: names a further point that the page's script moves.
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
    label = escape(f"{y_label} over {x_label}; {len(marks)} points", quote=True)
    return (
        f'<svg class="plane" viewBox="0 0 {WIDTH} {HEIGHT}" role="group" aria-label="{label}">'
        f'<path class="axis" d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}"/>{ticks}{line}'
        f'<text x="{middle_x}" y="{HEIGHT - 8}" text-anchor="middle">{escape(x_label)}</text>'
        f'<text transform="translate(12 {middle_y}) rotate(-90)" text-anchor="middle">{escape(y_label)}</text>'
        f"{''.join(map(_mark, marks))}{moving}</svg>"
    )


def x_of(share: float) -> float:
    """Return the place of a share on the axis across."""
    return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)


def y_of(share: float) -> float:
    """Return the place of a share on the axis upwards."""
    return round(HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM), 1)


def _tick(share: float) -> str:
    across = f'x="{x_of(share)}" y="{HEIGHT - BOTTOM + 14}" text-anchor="middle"'
    upwards = f'x="{LEFT - 5}" y="{y_of(share) + 4}" text-anchor="end"'
    return "".join(f'<text class="tick" {place}>{share:.0%}</text>' for place in (across, upwards))


def _mark(mark: Mark) -> str:
    bars = ""
    if mark.x_ci:
        bars += f'<path class="bar" d="M{x_of(mark.x_ci[0])} {y_of(mark.y)}H{x_of(mark.x_ci[1])}"/>'
    if mark.y_ci:
        bars += f'<path class="bar" d="M{x_of(mark.x)} {y_of(mark.y_ci[0])}V{y_of(mark.y_ci[1])}"/>'
    place = f"translate({x_of(mark.x)} {y_of(mark.y)})"
    words = escape(mark.told, quote=True)
    told = f'tabindex="0" role="img" aria-label="{words}" data-tip="{words}"'
    shape = SHAPES[mark.kind]
    return f'<g class="{mark.kind}" {told}>{bars}<path class="dot" transform="{place}" d="{shape}"/></g>'


SHAPES = {
    "two_dials": "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0Z",
    "one_dial": "M-4 -4H4V4H-4Z",
    "system_lines": "M-2 -6H2V-2H6V2H2V6H-2V2H-6V-2H-2Z",
    "before": "M0 -7L6 5H-6Z",
    "after": "M0 7L6 -5H-6Z",
}
