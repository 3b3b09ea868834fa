"""Charts that notebooks alone have; those of a finished run are the page's own. `.save` writes PNG, SVG and HTML."""

from __future__ import annotations

import altair as alt
import pandas as pd

from experiments.charts.specification import Chart, Row, data_of

INTERVAL_OPACITY = 0.18
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
    known = frame.astype(object)
    rows: list[Row] = [dict(row) for row in known.where(known.notna(), None).to_dict("records")]
    base = alt.Chart(data_of(rows)).encode(x=x, color=colour)
    band = base.mark_area(opacity=INTERVAL_OPACITY).encode(alt.Y("auroc_low:Q", scale=scale), alt.Y2("auroc_high:Q"))
    limits = [alt.Tooltip(f"auroc{end}:Q", format=".3f") for end in ("", "_low", "_high")]
    y = alt.Y("auroc:Q", scale=scale, title="AUROC (95 % interval)")
    line = base.mark_line(point=True).encode(y, tooltip=["layer:O", "position:N", *limits])
    rules = [(0.5, "chance"), *([(reference, "bag of words")] if reference is not None else [])]
    levels = alt.Chart(pd.DataFrame(rules, columns=["auroc", "reference"]))
    level = levels.mark_rule(strokeDash=[4, 4], color="gray").encode(y="auroc:Q", tooltip=["reference"])
    named = levels.mark_text(align="left", dy=-6, color="gray").encode(x=alt.value(4), y="auroc:Q", text="reference")
    return alt.layer(band, line, level, named).properties(width=GRID_WIDTH, height=GRID_HEIGHT, title=title)


def word_scores(frame: pd.DataFrame, title: str) -> Chart:
    """Draw what each word of a request adds to the onset log-odds of refusing; columns word, score (nats), in order."""
    numbered = frame.assign(place=range(len(frame)))
    quoted = ", ".join("'" + str(word).replace("\\", "\\\\").replace("'", "\\'") + "'" for word in frame["word"])
    labels = f"[{quoted}][datum.value]"  # a Vega expression: a word may come twice
    return (
        alt.Chart(numbered)
        .mark_bar()
        .encode(
            x=alt.X("score:Q", title="adds to the log-odds of refusing (nats)"),
            y=alt.Y("place:O", title=None, axis=alt.Axis(labelExpr=labels)),
            color=alt.condition("datum.score > 0", alt.value("#c44e52"), alt.value("#4c72b0")),
            tooltip=["word", alt.Tooltip("score:Q", format=".2f")],
        )
        .properties(width=GRID_WIDTH, title=title)
    )
