"""The page of `refusal leaderboard`: models by their joint rates, on a plane and in a table to sort."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, nan

from experiments.charts.blocks import Figure, figure
from experiments.charts.points import plane
from experiments.charts.specification import Row, Value, fields
from experiments.probing.results import UnspokenReads
from experiments.report.page.document import document, render
from probes.statistics.intervals import NO_ESTIMATE, Estimate
from scoring.rates import RATES
from scoring.scorecard import Scorecard
from scoring.wording import judges_named

FRONT = ("over_refusal", "missed_harm", "overconfidence")  # of which the front is made; lower is better
UNSPOKEN = ("uncertainty read (AUROC)", "read and not said")  # of runs
COLUMNS = {"model": "model", "x": "over-refusal, %", "x_low": "from, %", "x_high": "to, %"}
COLUMNS |= {"y": "missed harm, %", "y_low": "from, %", "y_high": "to, %", "overconfidence": "overconfidence, %"}
CAPTION = "Each model by its mistakes, with 95 % intervals; ringed: no other is at least as good in all three"


@dataclass(frozen=True)
class RankedModel:
    """A model of the page: its name, its scorecard, what it was asked, and how to ask it again."""

    name: str
    card: Scorecard
    asked: str
    command: str = ""
    report: str = ""  # the link of its own page
    unspoken: UnspokenReads | None = None  # of a run, what it reads and does not say


@dataclass(frozen=True)
class Shown:
    """A cell of a table that the page's script sorts: its text or estimates, one a line, and what it is sorted by."""

    text: str = ""
    by: Value = None
    estimates: Sequence[tuple[str, str, str]] = ()  # the CSS class, the estimate, and its interval
    link: str = ""
    title: str = ""  # the whole text, where it is shortened
    style: str = ""

    @property
    def key(self) -> str:
        """What the page's script sorts by; empty where nothing is known, which comes last."""
        return "" if self.by is None else str(self.by)


def leaderboard_page(models: Sequence[RankedModel]) -> str:
    """Return the page of models with rates, the best right-action score first."""
    scores = {model.name: model.card.right_action.score for model in models}
    ranked = sorted(models, key=lambda model: -scores[model.name].estimate if scores[model.name].known else 9.0)
    asked = sorted({model.asked for model in models})
    judged = sorted({judges_named(model.card) or "an unknown judge" for model in models})
    front = on_front(
        [[model.card.rates.of(rate).estimate if model.card.rates else nan for rate in FRONT] for model in ranked]
    )
    read = any(model.unspoken is not None for model in models)
    page = render(
        "leaderboard.html",
        chart=_chart(ranked, front),
        asked=asked,
        judged=judged,
        head=["model", *RATES, "right-action score", *(UNSPOKEN if read else ()), "answers", "on the front"],
        rows=[list(_cells(model, best, read)) for model, best in zip(ranked, front, strict=True)],
        commands=[(model.name, model.command) for model in ranked if model.command],
    )
    return document("Leaderboard", [page])


def on_front(rates: Sequence[Sequence[float]]) -> list[bool]:
    """Return for each model whether no other is at least as good in all rates and better in one; with a NaN never."""
    return [
        all(map(isfinite, own))
        and not any(other != own and all(a <= b for a, b in zip(other, own, strict=True)) for other in rates)
        for own in rates
    ]


def _chart(models: Sequence[RankedModel], front: Sequence[bool]) -> Figure | None:
    rows: list[Row] = []
    for model, best in zip(models, front, strict=True):
        x, y, third = (NO_ESTIMATE if model.card.rates is None else model.card.rates.of(rate) for rate in FRONT)
        if x.known and y.known:
            row = {"model": model.name, **fields(x, "x"), **fields(y, "y")}
            rows.append(row | {"overconfidence": fields(third)["estimate"], "front": best})
    return figure("plane", plane(rows), CAPTION, rows, COLUMNS) if rows else None


def _cells(model: RankedModel, best: bool, read: bool) -> Iterator[Shown]:
    yield Shown(model.name, model.name, link=model.report)
    for rate in RATES:
        number = NO_ESTIMATE if model.card.rates is None else model.card.rates.of(rate)
        yield shown_numbers({"": number}, percent=True, unknown="none judged")
    yield shown_numbers({"": model.card.right_action.score}, percent=False, unknown="none judged")
    if read:
        every = model.unspoken.categories[0] if model.unspoken and model.unspoken.categories else None
        yield shown_numbers({"": every.auroc if every else NO_ESTIMATE}, percent=False, unknown="not read")
        yield shown_numbers({"": every.silent if every else NO_ESTIMATE}, percent=True, unknown="not read")
    yield Shown(f"{model.card.n:,}", model.card.n)
    yield Shown("yes" if best else "", int(best))


def shown_numbers(numbers: Mapping[str, Estimate], *, percent: bool, unknown: str = "") -> Shown:
    """Return a cell of numbers with their intervals, one a line in its CSS class; sorted by the first."""
    scale, digits, unit = (100.0, ".1f", " %") if percent else (1.0, ".2f", "")
    lines = []
    for style, number in numbers.items():
        if number.known:
            estimate, low, high = (f"{scale * value:{digits}}" for value in number.limits())
            lines.append((style, f"{estimate}{unit}", f"[{low}, {high}]"))
    first = next(iter(numbers.values()))
    return Shown("" if lines else unknown, first.estimate if first.known else None, lines)
