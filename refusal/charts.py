"""Charts of results as Altair specifications: one for notebook, page and paper; `.save` writes PNG, SVG and HTML."""

from __future__ import annotations

import altair as alt
import pandas as pd

Chart = alt.LayerChart | alt.FacetChart | alt.Chart
INTERVAL_OPACITY = 0.18
MOST_ROWS = 5000  # of a DataFrame that altair takes
GRID_WIDTH, GRID_HEIGHT = 420, 240


def auroc_by_layer(frame: pd.DataFrame, reference: float | None, title: str) -> Chart:
    """Draw AUROC over layers, a line a position with its 95 % band; chance, and bag of words where it is known.

    Args:
        frame: columns layer, position, auroc, auroc_low, auroc_high.
        reference: the AUROC of a bag of words on the same folds.
    """
    x = alt.X("layer:O", title="layer", axis=alt.Axis(labelAngle=0))
    scale = alt.Scale(domain=[min(0.4, float(frame["auroc_low"].min())), 1.0])
    legend = alt.Legend(title="position", symbolOpacity=1)
    colour = alt.Color("position:N", legend=legend, sort=list(dict.fromkeys(frame["position"])))
    base = alt.Chart(_of_any_length(frame)).encode(x=x, color=colour)
    band = base.mark_area(opacity=INTERVAL_OPACITY).encode(alt.Y("auroc_low:Q", scale=scale), alt.Y2("auroc_high:Q"))
    line = base.mark_line(point=True).encode(
        alt.Y("auroc:Q", scale=scale, title="AUROC (95 % interval)"),
        tooltip=[
            "layer:O",
            "position:N",
            *(alt.Tooltip(f"auroc{end}:Q", format=".3f") for end in ("", "_low", "_high")),
        ],
    )  # fmt: skip
    rules = [(0.5, "chance"), *([(reference, "bag of words")] if reference is not None else [])]
    levels = alt.Chart(pd.DataFrame(rules, columns=["auroc", "reference"]))
    level = levels.mark_rule(strokeDash=[4, 4], color="gray").encode(y="auroc:Q", tooltip=["reference"])
    named = levels.mark_text(align="left", dy=-6, color="gray").encode(x=alt.value(4), y="auroc:Q", text="reference")
    return alt.layer(band, line, level, named).properties(width=GRID_WIDTH, height=GRID_HEIGHT, title=title)


def rates_before_after(frame: pd.DataFrame, title: str) -> Chart:
    """Draw the joint rates before and after, each with its 95 % interval.

    Args:
        frame: columns rate, when, value, low, high, n.
    """
    base = alt.Chart(frame).encode(
        x=alt.X("rate:N", title=None, sort=None, axis=alt.Axis(labelAngle=0, labelLimit=160)),
        xOffset=alt.XOffset("when:N", sort=None),
        color=alt.Color("when:N", title=None, sort=None),
    )
    axis = alt.Axis(format="%", title="share of prompts (95 % interval)")
    point = base.mark_point(filled=True, size=70).encode(
        alt.Y("value:Q", axis=axis, scale=alt.Scale(domain=[0, 1])),
        tooltip=["rate", "when", alt.Tooltip("value:Q", format=".1%"), alt.Tooltip("low:Q", format=".1%"),
                 alt.Tooltip("high:Q", format=".1%"), "n"],
    )  # fmt: skip
    return alt.layer(base.mark_rule().encode(alt.Y("low:Q"), alt.Y2("high:Q")), point).properties(
        width=GRID_WIDTH, height=GRID_HEIGHT, title=title
    )


def effect_matrix(frame: pd.DataFrame, title: str) -> Chart:
    """Draw a behaviour's rate under each intervention as a heat map with its numbers.

    Args:
        frame: columns intervention, behaviour, rate, low, high.
    """
    base = alt.Chart(frame).encode(
        x=alt.X("behaviour:N", title=None, sort=None, axis=alt.Axis(labelAngle=-25, labelLimit=240)),
        y=alt.Y("intervention:N", title=None, sort=None, axis=alt.Axis(labelLimit=240)),
        tooltip=["intervention", "behaviour", *(alt.Tooltip(f"{c}:Q", format=".1%") for c in ("rate", "low", "high"))],
    )
    colour = alt.Color("rate:Q", scale=alt.Scale(domain=[0, 1], scheme="blues"), title="share")
    dark = alt.condition("datum.rate > 0.6", alt.value("white"), alt.value("black"))
    text = base.mark_text().encode(text=alt.Text("rate:Q", format=".0%"), color=dark)
    return alt.layer(base.mark_rect().encode(color=colour), text).properties(width=GRID_WIDTH, title=title)


def word_scores(frame: pd.DataFrame, title: str) -> Chart:
    """Draw what each word of a request adds to the onset log-odds of refusing.

    Args:
        frame: columns word, score (nats), in the order of the request.
    """
    numbered = frame.assign(place=range(len(frame)))
    return (
        alt.Chart(numbered)
        .mark_bar()
        .encode(
            x=alt.X("score:Q", title="adds to the log-odds of refusing (nats)"),
            y=alt.Y("place:O", title=None, axis=alt.Axis(labelExpr=_labels(frame["word"]))),
            color=alt.condition("datum.score > 0", alt.value("#c44e52"), alt.value("#4c72b0")),
            tooltip=["word", alt.Tooltip("score:Q", format=".2f")],
        )
        .properties(width=GRID_WIDTH, title=title)
    )


def _of_any_length(frame: pd.DataFrame) -> pd.DataFrame | alt.InlineData:
    """Return a table that altair takes: of a DataFrame it refuses more than 5,000 rows."""
    if len(frame) <= MOST_ROWS:
        return frame
    known = frame.astype(object)
    return alt.InlineData(values=known.where(known.notna(), None).to_dict("records"))


def _labels(words: pd.Series) -> str:
    """Return a Vega expression that names each place by its word; a word may come twice."""
    quoted = ", ".join("'" + str(word).replace("\\", "\\\\").replace("'", "\\'") + "'" for word in words)
    return f"[{quoted}][datum.value]"
